"""An Auth over a database in memory, and what tests ask of it."""

import base64
import hashlib
import sqlite3
from collections.abc import Sequence
from typing import Any

from ottermq.auth import Auth, Permission, User, open_auth
from ottermq.auth.database import Statement
from ottermq.auth.passwords import RABBIT
from ottermq.config.schema import AuthSettings


class Memory:
    """The tables, without a disk; what was opened on it once can be opened again."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.commits = 0

    async def commit(self, statements: Sequence[Statement]) -> None:
        with self.connection:
            for sql, parameters in statements:
                self.connection.execute(sql, tuple(parameters))
        self.commits += 1

    def define(self, schema: str) -> None:
        self.connection.executescript(schema)

    def read(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, tuple(parameters)).fetchall()


def new_auth(database: Memory | None = None) -> Auth:
    return open_auth(database or Memory(), AuthSettings())


async def with_user(auth: Auth, name: str, configure: str, write: str, read: str) -> User:
    """A user without a password who may do that much in the vhost /."""
    user = await auth.users.put(name)
    await auth.permissions.set(Permission(name, "/", configure, write, read))
    return user


def plain(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()


def rabbit_hash(password: str, algorithm: str = "rabbit_password_hashing_sha256") -> str:
    """As RabbitMQ exports it."""
    salt = b"salt"
    digest = hashlib.new(RABBIT[algorithm], salt + password.encode()).digest()
    return base64.b64encode(salt + digest).decode()
