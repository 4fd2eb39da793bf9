"""A durable map of bytes to bytes on a log of the broker's own: the coordinators' memory.

    offsets = await trio.to_thread.run_sync(StateLog.open, store, "groups")
    nursery.start_soon(offsets.keep)                # compacts, until cancelled
    await offsets.put({b"orders/0": b"42"})         # on disk when it returns
    await offsets.put({b"orders/0": None})          # forgotten, as durably

Every `put` is a batch of Kafka records (a null value is a tombstone), so Kafka's own tools can read
the log. Puts that come together share the WAL's sync, and a put's items come back all or none.
Replaying the log from its start gives the map; it is all in memory as well.

The log would grow for ever, so it is compacted: every live entry is written again at the tail, and
once all are on disk, everything before the first of them is trimmed.

    | k1=a  k2=b  k1=c  k2=∅ | k1=c  k3=d  k3=e  k1=c |
      start                    boundary                tail

An entry is written again with the value it has *then*, while puts go on; so the last record of a
key always has its value, and a replay from any place at or before the boundary gives the same
map. That is why a crash at any line does no harm: the trim happened, in part or not at all.

The log lies in a vhost that no client can name, and retention leaves it alone.
"""

from collections import deque
from collections.abc import Callable, ItemsView, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Self

import trio

from ottermq import eventlog
from ottermq.contained import contained
from ottermq.wal import Appended, Log, LogError, LogFlags, LogOptions, Record, RemovalReason, Store
from ottermq.wal.catalog import INTERNAL_VHOST
from ottermq.wal.errors import Full, OutOfRange, Unreadable

OPTIONS = LogOptions(segment_size=8 << 20)  # synced by group commit, whatever queues are set to
GROWTH = 4  # compacted when this many times as large as its live entries
LEAST = 1 << 20  # bytes that aren't worth the trouble
SLICE = 256 << 10  # bytes written again at a time
RECORD = 24  # bytes of a record beside its key and value, about
PAUSE = 1.0  # seconds before a compaction that failed is tried again

Items = Mapping[bytes, bytes | None]


class StateLog:
    def __init__(self, store: Store, log: Log) -> None:
        """Use `open`."""
        self._store = store
        self._log = log
        self._live: dict[bytes, bytes] = {}
        self._live_bytes = 0
        self._log_bytes = 0
        self._line = trio.Lock()  # puts that wait for room, in order
        self._grown = trio.Event()
        self._due: deque[tuple[int, Callable[[], object]]] = deque()  # what to call, by sequence

    @classmethod
    def open(cls, store: Store, name: str) -> Self:
        """As it was left. Blocks: in trio, call it in a thread."""
        if (INTERNAL_VHOST, name) in store:
            log = store.get(name, INTERNAL_VHOST)
        else:
            log = store.create(name, vhost=INTERNAL_VHOST, flags=LogFlags.NO_CURSOR)
        store.set_options(log, OPTIONS)
        opened = cls(store, log)
        opened._replay()
        return opened

    # -- reading

    def get(self, key: bytes) -> bytes | None:
        return self._live.get(key)

    def now_ms(self) -> int:
        return self._log.now_ms()

    def items(self) -> ItemsView[bytes, bytes]:
        return self._live.items()

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: bytes) -> bool:
        return key in self._live

    @property
    def log_bytes(self) -> int:
        """About what the log would take to replay."""
        return self._log_bytes

    # -- writing

    async def put(self, items: Items, applied: Callable[[], object] | None = None) -> int:
        """On disk when it returns: the offset of the first one, which is higher than that of any
        put that was called before. LogError: it isn't, and may be missing after a restart.

        applied: called when it is on disk, after those of earlier puts: what the caller makes of
        the map is then never behind a later put, nor ahead of the disk. Also if the caller is
        cancelled meanwhile."""
        return await self._put(lambda: items, applied)

    async def _put(
        self, items: Callable[[], Items], applied: Callable[[], object] | None = None
    ) -> int:
        done = await self._append(items)
        due = (done.seq, applied or _nothing)
        self._due.append(due)
        try:
            await self._store.wait_durable(done.seq)
        except LogError:
            self._due.remove(due)
            raise
        self.settle()
        return done.first_offset

    def settle(self) -> None:
        """Call what is due: before a look at what was made of the map."""
        durable = self._store.durable_seq
        while self._due and self._due[0][0] <= durable:
            self._due.popleft()[1]()

    async def _append(self, items: Callable[[], Items]) -> Appended:
        """items: asked for at the moment they are written."""
        if not self._line.locked():
            with suppress(Full):
                return self._write(items())
        async with self._line:  # no put overtakes one that waits for room
            while True:
                with suppress(Full):
                    return self._write(items())
                await self._store.waiting.wait_moved()

    def _write(self, items: Items) -> Appended:
        """The log and the map, in one step: they never disagree on an order."""
        if not items:
            return Appended(self._log.stat().next_offset, 0)
        done = self._log.append([Record(value, key) for key, value in items.items()])
        for key, value in items.items():
            self._apply(key, value)
        if self._is_bloated():
            self._grown.set()
        return done

    def _apply(self, key: bytes, value: bytes | None) -> None:
        self._log_bytes += _size(key, value)
        old = self._live.pop(key, None)
        if old is not None:
            self._live_bytes -= _size(key, old)
        if value is not None:
            self._live[key] = value
            self._live_bytes += _size(key, value)

    def _replay(self) -> None:
        at = self._log.stat().start_offset
        while True:
            try:
                found = self._log.read(at)
            except Unreadable as error:
                eventlog.warning(
                    "internal log unreadable", log=self._log.name, first=at, error=error
                )
                at = error.next_offset
                continue
            except OutOfRange:  # nothing lies behind what can't be read
                return
            if not found:
                return
            for batch in found:
                for record in batch.records():
                    if record.key is not None:
                        self._apply(record.key, record.value)
            at = found[-1].last_offset + 1

    # -- compaction

    async def keep(self) -> None:
        """Compact when it is due, until cancelled."""
        while True:
            while not self._is_bloated():
                self._grown = trio.Event()
                await self._grown.wait()
            with contained("log not compacted", log=self._log.name):
                await self._compact_or_say()
            if self._is_bloated():  # it failed, or there is more by now
                await trio.sleep(PAUSE)

    async def _compact_or_say(self) -> None:
        try:
            await self.compact()
        except LogError as error:
            eventlog.warning("log not compacted", log=self._log.name, error=error)

    def _is_bloated(self) -> bool:
        return self._log_bytes > max(LEAST, GROWTH * self._live_bytes)

    async def compact(self) -> None:
        boundary = self._log.stat().next_offset
        before = self._log_bytes
        for keys in self._slices():
            await self._put(partial(self._values, keys))
        self._log.trim(boundary, RemovalReason.SNAPSHOT)
        self._log_bytes -= before

    def _slices(self) -> list[list[bytes]]:
        slices: list[list[bytes]] = []
        size = SLICE
        for key, value in self._live.items():
            if size >= SLICE:
                slices.append([])
                size = 0
            slices[-1].append(key)
            size += _size(key, value)
        return slices

    def _values(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """What they are now; those that are gone by now need nothing."""
        return {key: self._live[key] for key in keys if key in self._live}


def _nothing() -> None:
    pass


def _size(key: bytes, value: bytes | None) -> int:
    return RECORD + len(key) + len(value or b"")
