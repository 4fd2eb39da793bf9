"""What is durable is there after a reopen; what the disk refused never was."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
import trio

from ottermq.topology import Change, MetaDb, Policy, Topology, VHostOptions, restore
from ottermq.wal import Store
from ottermq.wal.catalog import Catalog
from ottermq.wal.errors import NoSpace, StorageFailure
from tests.topology.flaky import Flaky, full
from tests.wal.stores import SMALL


@pytest.fixture
def db(tmp_path: Path) -> Iterator[MetaDb]:
    with MetaDb(tmp_path) as db:
        yield db


@pytest.fixture
def flaky(db: MetaDb) -> Flaky:
    return Flaky(db)


async def save(topology: Topology, *changes: Change) -> None:
    for change in changes:
        await topology.pending.save(change)


def names(topology: Topology, vhost: str = "/") -> list[str]:
    return sorted(topology.vhost(vhost).queues)


async def test_all_that_is_durable_comes_back(tmp_path: Path) -> None:
    odd = {"bytes": b"\xff", "when": datetime(2026, 1, 2, tzinfo=UTC), "much": Decimal("1.5")}
    with MetaDb(tmp_path) as db:
        topology = restore(db)
        await save(
            topology,
            topology.create_vhost("v", VHostOptions("ours", ("a", "b"), "quorum")),
            topology.set_policy(Policy("v", "p", "^q", {"max-length": 7}, 3, "queues")),
            topology.set_policy(Policy("v", "o", "^q", {"max-length": 5}, operator=True)),
            topology.set_policy(Policy("v", "ae", "^x$", {"alternate-exchange": "y"})),
            topology.set_parameter("v", "shovel", "s", {"src": "a"}),
            topology.set_global_parameter("cluster", "name"),
            topology.declare_exchange("v", "x", "topic", durable=True),
            topology.declare_exchange("v", "y", "fanout", durable=True, internal=True),
            topology.declare_queue("v", "q", durable=True, arguments={"x-message-ttl": 9}),
            topology.declare_queue("v", "late", durable=True),
            topology.bind("v", "x", "q", "a.#", odd),
            topology.bind("v", "y", "late"),
            topology.bind("v", "amq.headers", "x", "", {"h": True}, kind="exchange"),
        )
    with MetaDb(tmp_path) as db:
        topology = restore(db)
        vhost = topology.vhost("v")
        assert vhost.options == VHostOptions("ours", ("a", "b"), "quorum")
        assert vhost.parameters == {("shovel", "s"): {"src": "a"}}
        assert topology.global_parameters == {"cluster": "name"}
        queue = topology.queue("v", "q")
        assert queue.durable and queue.type == "quorum"
        settings = topology.effective(queue)
        assert (settings.message_ttl_ms, settings.max_length) == (9, 5)
        assert topology.route("v", "x", "a.b").queues == (queue,)
        (binding,) = topology.bindings_to(queue)
        assert binding.arguments == odd
        late = topology.queue("v", "late")
        assert topology.route("v", "x", "nowhere").queues == (late,)  # the policy's alternate
        assert topology.exchange("v", "y").internal
        assert topology.route("v", "amq.headers", "a.b", {"h": True}).queues == (queue,)
        assert not topology.bind("v", "x", "q", "a.#", odd).created


async def test_what_is_not_durable_does_not(tmp_path: Path) -> None:
    with MetaDb(tmp_path) as db:
        topology = restore(db)
        await save(
            topology,
            topology.declare_queue("/", "kept", durable=True),
            topology.declare_queue("/", "transient"),
            topology.declare_queue("/", "mine", durable=True, exclusive=True, connection=1),
            topology.declare_exchange("/", "x", "fanout"),
            topology.bind("/", "x", "kept"),
            topology.bind("/", "amq.fanout", "transient"),
            topology.bind("/", "amq.fanout", "kept"),
        )
    with MetaDb(tmp_path) as db:
        topology = restore(db)
        assert names(topology) == ["kept"]
        assert topology.find_exchange("/", "x") is None
        assert len(topology.route("/", "amq.fanout", "").queues) == 1


async def test_what_was_deleted_stays_gone_with_its_bindings(tmp_path: Path) -> None:
    with MetaDb(tmp_path) as db:
        topology = restore(db)
        await save(
            topology,
            topology.create_vhost("v"),
            topology.declare_queue("v", "q", durable=True),
            topology.delete_vhost("v"),
            topology.declare_exchange("/", "x", "fanout", durable=True, auto_delete=True),
            topology.declare_queue("/", "q", durable=True),
            topology.bind("/", "x", "q"),
            topology.bind("/", "amq.direct", "q", "k"),
            topology.delete_queue("/", "q"),
            topology.set_policy(Policy("/", "p", ".", {"max-length": 1})),
            topology.clear_policy("/", "p"),
        )
        tables = ("queues", "bindings", "exchanges", "parameters")
        assert [db.read(f"SELECT * FROM {table}") for table in tables] == [[]] * 4
    with MetaDb(tmp_path) as db:
        assert list(restore(db).vhosts) == ["/"]


async def test_many_declarations_share_a_commit(db: MetaDb) -> None:
    topology = restore(db)
    before = db.commits
    async with trio.open_nursery() as nursery:
        for number in range(500):
            change = topology.declare_queue("/", f"q{number}", durable=True)
            nursery.start_soon(topology.pending.save, change)
    assert db.commits - before <= 10
    assert len(db.read("SELECT name FROM queues")) == 500


async def test_a_queue_found_is_answered_when_it_is_on_disk(db: MetaDb) -> None:
    topology = restore(db)
    told: list[str] = []

    async def declare(who: str, change: Change) -> None:
        await topology.pending.save(change)
        assert db.read("SELECT name FROM queues") == [("q",)]
        told.append(who)

    async with trio.open_nursery() as nursery:
        first = topology.declare_queue("/", "q", durable=True)
        again = topology.declare_queue("/", "q", durable=True)
        assert again.maker is first
        # The one that only found it asks first, and still doesn't get ahead of the disk.
        nursery.start_soon(declare, "again", again)
        nursery.start_soon(declare, "first", first)
    assert sorted(told) == ["again", "first"]
    assert not topology.declare_queue("/", "q", durable=True).maker


async def test_rows_keep_the_order_of_events_whoever_saves_first(tmp_path: Path) -> None:
    with MetaDb(tmp_path) as db:
        topology = restore(db)
        await save(
            topology,
            topology.declare_queue("/", "q", durable=True),
            topology.bind("/", "amq.direct", "q", "k"),
        )
        gone = topology.delete_queue("/", "q")
        back = topology.declare_queue("/", "q", durable=True, auto_delete=True)
        bound = topology.bind("/", "amq.direct", "q", "k")
        await save(topology, bound, back, gone)  # backwards
    with MetaDb(tmp_path) as db:
        topology = restore(db)
        assert topology.queue("/", "q").auto_delete
        assert len(topology.route("/", "amq.direct", "k").queues) == 1


@pytest.mark.parametrize(
    ("refusal", "raised"),
    [
        (full(), NoSpace),
        (sqlite3.OperationalError("disk I/O error"), StorageFailure),
    ],
)
async def test_what_the_disk_refuses_is_undone(
    db: MetaDb, flaky: Flaky, refusal: sqlite3.Error, raised: type[Exception]
) -> None:
    topology = restore(db)
    await save(
        topology,
        topology.declare_queue("/", "kept", durable=True),
        topology.bind("/", "amq.direct", "kept", "k"),
    )
    kept = topology.queue("/", "kept")
    flaky.refuses = refusal
    for change in (
        topology.declare_queue("/", "new", durable=True),
        topology.declare_exchange("/", "x", "fanout", durable=True),
        topology.bind("/", "amq.topic", "kept", "k"),
        topology.delete_queue("/", "kept"),
        topology.set_policy(Policy("/", "p", ".", {"max-length": 1})),
        topology.create_vhost("v"),
    ):
        with pytest.raises(raised, match="meta.db: "):
            await topology.pending.save(change)
    assert names(topology) == ["kept"] and topology.queue("/", "kept") is kept
    assert topology.find_exchange("/", "x") is None
    assert topology.route("/", "amq.direct", "k").queues == (kept,)
    assert topology.route("/", "amq.topic", "k").queues == ()
    assert not topology.vhost("/").policies and list(topology.vhosts) == ["/"]
    flaky.refuses = None  # and when there is room again, all of it works
    await save(topology, topology.declare_queue("/", "new", durable=True))
    assert db.read("SELECT name FROM queues") == [("kept",), ("new",)]


async def test_who_waits_behind_a_refusal_is_refused_too(db: MetaDb, flaky: Flaky) -> None:
    topology = restore(db)
    flaky.refuses = full()
    refused: list[str] = []

    async def declare(change: Change, name: str) -> None:
        with pytest.raises(NoSpace):
            await topology.pending.save(change)
        refused.append(name)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            queue = topology.declare_queue("/", f"q{number}", durable=True)
            bound = topology.bind("/", "amq.direct", f"q{number}", "k")
            nursery.start_soon(declare, queue, f"q{number}")
            nursery.start_soon(declare, bound, f"b{number}")
    assert len(refused) == 40
    assert names(topology) == [] and topology.route("/", "amq.direct", "k").queues == ()
    assert db.read("SELECT name FROM queues") == []


async def test_a_bad_statement_is_its_callers_trouble_only(db: MetaDb) -> None:
    topology = restore(db)
    db.define("CREATE TABLE things (name TEXT PRIMARY KEY NOT NULL)")
    undone: list[str] = []

    async def fail() -> None:
        with pytest.raises(StorageFailure, match="NOT NULL"):
            await db.commit(
                [("INSERT INTO things VALUES (NULL)", ())], lambda _: undone.append("it")
            )

    async with trio.open_nursery() as nursery:
        for number in range(10):
            change = topology.declare_queue("/", f"q{number}", durable=True)
            nursery.start_soon(topology.pending.save, change)
            nursery.start_soon(fail)
    assert len(db.read("SELECT * FROM queues")) == 10
    assert undone == ["it"] * 10


async def test_rows_given_to_a_change_are_saved_with_it(db: MetaDb) -> None:
    topology = restore(db)
    db.define("CREATE TABLE things (name TEXT)")
    for name, durable in (("a", True), ("b", False)):
        change = topology.declare_queue("/", name, durable=durable)
        change.statements.append(("INSERT INTO things VALUES (?)", (name,)))
        await topology.pending.save(change)
        await topology.pending.save(change)  # twice is once
    assert db.read("SELECT name FROM things") == [("a",), ("b",)]


async def test_a_commit_under_way_is_not_cancelled(db: MetaDb) -> None:
    topology = restore(db)
    with trio.CancelScope() as scope:
        scope.cancel()
        await topology.pending.save(topology.declare_queue("/", "q", durable=True))
    assert db.read("SELECT name FROM queues") == [("q",)]


async def test_a_queue_and_its_log_are_one_commit(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store, MetaDb(tmp_path) as db:
        topology = restore(db)
        for name in ("kept", "gone"):
            change = topology.declare_queue("/", name, durable=True)
            _, rows = store.reserve([name])
            before = db.commits
            await topology.pending.save(change, also=rows)
            assert db.commits == before + 1
        log = store.get("gone")
        await topology.pending.save(
            topology.delete_queue("/", "gone"), also=[Catalog.removal(log.id)]
        )
        store.discard(log)
    with Store.open(tmp_path, SMALL) as store, MetaDb(tmp_path) as db:
        assert names(restore(db)) == ["kept"]
        assert [log.name for log in store] == ["kept"]
