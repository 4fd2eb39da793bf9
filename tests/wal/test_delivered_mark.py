"""What was given out a moment before a SIGKILL comes back as given out: data/handed tells.

The WAL is kept from writing anything of it (a commit that waits for ten minutes), so that the mark
in the page cache is all there is.
"""

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from ottermq.wal import LogFlags, Store
from tests.wal.stores import SMALL, die, flush, numbered, numbers, put, small, until

NEVER = small(batch_max_wait_us=600_000_000)  # nothing more is synced before the kill
SLOT = struct.Struct("<Qq")
FIRST_SLOTS = 4096


def filled(data: Path, *names: str, count: int = 10) -> None:
    with Store.open(data, SMALL) as store:
        for name in names:
            put(store, store.create(name), numbered(count))


def slots(data: Path) -> dict[int, int]:
    """The marks by log id."""
    raw = (data / "handed").read_bytes()
    assert raw.startswith(b"OTTERHND")
    whole = raw[: len(raw) // SLOT.size * SLOT.size]
    return {id: next for id, next in list(SLOT.iter_unpack(whole))[1:] if id}


def told(store: Store, name: str = "q") -> list[int]:
    """All that is ready, in order, must be given out; those of it that say redelivered."""
    log = store.get(name)
    offsets = log.acquire(1000)
    assert offsets == sorted(offsets)
    return [offset for offset in offsets if log.counts(offset)[0] > 1]


def test_what_was_given_out_before_a_kill_is_redelivered(data: Path) -> None:
    filled(data, "q", "other")

    def life(store: Store) -> None:
        log = store.get("q")
        assert log.acquire(4) == [0, 1, 2, 3]
        assert log.acquire(2) == [4, 5]

    die(data, life, NEVER)
    with Store.open(data, SMALL) as store:
        assert numbers(store.get("q")) == list(range(10)), "nothing was settled by a mark"
        assert told(store) == [0, 1, 2, 3, 4, 5]
        assert told(store, "other") == []


def test_what_was_given_out_and_settled_before_a_kill_is_redelivered_too(data: Path) -> None:
    """A consumer without acks: the settle was lost with the process, the message was not."""
    filled(data, "q")

    def life(store: Store) -> None:
        log = store.get("q")
        log.acquire(3)
        log.settle(0, 2)

    die(data, life, NEVER)
    with Store.open(data, SMALL) as store:
        assert told(store) == [0, 1, 2]


def test_a_mark_outlives_kill_after_kill(data: Path) -> None:
    """Also where the next life is killed before any checkpoint could know of it."""
    filled(data, "q")

    die(data, lambda store: store.get("q").acquire(4), NEVER)
    for _ in range(3):
        die(data, lambda store: None, NEVER)
    with Store.open(data, SMALL) as store:
        assert told(store) == [0, 1, 2, 3]


def test_what_a_mark_told_is_counted_in_later_lives_too(data: Path) -> None:
    """Given out in one life, known by its mark alone, and again in the next, which the WAL knows:
    that is twice, whatever a third life puts together from the two."""
    filled(data, "q")

    def again(store: Store) -> None:
        log = store.get("q")
        assert log.acquire(2) == [0, 1]
        assert [log.counts(offset)[0] for offset in range(3)] == [2, 2, 1]
        store.wait(log.settle(1, 1)[1])

    die(data, lambda store: store.get("q").acquire(3), NEVER)
    die(data, again)
    with Store.open(data, SMALL) as store:
        assert [store.get("q").counts(offset)[0] for offset in range(4)] == [2, 0, 1, 0]
        assert told(store) == [0, 2]


def test_what_was_settled_for_good_stays_settled(data: Path) -> None:
    filled(data, "q")

    def life(store: Store) -> None:
        log = store.get("q")
        log.acquire(6)
        store.wait(log.settle(0, 3)[1])
        log.acquire(1)

    die(data, life)
    with Store.open(data, SMALL) as store:
        log = store.get("q")
        assert (log.cursor().floor, log.cursor().ready_count) == (4, 6)
        assert told(store) == [4, 5, 6]


def test_a_clean_stop_leaves_no_more_than_was_true(data: Path) -> None:
    filled(data, "q")
    with Store.open(data, SMALL) as store:
        store.get("q").acquire(4)
    with Store.open(data, SMALL) as store:
        assert told(store) == [0, 1, 2, 3]


def test_a_queue_that_gave_nothing_out_has_no_slot(data: Path) -> None:
    with Store.open(data, SMALL) as store:
        idle, purged, busy = (store.create(name) for name in ("idle", "purged", "busy"))
        scratch = store.create("scratch", flags=LogFlags.SCRATCH)
        for log in (idle, purged, busy, scratch):
            put(store, log, numbered(3))
        store.wait(purged.purge()[1])
        busy.acquire(1)
        scratch.acquire(1)
        assert slots(data) == {busy.id: 1}


def test_the_slot_of_a_deleted_queue_is_used_again(data: Path) -> None:
    with Store.open(data, SMALL) as store:
        for n in range(5):
            log = store.create(f"q{n}")
            put(store, log, numbered(3))
            log.acquire(2)
            assert slots(data) == {log.id: 2}
            store.delete(log)
            until(lambda: not slots(data))
        assert (data / "handed").stat().st_size == FIRST_SLOTS * SLOT.size


def test_the_file_grows_with_the_queues_that_give_something_out(data: Path) -> None:
    count = FIRST_SLOTS + 1000

    def life(store: Store) -> None:
        logs = store.create_many([f"q{n}" for n in range(count)])
        store.wait(store.fanout(logs, numbered(2))[0].seq)
        for log in logs:
            log.acquire(1)
        until(lambda: (data / "handed").stat().st_size > FIRST_SLOTS * SLOT.size)
        for log in logs:  # whoever went without has one now
            log.acquire(1)
        assert slots(data) == {log.id: 2 for log in logs}

    with Store.open(data, SMALL) as store:
        life(store)
    with Store.open(data, SMALL) as store:
        assert all(store.get(f"q{n}").counts(1)[0] == 1 for n in range(0, count, 500))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw, rng: b"",
        lambda raw, rng: raw[:1000],
        lambda raw, rng: bytes(len(raw)),
        lambda raw, rng: rng.randbytes(len(raw)),
        lambda raw, rng: raw[:16] + rng.randbytes(len(raw) - 16),
        lambda raw, rng: raw[:16] + SLOT.pack(1, 1 << 62) * (len(raw) // 16 - 1),
        lambda raw, rng: raw[:16] + SLOT.pack(1, -5) * (len(raw) // 16 - 1),
        lambda raw, rng: raw + bytes(777),
        lambda raw, rng: raw[:16] + bytes(len(raw) - 16),
    ],
    ids=["empty", "short", "zeros", "noise", "noisy slots", "too high", "negative", "long", "lost"],
)
def test_a_spoilt_file_costs_no_message(
    data: Path, spoil: Callable[[bytes, random.Random], bytes]
) -> None:
    filled(data, "q")

    def life(store: Store) -> None:
        log = store.get("q")
        log.acquire(6)
        store.wait(log.settle(2, 3)[1])  # the ops before it are on disk as well

    die(data, life)
    path = data / "handed"
    path.write_bytes(spoil(path.read_bytes(), random.Random(1)))
    with Store.open(data, SMALL) as store:
        log = store.get("q")
        assert log.cursor().ready_count == 8
        assert {0, 1, 4, 5} <= set(told(store))
        assert log.cursor().unacked_count == 8
        assert slots(data) == {log.id: 10}


def test_without_its_file_the_broker_starts(data: Path) -> None:
    filled(data, "q")
    (data / "handed").unlink()
    (data / "handed").mkdir()
    with Store.open(data, SMALL) as store:
        assert store.get("q").acquire(2) == [0, 1]
        flush(store)


def test_a_file_that_is_cut_under_a_running_broker_is_no_reason_to_die(data: Path) -> None:
    filled(data, "q", "other")

    def life(store: Store) -> None:
        store.get("q").acquire(1)
        with (data / "handed").open("r+b") as file:
            file.truncate(0)
        store.get("q").acquire(1)
        store.get("other").acquire(1)
        store.delete(store.get("other"))
        flush(store)

    die(data, life)
    with Store.open(data, SMALL) as store:
        assert told(store) == [0, 1]
