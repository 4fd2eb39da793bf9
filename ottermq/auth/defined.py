"""The grants of definitions files, so that the next file can take them back.

A file names users, permissions and topic permissions. A grant of an earlier load that the file no
longer has goes, with the connections and consumers that rested on it. Grants from elsewhere (the
first start, Kafka's ACLs and SCRAM requests) stay; and a file without a section changes nothing
that the section would name.
"""

from collections.abc import Collection
from typing import NamedTuple

from ottermq.auth.database import Database

USERS, PERMISSIONS, TOPIC_PERMISSIONS = "users", "permissions", "topic_permissions"


class Entry(NamedTuple):
    section: str  # of the file
    user: str
    vhost: str = ""
    exchange: str = ""


class Defined:
    def __init__(self, database: Database) -> None:
        self._database = database
        rows = database.read("SELECT section, user, vhost, exchange FROM defined")
        self._all = {Entry(*row) for row in rows}

    def withdrawn(self, now: Collection[Entry], sections: Collection[str]) -> list[Entry]:
        """The grants that a file with these sections takes back; users come last."""
        gone = {each for each in self._all if each.section in sections} - set(now)
        return sorted(gone, key=lambda each: (each.section == USERS, each))

    async def remember(self, now: Collection[Entry], sections: Collection[str]) -> None:
        kept = {each for each in self._all if each.section not in sections}
        wanted = kept | set(now)
        if wanted == self._all:
            return
        delete = "DELETE FROM defined WHERE section = ? AND user = ? AND vhost = ? AND exchange = ?"
        insert = "INSERT INTO defined VALUES (?, ?, ?, ?)"
        await self._database.commit(
            [
                *((delete, tuple(each)) for each in self._all - wanted),
                *((insert, tuple(each)) for each in wanted - self._all),
            ]
        )
        self._all = wanted
