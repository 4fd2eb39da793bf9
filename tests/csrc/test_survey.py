"""What a survey makes of base offsets, which no checksum covers: one of two neighbours is wrong."""

from pathlib import Path

import pytest

from tests.csrc.batches import Record, build
from tests.internals import ffi, lib

NO_END = (1 << 64) - 1


def batch(base: int, count: int = 10, epoch: int = 0) -> bytes:
    return build([Record(value=b"x" * 50)] * count, base_offset=base, leader_epoch=epoch)


def surveyed(path: Path, *bases: int, limit: int = 50) -> list[tuple[int, int, int]]:
    """(number of the batch, first offset, last offset) of each bad stretch."""
    batches = [batch(base) for base in bases]
    starts = [sum(map(len, batches[:n])) for n in range(len(batches) + 1)]
    path.write_bytes(b"".join(batches))
    out = ffi.new("om_survey *")
    assert lib.om_survey_file(str(path).encode(), 0, NO_END, limit, out) == lib.OM_OK
    found = [out.items[i] for i in range(out.count)]
    assert all(each.end in starts for each in found)
    result = [(starts.index(each.position), each.first, each.last) for each in found]
    lib.om_survey_free(out)
    return result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{0:020}.log"


def test_offsets_that_grow_are_right_whatever_lies_between(path: Path) -> None:
    assert surveyed(path, 0, 10, 20, 30, 40) == []
    assert surveyed(path, 0, 15, 30, 40) == []


def test_one_that_is_too_large_shows_by_the_next(path: Path) -> None:
    assert surveyed(path, 0, 10 + 16, 20, 30, 40) == [(1, 10, 19)]
    assert surveyed(path, 0, 10 + (1 << 40), 20, 30, 40) == [(1, 10, 19)]
    assert surveyed(path, 0 + 2, 10, 20, 30, 40) == [(0, 0, 9)]


def test_one_that_is_too_small_shows_by_the_one_before(path: Path) -> None:
    assert surveyed(path, 0, 10, 20 - 4, 30, 40) == [(2, 20, 29)]


def test_the_last_one_shows_by_the_end_of_the_log(path: Path) -> None:
    assert surveyed(path, 0, 10, 20, 30, 40 + 1) == [(4, 40, 49)]


def test_of_two_behind_a_gap_the_one_without_room_before_the_other_is_right(path: Path) -> None:
    """10 to 19 were settled. 30 ^ 16 is 14: the ten of the one before don't fit below that."""
    assert surveyed(path, 0, 20, 30 ^ 16, 40) == [(2, 30, 39)]


def test_of_two_behind_a_gap_the_one_that_closes_it_is_right(path: Path) -> None:
    """10 to 39 were settled. Either might be wrong; the third tells."""
    assert surveyed(path, 0, 40, 50 ^ 16, 60, limit=70) == [(2, 50, 59)]
    assert surveyed(path, 0, 40 + 16, 50, limit=60) == [(1, 10, 49)]
    assert surveyed(path, 0, 40, 50 ^ 16, limit=60) == [(2, 50, 59)]


def test_where_nothing_tells_neither_is_believed(path: Path) -> None:
    assert surveyed(path, 0, 40 + 4, 50, 80, limit=90) == [(1, 10, 79)]
    assert surveyed(path, 0, 40 + 16, 50, 60, limit=70) == [(1, 10, 49)], "two against one"
