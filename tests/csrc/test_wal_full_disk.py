"""The WAL on a disk without space for another file: what is left of the head is for acks, for the
checkpoints that free what was acked, and for the next start, in this order."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.csrc.wals import MIB, Wal, read
from tests.faults.mounted import Filler, memory_disk
from tests.internals import lib

PATIENCE = 10.0  # seconds
LAZY_MS = 100


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with memory_disk(tmp_path / "disk", 16) as place:
        yield place


def until(true: Callable[[], object], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.005)


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Wal]:
    wal = Wal(folder, read(folder), max_size=4 * MIB, reserve=MIB, lazy_sync_ms=LAZY_MS)
    try:
        yield wal
    finally:
        wal.close()


@contextlib.contextmanager
def full(disk: Path) -> Iterator[Wal]:
    """Appends are refused: the disk takes no further file."""
    with opened(disk / "wal") as wal:
        until(lambda: wal.stat.spare_files, "no spare file")
        Filler(disk).take()
        deadline = time.monotonic() + PATIENCE
        while wal.admit() != lib.OM_E_NO_SPACE:
            assert time.monotonic() < deadline, "it isn't full"
            if wal.admit() == lib.OM_OK:
                wal.commit(b"x" * 20_000)
            else:
                time.sleep(0.005)
        yield wal


def test_what_is_under_way_leaves_room_in_the_next_file(disk: Path) -> None:
    """It is the last one, and nobody knows."""
    with opened(disk / "wal") as wal:
        until(lambda: wal.stat.spare_files, "no spare file")
        Filler(disk).take()
        for _ in range(9):
            wal.commit(b"x" * 100_000)
        while wal.admit() == lib.OM_OK:
            wal.append(b"x" * 100_000)
        wal.submit()
        assert wal.wait(wal.last_seq) == lib.OM_OK
        assert wal.admit("SETTLE") == lib.OM_OK
        wal.commit(b"ack" * 50_000)


def test_acks_that_come_one_by_one_share_blocks(disk: Path) -> None:
    """A slow consumer, too, can drain more than the head has blocks."""
    with full(disk) as wal:
        before = wal.stat.groups
        for _ in range(20):
            wal.append(b"ack")
            wal.submit(True)
            time.sleep(LAZY_MS / 1000 * 1.2)
        assert wal.stat.groups - before <= 4
        seq = wal.append(b"ack")
        wal.submit(True)
        assert wal.wait(seq) == lib.OM_OK, "who waits for it needn't wait for others"


def test_many_acks_are_written_at_once(disk: Path) -> None:
    with full(disk) as wal:
        seq = 0
        for _ in range(600):
            seq = wal.append(b"x" * 32)
        wal.submit(True)
        until(lambda: lib.om_wal_durable_seq(wal.wal) == seq, "they aren't written")


def test_acks_leave_room_for_checkpoints(disk: Path) -> None:
    """What was settled makes space by a checkpoint only, and that waits for its group."""
    with full(disk) as wal:
        while wal.admit("SETTLE") == lib.OM_OK:
            wal.append(b"x" * 200)
            wal.submit(True)
        time.sleep(LAZY_MS / 1000)
        assert wal.durable < wal.last_seq, "they took what is for checkpoints"
        for _ in range(2):
            wal.append(b"checkpoint")
            wal.submit()
            assert wal.wait(wal.last_seq) == lib.OM_OK
        Filler(disk).give_back()
        until(lambda: wal.admit("SETTLE") == lib.OM_OK, "it doesn't heal")
        until(lambda: wal.admit() == lib.OM_OK, "it doesn't heal")


def test_with_nothing_left_a_small_file_will_do(disk: Path) -> None:
    with full(disk) as wal:
        seq = 0
        while wal.wait(seq, timeout_ms=200) == lib.OM_OK:
            seq = wal.append(b"x" * 3_000)
            wal.submit()
        Filler(disk).give_back()
        Filler(disk).take(left=100 << 10)
        assert wal.wait(seq) == lib.OM_OK
        assert wal.admit() == lib.OM_E_NO_SPACE
        assert wal.admit("SETTLE") == lib.OM_OK
        last = wal.live().entries[-1]
        assert (last.seq, last.payload) == (seq, b"x" * 3_000)
    assert read(disk / "wal").seqs == list(range(1, seq + 1))


def test_after_many_starts_a_spare_file_is_made_all_the_same(disk: Path) -> None:
    """Starts leave small files: without a spare one a full disk would be known too late."""
    folder = disk / "wal"
    for _ in range(8):
        with opened(folder) as wal:
            wal.commit(b"little")
    with opened(folder) as wal:
        assert wal.stat.files > 4
        until(lambda: wal.stat.spare_files, "no spare file")
