"""Waiting for the disk in trio."""

import os
from pathlib import Path

import pytest
import trio
import trio.testing

from ottermq.wal import Record, Report, ReportKind, Store
from ottermq.wal import durability_wait as module
from ottermq.wal.durability_wait import DurabilityWait
from ottermq.wal.errors import Fenced, TimedOut
from tests.wal.stores import SMALL, append


async def test_many_waiters_are_woken_each_when_its_record_is_on_disk(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        log = store.create("orders")
        seen: list[bool] = []

        async def publish() -> None:
            done = append(log, [Record(b"hello")])
            await store.wait_durable(done.seq)
            seen.append(store.durable_seq >= done.seq)

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.waiting.run, print)
                async with trio.open_nursery() as publishers:
                    for _ in range(200):
                        publishers.start_soon(publish)
                nursery.cancel_scope.cancel()
        assert seen == [True] * 200


async def test_a_cursor_change_that_is_waited_for_is_synced_soon(tmp_path: Path) -> None:
    """By itself it would only be within a second."""
    with Store.open(tmp_path, SMALL) as store:
        log = store.create("orders")
        store.wait(log.append([Record(b"hello")]).seq)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.waiting.run, print)
            with trio.fail_after(0.7):
                await store.wait_durable(log.settle(0)[1])
            nursery.cancel_scope.cancel()


class Scripted:
    """As much of a store as waiting needs, moved by hand."""

    def __init__(self) -> None:
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.durable = 0
        self.fenced = False
        self.asked = 0
        self.said: list[Report] = []

    def wait(self, seq: int, timeout: float) -> None:
        assert timeout == 0
        if seq <= self.durable:
            return
        raise Fenced("fenced") if self.fenced else TimedOut("not yet")

    def reports(self) -> list[Report]:
        self.asked += 1
        said, self.said = self.said, []
        return said

    def fire(self) -> None:
        os.eventfd_write(self.event_fd, 1)


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


async def test_waiters_go_in_the_order_of_their_sequences(scripted: Scripted) -> None:
    waiting = DurabilityWait(scripted)  # type: ignore[arg-type]
    woken: list[int] = []

    async def wait(seq: int) -> None:
        await waiting.wait_durable(seq)
        woken.append(seq)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.run, print)
        async with trio.open_nursery() as waiters:
            for seq in (5, 3, 9, 4):
                waiters.start_soon(wait, seq)
            for durable, expected in ((2, []), (4, [3, 4]), (9, [3, 4, 5, 9])):
                scripted.durable = durable
                scripted.fire()
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert sorted(woken) == expected
        nursery.cancel_scope.cancel()


async def test_a_fence_is_told_to_all_who_wait_past_it(scripted: Scripted) -> None:
    waiting = DurabilityWait(scripted)  # type: ignore[arg-type]
    refused = 0

    async def wait(seq: int) -> None:
        nonlocal refused
        with pytest.raises(Fenced):
            await waiting.wait_durable(seq)
        refused += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.run, print)
        async with trio.open_nursery() as waiters:
            for seq in (5, 3):
                waiters.start_soon(wait, seq)
            await trio.testing.wait_all_tasks_blocked()
            scripted.fenced = True
            scripted.fire()
        nursery.cancel_scope.cancel()
    assert refused == 2


async def test_one_who_gives_up_leaves_the_others_waiting(scripted: Scripted) -> None:
    waiting = DurabilityWait(scripted)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.run, print)
        with trio.move_on_after(0.01):
            await waiting.wait_durable(1)
        scripted.durable = 2
        scripted.fire()
        with trio.fail_after(20):
            await waiting.wait_durable(2)
        nursery.cancel_scope.cancel()


async def test_who_found_no_room_is_woken_whenever_the_disk_got_on(scripted: Scripted) -> None:
    waiting = DurabilityWait(scripted)  # type: ignore[arg-type]
    tries = [0, 0]

    async def insist(who: int) -> None:
        while tries[who] < 3:
            await waiting.wait_moved()
            tries[who] += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.run, print)
        async with trio.open_nursery() as waiters:
            waiters.start_soon(insist, 0)
            waiters.start_soon(insist, 1)
            for round in range(1, 4):
                await trio.testing.wait_all_tasks_blocked(0.01)
                scripted.fire()
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert tries == [round, round]
        nursery.cancel_scope.cancel()


async def test_reports_are_told_as_they_come(scripted: Scripted) -> None:
    waiting = DurabilityWait(scripted)  # type: ignore[arg-type]
    told: list[Report] = []
    heard = trio.Event()

    def tell(report: Report) -> None:
        told.append(report)
        heard.set()

    report = Report(ReportKind.FENCED, 0, 0, 0, "a disk died")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.run, tell)
        await trio.testing.wait_all_tasks_blocked()
        scripted.said = [report]
        scripted.fire()
        with trio.fail_after(20):
            await heard.wait()
        nursery.cancel_scope.cancel()
    assert told == [report]


async def test_while_nobody_waits_a_busy_disk_wakes_it_only_now_and_then(
    scripted: Scripted, autojump_clock: trio.testing.MockClock
) -> None:
    waiting = DurabilityWait(scripted)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.run, print)
        for _ in range(1000):  # a second of commits
            scripted.fire()
            await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    assert scripted.asked <= 1 / module.LULL + 2
