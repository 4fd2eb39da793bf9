"""Which logs there are: the table `logs` of data/meta.db.

A log's id is given once and never again (AUTOINCREMENT), so that a record in the WAL can't meet
a later log of the same number. A row is on disk before a log's first record is, and gone before
its files are: what the catalogue doesn't name doesn't exist.

Rows are written with synchronous=FULL. A deletion is a WAL record first, then the row, then the
files; a crash in between is finished at the next start, in the same order.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

SCHEMA = """
CREATE TABLE IF NOT EXISTS logs (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    vhost  TEXT NOT NULL,
    name   TEXT NOT NULL,
    flags  INTEGER NOT NULL,
    UNIQUE (vhost, name)
)
"""
NAME_LIMIT = 200  # bytes of a folder's name; ext4 takes 255, the id follows


@dataclass(frozen=True, slots=True)
class Entry:
    id: int
    vhost: str
    name: str
    flags: int

    @property
    def folder(self) -> str:
        """Below the data directory. The id tells apart what was cut or deleted and made again."""
        return f"vhosts/{_encode_vhost(self.vhost)}/queues/{_encode(self.name)}.{self.id}"


@lru_cache(64)  # a vhost's is asked for with each of its logs
def _encode_vhost(vhost: str) -> str:
    return _encode(vhost)


def _encode(name: str) -> str:
    # A lone dot is the one thing quote() leaves alone that a folder can't be called.
    encoded = quote(name, safe="")[:NAME_LIMIT]
    return encoded.replace(".", "%2E") if not encoded.strip(".") else encoded


def peek(data: Path) -> list[Entry]:
    """The rows as a stranger sees them: nothing is locked for long, nothing is written."""
    path = data / "meta.db"
    # Without its WAL nobody has it open, and SQLite would make one just to look.
    mode = "mode=ro" if path.with_name("meta.db-wal").exists() else "immutable=1"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)) as db:
        return [Entry(*row) for row in db.execute("SELECT id, vhost, name, flags FROM logs")]


class Catalog:
    def __init__(self, data: Path) -> None:
        self._db = sqlite3.connect(data / "meta.db", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(SCHEMA)

    def close(self) -> None:
        self._db.close()

    def __iter__(self) -> Iterator[Entry]:
        for row in self._db.execute("SELECT id, vhost, name, flags FROM logs"):
            yield Entry(*row)

    def add(self, vhost: str, names: Iterable[str], flags: int) -> list[Entry]:
        """All of them in one commit."""
        with self._db:
            self._db.execute("BEGIN")
            return [self._insert(vhost, name, flags) for name in names]

    def _insert(self, vhost: str, name: str, flags: int) -> Entry:
        row = self._db.execute(
            "INSERT INTO logs (vhost, name, flags) VALUES (?, ?, ?)", (vhost, name, flags)
        )
        assert row.lastrowid is not None
        return Entry(row.lastrowid, vhost, name, flags)

    def remove(self, ids: Iterable[int]) -> None:
        with self._db:
            self._db.execute("BEGIN")
            self._db.executemany("DELETE FROM logs WHERE id = ?", ((id,) for id in ids))
