"""Waiting for the disk in trio: many waiters, one reader of the store's event.

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.waiting.run, print)     # reports go to print
        done = log.append([Record(b"hello")])
        await store.wait_durable(done.seq)

The event fires with every commit, thousands of times a second under load. So it is listened to
all the time only while somebody waits; otherwise now and then, for the reports.
"""

import heapq
import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from ottermq.wal.errors import LogError, TimedOut

if TYPE_CHECKING:
    from ottermq.wal.store import Report, Store

LULL = 0.1  # seconds a report may wait


class DurabilityWait:
    def __init__(self, store: "Store") -> None:
        self._store = store
        self._waiters: list[tuple[int, int, trio.Event]] = []  # a heap, by sequence
        self._order = itertools.count()  # of those that wait for the same
        self._moved = trio.Event()  # set and replaced with each event, while somebody waits for it
        self._watchers = 0
        self._somebody_came = trio.Event()

    async def run(self, tell: "Callable[[Report], None]") -> None:
        """Until cancelled: wake the waiters, pass on the store's reports."""
        event_fd = self._store.event_fd
        while True:
            for report in self._store.reports():
                tell(report)
            self._wake()
            if not self._waiters and not self._watchers:
                self._somebody_came = trio.Event()
                with trio.move_on_after(LULL):
                    await self._somebody_came.wait()
            await trio.lowlevel.wait_readable(event_fd)
            with suppress(BlockingIOError):
                os.eventfd_read(event_fd)
            self._moved.set()
            self._moved = trio.Event()

    async def wait_moved(self) -> None:
        """The disk made progress: a call that found no room just now may find it."""
        self._watchers += 1
        try:
            self._somebody_came.set()
            await self._moved.wait()
        finally:
            self._watchers -= 1

    async def wait_durable(self, seq: int) -> None:
        """Fenced: it was refused, and never comes back."""
        while not self._is_durable(seq):
            event = trio.Event()
            heapq.heappush(self._waiters, (seq, next(self._order), event))
            self._somebody_came.set()
            await event.wait()
        await trio.lowlevel.checkpoint()

    def _is_durable(self, seq: int) -> bool:
        try:
            self._store.wait(seq, 0)  # also asks the committer to sync it
        except TimedOut:
            return False
        return True

    def _wake(self) -> None:
        while self._waiters and self._has_news(self._waiters[0][0]):
            heapq.heappop(self._waiters)[2].set()

    def _has_news(self, seq: int) -> bool:
        try:
            return self._is_durable(seq)
        except LogError:
            return True  # the waiter asks again and gets the error itself
