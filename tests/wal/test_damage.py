"""Files that somebody cut, removed, replaced or spoilt: told once, passed over; the rest serves.

Under a running store a segment that can't be read answers Unreadable and where to go on; found
at a start, what lies below the recovery point is reported with its range and set aside.
"""

import ctypes
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ottermq.wal import Log, LogFlags, Record, RemovalReason, Report, ReportKind, Store
from ottermq.wal.errors import LogError, StorageFailure, Unreadable
from tests.wal.stores import (
    append,
    flush,
    kinds,
    numbered,
    numbers,
    offsets,
    put,
    segment_files,
    small,
)

# 4 segments of 5 batches of one record, and one that is active.
SEGMENT = 5 * (61 + 1000 + 20)
OPTIONS = small(segment_size=SEGMENT, open_files=4)
COUNT = 24


def filled(store: Store, flags: LogFlags = LogFlags.NO_CURSOR, name: str = "q") -> Log:
    log = store.create(name, flags=flags)
    for n in range(COUNT):
        put(store, log, numbered(1, n, size=1000))
    flush(store)
    assert [s.base_offset for s in log.segments()] == [0, 5, 10, 15, 20]
    return log


def read_over(log: Log) -> tuple[list[int], list[Unreadable]]:
    """All that can be read, going on after what can't."""
    found: list[int] = []
    errors: list[Unreadable] = []
    at = log.stat().start_offset
    while at < log.stat().next_offset:
        try:
            for batch in log.read(at, max_bytes=1):
                found += [record.offset for record in batch.records()]
                at = batch.last_offset + 1
        except Unreadable as error:
            errors.append(error)
            assert error.next_offset > at
            at = error.next_offset
    return found, errors


def cut(path: Path) -> None:
    os.truncate(path, 100)


def cut_to_nothing(path: Path) -> None:
    os.truncate(path, 0)


def remove(path: Path) -> None:
    path.unlink()


def replace_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def spoil(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(2 * (SEGMENT // 5) + 500)
        file.write(b"not what was here")


def punch_a_hole(path: Path) -> None:
    """Blocks given back to the disk: they read as zeros, and the file is as long as before."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(path, os.O_RDWR)
    hole, length = 4096, path.stat().st_size - 4096
    result = libc.fallocate(fd, 1 | 2, ctypes.c_int64(hole), ctypes.c_int64(length))
    os.close(fd)
    assert result == 0, os.strerror(ctypes.get_errno())


ALL_OF_IT = set(range(5, 10))
WAYS: dict[Callable[[Path], None], set[int]] = {  # what each costs
    cut: ALL_OF_IT,
    cut_to_nothing: ALL_OF_IT,
    remove: ALL_OF_IT,
    replace_by_a_folder: ALL_OF_IT,
    spoil: {7},
    punch_a_hole: {8, 9},
}


# -- under a running store --------------------------------------------------------------------


@pytest.mark.parametrize("harm", WAYS)
@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "not mapped"])
def test_a_segment_harmed_under_us_is_told_once_and_passed_over(
    data: Path, harm: Callable[[Path], None], mapped: bool
) -> None:
    with Store.open(data, OPTIONS) as store:
        log = filled(store)
        other = filled(store, name="other")
    with Store.open(data, OPTIONS) as store:
        log, other = store.get("q"), store.get("other")
        if mapped:
            assert len(numbers(log)) == COUNT
        harm(segment_files(store, log)[1])
        if not mapped or harm in (remove, replace_by_a_folder):
            evict(other)  # what is open stays readable, as long as it is
        for _ in range(3):
            found, errors = read_over(log)
            if errors:
                assert set(found) == set(range(COUNT)) - WAYS[harm]
                assert errors[-1].next_offset == max(WAYS[harm]) + 1
            else:
                assert mapped and found == list(range(COUNT))
        if errors:
            assert [s.base_offset for s in log.segments() if s.fenced] == [5]
            reports = store.reports()
            assert kinds(reports) == [ReportKind.UNREADABLE]
            assert (reports[0].log_id, reports[0].first_offset, reports[0].last_offset) == (
                log.id,
                min(WAYS[harm]),
                max(WAYS[harm]),
            )
        assert errors or harm in (remove, replace_by_a_folder)
        assert numbers(other) == list(range(COUNT))
        put(store, log, numbered(1, COUNT))
        flush(store)
        assert numbers(log, 10) == list(range(10, COUNT + 1))


def evict(other: Log) -> None:
    """Reading the files of another log takes the few places there are for open ones."""
    assert len(numbers(other)) == COUNT


def test_a_harmed_segment_does_not_stop_a_look_up_by_time(data: Path) -> None:
    with Store.open(data, OPTIONS) as store:
        filled(store)
    with Store.open(data, OPTIONS) as store:
        log = store.get("q")
        cut(segment_files(store, log)[1])
        assert log.find_time(3) == (3, 3)
        assert log.find_time(7) in ((7, 7), (10, 10))
        assert log.find_time(12) == (12, 12)


def test_a_harmed_segment_has_no_file_range(data: Path) -> None:
    with Store.open(data, OPTIONS) as store:
        filled(store)
    with Store.open(data, OPTIONS) as store:
        log = store.get("q")
        cut_to_nothing(segment_files(store, log)[1])
        with pytest.raises(Unreadable), log.file_range(6):
            pass
        with log.file_range(11) as found:
            assert found is not None and found.first_offset == 11


def test_the_active_segment_harmed_under_us_is_left_for_a_new_one(data: Path) -> None:
    with Store.open(data, OPTIONS) as store:
        log = filled(store)
        assert numbers(log, 20) == [20, 21, 22, 23]
        cut(segment_files(store, log)[-1])
        found, errors = read_over(log)
        assert found == list(range(20)) and errors[-1].next_offset == COUNT
        assert put(store, log, numbered(2, COUNT)) == COUNT
        flush(store)
        found, _ = read_over(log)
        assert found == [*range(20), COUNT, COUNT + 1]


def purge(log: Log) -> None:
    """And what follows from it, sooner or later."""
    log.purge()
    log.trim(log.cursor().floor, RemovalReason.SETTLED)


def outgrow(log: Log) -> None:
    log.trim(log.stat().next_offset, RemovalReason.MAX_SIZE)


@pytest.mark.parametrize("go", [purge, outgrow])
@pytest.mark.parametrize("known", [True, False])
def test_a_damaged_segment_is_kept_whatever_rule_lets_it_go(
    data: Path, go: Callable[[Log], None], known: bool
) -> None:
    """Known: to this life. Else an earlier one has found it."""
    with Store.open(data, OPTIONS) as store:
        filled(store, LogFlags(0))
    with Store.open(data, OPTIONS) as store:
        log = store.get("q")
        path = segment_files(store, log)[1]
        spoil(path)
        spoilt = path.read_bytes()
        assert read_over(log)[1]
        if known:
            go(log)
    if not known:
        with Store.open(data, OPTIONS) as store:
            go(store.get("q"))
    assert not path.exists()
    assert path.with_name(f"{path.name}.corrupt-1").read_bytes() == spoilt
    with Store.open(data, OPTIONS) as store:
        assert read_over(store.get("q")) == ([], [])


def test_a_trimmed_segment_is_out_of_range_and_not_unreadable(data: Path) -> None:
    """A reader that comes late, while the file is being removed."""
    with Store.open(data, OPTIONS) as store:
        log = filled(store)
        store.wait(log.trim(12))
        store.checkpoint()
        for offset in range(12):
            with pytest.raises(LogError) as refused:
                log.read(offset)
            assert type(refused.value).__name__ == "OutOfRange"
        assert store.reports() == []


# -- found at a start -------------------------------------------------------------------------


def corrupt(reports: list[Report]) -> list[tuple[int, int]]:
    return [
        (report.first_offset, report.last_offset)
        for report in reports
        if report.kind is ReportKind.CORRUPT
    ]


@pytest.mark.parametrize("flags", [LogFlags(0), LogFlags.NO_CURSOR], ids=["queue", "stream"])
@pytest.mark.parametrize("index", [0, 2, 3, 4], ids=["first", "middle", "last sealed", "active"])
@pytest.mark.parametrize("harm", [cut, cut_to_nothing, remove, replace_by_a_folder])
def test_a_loss_below_the_recovery_point_is_reported_with_its_range_and_the_rest_serves(
    data: Path, harm: Callable[[Path], None], index: int, flags: LogFlags
) -> None:
    with Store.open(data, OPTIONS) as store:
        log = filled(store, flags)
        harmed = segment_files(store, log)[index]
    harm(harmed)
    first, last = index * 5, min(index * 5 + 4, COUNT - 1)
    left = [n for n in range(COUNT) if not first <= n <= last]
    with Store.open(data, OPTIONS) as store:
        log = store.get("q")
        reports = store.reports()
        assert corrupt(reports) == [(first, last)], reports
        assert "q" in reports[0].text
        assert numbers(log) == offsets(log) == left
        if not flags:
            assert log.cursor().ready_count == len(left)
            assert log.acquire(100) == left
        assert log.stat().next_offset >= COUNT
        more = put(store, log, numbered(1, COUNT))
        assert more >= COUNT
        flush(store)
        assert numbers(log) == [*left, COUNT]
    if harm is not remove:
        assert [p.name for p in harmed.parent.glob("*.corrupt-*")] == [f"{harmed.name}.corrupt-1"]
    assert not harmed.exists() or harmed.is_file()
    with Store.open(data, OPTIONS) as store:
        log = store.get("q")
        assert store.reports() == [], "told already"
        assert numbers(log) == [*left, COUNT]


def test_a_loss_is_told_once_though_nothing_is_written_after_it(data: Path) -> None:
    with Store.open(data, OPTIONS) as store:
        log = filled(store)
        harmed = segment_files(store, log)
    harmed[-1].unlink()
    harmed[1].unlink()
    with Store.open(data, OPTIONS) as store:
        assert sorted(corrupt(store.reports())) == [(5, 9), (20, 23)]
    for _ in range(2):
        with Store.open(data, OPTIONS) as store:
            assert store.reports() == []
            assert numbers(store.get("q")) == [*range(5), *range(10, 20)]
            assert store.get("q").stat().next_offset == COUNT


def test_all_files_of_a_log_are_gone(data: Path) -> None:
    with Store.open(data, OPTIONS) as store:
        log = filled(store, LogFlags(0))
        other = filled(store, name="other")
        folder = segment_files(store, log)[0].parent
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    with Store.open(data, OPTIONS) as store:
        log, other = store.get("q"), store.get("other")
        lost = {n for a, b in corrupt(store.reports()) for n in range(a, b + 1)}
        assert lost >= set(range(20, COUNT))
        assert numbers(log) == []
        assert put(store, log, numbered(1)) >= COUNT
        assert numbers(other) == list(range(COUNT))


def test_a_spoilt_batch_below_the_recovery_point_is_found_when_it_is_read(data: Path) -> None:
    """A start doesn't read what a checkpoint has vouched for; its checksum is looked at later."""
    with Store.open(data, OPTIONS) as store:
        log = filled(store)
        harmed = segment_files(store, log)[1]
    spoil(harmed)
    with Store.open(data, OPTIONS) as store:
        log = store.get("q")
        assert store.reports() == []
        found, errors = read_over(log)
        assert set(found) == set(range(COUNT)) - {7}
        assert errors and kinds(store.reports()) == [ReportKind.UNREADABLE]


def test_a_checkpoint_that_is_spoilt_is_not_believed(data: Path) -> None:
    with Store.open(data, OPTIONS) as store:
        filled(store, LogFlags(0))
    raw = bytearray((data / "checkpoint").read_bytes())
    for position in (0, 9, 20, 60, len(raw) - 1):
        spoilt = raw.copy()
        spoilt[position] ^= 0x40
        (data / "checkpoint").write_bytes(spoilt)
        with pytest.raises(StorageFailure, match="checkpoint is damaged"):
            Store.open(data, OPTIONS)
    # As the message says: without it all is read from the segments, and nothing is lost.
    (data / "checkpoint").unlink()
    with Store.open(data, OPTIONS) as store:
        assert numbers(store.get("q")) == list(range(COUNT))
        assert store.get("q").cursor().ready_count == COUNT


def test_a_manifest_that_is_spoilt_or_gone_is_made_again(data: Path) -> None:
    with Store.open(data, OPTIONS) as store:
        log = filled(store)
        manifest = segment_files(store, log)[0].parent / "manifest"
    good = manifest.read_bytes()
    for spoilt in (
        None,
        b"",
        good[:-1],
        good.replace(b"segment 5 10", b"segment 5 11"),
        b"\0" * 99,
    ):
        if spoilt is None:
            manifest.unlink()
        else:
            manifest.write_bytes(spoilt)
        with Store.open(data, OPTIONS) as store:
            assert numbers(store.get("q")) == list(range(COUNT))
            assert ReportKind.CORRUPT not in kinds(store.reports())
        assert manifest.read_bytes() == good


# -- indexes ----------------------------------------------------------------------------------

BIG = small(segment_size=100_000)


def indexed(store: Store) -> Log:
    log = store.create("q", flags=LogFlags.NO_CURSOR)
    for n in range(200):
        append(log, [Record(b"%d" % n + b"." * 2000, timestamp=n * 10)])
    flush(store)
    return log


def spoilt_index(path: Path, how: str) -> None:
    raw = path.read_bytes()
    chance = random.Random(path.name + how)
    if how == "gone":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "short":
        path.write_bytes(raw[: len(raw) // 2 + 3])
    elif how == "noise":
        path.write_bytes(chance.randbytes(len(raw)))
    elif how == "zeros":
        path.write_bytes(bytes(len(raw)))
    elif how == "shifted":  # sorted, in bounds, and wrong
        size = 8 if path.suffix == ".index" else 12
        path.write_bytes(raw[size:] + raw[-size:])
    elif how == "of another":
        others = sorted(p for p in path.parent.glob(f"*{path.suffix}") if p != path)
        path.write_bytes(others[0].read_bytes())
    elif how == "a folder":
        path.unlink()
        path.mkdir()


WAYS_OF_AN_INDEX = ["gone", "empty", "short", "noise", "zeros", "shifted", "of another", "a folder"]


@pytest.mark.parametrize("how", WAYS_OF_AN_INDEX)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_wrong_index_gives_right_answers(data: Path, suffix: str, how: str) -> None:
    with Store.open(data, BIG) as store:
        folder = segment_files(store, indexed(store))[0].parent
    files = sorted(folder.glob(f"*{suffix}"))
    assert len(files) >= 3
    for path in files:
        spoilt_index(path, how)
    with Store.open(data, BIG) as store:
        log = store.get("q")
        for n in random.Random(how).sample(range(200), 60):
            assert log.read(n, max_bytes=1)[0].base_offset == n
            assert log.find_time(n * 10 - 5) == (n, n * 10)
        assert offsets(log) == list(range(200))
        assert store.reports() == []
        put(store, log, [Record(b"more", timestamp=5000)])
        flush(store)
    with Store.open(data, BIG) as store:
        assert offsets(store.get("q")) == list(range(201))
        assert store.get("q").find_time(4000) == (200, 5000)
