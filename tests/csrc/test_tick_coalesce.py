"""Ticks keep their distance while many are heard who speak seldom, and at no other time."""

from typing import Any

import pytest

from tests.internals import ffi, lib

MS = 1_000_000
DISTANCE = 2 * MS
SELDOM = 10  # ms of silence: a hundred messages a second
SOON = 1  # who got an answer and speaks again


def after(ticks: int, heard: int, silent_ms: int, apart: int = DISTANCE) -> tuple[Any, int]:
    """So many ticks, each of which heard so many; and when the last one began."""
    crowd = ffi.new("om_coalesce *")
    now = 5_000 * MS
    lib.om_coalesce_tick(crowd, now)
    for _ in range(ticks):
        for _ in range(heard):
            lib.om_coalesce_heard(crowd, silent_ms)
        now += apart
        lib.om_coalesce_tick(crowd, now)
    return crowd, now


def test_a_crowd_is_gathered_for_two_milliseconds() -> None:
    crowd, now = after(ticks=3, heard=100, silent_ms=SELDOM)
    assert lib.om_coalesce_next(crowd) == now + DISTANCE


def test_small_ticks_of_a_crowd_are_seen_together() -> None:
    crowd, now = after(ticks=40, heard=10, silent_ms=SELDOM, apart=MS // 10)
    assert lib.om_coalesce_next(crowd) == now + DISTANCE


@pytest.mark.parametrize(
    ("heard", "silent_ms"),
    [(0, 0), (5, SELDOM), (1000, SOON)],
    ids=["nobody", "a few", "many who wait for their answers"],
)
def test_nobody_else_waits(heard: int, silent_ms: int) -> None:
    crowd, _ = after(ticks=3, heard=heard, silent_ms=silent_ms)
    assert lib.om_coalesce_next(crowd) == 0


def test_a_crowd_that_has_gone_is_not_waited_for() -> None:
    crowd, now = after(ticks=3, heard=100, silent_ms=SELDOM)
    lib.om_coalesce_tick(crowd, now + DISTANCE)
    assert lib.om_coalesce_next(crowd) == 0


def test_as_many_in_a_longer_time_are_no_crowd() -> None:
    crowd, _ = after(ticks=3, heard=100, silent_ms=SELDOM, apart=20 * MS)
    assert lib.om_coalesce_next(crowd) == 0
