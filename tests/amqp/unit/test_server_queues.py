"""queue.* and exchange.*: who may, what is answered, what follows."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from pamqp.commands import Basic, Connection, Exchange, Queue
from pamqp.common import FieldTable

from ottermq.auth import Permission
from ottermq.config.schema import AmqpSettings, Permit
from ottermq.engine.events import QueueIdle, RouteWanted
from ottermq.engine.types import Consumer, QueueFlags, QueueStat
from ottermq.topology import Policy
from tests.amqp.unit.server_harness import Client, Closed, Harness, open_harness
from tests.topology.flaky import Flaky, full


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    async with open_harness(tmp_path) as harness:
        yield harness


@pytest.fixture
async def client(harness: Harness) -> Client:
    return await harness.connected()


def declare(name: str = "q", **options: Any) -> Queue.Declare:
    return Queue.Declare(queue=name, **options)


async def user(harness: Harness, configure: str, write: str, read: str) -> Client:
    await harness.auth.users.put("ann", "secret")
    await harness.auth.permissions.set(Permission("ann", "/", configure, write, read))
    client = harness.client()
    await client.start()
    await client.login("ann", "secret")
    await client.tune()
    await client.call(0, Connection.Open("/"))
    await client.channel()
    return client


def queue_id(harness: Harness, name: str) -> int:
    found = harness.topology.find_queue("/", name)
    assert found is not None
    return found.id


async def test_a_declared_queue_is_in_the_engine_and_answered(
    harness: Harness, client: Client
) -> None:
    (ok,) = await client.call(1, declare("orders", durable=True))
    assert (ok.queue, ok.message_count, ok.consumer_count) == ("orders", 0, 0)
    ((id, name, logs),) = harness.engine.called("add_queue")
    assert (name, logs) == (b"orders", 1)
    assert harness.engine.options_of[id].flags == QueueFlags.DURABLE


async def test_one_that_is_there_is_answered_with_its_counts(
    harness: Harness, client: Client
) -> None:
    await client.call(1, declare("orders"))
    harness.engine.stats[queue_id(harness, "orders")] = QueueStat(ready=7, consumers=2)
    (ok,) = await client.call(1, declare("orders"))
    assert (ok.message_count, ok.consumer_count) == (7, 2)
    (ok,) = await client.call(1, declare("orders", passive=True))
    assert (ok.message_count, ok.consumer_count) == (7, 2)
    assert len(harness.engine.called("add_queue")) == 1


async def test_without_a_name_the_broker_makes_one_up(client: Client) -> None:
    (ok,) = await client.call(1, declare("", exclusive=True))
    assert ok.queue.startswith("amq.gen-")


async def test_no_wait_means_no_answer(harness: Harness, client: Client) -> None:
    assert await client.call(1, declare("quiet", nowait=True)) == []
    assert await client.call(1, Queue.Bind(queue="quiet", exchange="amq.direct", nowait=True)) == []
    assert await client.call(1, Queue.Purge(queue="quiet", nowait=True)) == []
    assert await client.call(1, Queue.Delete(queue="quiet", nowait=True)) == []
    assert harness.topology.find_queue("/", "quiet") is None


async def test_a_purge_waits_while_others_keep_the_disk_busy(
    harness: Harness, client: Client
) -> None:
    await client.call(1, declare("orders"))
    harness.engine.full, harness.engine.purged = 3, 7
    (ok,) = await client.call(1, Queue.Purge(queue="orders"))
    assert (ok.message_count, harness.engine.full) == (7, 0)


async def test_a_queue_that_goes_while_its_purge_waits_is_not_found(
    harness: Harness, client: Client
) -> None:
    await client.call(1, declare("orders"))
    harness.engine.full = 1 << 30
    other = await harness.connected()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other.call, 1, Queue.Delete(queue="orders"))
        with pytest.raises(Closed) as closed:
            await client.call(1, Queue.Purge(queue="orders"))
    assert closed.value.text == "NOT_FOUND - no queue 'orders' in vhost '/'"


async def test_an_empty_name_means_the_queue_declared_last(
    harness: Harness, client: Client
) -> None:
    with pytest.raises(Closed) as closed:
        await client.call(1, Queue.Purge(queue=""))
    assert closed.value.text == "NOT_FOUND - no previously declared queue"
    other = await harness.connected()
    await other.call(1, declare("mine"))
    await other.call(1, Queue.Bind(queue="", exchange="amq.direct", routing_key=""))
    (binding,) = harness.topology.bindings_to(harness.topology.queue("/", "mine"))
    assert binding.key == "mine"


async def test_priorities_are_logs_of_their_own(harness: Harness, client: Client) -> None:
    await client.call(1, declare("jobs", arguments={"x-max-priority": 3}))
    ((_, _, logs),) = harness.engine.called("add_queue")
    assert logs == 4


async def test_arguments_and_policies_reach_the_engine(harness: Harness, client: Client) -> None:
    arguments = {
        "x-queue-type": "quorum",
        "x-message-ttl": 1000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        "x-overflow": "reject-publish",
        "x-single-active-consumer": True,
    }
    await client.call(1, declare("orders", durable=True, arguments=arguments))
    options = harness.engine.options_of[queue_id(harness, "orders")]
    assert options.flags == (
        QueueFlags.QUORUM
        | QueueFlags.DURABLE
        | QueueFlags.REJECT_PUBLISH
        | QueueFlags.SINGLE_ACTIVE
    )
    assert (options.message_ttl_ms, options.delivery_limit, options.max_length) == (1000, 20, None)
    assert (options.dead_letter_exchange, options.dead_letter_key) == (b"", b"dead")
    policy = Policy("/", "short", "^orders$", {"max-length": 5}, 0, "queues")
    await harness.topology.pending.save(harness.topology.set_policy(policy))
    assert harness.engine.options_of[queue_id(harness, "orders")].max_length == 5


async def test_an_exclusive_queue_is_its_own_connections(harness: Harness, client: Client) -> None:
    await client.call(1, declare("private", exclusive=True))
    other = await harness.connected()
    with pytest.raises(Closed) as closed:
        await other.call(1, declare("private", passive=True))
    assert closed.value.code == 405
    assert closed.value.text == (
        "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'private' in vhost '/'."
        " It could be originally declared on another connection or the exclusive property value"
        " does not match that of the original declaration."
    )


async def test_exclusive_queues_end_with_their_connection(harness: Harness, client: Client) -> None:
    await client.call(1, declare("private", exclusive=True))
    id = queue_id(harness, "private")
    harness.lose(client)
    assert harness.topology.find_queue("/", "private") is None
    assert harness.engine.called("remove_queue") == [(id,)]


async def test_they_are_gone_before_close_ok_leaves(harness: Harness, client: Client) -> None:
    await client.call(1, declare("private", exclusive=True))
    await client.call(0, Connection.Close(200, "", 0, 0))
    assert harness.topology.find_queue("/", "private") is None


async def test_deleting_tells_the_consumers(harness: Harness, client: Client) -> None:
    await client.call(1, declare("orders", durable=True))
    consumer = Consumer(client.id, 1, b"tag", False, False, 0, 0, 0, True)
    harness.engine.who_consumes[queue_id(harness, "orders")] = [consumer]
    harness.engine.stats[queue_id(harness, "orders")] = QueueStat(ready=3, consumers=1)
    ok, cancel = await client.call(1, Queue.Delete(queue="orders"))
    assert ok.message_count == 3
    assert isinstance(cancel, Basic.Cancel) and cancel.consumer_tag == "tag"


async def test_deleting_what_is_not_there_is_no_error(client: Client) -> None:
    (ok,) = await client.call(1, Queue.Delete(queue="never"))
    assert ok.message_count == 0


@pytest.mark.parametrize(
    "condition, stat, text",
    [
        ("if_unused", QueueStat(consumers=1), "queue 'orders' in vhost '/' in use"),
        ("if_empty", QueueStat(ready=1), "queue 'orders' in vhost '/' not empty"),
    ],
)
async def test_a_queue_is_deleted_only_as_asked(
    harness: Harness, client: Client, condition: str, stat: QueueStat, text: str
) -> None:
    await client.call(1, declare("orders"))
    harness.engine.stats[queue_id(harness, "orders")] = stat
    with pytest.raises(Closed) as closed:
        await client.call(1, Queue.Delete(queue="orders", **{condition: True}))
    assert (closed.value.code, closed.value.text) == (406, f"PRECONDITION_FAILED - {text}")


async def test_an_auto_delete_queue_goes_with_its_last_consumer(
    harness: Harness, client: Client
) -> None:
    await client.call(1, declare("temp", auto_delete=True))
    await client.call(1, declare("kept"))
    for name in ("temp", "kept"):
        harness.server.take(QueueIdle(queue_id(harness, name)))
    assert harness.topology.find_queue("/", "temp") is None
    assert harness.topology.find_queue("/", "kept") is not None


async def test_it_stays_when_somebody_came_meanwhile(harness: Harness, client: Client) -> None:
    await client.call(1, declare("temp", auto_delete=True))
    harness.engine.stats[queue_id(harness, "temp")] = QueueStat(consumers=1)
    harness.server.take(QueueIdle(queue_id(harness, "temp")))
    assert harness.topology.find_queue("/", "temp") is not None


async def test_a_queue_nobody_uses_expires(harness: Harness, client: Client) -> None:
    await client.call(1, declare("short", arguments={"x-expires": 50}))
    await client.call(1, declare("used", arguments={"x-expires": 50}))
    harness.engine.stats[queue_id(harness, "short")] = QueueStat(idle_ms=60)
    harness.engine.stats[queue_id(harness, "used")] = QueueStat(idle_ms=60, consumers=1)
    with trio.fail_after(20):
        while harness.topology.find_queue("/", "short"):
            await harness.engine.changed.park()
    assert harness.topology.find_queue("/", "used") is not None


async def test_transient_queues_can_be_refused(tmp_path: Path) -> None:
    settings = replace(AmqpSettings(), permit=replace(Permit(), transient_queues=False))
    async with open_harness(tmp_path, settings) as harness:
        client = await harness.connected()
        await client.call(1, declare("mine", exclusive=True))
        with pytest.raises(Closed) as closed:
            await client.call(1, declare("yours"))
        assert closed.value.code == 541


async def test_permissions_are_asked_for(harness: Harness) -> None:
    client = await user(harness, configure="^mine", write="^mine", read="^mine")
    await client.call(1, declare("mine"))
    with pytest.raises(Closed) as closed:
        await client.call(1, declare("yours"))
    assert (closed.value.code, closed.value.text) == (
        403,
        "ACCESS_REFUSED - configure access to queue 'yours' in vhost '/' refused for user 'ann'",
    )


async def test_binding_needs_to_read_the_exchange_and_write_the_queue(harness: Harness) -> None:
    client = await user(harness, configure="^mine", write="^mine", read="^mine")
    await client.call(1, declare("mine"))
    with pytest.raises(Closed) as closed:
        await client.call(1, Queue.Bind(queue="mine", exchange="amq.topic"))
    assert "read access to exchange 'amq.topic' in vhost '/' refused" in closed.value.text


async def test_a_new_binding_forgets_the_routes_before_bind_ok(
    harness: Harness, client: Client
) -> None:
    await client.call(1, declare("q"))
    publish = RouteWanted(client.id, 1, b"amq.direct", b"k", b"")
    await client.event(publish)
    await client.call(1, Queue.Bind(queue="q", exchange="amq.direct", routing_key="k"))
    assert (1, b"amq.direct") in harness.engine.called("forget_routes")


async def test_exchanges_are_declared_bound_and_deleted(harness: Harness, client: Client) -> None:
    (ok,) = await client.call(1, Exchange.Declare(exchange="x", exchange_type="topic"))
    assert isinstance(ok, Exchange.DeclareOk)
    (ok,) = await client.call(1, Exchange.Bind(destination="x", source="amq.topic"))
    assert isinstance(ok, Exchange.BindOk)
    (ok,) = await client.call(1, Exchange.Unbind(destination="x", source="amq.topic"))
    assert isinstance(ok, Exchange.UnbindOk)
    (ok,) = await client.call(1, Exchange.Delete(exchange="x"))
    assert isinstance(ok, Exchange.DeleteOk)
    assert harness.topology.find_exchange("/", "x") is None


@pytest.mark.parametrize(
    "method, code, text",
    [
        (
            Exchange.Declare(exchange="x", exchange_type="nonsense"),
            406,
            "PRECONDITION_FAILED - unknown exchange type 'nonsense'",
        ),
        (
            Exchange.Declare(exchange="", exchange_type="direct"),
            403,
            "ACCESS_REFUSED - operation not permitted on the default exchange",
        ),
        (
            Exchange.Declare(exchange="amq.mine", exchange_type="direct"),
            403,
            "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'",
        ),
        (
            Exchange.Declare(exchange="nowhere", passive=True),
            404,
            "NOT_FOUND - no exchange 'nowhere' in vhost '/'",
        ),
        (
            Exchange.Delete(exchange="amq.topic"),
            403,
            "ACCESS_REFUSED - deletion of system exchange 'amq.topic' in vhost '/' not allowed",
        ),
        (
            Queue.Bind(queue="amq.rabbitmq.reply-to", exchange="amq.topic"),
            403,
            "ACCESS_REFUSED - cannot bind or unbind to a volatile (direct reply-to) queue",
        ),
        (
            Queue.Declare(queue="amq.mine"),
            403,
            "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
        ),
        (
            Queue.Declare(queue="nowhere", passive=True),
            404,
            "NOT_FOUND - no queue 'nowhere' in vhost '/'",
        ),
    ],
)
async def test_what_is_refused_is_refused_in_these_words(
    client: Client, method: Any, code: int, text: str
) -> None:
    with pytest.raises(Closed) as closed:
        await client.call(1, method)
    assert (closed.value.code, closed.value.text) == (code, text)
    assert closed.value.method == (method.index >> 16, method.index & 0xFFFF)


async def test_a_delayed_exchange_has_a_place_for_what_waits(
    harness: Harness, client: Client
) -> None:
    arguments: FieldTable = {"x-delayed-type": "direct"}
    later = Exchange.Declare(
        exchange="later", exchange_type="x-delayed-message", durable=True, arguments=arguments
    )
    await client.call(1, later)
    exchange = harness.topology.exchange("/", "later")
    assert harness.engine.options_of[exchange.id].flags == QueueFlags.DELAY | QueueFlags.DURABLE
    await client.call(1, Exchange.Delete(exchange="later"))
    assert harness.engine.called("remove_queue") == [(exchange.id,)]


async def test_what_one_declares_another_finds_only_when_it_is_on_disk(
    harness: Harness, client: Client
) -> None:
    other = await harness.connected()
    answers = []

    async def ask(who: Client) -> None:
        answers.append(await who.call(1, declare("shared", durable=True)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, client)
        nursery.start_soon(ask, other)
    assert [type(answer[0]) for answer in answers] == [Queue.DeclareOk, Queue.DeclareOk]
    assert len(harness.engine.called("add_queue")) == 1


async def test_what_a_full_disk_cannot_keep_is_506_and_not_there(
    harness: Harness, client: Client
) -> None:
    disk, other = Flaky(harness.db), await harness.connected()
    disk.refuses = full()
    with pytest.raises(Closed) as closed:
        await client.call(1, declare("big", durable=True))
    assert (closed.value.code, closed.value.connection) == (506, True)
    assert closed.value.text.startswith("RESOURCE_ERROR - ")
    assert harness.topology.find_queue("/", "big") is None
    disk.refuses = None
    await other.call(1, declare("big", durable=True))


@pytest.mark.parametrize("later", [False, True], ids=["at once", "after the disk"])
async def test_a_mistake_of_our_own_is_541_and_costs_one_connection(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    other = await harness.connected()

    def mistake(*_: object) -> None:
        raise ZeroDivisionError

    async def late_mistake(*_: object) -> None:
        mistake()

    with monkeypatch.context() as patched:
        if later:
            patched.setattr(harness.context.queues, "save", late_mistake)
        else:
            patched.setattr(harness.topology, "declare_queue", mistake)
        with pytest.raises(Closed) as closed:
            await client.call(1, declare("q", durable=True))
    assert (closed.value.code, closed.value.connection) == (541, True)
    assert closed.value.text == "INTERNAL_ERROR - the broker made a mistake; its log tells"
    await other.call(1, declare("other", durable=True))
