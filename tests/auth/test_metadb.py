"""Users and grants in the real meta.db: there after a restart, and not half there."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ottermq.auth import Permission, TopicPermission, open_auth
from ottermq.auth.database import Statement
from ottermq.config.schema import AuthSettings
from ottermq.topology import MetaDb
from ottermq.wal.errors import NoSpace
from tests.auth.auth_harness import plain

HERE = "127.0.0.1"


async def test_all_of_it_is_there_after_a_restart(tmp_path: Path) -> None:
    with MetaDb(tmp_path) as db:
        auth = open_auth(db, AuthSettings())
        await auth.first_start()
        ann = await auth.users.put("ann", "geheim", ["management"])
        grant = Permission("ann", "/", "a", "b", "c")
        topic = TopicPermission("ann", "/", "amq.topic", "d", "e")
        await auth.permissions.set(grant)
        await auth.permissions.set_topic(topic)
        await auth.limits.set_user("ann", "max-connections", 3)
        await auth.limits.set_vhost("/", "max-queues", 4)
    with MetaDb(tmp_path) as db:
        again = open_auth(db, AuthSettings())
        await again.first_start()
        assert [user.name for user in again.users.all()] == ["ann", "guest"]
        assert again.users.get("ann") == ann
        assert again.permissions.entries("ann") == [grant]
        assert again.permissions.topic_entries() == [topic]
        assert again.limits.of_user("ann") == {"max-connections": 3}
        assert again.limits.of_vhost("/") == {"max-queues": 4}
        assert await again.users.authenticate("PLAIN", plain("ann", "geheim"), HERE) == ann
        await again.delete_user("ann")
    with MetaDb(tmp_path) as db:
        assert [user.name for user in open_auth(db, AuthSettings()).users.all()] == ["guest"]


async def test_what_the_disk_refuses_is_not_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MetaDb(tmp_path) as db:
        auth = open_auth(db, AuthSettings())
        ann = await auth.users.put("ann", "geheim")
        await auth.permissions.set(Permission("ann", "/", "a", "a", "a"))
        told: list[object] = []
        auth.on_change(told.append)

        async def full(
            statements: Sequence[Statement], undo: Callable[[], None] | None = None
        ) -> None:
            raise NoSpace("meta.db: database or disk is full")

        monkeypatch.setattr(db, "commit", full)
        for attempt in (
            auth.users.put("ann", "other"),
            auth.users.put("bob", "x"),
            auth.delete_user("ann"),
            auth.permissions.set(Permission("ann", "/", "b", "b", "b")),
            auth.permissions.clear("ann", "/"),
            auth.limits.set_vhost("/", "max-queues", 0),
            auth.delete_vhost("/"),
        ):
            with pytest.raises(NoSpace):
                await attempt
        assert auth.users.all() == [ann] and told == []
        assert auth.permissions.entries() == [Permission("ann", "/", "a", "a", "a")]
        assert auth.limits.of_vhost("/") == {}
        await auth.users.authenticate("PLAIN", plain("ann", "geheim"), HERE)
