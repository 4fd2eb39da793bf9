"""Offsets that no batch has are told with the leader epochs around them; damage is told apart."""

from pathlib import Path

from ottermq.wal.file_window import Window
from ottermq.wal.segmentcheck import SegmentCheck
from ottermq.wal.segmentfile import Gap
from tests.csrc.batches import Record, build


def batch(base: int, count: int = 2, epoch: int = 0) -> bytes:
    return build([Record()] * count, base_offset=base, leader_epoch=epoch)


def checked(folder: Path, *batches: bytes) -> SegmentCheck:
    path = folder / f"{0:020}.log"
    path.write_bytes(b"".join(batches))
    check = SegmentCheck(0, None, None)
    with Window(path) as window:
        check.run(window, b"", b"")
    return check


def test_none_are_told_where_offsets_follow_each_other(tmp_path: Path) -> None:
    check = checked(tmp_path, batch(0), batch(2), batch(4))
    assert (check.gaps, check.flaws, check.next_offset) == ([], [], 6)


def test_each_is_told_with_the_epochs_around_it(tmp_path: Path) -> None:
    check = checked(tmp_path, batch(0), batch(5), batch(7), batch(70_000, epoch=1))
    assert check.gaps == [Gap(2, 5, 0, 0), Gap(9, 70_000, 0, 1)]
    assert check.epochs == (0, 1)


def test_there_may_be_any_number_of_them(tmp_path: Path) -> None:
    check = checked(tmp_path, *(batch(at * 3) for at in range(1000)))
    assert check.gaps == [Gap(at * 3 - 1, at * 3, 0, 0) for at in range(1, 1000)]
    assert check.batches == 1000


def test_offsets_that_a_damaged_batch_had_are_its_own_and_no_gap(tmp_path: Path) -> None:
    damaged = bytearray(batch(2))
    damaged[-1] ^= 1
    check = checked(tmp_path, batch(0), bytes(damaged), batch(4))
    assert check.gaps == []
    assert [flaw.offsets for flaw in check.flaws] == [(2, 4)]
