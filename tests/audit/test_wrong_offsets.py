"""A base offset has no checksum: audits hold it against the next batch's, and lose only its own."""

import pytest

from ottermq.audit.source.decode import MOST, Reading, Span, Wanted
from ottermq.wal.file_window import MemoryRanges
from tests.csrc.batches import Record, build

NAMES = ["crc_ok", "position"]


def rows(*bases: int, offsets: tuple[int, int] = (0, MOST)) -> tuple[list[int], list[int]]:
    """Offsets that are right, and the batches (by number) that are damaged stretches."""
    batches = [build([Record(value=b"x" * 50)] * 10, base_offset=base) for base in bases]
    starts = [sum(map(len, batches[:number])) for number in range(len(batches))]
    data = b"".join(batches)
    right: list[int] = []
    damaged: list[int] = []
    for columns in Reading(MemoryRanges(data), Span(0, len(data), 0), Wanted(offsets)).batches(
        NAMES
    ):
        found = (columns.array(name).to_pylist() for name in ("offset", *NAMES))
        for offset, is_right, at in zip(*found, strict=True):
            if is_right:
                right.append(offset)
            else:
                damaged.append(starts.index(at))
    return right, damaged


@pytest.mark.parametrize("bit", [0, 2, 4, 40])
def test_one_that_is_too_large_costs_its_batch_and_no_other(bit: int) -> None:
    assert rows(0, 10 ^ 1 << bit, 20, 30) == ([*range(10), *range(20, 40)], [1])


def test_it_is_seen_though_it_lies_beyond_what_is_asked_for() -> None:
    assert rows(0, 10 + (1 << 40), 20, offsets=(5, 25)) == (
        [*range(5, 10), *range(20, 25)],
        [1],
    )


def test_one_that_is_too_small_costs_its_batch_and_no_other() -> None:
    assert rows(0, 10, 20 - 4, 30) == ([*range(20), *range(30, 40)], [2])


def test_a_gap_alone_is_no_damage() -> None:
    assert rows(0, 15, 40) == ([*range(10), *range(15, 25), *range(40, 50)], [])
