"""basic.*, confirm.* and tx.* as far as they are Python's, and the routes C asks for."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pamqp.commands import Basic, Confirm, Connection, Exchange, Queue, Tx
from pamqp.common import FieldTable

from ottermq.auth import Permission, TopicPermission
from ottermq.config.schema import AmqpSettings, Permit
from ottermq.engine.events import ConsumerTimedOut, DeadRouteWanted, RouteWanted
from ottermq.engine.types import Added, Consume, RouteFlags, StreamStart
from tests.amqp.unit.server_harness import Client, Closed, Harness, open_harness

STREAM: FieldTable = {"x-queue-type": "stream"}


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    async with open_harness(tmp_path) as harness:
        yield harness


@pytest.fixture
async def client(harness: Harness) -> Client:
    return await harness.connected()


def consumer(harness: Harness) -> Consume:
    found = harness.engine.called("add_consumer")[-1][2]
    assert isinstance(found, Consume)
    return found


def publishing(client: Client, exchange: str, key: str = "", headers: Any = None) -> RouteWanted:
    raw = Basic.Properties(headers=headers).marshal() if headers else b"\0\0"
    return RouteWanted(client.id, 1, exchange.encode(), key.encode(), raw)


def id_of(harness: Harness, name: str) -> int:
    return harness.topology.queue("/", name).id


# -- qos


async def test_prefetch_is_for_the_consumers_to_come(harness: Harness, client: Client) -> None:
    await client.call(1, Queue.Declare(queue="q"))
    (ok,) = await client.call(1, Basic.Qos(prefetch_count=17))
    assert isinstance(ok, Basic.QosOk)
    (ok,) = await client.call(1, Basic.Consume(queue="q", consumer_tag="me"))
    assert ok.consumer_tag == "me"
    assert consumer(harness) == Consume(id_of(harness, "q"), b"me", prefetch=17)


async def test_global_prefetch_is_the_channels(harness: Harness, client: Client) -> None:
    await client.call(1, Basic.Qos(prefetch_count=5, global_=True))
    await client.call(1, Basic.Qos(prefetch_count=3))
    assert harness.engine.called("channel_limit") == [(client.id, 1, 5), (client.id, 1, 0)]


async def test_global_prefetch_can_be_refused(tmp_path: Path) -> None:
    settings = replace(AmqpSettings(), permit=replace(Permit(), global_qos=False))
    async with open_harness(tmp_path, settings) as harness:
        client = await harness.connected()
        with pytest.raises(Closed) as closed:
            await client.call(1, Basic.Qos(prefetch_count=5, global_=True))
        assert closed.value.code == 540


async def test_a_prefetch_size_is_not_implemented(client: Client) -> None:
    with pytest.raises(Closed) as closed:
        await client.call(1, Basic.Qos(prefetch_size=1024))
    assert closed.value.connection
    assert (closed.value.code, closed.value.text) == (
        540,
        "NOT_IMPLEMENTED - prefetch_size!=0 (1024)",
    )


# -- consume


async def test_consumer_flags_and_arguments_reach_the_engine(
    harness: Harness, client: Client
) -> None:
    await client.call(1, Queue.Declare(queue="q"))
    arguments: FieldTable = {
        "x-priority": 9,
        "x-consumer-timeout": 5000,
        "x-cancel-on-ha-failover": True,
    }
    asked = Basic.Consume(queue="q", no_ack=True, exclusive=True, arguments=arguments)
    (ok,) = await client.call(1, asked)
    assert ok.consumer_tag.startswith("amq.ctag-")
    found = consumer(harness)
    assert (found.no_ack, found.exclusive, found.priority) == (True, True, 9)
    assert found.timeout_ms == 5000


@pytest.mark.parametrize(
    "result, code, text",
    [
        (Added.TAG_IN_USE, 530, "NOT_ALLOWED - attempt to reuse consumer tag 'me'"),
        (Added.EXCLUSIVE_USE, 403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"),
    ],
)
async def test_what_the_engine_refuses(
    harness: Harness, client: Client, result: Added, code: int, text: str
) -> None:
    await client.call(1, Queue.Declare(queue="q"))
    harness.engine.added = result
    with pytest.raises(Closed) as closed:
        await client.call(1, Basic.Consume(queue="q", consumer_tag="me"))
    assert (closed.value.code, closed.value.text) == (code, text)


@pytest.mark.parametrize(
    "offset, start, value",
    [
        (None, StreamStart.NEXT, 0),
        ("first", StreamStart.FIRST, 0),
        ("last", StreamStart.LAST, 0),
        ("next", StreamStart.NEXT, 0),
        (4711, StreamStart.OFFSET, 4711),
        (datetime(2026, 1, 1, tzinfo=UTC), StreamStart.TIME, 1767225600000),
    ],
)
async def test_a_stream_is_read_from_where_one_says(
    harness: Harness, client: Client, offset: Any, start: StreamStart, value: int
) -> None:
    await client.call(1, Queue.Declare(queue="s", durable=True, arguments=STREAM))
    await client.call(1, Basic.Qos(prefetch_count=10))
    arguments: dict[str, Any] = {"x-stream-filter": ["a", "b"], "x-stream-match-unfiltered": True}
    if offset is not None:
        arguments["x-stream-offset"] = offset
    await client.call(1, Basic.Consume(queue="s", arguments=arguments))
    found = consumer(harness)
    assert (found.start, found.start_value) == (start, value)
    assert (found.filters, found.match_unfiltered) == ((b"a", b"b"), True)


async def test_a_stream_is_read_from_a_while_ago(harness: Harness, client: Client) -> None:
    await client.call(1, Queue.Declare(queue="s", durable=True, arguments=STREAM))
    await client.call(1, Basic.Qos(prefetch_count=10))
    await client.call(1, Basic.Consume(queue="s", arguments={"x-stream-offset": "1h"}))
    ago = datetime.now(UTC).timestamp() * 1000 - consumer(harness).start_value
    assert 3_600_000 <= ago < 3_660_000


@pytest.mark.parametrize(
    "prefetch, no_ack, offset, code, text",
    [
        (0, False, "first", 406, "consumer prefetch count is not set for stream"),
        (1, True, "first", 540, "automatic acknowledgement not supported by stream"),
        (1, False, "nonsense", 406, "invalid arg 'x-stream-offset'"),
    ],
)
async def test_a_stream_has_rules_of_its_own(
    client: Client, prefetch: int, no_ack: bool, offset: str, code: int, text: str
) -> None:
    await client.call(1, Queue.Declare(queue="s", durable=True, arguments=STREAM))
    await client.call(1, Basic.Qos(prefetch_count=prefetch))
    asked = Basic.Consume(queue="s", no_ack=no_ack, arguments={"x-stream-offset": offset})
    with pytest.raises(Closed) as closed:
        await client.call(1, asked)
    assert closed.value.code == code
    assert text in closed.value.text


async def test_direct_replies_are_taken_without_acknowledging(client: Client) -> None:
    (ok,) = await client.call(1, Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True))
    assert isinstance(ok, Basic.ConsumeOk)
    with pytest.raises(Closed) as closed:
        await client.call(1, Basic.Consume(queue="amq.rabbitmq.reply-to"))
    assert closed.value.text == "PRECONDITION_FAILED - reply consumer cannot acknowledge"


async def test_cancelling_a_stranger_is_answered_all_the_same(client: Client) -> None:
    (ok,) = await client.call(1, Basic.Cancel(consumer_tag="nobody"))
    assert ok.consumer_tag == "nobody"


async def test_get_is_allowed_and_left_to_the_engine(harness: Harness, client: Client) -> None:
    await client.call(1, Queue.Declare(queue="q"))
    assert await client.call(1, Basic.Get(queue="q", no_ack=True)) == []
    assert harness.engine.called("get") == [(client.id, 1, id_of(harness, "q"), True)]


async def test_a_stream_cannot_be_got_from(client: Client) -> None:
    await client.call(1, Queue.Declare(queue="s", durable=True, arguments=STREAM))
    with pytest.raises(Closed) as closed:
        await client.call(1, Basic.Get(queue="s"))
    assert (closed.value.code, closed.value.text) == (
        540,
        "NOT_IMPLEMENTED - basic.get not supported by stream queues queue 's' in vhost '/'",
    )


async def test_recover_requeues_or_nothing(harness: Harness, client: Client) -> None:
    (ok,) = await client.call(1, Basic.Recover(requeue=True))
    assert isinstance(ok, Basic.RecoverOk)
    assert await client.call(1, Basic.RecoverAsync(requeue=True)) == []
    assert len(harness.engine.called("channel_recover")) == 2
    with pytest.raises(Closed) as closed:
        await client.call(1, Basic.Recover(requeue=False))
    assert (closed.value.code, closed.value.text) == (540, "NOT_IMPLEMENTED - requeue=false")


async def test_a_delivery_kept_too_long_ends_the_channel(harness: Harness, client: Client) -> None:
    harness.server.take(ConsumerTimedOut(client.id, 1, 1000))
    (close,) = client.frames()
    assert close.reply_code == 406
    assert close.reply_text == (
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value"
        " used: 1000 ms. This timeout value can be configured, see consumers doc guide to learn"
        " more"
    )


# -- confirm and tx


async def test_confirms_and_transactions_exclude_each_other(
    harness: Harness, client: Client
) -> None:
    (ok,) = await client.call(1, Confirm.Select())
    assert isinstance(ok, Confirm.SelectOk)
    with pytest.raises(Closed) as closed:
        await client.call(1, Tx.Select())
    assert closed.value.text == "PRECONDITION_FAILED - cannot switch from confirm to tx mode"
    other = await harness.connected()
    await other.call(1, Tx.Select())
    with pytest.raises(Closed) as closed:
        await other.call(1, Confirm.Select())
    assert closed.value.text == "PRECONDITION_FAILED - cannot switch from tx to confirm mode"


async def test_commit_needs_a_transaction(client: Client) -> None:
    with pytest.raises(Closed) as closed:
        await client.call(1, Tx.Commit())
    assert closed.value.text == "PRECONDITION_FAILED - channel is not transactional"


async def test_a_transaction_is_committed_and_rolled_back(client: Client) -> None:
    await client.call(1, Tx.Select())
    assert isinstance((await client.call(1, Tx.Commit()))[0], Tx.CommitOk)
    assert isinstance((await client.call(1, Tx.Rollback()))[0], Tx.RollbackOk)


async def test_a_commit_waits_while_others_keep_the_disk_busy(
    harness: Harness, client: Client
) -> None:
    await client.call(1, Tx.Select())
    harness.engine.full = 3
    assert isinstance((await client.call(1, Tx.Commit()))[0], Tx.CommitOk)
    assert harness.engine.full == 0


# -- routes


async def test_a_route_is_told_and_may_be_remembered(harness: Harness, client: Client) -> None:
    await client.call(1, Queue.Declare(queue="q"))
    await client.call(1, Queue.Bind(queue="q", exchange="amq.direct", routing_key="k"))
    await client.event(publishing(client, "amq.direct", "k"))
    await client.event(publishing(client, "amq.direct", "other"))
    assert harness.engine.routes == [
        ([id_of(harness, "q")], RouteFlags.CACHE),
        ([], RouteFlags.CACHE),
    ]
    assert harness.engine.called("may_publish")[0] == (client.id, b"amq.direct", 0, False)


async def test_headers_are_looked_at_each_time(harness: Harness, client: Client) -> None:
    await client.call(1, Queue.Declare(queue="q"))
    binding: FieldTable = {"x-match": "all", "colour": "red"}
    await client.call(1, Queue.Bind(queue="q", exchange="amq.headers", arguments=binding))
    await client.event(publishing(client, "amq.headers", headers={"colour": "red"}))
    await client.event(publishing(client, "amq.headers", headers={"colour": "blue"}))
    assert harness.engine.routes == [
        ([id_of(harness, "q")], RouteFlags.NONE),
        ([], RouteFlags.NONE),
    ]
    assert harness.engine.called("may_publish")[0] == (client.id, b"amq.headers", 0, True)


async def test_copies_go_where_their_keys_lead(harness: Harness, client: Client) -> None:
    for name in ("one", "two", "three"):
        await client.call(1, Queue.Declare(queue=name))
    copies = {"CC": ["two"], "BCC": ["three", "nowhere"]}
    await client.event(publishing(client, "", "one", copies))
    ((queues, flags),) = harness.engine.routes
    assert sorted(queues) == sorted(id_of(harness, name) for name in ("one", "two", "three"))
    assert flags == RouteFlags.NONE


async def test_copies_must_be_a_list_of_keys(client: Client) -> None:
    with pytest.raises(Closed) as closed:
        await client.event(publishing(client, "", "one", {"CC": "two"}))
    assert closed.value.code == 406
    assert closed.value.method == (60, 40)


async def test_a_delay_is_waited_for_in_the_exchanges_own_place(
    harness: Harness, client: Client
) -> None:
    delayed = Exchange.Declare(
        exchange="later",
        exchange_type="x-delayed-message",
        arguments={"x-delayed-type": "fanout"},
    )
    await client.call(1, delayed)
    await client.call(1, Queue.Declare(queue="q"))
    await client.call(1, Queue.Bind(queue="q", exchange="later"))
    await client.event(publishing(client, "later", headers={"x-delay": 1000}))
    exchange = harness.topology.exchange("/", "later")
    place = [exchange.id, id_of(harness, "q")]  # where it waits, then where it goes
    assert harness.engine.routes == [(place, RouteFlags.DELAY | RouteFlags.CACHE)]
    harness.server.take(DeadRouteWanted(exchange.id, b"later", b"", b"\0\0"))
    assert harness.engine.routes[-1][0] == place


async def test_the_dead_of_a_queue_go_through_its_exchange(
    harness: Harness, client: Client
) -> None:
    await client.call(1, Queue.Declare(queue="q"))
    await client.call(1, Queue.Declare(queue="dead"))
    event = DeadRouteWanted(id_of(harness, "q"), b"", b"dead", b"")
    harness.server.take(event)
    harness.server.take(event._replace(exchange=b"nowhere"))
    assert [queues for queues, _ in harness.engine.routes] == [[id_of(harness, "dead")], []]


@pytest.mark.parametrize(
    "exchange, code, text",
    [
        ("nowhere", 404, "NOT_FOUND - no exchange 'nowhere' in vhost '/'"),
        (
            "amq.rabbitmq.trace",
            403,
            "ACCESS_REFUSED - cannot publish to internal exchange 'amq.rabbitmq.trace'"
            " in vhost '/'",
        ),
    ],
)
async def test_a_publish_that_is_refused(
    client: Client, exchange: str, code: int, text: str
) -> None:
    with pytest.raises(Closed) as closed:
        await client.event(publishing(client, exchange))
    assert (closed.value.code, closed.value.text) == (code, text)
    assert closed.value.method == (60, 40)


async def test_topic_permissions_are_asked_key_by_key(harness: Harness) -> None:
    await harness.auth.users.put("ann", "secret")
    await harness.auth.permissions.set(Permission("ann", "/", ".*", ".*", ".*"))
    await harness.auth.permissions.set_topic(TopicPermission("ann", "/", "amq.topic", "^ann", ".*"))
    client = harness.client()
    await client.start()
    await client.login("ann", "secret")
    await client.tune()
    await client.call(0, Connection.Open("/"))
    await client.channel()
    await client.event(publishing(client, "amq.topic", "ann.news"))
    (allowed,) = harness.engine.called("may_publish")
    assert allowed[2] != 0
    with pytest.raises(Closed) as closed:
        await client.event(publishing(client, "amq.topic", "bob.news"))
    assert closed.value.code == 403
    assert "write access to topic 'bob.news'" in closed.value.text
