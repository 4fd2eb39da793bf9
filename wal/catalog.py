"""The catalogue of the logs: the table `logs` of data/meta.db.

A log's id is given once and never again (AUTOINCREMENT), so that a record in the WAL can't meet
a later log of the same number. A row is on disk before a log's first record is, and gone before
its files are: what the catalogue doesn't name doesn't exist.

Rows are written with synchronous=FULL. A row that goes leaves one in `deleted_logs`, in the same
commit: by it a start knows the files that a deletion has left from those of a log whose row was
lost with meta.db (wal/unknown.py). It goes when no file mentions that log any more.

A queue's row and its log's belong into one commit, made by the module that keeps the queues:
`reserve` hands out the rows for it. Their ids are taken from a lease that is on disk already, so
that an id isn't given again even when that commit never comes.
"""

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

SCHEMA = """
CREATE TABLE IF NOT EXISTS logs (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    vhost  TEXT NOT NULL,
    name   TEXT NOT NULL,
    flags  INTEGER NOT NULL,
    UNIQUE (vhost, name)
);
CREATE TABLE IF NOT EXISTS deleted_logs (
    id     INTEGER PRIMARY KEY,
    vhost  TEXT NOT NULL,
    name   TEXT NOT NULL
);
CREATE TRIGGER IF NOT EXISTS log_deleted AFTER DELETE ON logs BEGIN
    INSERT OR REPLACE INTO deleted_logs VALUES (old.id, old.vhost, old.name);
END
"""
INTERNAL_VHOST = "\0internal"  # where the broker keeps logs of its own: no client can name it
LEASE = 1024  # ids at a time
NAME_LIMIT = 200  # bytes of a folder's name; ext4 takes 255, the id follows


Statement = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Entry:
    id: int
    vhost: str
    name: str
    flags: int

    @property
    def folder(self) -> str:
        """Below the data directory. The id tells apart names that were cut, or used again."""
        return f"vhosts/{_encode_vhost(self.vhost)}/queues/{_encode(self.name)}.{self.id}"


@lru_cache(64)  # a vhost's is asked for with each of its logs
def _encode_vhost(vhost: str) -> str:
    return _encode(vhost)


def _encode(name: str) -> str:
    # A lone dot is the one thing quote() leaves alone that a folder can't be called.
    encoded = quote(name, safe="")[:NAME_LIMIT]
    return encoded.replace(".", "%2E") if not encoded.strip(".") else encoded


def open_to_look(data: Path) -> sqlite3.Connection:
    """meta.db for a reader that doesn't own it: nothing is locked for long, nothing is written."""
    path = data / "meta.db"
    # Without its WAL nobody has it open, and SQLite would make one just to look.
    mode = "mode=ro" if path.with_name("meta.db-wal").exists() else "immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None)


def peek(data: Path) -> list[Entry]:
    with closing(open_to_look(data)) as db:
        return entries(db)


def peek_deleted(data: Path) -> set[str]:
    """Folders that a deletion may have left. None in a meta.db of a version without that table."""
    with closing(open_to_look(data)) as db, suppress(sqlite3.OperationalError):
        return {entry.folder for entry in _deleted(db)}
    return set()


def _deleted(db: sqlite3.Connection) -> list[Entry]:
    rows = db.execute("SELECT id, vhost, name, 0 FROM deleted_logs")
    return [Entry(*row) for row in rows]


def entries(db: sqlite3.Connection) -> list[Entry]:
    return [Entry(*row) for row in db.execute("SELECT id, vhost, name, flags FROM logs")]


class Catalog:
    def __init__(self, data: Path) -> None:
        self._db = sqlite3.connect(data / "meta.db", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(SCHEMA)
        self._leased = iter(range(0))
        self._lock = threading.Lock()  # a connection has one transaction at a time

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield

    def close(self) -> None:
        self._db.close()

    def __iter__(self) -> Iterator[Entry]:
        yield from entries(self._db)

    def add(self, vhost: str, names: Iterable[str], flags: int) -> list[Entry]:
        """All of them in one commit."""
        with self._transaction():
            return [self._insert(vhost, name, flags) for name in names]

    def _insert(self, vhost: str, name: str, flags: int) -> Entry:
        row = self._db.execute(
            "INSERT INTO logs (vhost, name, flags) VALUES (?, ?, ?)", (vhost, name, flags)
        )
        assert row.lastrowid is not None
        return Entry(row.lastrowid, vhost, name, flags)

    def reserve(
        self, vhost: str, names: Sequence[str], flags: int
    ) -> tuple[list[Entry], list[Statement]]:
        """Entries, and the rows that make them last: for the caller's own transaction."""
        entries = [Entry(self._next_id(), vhost, name, flags) for name in names]
        rows: list[Statement] = [
            (
                "INSERT INTO logs (id, vhost, name, flags) VALUES (?, ?, ?, ?)",
                (entry.id, entry.vhost, entry.name, entry.flags),
            )
            for entry in entries
        ]
        return entries, rows

    def _next_id(self) -> int:
        id = next(self._leased, None)
        if id is None:
            self._leased = self._lease()
            id = next(self._leased)
        return id

    def _lease(self) -> Iterator[int]:
        with self._transaction():
            row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'logs'").fetchone()
            if row is None:
                self._db.execute("INSERT INTO sqlite_sequence VALUES ('logs', ?)", (LEASE,))
            else:
                self._db.execute(
                    "UPDATE sqlite_sequence SET seq = seq + ? WHERE name = 'logs'", (LEASE,)
                )
        first = (row[0] if row else 0) + 1
        return iter(range(first, first + LEASE))

    def skip_ids(self, last: int) -> None:
        """No id up to this one is given: logs had them that the table has forgotten."""
        with self._transaction():
            row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'logs'").fetchone()
            if row is None:
                self._db.execute("INSERT INTO sqlite_sequence VALUES ('logs', ?)", (last,))
            elif row[0] < last:
                self._db.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'logs'", (last,))

    def deleted(self) -> list[Entry]:
        """Logs whose deletion is on disk here and may not be everywhere."""
        return _deleted(self._db)

    def forget_deleted(self, ids: Iterable[int]) -> None:
        with self._transaction():
            self._db.executemany("DELETE FROM deleted_logs WHERE id = ?", ((id,) for id in ids))

    @staticmethod
    def removal(id: int) -> Statement:
        """The row's end, for the caller's own transaction."""
        return ("DELETE FROM logs WHERE id = ?", (id,))

    def remove(self, ids: Iterable[int]) -> None:
        with self._transaction():
            self._db.executemany("DELETE FROM logs WHERE id = ?", ((id,) for id in ids))
