"""Publishers are held back: each reason for it is told, also while another one stood before."""

import dataclasses
import logging
from pathlib import Path
from typing import Any

import pytest

from ottermq.engine import alarms
from ottermq.engine.events import AlarmChanged
from tests.engine.plane import Plane
from tests.wal.stores import SMALL

EVERYTHING = 1 << 30
HARDLY_ANY_DISK = dataclasses.replace(SMALL, low_space_limit=1 << 60, wal_max_size=64 << 20)


def test_another_reason_for_an_alarm_is_told(tmp_path: Path) -> None:
    plane = Plane(tmp_path)
    plane.queue("work")
    plane.close()
    plane = Plane(tmp_path, HARDLY_ANY_DISK)
    try:
        plane.queue("work")
        client = plane.client()
        told: list[str] = []

        def is_told(reason: str) -> bool:
            if not told:  # no new file can be made for the WAL
                client.publish(b"x" * 50_000, "work")
            told[:] = [event.reason for event in plane.events_like(AlarmChanged)]
            return bool(told) and told[-1] == reason

        plane.wait(lambda: is_told("low on disk"))
        plane.engine.set_limits(memory_limit=1, max_message_size=EVERYTHING)
        plane.wait(lambda: is_told("low on memory"))
        plane.engine.set_limits(memory_limit=EVERYTHING, max_message_size=EVERYTHING)
        plane.wait(lambda: is_told("low on disk"))
        assert told == ["low on disk", "low on memory", "low on disk"]
    finally:
        plane.close()


MEMORY, DISK, STALLED = "low on memory", "low on disk", "disk writes stalled"


@pytest.mark.parametrize(
    ("before", "reason", "lines"),
    [
        ("", MEMORY, ["memory alarm set reason"]),
        (MEMORY, "", ["memory alarm cleared"]),
        (MEMORY, DISK, ["memory alarm cleared", "disk alarm set reason"]),
        (STALLED, MEMORY, ["disk alarm cleared", "memory alarm set reason"]),
        (DISK, STALLED, ["disk alarm set reason"]),
        (STALLED, "", ["disk alarm cleared"]),
    ],
)
def test_the_log_says_which_alarm_stands(
    before: str,
    reason: str,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "ottermq")
    monkeypatch.setattr(alarms, "_measured", lambda engine, reason: {})
    nobody: Any = None
    alarms.tell_change(nobody, before, reason)
    assert [line.partition("=")[0] for line in caplog.messages] == lines
