"""A disk that refuses for a while, as SQLite would say it."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from ottermq.topology import MetaDb


class Flaky:
    """In place of a MetaDb's connection."""

    def __init__(self, db: MetaDb) -> None:
        self.connection = db.connection
        self.refuses: sqlite3.Error | None = None
        db.connection = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        if self.refuses and sql == "COMMIT":
            raise self.refuses
        return self.connection.execute(sql, parameters)


def full() -> sqlite3.Error:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error
