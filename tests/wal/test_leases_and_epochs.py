"""Offsets are never given twice, whatever was lost; and an older leader can't append any more."""

import os
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from ottermq.wal import Log, LogFlags, Record, Store
from ottermq.wal.errors import StaleEpoch
from tests.faults.rules import Op
from tests.faults.shim import recorded
from tests.wal.faulty import Life, command
from tests.wal.stores import SMALL, die, flush, numbered, numbers, offsets, put, small, until

LEASE = 65536  # no more offsets are leased ahead ...
LEAST = 32  # ... and no fewer


def test_a_clean_stop_wastes_no_offsets(data: Path) -> None:
    for life in range(3):
        with Store.open(data, SMALL) as store:
            log = store.get("q") if life else store.create("q")
            assert put(store, log, numbered(5, life * 5)) == life * 5
            assert log.stat().leader_epoch == 0
    with Store.open(data, SMALL) as store:
        assert numbers(store.get("q")) == offsets(store.get("q")) == list(range(15))


def test_after_a_crash_no_offset_is_given_that_may_have_been_seen(data: Path) -> None:

    def life(store: Store) -> int:
        log = store.create("q")
        put(store, log, numbered(5))
        return log.append(numbered(1, 5)).first_offset  # nobody waits for this one

    seen = die(data, life)
    with Store.open(data, SMALL) as store:
        log = store.get("q")
        assert put(store, log, [Record(b"7")]) > seen
        assert [n for n in numbers(log) if n != 5] == [0, 1, 2, 3, 4, 7]
        assert offsets(log)[:5] == [0, 1, 2, 3, 4]
        assert log.stat().leader_epoch == 1


def test_crash_after_crash_offsets_only_grow(data: Path) -> None:

    def life(store: Store) -> tuple[int, int]:
        log = store.get("q") if ("/", "q") in store else store.create("q")
        first = put(store, log, numbered(3))
        lost = log.append(numbered(2), unlogged=True)
        return first, lost.first_offset + 1

    given = [offset for _ in range(4) for offset in die(data, life)]
    assert given == sorted(set(given))
    with Store.open(data, SMALL) as store:
        log = store.get("q")
        assert log.stat().leader_epoch == 4
        assert log.stat().next_offset > given[-1]
        assert {first + n for first in given[::2] for n in range(3)} <= set(offsets(log))


def test_a_log_that_uses_more_than_a_lease_has_it_renewed_in_time(data: Path) -> None:

    def life(store: Store) -> int:
        log = store.create("q")
        for _ in range(5):
            done = log.append([Record(b"x")] * 30_000, unlogged=True)
            store.wait(done.seq)
            stat = log.stat()
            assert stat.next_offset <= stat.lease_end <= stat.next_offset + LEASE
            assert stat.readable_end == stat.next_offset
        return log.stat().next_offset

    given = die(data, life)
    assert given == 150_000
    with Store.open(data, SMALL) as store:
        assert store.get("q").stat().next_offset >= given


def test_a_crash_skips_little_of_a_log_that_is_hardly_used(data: Path) -> None:

    def life(store: Store) -> list[int]:
        log = store.get("q") if ("/", "q") in store else store.create("q")
        return [put(store, log, numbered(1)) for _ in range(3)]

    lives = [die(data, life) for _ in range(4)]
    for before, after in pairwise(lives):
        assert before[-1] < after[0] <= before[-1] + 1 + LEAST


def test_a_crash_skips_no_more_than_was_given_lately(data: Path) -> None:

    def life(store: Store) -> int:
        log = store.create("q")
        for given in range(0, 5000, 100):
            put(store, log, numbered(100, given))
            assert log.stat().lease_end <= log.stat().next_offset + max(LEAST, given + 100)
        return log.stat().next_offset

    given = die(data, life)
    with Store.open(data, SMALL) as store:
        assert given <= store.get("q").stat().next_offset <= 2 * given


def shown(log: Log, offset: int) -> bool:
    return log.stat().readable_end > offset


@pytest.mark.parametrize("after", [0, 1, LEAST, 10 * LEAST])
def test_a_checkpoint_gives_back_what_a_burst_had_leased(data: Path, after: int) -> None:

    def life(store: Store) -> int:
        log = store.create("q")
        put(store, log, [Record(b"x")] * 100_000)
        assert log.stat().lease_end > log.stat().next_offset + 10_000
        store.checkpoint()
        assert log.stat().lease_end == log.stat().next_offset + LEAST
        for _ in range(after):  # past the end of the shorter lease, without another checkpoint
            seen = log.append([Record(b"y")], unlogged=True)
            until(partial(shown, log, seen.first_offset))
        return log.stat().next_offset

    given = die(data, life)
    assert given == 100_000 + after
    with Store.open(data, SMALL) as store:
        assert given <= store.get("q").stat().next_offset <= given + max(LEAST, 2 * after)


def test_nothing_is_shown_behind_a_gap_before_its_lease_is_on_disk(data: Path) -> None:
    """After a crash the next record stands where the old lease ended, behind a gap: who reads from
    before the gap must wait for the new lease like anybody else."""

    def first(store: Store) -> None:
        put(store, store.create("s", flags=LogFlags.NO_CURSOR), numbered(3))
        flush(store)  # nothing to replay: the next life makes no checkpoint of its own accord

    def second(store: Store) -> None:
        log = store.get("s")
        given = log.append(numbered(1, 7), unlogged=True).first_offset
        until(lambda: log.stat().hot_batches == 0)  # in its file
        assert log.stat().readable_end <= given
        assert offsets(log) == [0, 1, 2]
        assert log.read(3) == []
        assert log.find_time(7) is None

    die(data, first)
    die(data, second, small(batch_max_wait_us=600_000_000))  # the lease isn't synced before long


def test_what_came_back_without_a_lease_has_one_before_it_is_shown(data: Path) -> None:
    """An unlogged record may be in its file, and its lease not yet on disk, when the process dies.
    Who is shown it in the next life has seen its offset, whatever then happens to the file."""

    def first(store: Store) -> None:
        log = store.create("q")
        log.append(numbered(5), unlogged=True)
        until(lambda: log.stat().hot_batches == 0)
        assert log.stat().readable_end == 0

    def second(store: Store) -> list[int]:
        return offsets(store.get("q"))

    die(data, first, small(batch_max_wait_us=600_000_000))
    assert die(data, second) == [0, 1, 2, 3, 4]
    [path] = data.glob("vhosts/*/queues/*/*.log")
    os.truncate(path, 0)  # never synced: the power takes it
    with Store.open(data, SMALL) as store:
        assert store.get("q").stat().next_offset >= 5


def a_batch_that_reaches_past_its_lease(life: Life) -> None:
    log = life.store.create("q")
    put(life.store, log, numbered(3))
    syncing = life.faults.delay(Op.FDATASYNC, "wal/*.wal", seconds=600)
    given = log.append(numbered(LEASE + 10, 3), unlogged=True)
    life.until(lambda: log.stat().hot_batches == 0, "it is not in its file")
    life.until(lambda: syncing.fired, "the next lease is not under way")
    assert given.first_offset + LEASE + 10 < log.stat().lease_end
    assert log.stat().readable_end == 3, "a batch is shown whole or not at all"
    assert offsets(log) == log.acquire(10) == [0, 1, 2]


def test_a_batch_that_reaches_past_its_lease_is_not_shown_before_the_next(tmp_path: Path) -> None:
    with recorded(tmp_path) as rec:
        rec.run(command(a_batch_that_reaches_past_its_lease))


def test_offsets_lost_with_a_crash_count_as_settled(data: Path) -> None:

    def life(store: Store) -> None:
        put(store, store.create("q"), numbered(5))

    die(data, life)
    with Store.open(data, SMALL) as store:
        log = store.get("q")
        assert log.cursor().ready_count == 5
        put(store, log, numbered(1, 5))
        cursor = log.cursor()
        assert (cursor.ready_count, cursor.unacked_count) == (6, 0)
        taken = log.acquire(10)
        assert len(taken) == 6 and taken[:5] == [0, 1, 2, 3, 4] and taken[5] >= 5
        assert log.settle(0, taken[5])[0] == 6
        assert log.cursor().floor == log.stat().next_offset


# -- epochs -----------------------------------------------------------------------------------


def test_an_append_of_an_older_leader_is_refused(store: Store) -> None:
    log = store.create("q")
    put(store, log, numbered(1), epoch=0)
    assert log.bump_epoch() == 1
    with pytest.raises(StaleEpoch):
        log.append(numbered(1), epoch=0)
    [batch] = log.read(0)
    with pytest.raises(StaleEpoch):
        log.append_raw(batch.data, epoch=0)
    put(store, log, numbered(1, 1), epoch=1)
    put(store, log, numbered(1, 2))  # who names no epoch is no leader to be fenced
    assert [b.leader_epoch for b in log.read(0)] == [0, 1, 1]
    assert numbers(log) == [0, 1, 2]


def test_a_newer_leader_raises_the_epoch_with_its_append(store: Store) -> None:
    log = store.create("q")
    put(store, log, numbered(1))
    put(store, log, numbered(1, 1), epoch=7)
    assert log.stat().leader_epoch == 7
    with pytest.raises(StaleEpoch):
        log.append(numbered(1), epoch=6)
    assert [b.leader_epoch for b in log.read(0)] == [0, 7]


def test_a_leader_fenced_before_a_stop_is_fenced_after_it(data: Path) -> None:
    with Store.open(data, SMALL) as store:
        log = store.create("q")
        assert [log.bump_epoch() for _ in range(3)] == [1, 2, 3]
    with Store.open(data, SMALL) as store:
        log = store.get("q")
        assert log.stat().leader_epoch == 3
        with pytest.raises(StaleEpoch):
            log.append(numbered(1), epoch=2)


def test_an_unlogged_batch_tells_the_epoch_it_was_written_in(data: Path) -> None:
    """It may reach its file before the first group of its life reaches the WAL."""

    def first(store: Store) -> None:
        put(store, store.create("q"), numbered(3))
        flush(store)  # nothing to replay: the next life makes no checkpoint of its own accord

    def second(store: Store) -> int:
        log = store.get("q")
        log.append(numbered(2, 3), unlogged=True)
        until(lambda: log.stat().hot_batches == 0)
        return log.stat().leader_epoch

    die(data, first)
    epoch = die(data, second, small(batch_max_wait_us=10_000_000))
    assert epoch == 1
    with Store.open(data, SMALL) as store:
        assert store.get("q").stat().leader_epoch >= epoch
        assert numbers(store.get("q")) == [0, 1, 2, 3, 4]


def test_clean_stops_after_a_crash_raise_the_epoch_no_more(data: Path) -> None:
    def life(store: Store) -> None:
        log = store.create("q")
        put(store, log, numbered(5))
        log.acquire(5)
        store.wait(log.settle(0, 4)[1])

    die(data, life)
    for _ in range(3):
        with Store.open(data, SMALL) as store:
            assert store.get("q").stat().leader_epoch == 1
            assert store.get("q").read(store.get("q").stat().next_offset) == []


@pytest.mark.parametrize("appends", [0, 1])
def test_a_leader_fenced_before_a_crash_is_fenced_after_it(data: Path, appends: int) -> None:

    def life(store: Store) -> None:
        log = store.create("q")
        for _ in range(appends):
            put(store, log, numbered(1))
        for _ in range(3):
            log.bump_epoch()
        put(store, store.create("other"), numbered(1))  # whatever came before is on disk too

    die(data, life)
    with Store.open(data, SMALL) as store:
        log = store.get("q")
        assert log.stat().leader_epoch >= 3
        with pytest.raises(StaleEpoch):
            log.append(numbered(1), epoch=2)


# -- scratch logs -----------------------------------------------------------------------------


def test_a_scratch_log_never_touches_the_wal_and_is_gone_after_a_stop(data: Path) -> None:
    with Store.open(data, SMALL) as store:
        log = store.create("q", flags=LogFlags.SCRATCH)
        put(store, store.create("other"), numbered(1))  # nothing of the start is left to write
        before = store.stat().wal_bytes
        log.append(numbered(10, size=2000))
        log.append(numbered(10, 10, size=2000), unlogged=True)
        assert log.acquire(3) == [0, 1, 2]
        assert log.settle(0, 2)[0] == 3
        log.trim(5)
        assert numbers(log) == list(range(5, 20))
        store.checkpoint()
        assert numbers(log) == list(range(5, 20))
        assert store.stat().wal_bytes == before
        assert list(data.glob("scratch/*/*.log")) and not list(data.glob("vhosts/*/queues/q.*"))
    with Store.open(data, SMALL) as store:
        assert ("/", "q") not in store
        assert not (data / "scratch").exists()
        again = store.create("q", flags=LogFlags.SCRATCH)
        assert again.append(numbered(1)).first_offset == 0
        assert numbers(again) == [0]


def test_a_scratch_log_is_gone_after_a_crash(data: Path) -> None:

    def life(store: Store) -> None:
        scratch = store.create("q", flags=LogFlags.SCRATCH)
        durable = store.create("d")
        store.fanout([scratch, durable], numbered(3))
        both = store.transaction()
        both.append(scratch, numbered(1, 3))
        both.append(durable, numbered(1, 3))
        store.wait(both.commit())
        assert numbers(scratch) == [0, 1, 2, 3]

    die(data, life)
    with Store.open(data, SMALL) as store:
        assert ("/", "q") not in store and len(store) == 1
        assert not (data / "scratch").exists()
        assert numbers(store.get("d")) == [0, 1, 2, 3]
