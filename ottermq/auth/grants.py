"""The grants of Kafka's ACLs on groups and transactional ids, each as it was asked for.

They are apart from permissions, which are about queues: a user who may take part in a group of any
name (`kafka-acls --consumer --group '*'`) may not read queues of any name. Permissions on a name
count for a group of that name, too, also those of users that came from RabbitMQ.

A grant may be for somebody who is no user yet, as in Kafka. A user's grants go with the user.
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from ottermq.auth.changes import Change, Changes
from ottermq.auth.database import Database, Statement

ALL = "ALL"

SCHEMA = """
    CREATE TABLE IF NOT EXISTS kafka_grants (
        user TEXT NOT NULL,
        vhost TEXT NOT NULL,
        resource TEXT NOT NULL,   -- GROUP, TRANSACTIONAL_ID
        name TEXT NOT NULL,
        pattern TEXT NOT NULL,    -- LITERAL (of which * is all names), PREFIXED
        operation TEXT NOT NULL,  -- Kafka's, such as READ
        PRIMARY KEY (user, vhost, resource, name, pattern, operation)
    ) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Grant:
    user: str
    vhost: str
    resource: str
    name: str
    pattern: str
    operation: str

    def fits(self, resource: str, name: str) -> bool:
        if resource != self.resource:
            return False
        if self.pattern == "PREFIXED":
            return name.startswith(self.name)
        return self.name in ("*", name)


class Grants:
    def __init__(self, database: Database, changes: Changes) -> None:
        database.define(SCHEMA)
        self._database = database
        self._changes = changes
        self._of: dict[tuple[str, str], set[Grant]] = {}
        for row in database.read("SELECT * FROM kafka_grants"):
            self._keep(Grant(*row))
        changes.listen(self._drop_deleted)

    def _keep(self, grant: Grant) -> None:
        self._of.setdefault((grant.user, grant.vhost), set()).add(grant)

    def allows(
        self, user: str, vhost: str, resource: str, name: str, operations: Iterable[str]
    ) -> bool:
        """Any of these operations; ALL is all of them."""
        wanted = {*operations, ALL}
        return any(
            grant.operation in wanted and grant.fits(resource, name)
            for grant in self._of.get((user, vhost), ())
        )

    def entries(self, vhost: str) -> list[Grant]:
        return [each for (_, place), some in self._of.items() if place == vhost for each in some]

    async def add(self, grant: Grant) -> None:
        async with self._changes.one_at_a_time:
            sql = "INSERT OR IGNORE INTO kafka_grants VALUES (?, ?, ?, ?, ?, ?)"
            await self._database.commit([(sql, astuple(grant))])
            self._keep(grant)
        self._changes.tell(Change(grant.user, grant.vhost))

    async def remove(self, grant: Grant) -> None:
        async with self._changes.one_at_a_time:
            sql = (
                "DELETE FROM kafka_grants WHERE user = ? AND vhost = ? AND resource = ?"
                " AND name = ? AND pattern = ? AND operation = ?"
            )
            await self._database.commit([(sql, astuple(grant))])
            self._of.get((grant.user, grant.vhost), set()).discard(grant)
        self._changes.tell(Change(grant.user, grant.vhost))

    def forget_user(self, user: str) -> list[Statement]:
        """The rows for the transaction that deletes a user; memory follows when it is done."""
        return [("DELETE FROM kafka_grants WHERE user = ?", (user,))]

    def _drop_deleted(self, change: Change) -> None:
        if change.deleted:
            self._of = {key: some for key, some in self._of.items() if key[0] != change.user}
