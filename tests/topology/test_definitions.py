"""RabbitMQ's definitions file: read with all its mistakes told, applied, written again."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from ottermq.auth import Auth, open_auth
from ottermq.config.schema import AuthSettings
from ottermq.definitions.apply import apply
from ottermq.definitions.export import export
from ottermq.definitions.parse import parse
from ottermq.definitions.records import DefinitionsError
from ottermq.topology import Change, MetaDb, Topology, restore

# As `rabbitmqctl export_definitions` writes it; the hash is of "test12".
FILE: dict[str, Any] = {
    "rabbit_version": "3.13.1",
    "users": [
        {
            "name": "app",
            "password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR",
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["monitoring"],
            "limits": {"max-connections": 5},
        },
        {"name": "old", "password_hash": "", "tags": "administrator,policymaker"},
    ],
    "vhosts": [{"name": "/"}, {"name": "v", "metadata": {"description": "ours", "tags": []}}],
    "permissions": [
        {"user": "app", "vhost": "v", "configure": "^a", "write": ".*", "read": ""},
    ],
    "topic_permissions": [
        {"user": "app", "vhost": "v", "exchange": "x", "write": "^a", "read": ".*"}
    ],
    "parameters": [
        {"vhost": "v", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 5}},
        {"vhost": "v", "component": "shovel", "name": "s", "value": {"src-queue": "q"}},
        {
            "vhost": "v",
            "component": "operator_policy",
            "name": "op",
            "value": {"pattern": "q", "priority": 0, "definition": {"max-length": 3}},
        },
    ],
    "global_parameters": [{"name": "cluster_name", "value": "rabbit@here"}],
    "policies": [
        {
            "vhost": "v",
            "name": "p",
            "pattern": "^q",
            "apply-to": "queues",
            "definition": {"max-length": 9},
            "priority": 1,
        }
    ],
    "queues": [
        {"name": "q", "vhost": "v", "durable": True, "auto_delete": False, "arguments": {}},
        {"name": "amq.gen-kept", "vhost": "v", "durable": True, "arguments": []},
        {"name": "quorum", "vhost": "v", "arguments": {"x-queue-type": "quorum"}},
    ],
    "exchanges": [
        {"name": "x", "vhost": "v", "type": "topic", "durable": True, "arguments": {}},
        {"name": "amq.topic", "vhost": "v", "type": "topic", "durable": True},
    ],
    "bindings": [
        {
            "source": "x",
            "vhost": "v",
            "destination": "q",
            "destination_type": "queue",
            "routing_key": "a.#",
            "arguments": {},
        },
        {"source": "amq.topic", "vhost": "v", "destination": "x", "destination_type": "exchange"},
        {"source": "", "vhost": "v", "destination": "q", "routing_key": "q"},
    ],
}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[MetaDb]:
    with MetaDb(tmp_path) as db:
        yield db


@pytest.fixture
def topology(db: MetaDb) -> Topology:
    return restore(db)


@pytest.fixture
def auth(db: MetaDb) -> Auth:
    return open_auth(db, AuthSettings())


async def load(topology: Topology, auth: Auth, **sections: Any) -> None:
    await apply(parse(json.dumps(sections)), topology, auth)


async def test_an_operator_policy_as_3_10_writes_it(topology: Topology, auth: Auth) -> None:
    value = {"pattern": "q", "definition": [["expires", 100_000], ["max-length", 5]]}
    policy = {"vhost": "/", "component": "operator_policy", "name": "op", "value": value}
    await load(topology, auth, vhosts=[{"name": "/"}], parameters=[policy])
    queue = topology.declare_queue("/", "q").queue
    assert queue is not None
    settings = topology.effective(queue)
    assert (settings.max_length, settings.expires_ms) == (5, 100_000)


async def test_a_file_is_brought_into_force(topology: Topology, auth: Auth) -> None:
    await load(topology, auth, **FILE)
    queue = topology.queue("v", "q")
    assert topology.route("v", "x", "a.b").queues == (queue,)
    assert topology.effective(queue).max_length == 3  # the operator's
    assert topology.queue("v", "quorum").type == "quorum"
    assert topology.find_queue("v", "amq.gen-kept")
    assert topology.vhost("v").options.description == "ours"
    assert topology.vhost("v").parameters == {("shovel", "s"): {"src-queue": "q"}}
    assert auth.limits.of_vhost("v") == {"max-queues": 5}
    app = await auth.users.check_password("app", "test12", "127.0.0.1")
    assert app.tags == ("monitoring",) and auth.limits.of_user("app") == {"max-connections": 5}
    assert auth.permissions.allows(app, "v", "configure", "queue", "a1")
    assert not auth.permissions.allows_topic(app, "v", "x", "write", "b")
    assert auth.users.existing("old").tags == ("administrator", "policymaker")


async def test_twice_is_the_same_as_once(db: MetaDb, topology: Topology, auth: Auth) -> None:
    await load(topology, auth, **FILE)
    first = export(topology, auth)
    queue = topology.queue("v", "q")
    await load(topology, auth, **FILE)
    assert export(topology, auth) == first
    assert topology.queue("v", "q") is queue


async def test_what_is_there_stays_as_it_is(topology: Topology, auth: Auth) -> None:
    await topology.pending.save(topology.declare_queue("/", "q", arguments={"x-max-length": 1}))
    await load(topology, auth, queues=[{"name": "q", "vhost": "/", "durable": True}])
    assert not topology.queue("/", "q").durable


async def test_an_export_makes_the_same_broker_elsewhere(
    topology: Topology, auth: Auth, tmp_path: Path
) -> None:
    await load(topology, auth, **FILE)
    text = export(topology, auth)
    with MetaDb(tmp_path / "other") as db:
        other, others = restore(db), open_auth(db, AuthSettings())
        await apply(parse(text), other, others)
        assert json.loads(export(other, others)) == json.loads(text)
    held = json.loads(text)
    assert not any(each["name"].startswith("amq.") for each in held["exchanges"])
    assert {"vhost": "v", "component": "vhost-limits", "name": "limits",
            "value": {"max-queues": 5}} in held["parameters"]  # fmt: skip


async def test_what_does_not_last_is_not_exported(topology: Topology, auth: Auth) -> None:
    await topology.pending.save(topology.declare_queue("/", "transient"))
    await topology.pending.save(topology.declare_exchange("/", "x", "fanout"))
    held = json.loads(export(topology, auth))
    assert held["queues"] == [] and held["exchanges"] == [] and held["bindings"] == []


async def test_new_queues_bring_their_logs_rows(db: MetaDb, topology: Topology, auth: Auth) -> None:
    db.define("CREATE TABLE rows (name TEXT)")

    class Running:
        """A broker's queues, as far as definitions know them."""

        def settings_later(self) -> AbstractContextManager[None]:
            return nullcontext()

        def declared(self, change: Change) -> None:
            if change.created and change.queue:
                row = ("INSERT INTO rows VALUES (?)", (change.queue.name,))
                change.statements.append(row)

        async def save(self, *changes: Change) -> None:
            await topology.pending.save(*changes)

    definitions = parse(json.dumps(FILE))
    await apply(definitions, topology, auth, Running())
    await apply(definitions, topology, auth, Running())
    assert sorted(db.read("SELECT name FROM rows")) == [("amq.gen-kept",), ("q",), ("quorum",)]


async def test_a_plain_password_put_again_closes_nobody(topology: Topology, auth: Auth) -> None:
    user = {"name": "u", "password": "secret", "tags": []}
    await load(topology, auth, users=[user])
    closing: list[str | None] = []
    auth.on_change(lambda change: closing.append(change.closing))
    await load(topology, auth, users=[user])
    assert not any(closing)
    assert await auth.users.check_password("u", "secret", "127.0.0.1")


def test_every_mistake_is_told_with_its_place() -> None:
    with pytest.raises(DefinitionsError) as caught:
        parse(
            json.dumps(
                {
                    "queues": [
                        {"name": "q", "vhost": "/", "durable": "yes"},
                        {"vhost": "/"},
                        {"name": "fine", "vhost": "/"},
                        7,
                    ],
                    "exchanges": {"x": 1},
                    "bindings": [
                        {"source": "a", "vhost": "/", "destination": "b", "destination_type": "t"}
                    ],
                    "policies": [
                        {"vhost": "/", "name": "p", "pattern": "(", "definition": {"expires": 1}},
                        {"vhost": "/", "name": "p", "pattern": "", "definition": {"expires": 0}},
                    ],
                    "users": [{"name": "u", "tags": 5}],
                }
            )
        )
    lines = caught.value.lines
    assert 'queues[0]: durable must be true or false, not "yes"' in lines
    assert "queues[1]: name is missing" in lines
    assert "queues[3]: must be an object, not 7" in lines
    assert 'exchanges must be a list, not {"x": 1}' in lines
    assert 'bindings[0]: destination_type must be queue or exchange, not "t"' in lines
    assert "users[0]: tags must be a list of texts, not 5" in lines
    assert any(line.startswith("policies[0]: ") for line in lines)
    assert any("0 is not a valid queue expiry" in line for line in lines)
    assert len(lines) == 8


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "7"])
def test_what_is_no_definitions_file_is_one_line(text: str) -> None:
    with pytest.raises(DefinitionsError) as caught:
        parse(text)
    assert len(caught.value.lines) == 1


async def test_what_the_rules_refuse_leaves_the_topology_as_it_was(
    topology: Topology, auth: Auth
) -> None:
    with pytest.raises(DefinitionsError) as caught:
        await load(
            topology,
            auth,
            vhosts=[{"name": "v"}],
            queues=[
                {"name": "fine", "vhost": "v"},
                {"name": "q", "vhost": "v", "arguments": {"x-max-length": -1}},
                {"name": "q", "vhost": "nowhere"},
            ],
            bindings=[{"source": "none", "vhost": "/", "destination": "q"}],
        )
    assert caught.value.lines == (
        "queues[1]: invalid arg 'x-max-length' for queue 'q' in vhost 'v': {value_negative,-1}",
        "queues[2]: vhost nowhere not found",
        "bindings[0]: no exchange 'none' in vhost '/'",
    )
    assert list(topology.vhosts) == ["/"]


async def test_a_permission_for_nobody_is_told(topology: Topology, auth: Auth) -> None:
    permission = {"user": "nobody", "vhost": "/", "configure": "", "write": "", "read": ""}
    with pytest.raises(DefinitionsError, match=r"^permissions\[0\]: no user 'nobody'$"):
        await load(topology, auth, permissions=[permission])
