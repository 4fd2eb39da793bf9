"""What queues cost that have nothing in them: no files, little memory, no time to speak of."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from ottermq.wal import Log, Record, Store
from ottermq.wal.errors import Full
from tests.wal.stores import SMALL, die, flush, numbered, put

T = TypeVar("T")

KIB = 1024

#: AddressSanitizer's own share is many times what it watches.
weighed_plain = pytest.mark.skipif(
    bool(os.environ.get("OTTERMQ_SANITIZE")), reason="a sanitized core weighs more"
)


def own_memory() -> int:
    """RssAnon: C and Python together, without what is only mapped."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * KIB
    raise AssertionError("no RssAnon")


@weighed_plain
def test_an_empty_queue_has_no_files_and_costs_less_than_4_kib(data: Path) -> None:
    count = 20_000

    def life(store: Store) -> tuple[float, int]:
        put(store, store.create("first"), numbered(1))
        before = own_memory()
        logs = store.create_many(f"queue {n}" for n in range(count))
        cost = (own_memory() - before) / count
        store.checkpoint()
        assert len(store) == count + 1
        return cost, logs[0].stat().memory

    cost, of_which_c = die(data, life)
    assert of_which_c < 1 * KIB
    assert cost < 4 * KIB
    assert len(list(data.glob("vhosts/*/queues/*"))) == 1


def patiently(store: Store, act: Callable[[], T]) -> T:
    """The WAL of these tests is small: room comes with a checkpoint."""
    while True:
        try:
            return act()
        except Full:
            store.checkpoint()


def pass_a_record_through(store: Store, logs: list[Log]) -> None:
    """A thousand at a time: no more fit the WAL of these tests."""
    for some in (logs[n : n + 1000] for n in range(0, len(logs), 1000)):
        for log in some:
            done = patiently(store, partial(log.append, [Record(b"x" * 500)]))
        store.wait(done.seq)
        for log in some:
            [offset] = log.acquire(1)
            _, seq = patiently(store, partial(log.settle, offset))
        store.wait(seq)
        flush(store)


@weighed_plain
def test_a_queue_that_was_emptied_costs_no_more(data: Path) -> None:
    """What is left of a record that went through is a lease, and a few bytes."""
    count = 10_000

    def life(store: Store) -> tuple[float, int]:
        # Buffers that all queues share have their size afterwards.
        pass_a_record_through(store, [store.create("first")] * count)
        before = own_memory()
        logs = store.create_many(f"queue {n}" for n in range(count))
        pass_a_record_through(store, logs)
        return (own_memory() - before) / count, max(log.stat().memory for log in logs)

    cost, of_which_c = die(data, life)
    assert of_which_c < 2 * KIB
    assert cost < 4 * KIB


def test_a_hundred_thousand_queues_open_in_seconds(data: Path) -> None:
    with Store.open(data, SMALL) as store:
        for log in store.create_many(f"queue {n}" for n in range(100_000))[::1000]:
            patiently(store, partial(log.append, numbered(1)))
    before = time.process_time()  # of our own, whatever else this machine is doing
    with Store.open(data, SMALL) as store:
        assert time.process_time() - before < 5
        assert len(store) == 100_000
        assert [store.get(f"queue {n}").stat().next_offset for n in (0, 1, 98_999, 99_000)] == [
            1, 0, 0, 1]  # fmt: skip


def test_a_backlog_leaves_memory_before_others_need_it(data: Path) -> None:
    """Nobody takes these: they will have to be written, so they are not kept until half of
    the hot tail is theirs."""
    with Store.open(data, replace(SMALL, wal_file_size=16 << 20, wal_max_size=256 << 20)) as store:
        log = store.create("backlog")
        for _ in range(96):
            done = patiently(store, partial(log.append, [Record(bytes(KIB))] * KIB))
            store.wait(done.seq)
        limit = time.monotonic() + 60
        while store.stat().hot_bytes > 24 << 20:
            assert time.monotonic() < limit, store.stat()
            patiently(store, partial(log.append, [Record(b"x")]))
        assert store.stat().hot_bytes < store.options.hot_buffer_size / 4
