"""Limits: connections and queues per vhost, connections and channels per user, channels per
connection.

RabbitMQ's names, numbers and texts: 0 means none at all, a negative number no limit. A limit
below the present count closes nothing; it only lets no more in.
"""

from collections import Counter
from typing import TypeVar

from ottermq.auth.changes import Change, Changes
from ottermq.auth.database import Database, Statement
from ottermq.auth.users import User, Users
from ottermq.errors import InvalidRequest, NotAllowed, PreconditionFailed

K = TypeVar("K")

USER_LIMITS = ("max-connections", "max-channels")
VHOST_LIMITS = ("max-connections", "max-queues")


class Limits:
    def __init__(self, database: Database, users: Users, changes: Changes) -> None:
        self._database = database
        self._users = users
        self._changes = changes
        rows = database.read("SELECT scope, owner, name, most FROM limits")
        self._most: dict[tuple[str, str, str], int] = {row[:3]: row[3] for row in rows}
        self._connections: Counter[tuple[str, str]] = Counter()  # (scope, owner) → open now
        self._channels: Counter[str] = Counter()  # user → open now
        changes.listen(self._drop_deleted)

    # -- counting

    def connection_opened(self, user: User, vhost: str) -> None:
        """At connection.open, before check_vhost's answer goes out; NotAllowed: and not counted."""
        most = self._reached("vhost", vhost, "max-connections", self._connections["vhost", vhost])
        if most is not None:
            raise NotAllowed(
                f"access to vhost '{vhost}' refused for user '{user.name}':"
                f" connection limit ({most}) is reached"
            )
        open_now = self._connections["user", user.name]
        most = self._reached("user", user.name, "max-connections", open_now)
        if most is not None:
            raise NotAllowed(
                f"connection refused for user '{user.name}':"
                f" user connection limit ({most}) is reached"
            )
        self._connections["vhost", vhost] += 1
        self._connections["user", user.name] += 1

    def connection_closed(self, user: User, vhost: str) -> None:
        _less(self._connections, ("vhost", vhost))
        _less(self._connections, ("user", user.name))

    def channel_opened(self, user: User, open_now: int, channel_max: int) -> None:
        """open_now: channels of that connection; channel_max: as negotiated, 0 is no limit."""
        if channel_max and open_now >= channel_max:
            raise NotAllowed(
                f"number of channels opened ({open_now}) has reached"
                f" the negotiated channel_max ({channel_max})"
            )
        most = self._reached("user", user.name, "max-channels", self._channels[user.name])
        if most is not None:
            raise NotAllowed(
                f"number of channels opened for user '{user.name}' has reached"
                f" the maximum allowed user limit of ({most})"
            )
        self._channels[user.name] += 1

    def channel_closed(self, user: User) -> None:
        _less(self._channels, user.name)

    def check_queues(self, vhost: str, queue: str, queues_now: int) -> None:
        most = self._reached("vhost", vhost, "max-queues", queues_now)
        if most is not None:
            raise PreconditionFailed(
                f"cannot declare queue '{queue}': queue limit in vhost '{vhost}' ({most})"
                " is reached"
            )

    def connections(self, user: str) -> int:
        return self._connections["user", user]

    def _reached(self, scope: str, owner: str, name: str, now: int) -> int | None:
        """The limit, if there is no place under it."""
        most = self._most.get((scope, owner, name), -1)
        return most if 0 <= most <= now else None

    # -- setting

    async def set_user(self, user: str, name: str, most: int) -> None:
        async with self._changes.one_at_a_time:
            self._users.existing(user)
            changed = await self._set("user", user, name, most, USER_LIMITS)
        if changed:
            self._changes.tell(Change(user=user))

    async def set_vhost(self, vhost: str, name: str, most: int) -> None:
        async with self._changes.one_at_a_time:
            changed = await self._set("vhost", vhost, name, most, VHOST_LIMITS)
        if changed:
            self._changes.tell(Change(vhost=vhost))

    async def clear_one(self, scope: str, owner: str, name: str) -> None:
        """scope: user or vhost. A limit that isn't set stays so."""
        async with self._changes.one_at_a_time:
            sql = "DELETE FROM limits WHERE scope = ? AND owner = ? AND name = ?"
            await self._database.commit([(sql, (scope, owner, name))])
            self._most.pop((scope, owner, name), None)
        is_user = scope == "user"
        self._changes.tell(Change(user=owner) if is_user else Change(vhost=owner))

    async def clear_user(self, user: str) -> None:
        async with self._changes.one_at_a_time:
            await self._database.commit(self.forget_user(user))
            self._forget("user", user)
        self._changes.tell(Change(user=user))

    async def clear_vhost(self, vhost: str) -> None:
        async with self._changes.one_at_a_time:
            sql = "DELETE FROM limits WHERE scope = 'vhost' AND owner = ?"
            await self._database.commit([(sql, (vhost,))])
            self._forget("vhost", vhost)
        self._changes.tell(Change(vhost=vhost))

    def of_user(self, user: str) -> dict[str, int]:
        return self._of("user", user)

    def of_vhost(self, vhost: str) -> dict[str, int]:
        return self._of("vhost", vhost)

    def forget_user(self, user: str) -> list[Statement]:
        """The rows for the transaction that deletes a user; memory follows when it is done."""
        return [("DELETE FROM limits WHERE scope = 'user' AND owner = ?", (user,))]

    async def _set(
        self, scope: str, owner: str, name: str, most: int, known: tuple[str, ...]
    ) -> bool:
        """False: it is so already."""
        if name not in known:
            raise InvalidRequest(f"no limit {name} for a {scope}: {' or '.join(known)}")
        if self._most.get((scope, owner, name)) == most:
            return False
        sql = "REPLACE INTO limits VALUES (?, ?, ?, ?)"
        await self._database.commit([(sql, (scope, owner, name, most))])
        self._most[scope, owner, name] = most
        return True

    def _of(self, scope: str, owner: str) -> dict[str, int]:
        return {key[2]: most for key, most in self._most.items() if key[:2] == (scope, owner)}

    def _forget(self, scope: str, owner: str) -> None:
        self._most = {key: most for key, most in self._most.items() if key[:2] != (scope, owner)}

    def _drop_deleted(self, change: Change) -> None:
        if change.deleted and change.user is not None:
            self._forget("user", change.user)


def _less(counter: Counter[K], key: K) -> None:
    """One less; a count of none takes no memory."""
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
