"""Does things to a store and writes down, mark by mark, what may have happened and what must have.

Runs in a child under the shim. Before each call it marks that it *will* do something: from then on
a crash may show it or not. Once the store has answered for it, it marks that it *did*: from then
on every crash must show it. promises.py reads the marks and holds a recovered store to them.

    ["create", id, name, kind]               the log exists; kinds below
    ["will", [what, id, ...]]                and the same after "did", several at once:
      ["append", key, parts, [[id, offset], ...]]    one batch, or one WAL record of many: all or
                                             nothing; the second list is what it settles
      ["loose", id, first offset, [[n, size], ...]]    unlogged: never more than a will
      ["settle", id, [offset, ...]]
      ["take", id, [offset, ...]]            given out
      ["purge", id, end, [in flight, ...]]
      ["trim", id, offset]
      ["truncate", id, offset]
      ["delete", id]
    ["seen", id, offset]                     a reader was shown a record at this offset
    ["found", id, name, kind, [n, ...]]      what a later life began with
    ["refused", key]                         an append that was told no

Records carry their number and size, and numbers only grow: so order, place and content can be told
from what is found. `parts` of an append: [[id, first offset, [[n, size], ...]], ...].
"""

import functools
import hashlib
import json
import os
import select
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ottermq.wal import FlushMode, Log, LogFlags, LogOptions, Record, Store
from ottermq.wal.errors import Fenced, Full, NoSpace

T = TypeVar("T")

#: What a log is: its flags, and how it flushes.
KINDS = {
    "queue": (LogFlags(0), FlushMode.BATCH),
    "kept": (LogFlags.KEEP_SETTLED, FlushMode.BATCH),
    "stream": (LogFlags.NO_CURSOR, FlushMode.BATCH),
    "async": (LogFlags(0), FlushMode.ASYNC),
}
SEGMENT_SIZE = 128 << 10
ROOM_PATIENCE = 60.0  # seconds until "full" is no state any more but an error


def content(number: int, size: int) -> bytes:
    """What a record of that number holds: it can be told from any other."""
    head = f"{number} {size} ".encode()
    fill = hashlib.sha256(head).digest()
    return (head + fill * (size // len(fill) + 1))[: max(size, len(head))]


def when_there_is_room(store: Store, act: Callable[[], T]) -> T:
    """Full is a state: the event tells when to come back."""
    while True:
        try:
            return act()
        except Full:
            _wait_for_room(store)


def _wait_for_room(store: Store) -> None:
    while True:
        readable, _, _ = select.select([store.event_fd], [], [], ROOM_PATIENCE)
        if not readable:
            raise TimeoutError(f"no room after {ROOM_PATIENCE} s: {store.stat()}")
        os.eventfd_read(store.event_fd)
        try:
            return store.admits()
        except Full:
            continue
        except NoSpace:
            return None  # for who appends; acks may go on


def options_of(kind: str) -> LogOptions:
    flags, flush_mode = KINDS[kind]
    return LogOptions(
        flush_mode=flush_mode,
        segment_size=SEGMENT_SIZE,
        keep_settled=bool(flags & LogFlags.KEEP_SETTLED),
    )


class CrashJournal:
    """The only one who changes this store. `first_number` keeps the lives of a store apart."""

    def __init__(self, store: Store, first_number: int = 0) -> None:
        self.store = store
        self.in_flight: dict[int, list[int]] = {}
        self.unlogged: set[int] = set()  # logs whose appends are in no WAL
        self.is_patient = True  # when told that something is full
        self._number = self._key = first_number
        self._pending: list[tuple[list[Any], int]] = []
        self._mark_fd = os.open(os.environ["OTTERMQ_SHIM_MARK"], os.O_WRONLY)

    # -- marks

    def mark(self, *words: Any) -> None:
        os.write(self._mark_fd, json.dumps(words, separators=(",", ":")).encode())

    def _will(self, *words: Any) -> list[Any]:
        self.mark("will", [words])
        return list(words)

    def _owe(self, words: list[Any], seq: int) -> None:
        """It is done once `seq` is durable."""
        self._pending.append((words, seq))

    @property
    def owed_seq(self) -> int:
        """Of the last thing under way."""
        return self._pending[-1][1]

    def confirm(self) -> None:
        """Wait for all that is under way; then it is promised. Fenced: some of it was refused."""
        pending, self._pending = self._pending, []
        done, fenced = [], None
        for words, seq in pending:
            try:
                self.store.wait(seq)
                done.append(words)
            except Fenced as error:
                self._refuse(words)
                fenced = error
        if done:
            self.mark("did", done)
        if fenced:
            raise fenced

    def _refuse(self, words: list[Any]) -> None:
        """An append, for good, unless not even the fence could be written: then all is open.
        Whether something was settled nobody was told."""
        stat = self.store.stat()
        if words[0] == "append" and (stat.fence_kept or not stat.fenced):
            self.mark("refused", words[1])

    def take_over(self, log: Log, kind: str) -> None:
        """Of an earlier life: what is here now is all there will ever be of it."""
        numbers = [int((record.value or b"").split()[0]) for record in log.records()]
        self.mark("found", log.id, log.name, kind, numbers)
        if kind == "async":
            self.unlogged.add(log.id)

    # -- logs

    def create(self, name: str, kind: str = "queue") -> Log:
        log = self.store.create(name, flags=KINDS[kind][0], options=options_of(kind))
        self.mark("create", log.id, name, kind)
        if kind == "async":
            self.unlogged.add(log.id)
        return log

    def delete(self, log: Log) -> None:
        self._will("delete", log.id)
        self.store.delete(log)
        self.in_flight.pop(log.id, None)
        self.mark("did", [["delete", log.id]])

    # -- writing

    def _numbered(self, sizes: Sequence[int]) -> list[list[int]]:
        first = self._number
        self._number += len(sizes)
        return [[first + i, size] for i, size in enumerate(sizes)]

    def _will_append(self, parts: list[list[Any]], settles: list[list[int]]) -> list[Any]:
        self._key += 1
        return self._will("append", self._key, parts, settles)

    def append(self, log: Log, sizes: Sequence[int]) -> None:
        """One batch. Where it will go is known beforehand: nobody else appends here."""
        if log.id in self.unlogged:
            return self.append_unlogged(log, sizes)
        first, numbered = log.stat().next_offset, self._numbered(sizes)
        words = self._will_append([[log.id, first, numbered]], [])
        done = self._attempt(words, lambda: log.append(records_of(numbered)))
        assert done.first_offset == first
        self._owe(words, done.seq)

    def append_unlogged(self, log: Log, sizes: Sequence[int]) -> None:
        numbered = self._numbered(sizes)
        self._will("loose", log.id, log.stat().next_offset, numbered)
        self._with_room(lambda: log.append(records_of(numbered), unlogged=True))

    def fanout(self, logs: Sequence[Log], sizes: Sequence[int]) -> None:
        numbered = self._numbered(sizes)
        parts = [[log.id, log.stat().next_offset, numbered] for log in logs]
        for part in parts:
            if part[0] in self.unlogged:
                self._will("loose", *part)
        words = self._will_append([part for part in parts if part[0] not in self.unlogged], [])
        done = self._attempt(words, lambda: self.store.fanout(logs, records_of(numbered)))
        self._owe(words, max(slot.seq for slot in done))

    def transaction(
        self, appends: Sequence[tuple[Log, Sequence[int]]], settles: Sequence[tuple[Log, int]]
    ) -> None:
        parts: list[list[Any]] = []
        ends: dict[int, int] = {}
        for log, sizes in appends:
            first = ends.get(log.id, log.stat().next_offset)
            ends[log.id] = first + len(sizes)
            parts.append([log.id, first, self._numbered(sizes)])
        words = self._will_append(parts, [[log.id, offset] for log, offset in settles])

        def commit() -> int:
            transaction = self.store.transaction()
            for (log, _), part in zip(appends, parts, strict=True):
                transaction.append(log, records_of(part[2]))
            for log, offset in settles:
                transaction.settle(log, offset)
            return transaction.commit()

        self._owe(words, self._attempt(words, commit))
        for log, offset in settles:
            self.in_flight[log.id].remove(offset)

    def _with_room(self, act: Callable[[], T]) -> T:
        return when_there_is_room(self.store, act) if self.is_patient else act()

    def _attempt(self, words: list[Any], act: Callable[[], T]) -> T:
        try:
            return self._with_room(act)
        except Exception:
            self._refuse(words)
            raise

    # -- reading and settling

    def read(self, log: Log, offset: int) -> int:
        """How many records were shown."""
        shown = 0
        for batch in log.read(offset, max_bytes=64 << 10):
            self.mark("seen", log.id, batch.last_offset)
            shown += batch.record_count
        return shown

    def take(self, log: Log, most: int) -> list[int]:
        offsets = log.acquire(most)
        if offsets:
            self.mark("seen", log.id, max(offsets))
            self.in_flight.setdefault(log.id, []).extend(offsets)
            self._owe(["take", log.id, offsets], self.last_seq())
        return offsets

    def last_seq(self) -> int:
        """Of all that this thread has done: a trim that trims nothing tells it."""
        return next(iter(self.store)).trim(0)

    def settle(self, log: Log, offsets: Sequence[int]) -> None:
        words = self._will("settle", log.id, list(offsets))
        seq = 0
        for offset in offsets:
            _, seq = self._with_room(functools.partial(log.settle, offset))
            self.in_flight[log.id].remove(offset)
        self._owe(words, seq)

    def give_back(self, log: Log, offset: int) -> None:
        self._with_room(lambda: log.give_back(offset))
        self.in_flight[log.id].remove(offset)

    # -- the past

    def purge(self, log: Log) -> None:
        kept = list(self.in_flight.get(log.id, []))
        words = self._will("purge", log.id, log.stat().next_offset, kept)
        self._owe(words, self._with_room(log.purge)[1])

    def trim(self, log: Log, offset: int) -> None:
        words = self._will("trim", log.id, offset)
        flying = self.in_flight.get(log.id, [])
        flying[:] = [taken for taken in flying if taken >= offset]
        self._owe(words, self._with_room(lambda: log.trim(offset)))

    def truncate(self, log: Log, offset: int) -> None:
        self.confirm()
        words = self._will("truncate", log.id, offset)
        log.truncate(offset)
        flying = self.in_flight.get(log.id, [])
        flying[:] = [taken for taken in flying if taken < offset]
        self.mark("did", [words])


def records_of(numbered: Sequence[Sequence[int]]) -> list[Record]:
    return [Record(content(n, size), timestamp=n) for n, size in numbered]
