"""A queue's cursor through its log: given out, returned, settled, purged; and after a crash."""

from pathlib import Path

import pytest

from ottermq._core import ffi, lib
from ottermq.wal import Log, LogFlags, Record, Store
from ottermq.wal.errors import InvalidArgument
from tests.wal.stores import SMALL, append, die, flush, numbered, numbers, put, until


def counts(log: Log) -> tuple[int, int, int]:
    cursor = log.cursor()
    return cursor.ready_count, cursor.unacked_count, cursor.returned_count


def synced(store: Store, log: Log) -> None:
    """Cursor changes are synced with the next group: make one."""
    put(store, log, [Record(b"last")])


def test_records_are_given_out_in_order_and_once(store: Store) -> None:
    log = store.create("q")
    put(store, log, numbered(10))
    assert log.acquire(3) == [0, 1, 2]
    assert log.acquire(100) == [3, 4, 5, 6, 7, 8, 9]
    assert log.acquire(1) == []
    assert counts(log) == (0, 10, 0)


def test_a_returned_record_comes_again_before_all_that_is_fresh(store: Store) -> None:
    log = store.create("q")
    put(store, log, numbered(10))
    log.acquire(5)
    log.give_back(3)
    log.give_back(1, counted=False)
    assert counts(log) == (7, 3, 2)
    assert log.counts(3) == (1, 1) and log.counts(1) == (1, 0) and log.counts(0) == (1, 0)
    assert log.acquire(4) == [1, 3, 5, 6]
    assert log.counts(3) == (2, 1) and log.counts(5) == (1, 0) and log.counts(7) == (0, 0)


def test_only_what_is_in_flight_can_be_returned(store: Store) -> None:
    log = store.create("q")
    put(store, log, numbered(3))
    log.acquire(2)
    log.settle(0)
    for offset in (0, 2):
        with pytest.raises(InvalidArgument):
            log.give_back(offset)
    assert counts(log) == (1, 1, 0)


def test_settling_moves_the_floor_over_what_is_settled(store: Store) -> None:
    log = store.create("q")
    put(store, log, numbered(10))
    log.acquire(10)
    assert log.settle(4, 6)[0] == 3
    assert log.cursor().floor == 0
    assert log.settle(0, 3)[0] == 4
    assert log.cursor().floor == 7
    assert log.settle(0, 9)[0] == 3
    assert log.settle(0, 9)[0] == 0
    assert log.cursor().floor == 10 and counts(log) == (0, 0, 0)


def test_a_purge_takes_what_is_ready_and_leaves_what_is_in_flight(store: Store) -> None:
    log = store.create("q")
    put(store, log, numbered(10))
    log.acquire(4)
    log.give_back(1)
    assert log.purge()[0] == 7
    assert counts(log) == (0, 3, 0)
    put(store, log, numbered(2, 10))
    assert log.acquire(10) == [10, 11]


def test_bytes_are_what_the_values_weigh(store: Store) -> None:
    log = store.create("q")
    put(store, log, [Record(b"x" * 100)] * 5)
    assert log.cursor().ready_bytes == 500
    log.acquire(2, bytes_each=100)
    assert (log.cursor().ready_bytes, log.cursor().unacked_bytes) == (300, 200)
    log.settle(0, weight=100)
    log.give_back(1, weight=100)
    assert (log.cursor().ready_bytes, log.cursor().unacked_bytes) == (400, 0)


def test_a_stream_has_no_cursor(store: Store) -> None:
    log = store.create("s", flags=LogFlags.NO_CURSOR)
    put(store, log, numbered(3))
    assert log.acquire(3) == []
    for use in (log.cursor, log.purge, lambda: log.settle(0), lambda: log.give_back(0)):
        with pytest.raises(InvalidArgument):
            use()


def test_a_backlog_costs_the_cursor_nothing(store: Store) -> None:
    log = store.create("q")
    put(store, log, [Record(b"")])
    small_cursor = log.cursor().memory
    for _ in range(20):
        append(log, [Record(b"")] * 5000)
    assert log.cursor().ready_count == 100_001
    assert log.cursor().memory == small_cursor


# -- after a stop -----------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True], ids=["clean", "crash"])
@pytest.mark.parametrize("checkpointed", [False, True], ids=["from the WAL", "from a checkpoint"])
def test_the_cursor_comes_back_as_it_was(data: Path, crash: bool, checkpointed: bool) -> None:

    def life(store: Store) -> None:
        log = store.create("q")
        put(store, log, numbered(12))
        log.acquire(9)
        log.settle(0, 1)
        log.settle(4)
        log.give_back(3)
        log.give_back(6, counted=False)
        if checkpointed:
            flush(store)
        log.acquire(1)
        log.settle(8)
        synced(store, log)

    if crash:
        die(data, life)
    else:
        with Store.open(data, SMALL) as store:
            life(store)
    with Store.open(data, SMALL) as store:
        log = store.get("q")
        assert [log.counts(offset) for offset in (2, 3, 5, 6, 7)] == [
            (1, 0), (2, 1), (1, 0), (1, 0), (1, 0)]  # fmt: skip
        assert [log.counts(offset) for offset in (0, 4, 8, 9, 12)] == [(0, 0)] * 5
        assert counts(log) == (9, 0, 5)
        assert log.cursor().floor == 2
        assert log.acquire(20) == [2, 3, 5, 6, 7, 9, 10, 11, 12]


def test_cursor_changes_reach_the_disk_by_themselves_within_a_second_or_so(data: Path) -> None:

    def life(store: Store) -> None:
        log = store.create("q")
        put(store, log, numbered(3))
        log.acquire(2)
        _, seq = log.settle(0)
        until(lambda: store.durable_seq >= seq, seconds=5)

    die(data, life)
    with Store.open(data, SMALL) as store:
        assert store.get("q").acquire(5) == [1, 2]
        assert store.get("q").counts(1) == (2, 0)


def test_what_was_purged_stays_so_and_what_came_after_stays(data: Path) -> None:

    def life(store: Store) -> None:
        log = store.create("q")
        put(store, log, numbered(6))
        log.acquire(2)
        log.purge()
        put(store, log, numbered(2, 6))
        log.append(numbered(2, 8), unlogged=True)  # makes the writer write
        until(lambda: log.stat().hot_batches == 0)

    die(data, life)
    with Store.open(data, SMALL) as store:
        assert store.get("q").acquire(10) == [0, 1, 6, 7, 8, 9]


def test_a_settle_reaches_no_further_than_the_end_it_met(data: Path) -> None:
    def life(store: Store) -> None:
        log, other = store.create_many(["q", "r"])
        for each in (log, other):
            put(store, each, numbered(3))
            each.acquire(3)
        assert log.settle(1, 100)[0] == 2
        assert log.settle(50, 100)[0] == 0
        work = store.transaction()
        work.append(other, numbered(1, 3))
        work.settle(other, 1, 100)
        work.settle(other, 50, 100)
        store.wait(work.commit())
        for each in (log, other):
            put(store, each, numbered(2, 4))
            each.append(numbered(2, 6), unlogged=True)
            until(lambda each=each: each.stat().hot_batches == 0)  # type: ignore[misc]

    die(data, life)
    with Store.open(data, SMALL) as store:
        assert store.get("q").acquire(20) == [0, 3, 4, 5, 6]
        assert store.get("r").acquire(20) == [0, 3, 4, 5, 6, 7]


def test_settled_before_they_were_written_they_do_not_come_back(data: Path) -> None:

    def life(store: Store) -> None:
        log = store.create("q")
        put(store, log, numbered(5))
        log.acquire(3)
        store.wait(log.settle(0, 2)[1])
        log.append(numbered(5, 5), unlogged=True)
        until(lambda: log.stat().hot_batches == 0)

    die(data, life)
    with Store.open(data, SMALL) as store:
        log = store.get("q")
        assert log.acquire(20) == [3, 4, 5, 6, 7, 8, 9]
        assert numbers(log, 3) == [3, 4, 5, 6, 7, 8, 9]


def test_what_was_in_flight_over_several_crashes_says_redelivered(data: Path) -> None:
    """Each life leaves a gap of lost offsets behind: they must not hide what was given out."""

    def life(store: Store) -> list[int]:
        log = store.get("q") if ("/", "q") in store else store.create("q")
        put(store, log, numbered(2))
        log.append(numbered(1), unlogged=True)
        until(lambda: log.stat().hot_batches == 0)
        taken = log.acquire(100)
        synced(store, store.create(f"other {len(store)}"))
        return taken

    lives = [die(data, life) for _ in range(4)]
    assert [len(taken) for taken in lives] == [3, 6, 9, 12]
    with Store.open(data, SMALL) as store:
        log = store.get("q")
        for since, offset in enumerate(lives[-1]):
            assert log.counts(offset) == (4 - since // 3, 0)
        assert log.acquire(100) == lives[-1]


def control_batch(store: Store) -> bytes:
    """As a Kafka coordinator ends a transaction: a batch that no consumer is given."""
    log = store.create(f"source {len(store)}")
    put(store, log, [Record(b"\0\0\0\0\0\0", b"\0\0\0\1")])
    [batch] = log.read(0)
    data = bytearray(batch.data)
    data[22] |= lib.OM_ATTR_CONTROL  # not a transaction's: those need a producer
    data[17:21] = lib.om_crc32c(0, ffi.from_buffer(data) + 21, len(data) - 21).to_bytes(4, "big")
    return bytes(data)


def test_control_batches_are_passed_over_after_a_crash_too(data: Path) -> None:
    def life(store: Store) -> None:
        log, control = store.create("q"), control_batch(store)
        put(store, log, numbered(2))
        log.append_raw(control)
        log.append(numbered(2, 3), unlogged=True)
        log.append_raw(control, unlogged=True)
        until(lambda: log.stat().hot_batches == 0)
        assert log.acquire(3) == [0, 1, 3]
        synced(store, log)

    die(data, life)
    with Store.open(data, SMALL) as store:
        log = store.get("q")
        assert counts(log) == (5, 0, 3)
        assert [log.counts(offset) for offset in (1, 3, 4)] == [(1, 0), (1, 0), (0, 0)]
        assert log.acquire(10) == [0, 1, 3, 4, 6]


def test_a_purge_after_a_crash_takes_what_was_in_flight_before_it(data: Path) -> None:
    """In the second life it was ready again: replayed over both lives, the purge must see that."""

    def first(store: Store) -> None:
        log = store.create("q")
        put(store, log, numbered(5))
        log.acquire(3)
        synced(store, store.create("other"))

    def second(store: Store) -> None:
        store.wait(store.get("q").purge()[1])

    die(data, first)
    die(data, second)
    with Store.open(data, SMALL) as store:
        assert store.get("q").acquire(10) == []
