"""The tables in meta.db that are auth's.

All rows are read once at the start; memory answers every question after that. A change is
committed first and in force after, so that nobody acts on a change that a crash could take back.
"""

from collections.abc import Sequence
from typing import Any, Protocol

Statement = tuple[str, tuple[object, ...]]


class Database(Protocol):
    """ottermq.topology.metadb.MetaDb, as far as we use it."""

    def define(self, schema: str) -> None: ...

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Blocks: for the start."""

    async def commit(self, statements: Sequence[Statement]) -> None:
        """All of them, in one transaction, on disk when this returns."""


SCHEMA = """
    CREATE TABLE IF NOT EXISTS users (
        name TEXT PRIMARY KEY,
        tags TEXT NOT NULL,  -- a JSON list
        hashing_algorithm TEXT NOT NULL,
        password_hash TEXT NOT NULL,
        scram_sha_256 TEXT NOT NULL,
        scram_sha_512 TEXT NOT NULL,
        -- What a definitions file said before a login upgraded it.
        imported_algorithm TEXT NOT NULL,
        imported_hash TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS permissions (
        user TEXT NOT NULL,
        vhost TEXT NOT NULL,
        configure TEXT NOT NULL,
        write TEXT NOT NULL,
        read TEXT NOT NULL,
        PRIMARY KEY (user, vhost)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS topic_permissions (
        user TEXT NOT NULL,
        vhost TEXT NOT NULL,
        exchange TEXT NOT NULL,
        write TEXT NOT NULL,
        read TEXT NOT NULL,
        PRIMARY KEY (user, vhost, exchange)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS limits (
        scope TEXT NOT NULL CHECK (scope IN ('user', 'vhost')),
        owner TEXT NOT NULL,
        name TEXT NOT NULL,
        most INTEGER NOT NULL,
        PRIMARY KEY (scope, owner, name)
    ) WITHOUT ROWID;
    -- What definitions files brought, and the next one may take back.
    CREATE TABLE IF NOT EXISTS defined (
        section TEXT NOT NULL,
        user TEXT NOT NULL,
        vhost TEXT NOT NULL,
        exchange TEXT NOT NULL,
        PRIMARY KEY (section, user, vhost, exchange)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS auth_secrets (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS auth_marks (name TEXT PRIMARY KEY) WITHOUT ROWID;
"""
