"""Segments as a log's user meets them: when they roll, how offsets and times are found over them
and the hot tail, and what a file range gives."""

import bisect
import os
import select
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from ottermq.wal import Log, LogFlags, LogOptions, Record, Store
from ottermq.wal.errors import NotResident
from ottermq.wal.records import batches
from tests.examples import examples
from tests.wal.stores import (
    append,
    flush,
    folder_of,
    numbered,
    numbers,
    put,
    segment_files,
    small,
    values,
)

PAGE = LogOptions(segment_size=4096)


def over_segments_and_hot_tail(store: Store, size: int = 0, segment_size: int = 600) -> Log:
    """60 batches of 3 records: 40 in many segments, 20 in memory. Timestamp = offset * 10."""
    options = LogOptions(segment_size=segment_size)
    log = store.create("orders", flags=LogFlags.NO_CURSOR, options=options)
    for first in range(0, 180, 3):
        if first == 120:
            flush(store)
        records = [replace(r, timestamp=r.offset * 10) for r in located(first, 3, size)]
        store.wait(append(log, records).seq)
    # On a slow machine the WAL may ask for a checkpoint in between, and nothing is in memory then.
    assert log.stat().hot_batches in (0, 20) and len(log.segments()) > 2
    return log


def located(first: int, count: int, size: int) -> list[Record]:
    return [replace(r, offset=first + n) for n, r in enumerate(numbered(count, first, size))]


# Without index entries, with some in each segment, with some in memory.
LAYOUTS = [(0, 600), (3000, 100_000), (9000, 500_000)]


# -- rolling ----------------------------------------------------------------------------------


def test_a_segment_rolls_before_it_would_pass_its_size(store: Store) -> None:
    log = store.create("orders", options=PAGE)
    for n in range(40):
        put(store, log, numbered(1, n, size=900))
    flush(store)
    segments = log.segments()
    assert len(segments) == 10
    assert all(segment.size <= 4096 for segment in segments)
    assert [s.sealed for s in segments] == [True] * 9 + [False]
    assert [s.base_offset for s in segments] == [0] + [s.next_offset for s in segments[:-1]]
    assert [int(file.stem) for file in segment_files(store, log)] == [
        s.base_offset for s in segments
    ]
    assert [file.stat().st_size for file in segment_files(store, log)] == [s.size for s in segments]
    assert numbers(log) == list(range(40))


def test_a_batch_larger_than_a_segment_has_one_for_itself(store: Store) -> None:
    log = store.create("orders", options=PAGE)
    for size in (100, 20_000, 100):
        put(store, log, numbered(1, size, size=size))
    flush(store)
    assert [(s.base_offset, s.next_offset) for s in log.segments()] == [(0, 1), (1, 2), (2, 3)]
    assert numbers(log) == [100, 20_000, 100]


def test_a_segment_rolls_when_its_first_record_is_old(store: Store) -> None:
    now = Record(None).timestamp
    log = store.create("orders", options=LogOptions(segment_max_age_ms=10_000))
    for age in (60_000, 55_000, 45_000, 44_000, 0):
        put(store, log, [Record(b"x", timestamp=now - age)])
    flush(store)
    assert [s.base_offset for s in log.segments()] == [0, 2, 4]


def test_a_log_goes_on_in_its_last_segment_after_a_restart(data: Path) -> None:
    with Store.open(data, small()) as store:
        put(store, store.create("orders"), numbered(3))
    with Store.open(data, small()) as store:
        put(store, store.get("orders"), numbered(3, 3))
        flush(store)
        assert len(store.get("orders").segments()) == 1
        assert numbers(store.get("orders")) == list(range(6))


# -- the file ---------------------------------------------------------------------------------


def test_the_first_file_comes_with_the_first_record(store: Store) -> None:
    log = store.create("orders")
    store.checkpoint()
    assert not list(store.data.glob("vhosts/**/*"))
    put(store, log, numbered(1))
    flush(store)
    assert [f.name for f in segment_files(store, log)] == ["00000000000000000000.log"]


def test_blocks_are_allocated_ahead_and_given_back_when_sealed(store: Store) -> None:
    log = store.create("orders", options=LogOptions(segment_size=256 << 10))
    for n in range(20):
        put(store, log, numbered(1, n, size=20_000))
    flush(store)
    *sealed, active = [file.stat() for file in segment_files(store, log)]
    assert sealed and all(s.st_blocks * 512 < s.st_size + 8192 for s in sealed)
    assert active.st_blocks * 512 >= 65536 > 0
    assert active.st_size == log.segments()[-1].size


def test_kafkas_own_reader_reads_our_files(store: Store) -> None:
    log = store.create("orders")
    sent = [
        Record(b"%d" % n, b"key" if n % 2 else None, ((b"h", b"v"),) if n % 3 else (), 1000 + n)
        for n in range(50)
    ]
    for n in range(0, 50, 5):
        put(store, log, sent[n : n + 5])
    flush(store)
    [file] = segment_files(store, log)
    reader = MemoryRecords(file.read_bytes())
    found = []
    while (batch := reader.next_batch()) is not None:
        assert batch.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert found == [
        (n, r.timestamp, r.key, r.value, tuple((k.decode(), v) for k, v in r.headers))
        for n, r in enumerate(sent)
    ]


# -- by offset --------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "segment_size"), LAYOUTS)
def test_every_offset_is_found_in_segments_and_hot_tail(
    store: Store, size: int, segment_size: int
) -> None:
    log = over_segments_and_hot_tail(store, size, segment_size)
    for offset in range(180):
        batch = log.read(offset, max_bytes=1)[0]
        assert batch.base_offset == offset // 3 * 3
    assert numbers(log) == list(range(180))


@pytest.mark.parametrize("offset", [0, 1, 58, 119, 120, 179])
def test_a_reader_that_goes_on_from_its_last_batch_sees_all(store: Store, offset: int) -> None:
    assert numbers(over_segments_and_hot_tail(store), offset) == list(range(offset, 180))


# -- by time ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "segment_size"), LAYOUTS)
def test_a_time_is_found_in_segments_and_hot_tail(
    store: Store, size: int, segment_size: int
) -> None:
    log = over_segments_and_hot_tail(store, size, segment_size)
    for timestamp in range(-5, 1791, 5):
        offset = max(0, -(-timestamp // 10))
        assert log.find_time(timestamp) == (offset, offset * 10)
    assert log.find_time(1791) is None


@pytest.mark.parametrize(("size", "segment_size"), LAYOUTS)
def test_a_time_is_not_looked_for_below_the_start(
    store: Store, size: int, segment_size: int
) -> None:
    log = over_segments_and_hot_tail(store, size, segment_size)
    for start in (1, 50, 100, 119, 125, 170):
        log.trim(start)
        assert log.find_time(0) == (start, start * 10)
    log.trim(180)
    assert log.find_time(0) is None


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    times=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), min_size=1, max_size=30),
    written=st.integers(0, 30),
    start=st.integers(0, 60),
)
def test_the_first_record_not_older_is_found_in_any_order_of_times(
    store: Store, times: list[list[int]], written: int, start: int
) -> None:
    flat = [timestamp for batch in times for timestamp in batch]
    start = min(start, len(flat))
    options = LogOptions(segment_size=400)
    log = store.create(f"log {len(store)}", flags=LogFlags.NO_CURSOR, options=options)
    for n, batch in enumerate(times):
        if n == written:
            flush(store)
        done = log.append([Record(b"x", timestamp=timestamp) for timestamp in batch])
    store.wait(done.seq)
    log.trim(start)
    for wanted in range(42):
        expected = [(o, t) for o, t in enumerate(flat) if t >= wanted and o >= start]
        assert log.find_time(wanted) == (expected[0] if expected else None)


# -- ranges for sendfile ----------------------------------------------------------------------


def sent_by_the_kernel(log: Log, offset: int, target: Path, **limits: int) -> bytes:
    with log.file_range(offset, **limits) as found, target.open("wb") as out:
        assert found is not None
        assert os.sendfile(out.fileno(), found.fd, found.position, found.length) == found.length
        assert found.first_offset <= offset < found.next_offset
    return target.read_bytes()


def test_a_file_range_is_exactly_the_batches_of_a_read(store: Store, tmp_path: Path) -> None:
    log = over_segments_and_hot_tail(store)
    bases = [s.base_offset for s in log.segments()]
    for offset in (0, 1, 2, 3, 57, 118, 119):
        for max_bytes in (1, 500, 1 << 20):
            sent = sent_by_the_kernel(log, offset, tmp_path / "out", max_bytes=max_bytes)
            assert sent == b"".join(b.data for b in log.read(offset, max_bytes=max_bytes))
    for offset in (10, 100):
        sent = sent_by_the_kernel(log, offset, tmp_path / "out")
        here = bisect.bisect(bases, offset)
        assert [b.base_offset for b in batches(sent)][-1] < (bases[here : here + 1] or [120])[0]


def test_there_is_no_file_range_for_what_is_only_in_memory(store: Store) -> None:
    log = over_segments_and_hot_tail(store)
    for offset in (120, 150, 179):
        with log.file_range(offset) as found:
            assert found is None


def test_a_file_range_outlives_its_segment(store: Store, data: Path) -> None:
    log = over_segments_and_hot_tail(store)
    whole = b"".join(b.data for b in log.read(0))
    with log.file_range(0) as found:
        assert found is not None
        store.wait(log.trim(180))
        store.delete(log)
        store.checkpoint()
        assert os.pread(found.fd, found.length, found.position) == whole[: found.length]


# -- what isn't in memory ---------------------------------------------------------------------


def test_a_read_that_may_not_wait_asks_and_is_told(tmp_path: Path) -> None:
    data = tmp_path / "data"  # on a disk: what lives in memory can't be evicted
    with Store.open(data, small(segment_size=256 << 10)) as store:
        log = store.create("orders")
        for n in range(40):
            put(store, log, numbered(1, n, size=20_000))
        flush(store)
        files = segment_files(store, log)
    with Store.open(data, small(segment_size=256 << 10)) as store:
        log = store.get("orders")
        evict(files)
        with pytest.raises(NotResident):
            log.read(3, nowait=True)
        asked = 1
        while True:  # look-up page, index and batch may each have to come
            assert select.select([store.event_fd], [], [], 10)[0], "nobody told us"
            os.read(store.event_fd, 8)
            try:
                [first, *_] = log.read(3, nowait=True, max_bytes=1)
                break
            except NotResident:
                asked += 1
        assert first.base_offset == 3 and asked < 5
        assert numbers(log) == list(range(40))
        assert [b.base_offset for b in log.read(4, nowait=True, max_bytes=1)] == [4]


def evict(files: list[Path]) -> None:
    for file in files:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_what_is_hot_never_has_to_be_asked_for(store: Store) -> None:
    log = over_segments_and_hot_tail(store)
    assert [b.base_offset for b in log.read(170, nowait=True)] == list(range(168, 180, 3))


def test_few_open_files_serve_many_segments(data: Path) -> None:
    with Store.open(data, small(open_files=4, mmap_cache_size=1 << 20)) as store:
        logs = store.create_many([f"q{n}" for n in range(20)], options=PAGE)
        for n in range(20):
            for log in logs:
                append(log, numbered(1, n, size=900))
        flush(store)
        for log in logs:
            assert numbers(log) == list(range(20))
            assert len(list(folder_of(store, log).glob("*.log"))) == 5
        assert store.stat().open_files <= 4
        put(store, logs[0], [Record(b"more")])
        flush(store)
        assert values(logs[0])[-1] == b"more"


def test_logs_are_used_once_they_have_segments_or_something_settled(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottermq.wal.store.A_LOOK", 3)
    logs = store.create_many([f"q{i}" for i in range(10)])
    put(store, logs[1], numbered(1))
    put(store, logs[5], numbered(1))
    put(store, logs[9], numbered(1))
    logs[5].settle(0)
    logs[9].settle(0)
    assert [len(some) for some in store.used()] == [0, 1, 0, 1]
    store.checkpoint()
    found = store.used()
    assert next(found) == [logs[1]]
    for log in logs[3:6]:
        store.delete(log)
    assert list(found) == [[], [], [logs[9]]]
