"""The durable map that coordinators keep their state in."""

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from ottermq.config import Config
from ottermq.errors import InvalidRequest
from ottermq.kafka import statelog as module
from ottermq.kafka.statelog import StateLog
from ottermq.storage import retention
from ottermq.topology.topology import Topology
from ottermq.wal import Record, Store
from ottermq.wal.catalog import INTERNAL_VHOST
from ottermq.wal.errors import Full
from ottermq.wal.retention import Policy
from tests.wal.stores import SMALL, die, flush, small

Entries = dict[bytes, bytes]


def run(store: Store, live: Callable[[StateLog], Awaitable[None]]) -> Entries:
    """A state log's life in a broker's: what it held at the end."""

    async def main() -> Entries:
        state = StateLog.open(store, "groups")
        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.waiting.run, print)
                nursery.start_soon(state.keep)
                await live(state)
                nursery.cancel_scope.cancel()
        return dict(state.items())

    return trio.run(main)


async def nothing(state: StateLog) -> None:
    pass


def entries(store: Store) -> Entries:
    return run(store, nothing)


def test_what_was_put_is_there_and_what_was_forgotten_is_not(tmp_path: Path) -> None:
    async def live(state: StateLog) -> None:
        await state.put({b"a": b"1", b"b": b"2"})
        await state.put({b"a": None, b"c": b""})
        assert state.get(b"a") is None
        assert state.get(b"b") == b"2"
        assert b"c" in state and b"a" not in state
        assert len(state) == 2

    with Store.open(tmp_path, SMALL) as store:
        run(store, live)
    with Store.open(tmp_path, SMALL) as store:
        assert entries(store) == {b"b": b"2", b"c": b""}


def test_a_put_survives_a_kill(tmp_path: Path) -> None:
    def life(store: Store) -> None:
        async def live(state: StateLog) -> None:
            for n in range(100):
                await state.put({b"key%d" % (n % 10): b"%d" % n})

        run(store, live)

    die(tmp_path, life)
    with Store.open(tmp_path, SMALL) as store:
        assert entries(store) == {b"key%d" % n: b"%d" % (90 + n) for n in range(10)}


def test_offsets_of_puts_grow_in_the_order_of_calls(tmp_path: Path) -> None:
    offsets: dict[int, int] = {}

    async def live(state: StateLog) -> None:
        async def put(n: int) -> None:
            offsets[n] = await state.put({b"k": b"%d" % n})

        for n in range(50):
            await put(n)

    with Store.open(tmp_path, SMALL) as store:
        run(store, live)
    assert sorted(offsets.values()) == list(offsets.values())


def test_many_put_at_once(tmp_path: Path) -> None:
    async def live(state: StateLog) -> None:
        async with trio.open_nursery() as nursery:
            for n in range(500):
                nursery.start_soon(state.put, {b"%d" % n: b"x"})

    with Store.open(tmp_path, SMALL) as store:
        assert len(run(store, live)) == 500


def test_an_empty_put_is_done_at_once(tmp_path: Path) -> None:
    async def live(state: StateLog) -> None:
        first = await state.put({b"a": b"1"})
        assert await state.put({}) == first + 1

    with Store.open(tmp_path, SMALL) as store:
        assert run(store, live) == {b"a": b"1"}


def test_a_log_that_is_written_for_ever_stays_small(tmp_path: Path) -> None:
    """About 40 MiB of puts to ten keys."""

    async def live(state: StateLog) -> None:
        for n in range(2500):
            await state.put({b"%d" % (n % 10): b"%6d" % n + bytes(16 << 10)})
        flush(store)

    options = small(wal_file_size=8 << 20, wal_max_size=64 << 20)
    with Store.open(tmp_path, options) as store:
        held = run(store, live)
        log = store.get("groups", INTERNAL_VHOST)
        assert log.stat().start_offset > 0
        assert log.stat().size_bytes < 4 * module.OPTIONS.segment_size
    with Store.open(tmp_path, options) as store:
        assert entries(store) == held


def test_a_map_that_has_become_empty_leaves_an_empty_log(tmp_path: Path) -> None:
    async def live(state: StateLog) -> None:
        await state.put({b"a": b"1"})
        await state.put({b"a": None})
        await state.compact()
        await state.compact()

    with Store.open(tmp_path, SMALL) as store:
        assert run(store, live) == {}
        assert list(store.get("groups", INTERNAL_VHOST).records()) == []
    with Store.open(tmp_path, SMALL) as store:
        assert entries(store) == {}


def test_puts_during_a_compaction_win_over_what_it_writes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLICE", 100)  # many slices, many chances
    expected: Entries = {}

    async def live(state: StateLog) -> None:
        chance = random.Random(1)

        async def put(n: int) -> None:
            for m in range(20):
                key = b"%d" % chance.randrange(200)
                gone = chance.random() < 0.3
                value = None if gone else b"%d.%d" % (n, m)
                if value is None:
                    expected.pop(key, None)
                else:
                    expected[key] = value
                await state.put({key: value})

        for _ in range(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(state.compact)
                for n in range(10):
                    nursery.start_soon(put, n)

    with Store.open(tmp_path, SMALL) as store:
        assert run(store, live) == expected
    with Store.open(tmp_path, SMALL) as store:
        assert entries(store) == expected


class Killed(Exception):
    pass


@pytest.mark.parametrize("line", range(8))
def test_a_compaction_may_end_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: int
) -> None:
    """After so many of its writes, with or without the trim."""
    monkeypatch.setattr(module, "SLICE", 60)

    def life(store: Store) -> Entries:
        async def live(state: StateLog) -> None:
            for n in range(12):
                await state.put({b"k%d" % n: b"%d" % n, b"gone%d" % n: b"x"})
                await state.put({b"gone%d" % n: None})
            left = line
            write = state._write

            def count(items: module.Items) -> object:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Killed
                return write(items)

            monkeypatch.setattr(state, "_write", count)
            try:
                await state.compact()
            except Killed:
                return
            flush(store)

        return run(store, live)

    left = die(tmp_path, life)
    with Store.open(tmp_path, SMALL) as store:
        assert entries(store) == left == {b"k%d" % n: b"%d" % n for n in range(12)}


def test_who_waits_for_room_tries_again_when_the_disk_gets_on_and_nobody_overtakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live(state: StateLog) -> None:
        write = state._write
        full = True
        tries = 0

        def refuse(items: module.Items) -> object:
            nonlocal tries
            tries += 1
            if full:
                raise Full("no room")
            return write(items)

        monkeypatch.setattr(state, "_write", refuse)
        other = store.create("other")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(state.put, {b"k": b"first"})
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(state.put, {b"k": b"second"})
            await trio.sleep(0.2)  # time for all that the start had to tell
            tried = tries
            await trio.sleep(0.2)
            assert tries == tried  # not by the clock
            full = False
            other.append([Record(b"on disk in a moment")])

    with Store.open(tmp_path, SMALL) as store:
        assert run(store, live) == {b"k": b"second"}


def test_the_vhost_it_lies_in_can_not_be_made() -> None:
    with pytest.raises(InvalidRequest):
        Topology().create_vhost(INTERNAL_VHOST)


def test_queues_of_the_same_name_have_nothing_to_do_with_it(tmp_path: Path) -> None:
    async def live(state: StateLog) -> None:
        await state.put({b"a": b"1"})

    with Store.open(tmp_path, SMALL) as store:
        queue = store.create("groups")
        assert run(store, live) == {b"a": b"1"}
        assert list(queue.records()) == []


def test_retention_leaves_it_alone(tmp_path: Path) -> None:
    async def live(state: StateLog) -> None:
        await state.put({b"a": b"1"})
        flush(store)
        list(retention._trim_all(store, Config(), lambda log: Policy(max_age_ms=-1)))
        assert store.get("groups", INTERNAL_VHOST).stat().start_offset == 0

    with Store.open(tmp_path, SMALL) as store:
        run(store, live)
