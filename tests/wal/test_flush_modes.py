"""Three flush modes, and unlogged batches between logged ones."""

from pathlib import Path

import pytest

from ottermq.wal import FlushMode, Log, LogFlags, LogOptions, Options, Record, Store
from ottermq.wal.records import batches
from tests.wal.stores import (
    SMALL,
    die,
    flush,
    numbered,
    numbers,
    put,
    segment_files,
    small,
    until,
    values,
)


def until_written(store: Store, log: Log) -> None:
    """The writer takes what is in no WAL at once; a flush of its queue waits for it."""
    store.wait(store.durable_seq)
    store.checkpoint()
    assert log.stat().hot_batches == 0


def test_async_appends_leave_the_wal_alone(data: Path) -> None:
    """But for their leases, each of which is longer than the one before."""
    options = small(flush_mode=FlushMode.ASYNC)
    with Store.open(data, options) as store:
        log = store.create("q")
        put(store, log, numbered(1))
        before = store.stat().wal_bytes
        for n in range(1, 500):
            log.append(numbered(1, n, size=1000))
        until(lambda: log.stat().high_watermark == 500)
        assert numbers(log) == list(range(500))
        assert store.stat().wal_bytes - before <= 12 * 4096
    with Store.open(data, options) as store:
        assert numbers(store.get("q")) == list(range(500))
        assert store.get("q").stat().next_offset == 500


def test_immediate_commits_each_call_by_itself(data: Path) -> None:
    with Store.open(data, small(flush_immediate=True)) as store:
        log = store.create("q")
        before = store.stat().wal_groups
        for n in range(20):
            done = log.append(numbered(1, n))
        store.wait(done.seq)
        assert store.stat().wal_groups - before >= 20


def test_a_batch_of_calls_shares_a_commit(data: Path) -> None:
    with Store.open(data, small(batch_max_wait_us=100_000)) as store:
        log = store.create("q")
        put(store, log, numbered(1))
        before = store.stat().wal_groups
        for n in range(20):
            done = log.append(numbered(1, n))
        store.wait(done.seq)
        assert store.stat().wal_groups - before <= 3


@pytest.mark.parametrize(
    "options", [SMALL, small(flush_immediate=True)], ids=["batch", "immediate"]
)
def test_logged_and_unlogged_batches_lie_in_offset_order(data: Path, options: Options) -> None:
    with Store.open(data, options) as store:
        log = store.create("q")
        for n in range(60):
            done = log.append(numbered(1, n), unlogged=n % 3 != 0)
        store.wait(done.seq)
        assert numbers(log) == list(range(60))
        until_written(store, log)
        [file] = segment_files(store, log)
        assert [b.base_offset for b in batches(file.read_bytes())] == list(range(60))
        assert numbers(log) == list(range(60))


def test_after_kill_9_both_kinds_are_there(data: Path) -> None:

    def life(store: Store) -> None:
        log = store.create("q")
        for n in range(60):
            log.append(numbered(1, n), unlogged=n % 3 != 0)
        until_written(store, log)
        for n in range(60, 120):
            done = log.append(numbered(1, n), unlogged=n % 3 != 0)
        store.wait(done.seq)
        log.append(numbered(1, 120), unlogged=True)
        until(lambda: log.stat().hot_batches == 0)  # no checkpoint this time

    die(data, life)
    with Store.open(data, SMALL) as store:
        assert numbers(store.get("q")) == list(range(121))
        assert store.get("q").cursor().ready_count == 121


def test_an_unlogged_record_in_memory_is_lost_alone(data: Path) -> None:
    """What no disk has seen may vanish: as a gap, and nothing else with it."""

    def life(store: Store) -> None:
        log = store.create("q")
        put(store, log, numbered(3))
        log.append(numbered(2, 3), unlogged=True)
        put(store, log, numbered(2, 5))

    die(data, life)
    with Store.open(data, SMALL) as store:
        log = store.get("q")
        found = numbers(log)
        assert found in ([0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 5, 6])
        assert log.cursor().ready_count == len(found)
        assert log.acquire(10) == found


def test_the_flush_mode_can_change_while_it_runs(data: Path) -> None:

    def life(store: Store) -> None:
        log = store.create("q")
        put(store, log, numbered(1))
        for n, mode in enumerate([FlushMode.ASYNC, FlushMode.IMMEDIATE, FlushMode.BATCH], 1):
            store.set_options(log, LogOptions(flush_mode=mode))
            put(store, log, numbered(1, n))
        until_written(store, log)

    die(data, life)
    with Store.open(data, SMALL) as store:
        assert numbers(store.get("q")) == [0, 1, 2, 3]


def test_settled_records_need_not_be_written(data: Path) -> None:
    with Store.open(data, SMALL) as store:
        log, kept = store.create("q"), store.create("audit", flags=LogFlags.KEEP_SETTLED)
        for each in (log, kept):
            put(store, each, [Record(b"x" * 1000)] * 10)
            assert len(each.acquire(10)) == 10
            store.wait(each.settle(0, 9)[1])
        flush(store)
        assert not list(store.data.glob(f"vhosts/*/queues/q.{log.id}/*.log"))
        assert store.stat().skipped_bytes > 10_000
        assert len(segment_files(store, kept)) == 1
        assert len(values(kept)) == 10
        assert log.stat().next_offset == 10 and log.read(0) == []
        assert put(store, log, numbered(1)) == 10
        assert numbers(log) == [0]
