"""meta.db: the broker's durable metadata, in SQLite, with a group commit.

`commit` takes a list of statements and returns when they are on disk. The first caller runs the
transaction in a thread; callers that come while it runs gather, and the next one commits for all:
a declaration costs one fsync or less, and the trio loop never waits for the disk.

A transaction that fails is tried again one caller at a time, so that one bad statement doesn't take
the rest down. When the disk itself refuses, all that wait are refused with it, last one first: a
later change may build on an earlier one.

Other modules keep their tables here too: `define` makes them, `read` reads them at the start. The
log's catalogue has a connection of its own; the rows of a queue's log come with the queue's
(`also`).
"""

import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import trio

from ottermq.topology.change import Statement
from ottermq.wal.errors import LogError, NoSpace, StorageFailure

NAME = "meta.db"
PATIENCE = 60.0  # seconds for the lock, which the log's catalogue takes now and then

Undo = Callable[[LogError], None]


class MetaDb:
    """Use as a context manager, or close it. One process has one."""

    def __init__(self, data: Path) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.connection = sqlite3.connect(
            data / NAME, isolation_level=None, check_same_thread=False, timeout=PATIENCE
        )
        self.lock = threading.Lock()  # held over each transaction
        self._waiting: list[_Waiter] = []
        self._running = False
        self.reading = ""  # the table that was read last, for messages
        self.commits = 0  # transactions, for the metrics and the curious
        try:
            self.connection.execute("PRAGMA journal_mode=WAL")
            self.connection.execute("PRAGMA synchronous=FULL")
        except BaseException:
            self.connection.close()
            raise

    def __enter__(self) -> "MetaDb":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self.lock:
            self.connection.close()

    def define(self, schema: str) -> None:
        """CREATE TABLE IF NOT EXISTS ..., before anything else."""
        with self.lock:
            self.connection.executescript(schema)

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Blocks: for the start."""
        with self.lock:
            self.reading = sql.partition(" FROM ")[2].split(" ", 1)[0]
            return self.connection.execute(sql, parameters).fetchall()

    def commit_now(self, statements: Iterable[Statement]) -> None:
        """Blocks: for the start. LogError: nothing of it is on disk."""
        waiter = _Waiter(list(statements), None)
        self._run([waiter])
        if waiter.error:
            raise waiter.error

    async def commit(self, statements: Sequence[Statement], undo: Undo | None = None) -> None:
        """On disk when it returns, after all that was asked for before. LogError: nothing of it
        is, and `undo` has been called. It can't be cancelled: half done is worse than late."""
        waiter = _Waiter(statements, undo)
        self._waiting.append(waiter)
        with trio.CancelScope(shield=True):
            if self._running:
                await waiter.woken.wait()
            if not waiter.done:
                await self._lead()
        if waiter.error:
            raise waiter.error

    async def _lead(self) -> None:
        """Commit for all that wait, this caller included; then one that came since does."""
        self._running = True
        group, self._waiting = self._waiting, []
        try:
            await trio.to_thread.run_sync(self._run, group)
        finally:
            if any(waiter.disk_failed for waiter in group):
                group, self._waiting = self._refuse(group), []
            for waiter in reversed(group):
                waiter.finish()
            if self._waiting:
                self._waiting[0].woken.set()
            else:
                self._running = False

    def _refuse(self, group: "list[_Waiter]") -> "list[_Waiter]":
        """Refuse the group and all that came since: they may build on changes undone now."""
        error = next(waiter.error for waiter in group if waiter.disk_failed)
        for waiter in self._waiting:
            waiter.error = error
        return group + self._waiting

    def _run(self, group: "list[_Waiter]") -> None:
        """In a thread."""
        with self.lock:
            error = self._transact(group)
            if error is None or len(group) == 1:
                group[0].error = error
                return
            for waiter in group:
                # A disk that failed once isn't asked again: order would be lost.
                waiter.error = error if _is_disk(error) else self._transact([waiter])
                if waiter.disk_failed:
                    error = waiter.error

    def _transact(self, group: "list[_Waiter]") -> LogError | None:
        db = self.connection
        if not any(waiter.statements for waiter in group):
            return None
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                for waiter in group:
                    for sql, parameters in waiter.statements:
                        db.execute(sql, parameters)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        except (sqlite3.Error, OverflowError, TypeError, ValueError) as error:
            return _told(error)
        self.commits += 1
        return None


class _Waiter:
    __slots__ = ("statements", "undo", "woken", "done", "error")

    def __init__(self, statements: Sequence[Statement], undo: Undo | None) -> None:
        self.statements = statements
        self.undo = undo
        self.woken = trio.Event()
        self.done = False
        self.error: LogError | None = None

    @property
    def disk_failed(self) -> bool:
        return self.error is not None and _is_disk(self.error)

    def finish(self) -> None:
        if self.error and self.undo:
            self.undo(self.error)
        self.done = True
        self.woken.set()


class BadStatement(StorageFailure):
    """Our own mistake: a row that breaks the schema. Others' rows don't suffer."""


def _is_disk(error: LogError | None) -> bool:
    return error is not None and not isinstance(error, BadStatement)


def _told(error: Exception) -> LogError:
    text = f"{NAME}: {error}"
    ours = sqlite3.IntegrityError | sqlite3.ProgrammingError | sqlite3.InterfaceError
    if isinstance(error, ours) or not isinstance(error, sqlite3.Error):
        return BadStatement(text)
    full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return NoSpace(text) if full else StorageFailure(text)
