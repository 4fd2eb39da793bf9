"""A store in a process of its own: calls go through a pipe, and it can be killed at any moment.

Why a process: what kill -9 leaves behind is the one true picture of a crash. A copy of a live
store's folder is not: it is taken file by file while four threads write, and may hold an old
checkpoint next to a WAL that was recycled after it, which no crash can leave.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ottermq.wal import Log, LogFlags, Options, Record, Store
from ottermq.wal.errors import LogError
from tests.wal.stores import with_room

T = TypeVar("T")
Spec = tuple[int, int]  # a record's number, and the size of its value

KINDS = {
    "queue": LogFlags(0),
    "stream": LogFlags.NO_CURSOR,
    "kept": LogFlags.KEEP_SETTLED,
}


def content(spec: Spec) -> bytes:
    number, size = spec
    head = b"%d;" % number
    return (head + b"%d." % (number * 7919) * (size // 3))[: max(size, len(head))]


def records(specs: Sequence[Spec]) -> list[Record]:
    return [Record(content(spec), b"k%d" % spec[0], timestamp=spec[0]) for spec in specs]


@dataclass(frozen=True)
class Seen:
    """A log as the store shows it."""

    start: int
    next: int
    readable: int
    written: int
    epoch: int
    cursor: tuple[int, int, int] | None  # ready, unacked, returned


class Died(AssertionError):
    """The store's process ended by itself."""


class Worker:
    """The other end of the pipe. Each method is a call; its answer goes back."""

    def __init__(self, data: Path, options: Options) -> None:
        self.data = data
        self.options = options

    def open(self) -> None:
        self.store = Store.open(self.data, self.options)

    def close(self) -> None:
        self.store.close()

    def _log(self, name: str) -> Log:
        return self.store.get(name)

    def _with_room(self, act: Callable[[], T]) -> T:
        return with_room(act, self.store.checkpoint)

    def create(self, name: str, kind: str) -> int:
        return self.store.create(name, flags=KINDS[kind]).id

    def append(self, name: str, specs: Sequence[Spec], unlogged: bool) -> int:
        def append() -> int:
            return self._log(name).append(records(specs), unlogged=unlogged).first_offset

        return self._with_room(append)

    def fanout(self, names: Sequence[str], specs: Sequence[Spec]) -> list[int]:
        logs = [self._log(name) for name in names]

        def fanout() -> list[int]:
            return [done.first_offset for done in self.store.fanout(logs, records(specs))]

        return self._with_room(fanout)

    def transact(
        self,
        appends: Sequence[tuple[str, Sequence[Spec]]],
        settles: Sequence[tuple[str, int, int]],
        commit: bool,
    ) -> None:
        def transact() -> None:
            work = self.store.transaction()
            for name, specs in appends:
                work.append(self._log(name), records(specs))
            for name, first, last in settles:
                work.settle(self._log(name), first, last)
            if commit:
                work.commit()
            else:
                work.rollback()

        self._with_room(transact)

    def acquire(self, name: str, most: int) -> list[int]:
        return self._with_room(lambda: self._log(name).acquire(most))

    def settle(self, name: str, first: int, last: int) -> int:
        return self._with_room(lambda: self._log(name).settle(first, last)[0])

    def give_back(self, name: str, offset: int, counted: bool) -> None:
        self._with_room(lambda: self._log(name).give_back(offset, counted=counted))

    def purge(self, name: str) -> int:
        return self._with_room(lambda: self._log(name).purge()[0])

    def trim(self, name: str, offset: int) -> None:
        self._log(name).trim(offset)

    def truncate(self, name: str, offset: int) -> None:
        self._log(name).truncate(offset)

    def raise_epoch(self, name: str) -> int:
        return self._log(name).bump_epoch()

    def delete(self, name: str) -> None:
        self.store.delete(self._log(name))

    def checkpoint(self) -> None:
        self.store.checkpoint()

    def confirm(self) -> None:
        """All that was done so far is on disk: a trim to the start does nothing and tells the
        last sequence given."""
        for log in self.store:
            self.store.wait(log.trim(0))

    def read(self, name: str, offset: int) -> list[tuple[int, bytes | None, bytes | None, int]]:
        return [(r.offset, r.key, r.value, r.timestamp) for r in self._log(name).records(offset)]

    def counts(self, name: str, offsets: Sequence[int]) -> list[tuple[int, int]]:
        return [self._log(name).counts(offset) for offset in offsets]

    def look(self) -> dict[str, Seen]:
        return {log.name: self._seen(log) for log in self.store}

    def _seen(self, log: Log) -> Seen:
        stat = log.stat()
        cursor = None
        if log.has_cursor:
            found = log.cursor()
            cursor = (found.ready_count, found.unacked_count, found.returned_count)
        return Seen(
            stat.start_offset, stat.next_offset, stat.readable_end, stat.written_offset,
            stat.leader_epoch, cursor,
        )  # fmt: skip

    def reports(self) -> list[tuple[str, str]]:
        return [(report.kind.name, report.text) for report in self.store.reports()]


class RemoteStore:
    def __init__(self, data: Path, options: Options) -> None:
        self._pipe, far = Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self._pipe.close()
            _serve(far, Worker(data, options))
        far.close()

    def ask(self, call: str, *args: Any) -> None:
        """Without waiting: it may not even have begun when this returns."""
        self._pipe.send((call, args))

    def answer(self) -> Any:
        try:
            failed, result = self._pipe.recv()
        except EOFError:
            raise Died(f"the store's process ended with status {self._reap():#x}") from None
        if failed:
            raise result
        return result

    def call(self, call: str, *args: Any) -> Any:
        self.ask(call, *args)
        return self.answer()

    def kill(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self._reap()

    def _reap(self) -> int:
        pid, self._pid = self._pid, 0
        self._pipe.close()
        return os.waitpid(pid, 0)[1]


def _serve(pipe: Connection, worker: Worker) -> NoReturn:
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            call, args = pipe.recv()
            try:
                answer: tuple[bool, Any] = False, getattr(worker, call)(*args)
            except (LogError, KeyError) as error:
                answer = True, error
            except BaseException as error:
                answer = True, AssertionError(f"{call}{args}: {error!r}")
            pipe.send(answer)
    os._exit(0)
