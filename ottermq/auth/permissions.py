"""Permissions of a user in a vhost: configure, write and read, by regular expressions on names.

RabbitMQ's rules. An expression is searched for, so it needs ^ and $ to mean a whole name; an
empty one matches no name. No entry for a vhost: not even the vhost. The default exchange is
asked for as amq.default.

Topic permissions narrow this for one topic exchange, by routing key; without an entry all keys
are free. {username} and {vhost} in them stand for themselves, escaped: RabbitMQ puts them in
raw, and a user called `.*` gets everybody's topics.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ottermq.auth.changes import Change, Changes
from ottermq.auth.database import Database, Statement
from ottermq.auth.users import User, Users
from ottermq.errors import AccessRefused, InvalidRequest, NotAllowed
from ottermq.patterns import BAD_PATTERN, compiled

Access = Literal["configure", "write", "read"]
TopicAccess = Literal["write", "read"]
Kind = Literal["queue", "exchange"]


@dataclass(frozen=True)
class Permission:
    user: str
    vhost: str
    configure: str
    write: str
    read: str


@dataclass(frozen=True)
class TopicPermission:
    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class Permissions:
    def __init__(self, database: Database, users: Users, changes: Changes) -> None:
        self._database = database
        self._users = users
        self._changes = changes
        rows = database.read("SELECT user, vhost, configure, write, read FROM permissions")
        self._granted = {(row[0], row[1]): Permission(*row) for row in rows}
        rows = database.read("SELECT user, vhost, exchange, write, read FROM topic_permissions")
        self._topics = {(row[0], row[1], row[2]): TopicPermission(*row) for row in rows}
        changes.listen(self._drop_deleted)

    # -- asking

    def check_vhost(self, user: User, vhost: str, *, exists: bool = True) -> None:
        """At connection.open. exists: whether there is such a vhost at all."""
        if not exists:
            raise NotAllowed(f"vhost {vhost} not found")
        if not self.has_vhost(user, vhost):
            raise NotAllowed(f"access to vhost '{vhost}' refused for user '{user.name}'")

    def has_vhost(self, user: User, vhost: str) -> bool:
        return (user.name, vhost) in self._granted

    def check(self, user: User, vhost: str, access: Access, kind: Kind, name: str) -> None:
        if not self.allows(user, vhost, access, kind, name):
            name = _shown(kind, name)
            raise AccessRefused(
                f"{access} access to {kind} '{name}' in vhost '{vhost}' refused"
                f" for user '{user.name}'"
            )

    def allows(self, user: User, vhost: str, access: Access, kind: Kind, name: str) -> bool:
        granted = self._granted.get((user.name, vhost))
        if granted is None:
            return False
        pattern: str = getattr(granted, access)
        return _searched(pattern).search(_shown(kind, name)) is not None

    def has_topic_permissions(self, user: User, vhost: str, exchange: str) -> bool:
        """False: every routing key of that exchange is free, there is nothing to check."""
        return (user.name, vhost, exchange) in self._topics

    def check_topic(
        self, user: User, vhost: str, exchange: str, access: TopicAccess, routing_key: str
    ) -> None:
        if not self.allows_topic(user, vhost, exchange, access, routing_key):
            raise AccessRefused(
                f"{access} access to topic '{routing_key}' in exchange topic '{exchange}'"
                f" in vhost '{vhost}' refused for user '{user.name}'"
            )

    def allows_topic(
        self, user: User, vhost: str, exchange: str, access: TopicAccess, routing_key: str
    ) -> bool:
        granted = self._topics.get((user.name, vhost, exchange))
        if granted is None:
            return True
        pattern: str = getattr(granted, access)
        pattern = pattern.replace("{username}", re.escape(user.name))
        pattern = pattern.replace("{vhost}", re.escape(vhost))
        return _searched(pattern).search(routing_key) is not None

    def entries(self, user: str | None = None, vhost: str | None = None) -> list[Permission]:
        return [entry for entry in self._granted.values() if _is_of(entry, user, vhost)]

    def topic_entries(
        self, user: str | None = None, vhost: str | None = None
    ) -> list[TopicPermission]:
        return [entry for entry in self._topics.values() if _is_of(entry, user, vhost)]

    # -- granting

    async def set(self, entry: Permission, *, for_nobody: bool = False) -> bool:
        """False: it is so already. for_nobody: also if there is no such user yet, as Kafka's ACLs
        may be."""
        for pattern in (entry.configure, entry.write, entry.read):
            _validate(pattern)
        async with self._changes.one_at_a_time:
            if not for_nobody:
                self._users.existing(entry.user)
            if self._granted.get((entry.user, entry.vhost)) == entry:
                return False
            values = (entry.user, entry.vhost, entry.configure, entry.write, entry.read)
            sql = "REPLACE INTO permissions VALUES (?, ?, ?, ?, ?)"
            await self._database.commit([(sql, values)])
            self._granted[entry.user, entry.vhost] = entry
        self._changes.tell(Change(entry.user, entry.vhost))
        return True

    async def clear(self, user: str, vhost: str) -> bool:
        """False: there was nothing to take away."""
        async with self._changes.one_at_a_time:
            if (user, vhost) not in self._granted:
                return False
            sql = "DELETE FROM permissions WHERE user = ? AND vhost = ?"
            await self._database.commit([(sql, (user, vhost))])
            del self._granted[user, vhost]
        self._changes.tell(Change(user, vhost))
        return True

    async def set_topic(self, entry: TopicPermission) -> bool:
        """False: it is so already."""
        for pattern in (entry.write, entry.read):
            _validate(pattern.replace("{username}", "u").replace("{vhost}", "v"))
        key = (entry.user, entry.vhost, entry.exchange)
        async with self._changes.one_at_a_time:
            self._users.existing(entry.user)
            if self._topics.get(key) == entry:
                return False
            sql = "REPLACE INTO topic_permissions VALUES (?, ?, ?, ?, ?)"
            await self._database.commit([(sql, (*key, entry.write, entry.read))])
            self._topics[key] = entry
        self._changes.tell(Change(entry.user, entry.vhost))
        return True

    async def clear_topic(self, user: str, vhost: str, exchange: str | None = None) -> bool:
        """exchange is None: of all of them. False: there was nothing to take away."""
        async with self._changes.one_at_a_time:
            gone = [
                key
                for key in self._topics
                if key[:2] == (user, vhost) and exchange in (None, key[2])
            ]
            if not gone:
                return False
            sql = "DELETE FROM topic_permissions WHERE user = ? AND vhost = ? AND exchange = ?"
            await self._database.commit([(sql, key) for key in gone])
            for key in gone:
                del self._topics[key]
        self._changes.tell(Change(user, vhost))
        return True

    async def clear_vhost(self, vhost: str) -> None:
        async with self._changes.one_at_a_time:
            await self._database.commit(
                [
                    ("DELETE FROM permissions WHERE vhost = ?", (vhost,)),
                    ("DELETE FROM topic_permissions WHERE vhost = ?", (vhost,)),
                ]
            )
            self._keep(lambda _, place: place != vhost)
        self._changes.tell(Change(vhost=vhost))

    def forget_user(self, user: str) -> list[Statement]:
        """The rows for the transaction that deletes a user; memory follows when it is done."""
        return [
            ("DELETE FROM permissions WHERE user = ?", (user,)),
            ("DELETE FROM topic_permissions WHERE user = ?", (user,)),
        ]

    def _drop_deleted(self, change: Change) -> None:
        if change.deleted:
            self._keep(lambda user, _: user != change.user)

    def _keep(self, wanted: Callable[[str, str], bool]) -> None:
        self._granted = {key: entry for key, entry in self._granted.items() if wanted(*key)}
        self._topics = {key: entry for key, entry in self._topics.items() if wanted(*key[:2])}


def _searched(pattern: str) -> re.Pattern[str]:
    return compiled(pattern or "^$")


def _validate(pattern: str) -> None:
    try:
        compiled(pattern)
    except BAD_PATTERN as error:
        raise InvalidRequest(f"invalid regular expression {pattern!r}: {error}") from None


def _shown(kind: Kind, name: str) -> str:
    return "amq.default" if kind == "exchange" and not name else name


def _is_of(entry: Permission | TopicPermission, user: str | None, vhost: str | None) -> bool:
    return user in (None, entry.user) and vhost in (None, entry.vhost)
