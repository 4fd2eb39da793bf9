"""pika's BlockingConnection."""

import time
from collections.abc import Callable, Iterator

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.proxy import Address, Proxy

Unique = Callable[[str], str]
PATIENCE = 20.0


def connect(address: Address) -> pika.BlockingConnection:
    host, port = address
    return pika.BlockingConnection(
        pika.ConnectionParameters(host, port, blocked_connection_timeout=PATIENCE)
    )


@pytest.fixture
def connection(amqp_address: Address) -> Iterator[pika.BlockingConnection]:
    opened = connect(amqp_address)
    yield opened
    if opened.is_open:
        opened.close()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    return connection.channel()


def declare(channel: BlockingChannel, **arguments: object) -> str:
    answer = channel.queue_declare("", exclusive=True, arguments=arguments or None)
    return str(answer.method.queue)


def must_get(
    channel: BlockingChannel, queue: str, auto_ack: bool = True
) -> tuple[pika.spec.Basic.GetOk, pika.BasicProperties, bytes]:
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        method, properties, body = channel.basic_get(queue, auto_ack=auto_ack)
        if method:
            return method, properties, body
    raise AssertionError(f"nothing came to {queue}")


def test_publish_and_consume(channel: BlockingChannel) -> None:
    queue = declare(channel)
    for number in range(50):
        channel.basic_publish("", queue, b"%d" % number)
    got = []
    for method, _, body in channel.consume(queue, inactivity_timeout=PATIENCE):
        got.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(got) == 50:
            break
    channel.cancel()
    assert got == [b"%d" % number for number in range(50)]


def test_properties_and_headers(channel: BlockingChannel) -> None:
    queue = declare(channel)
    sent = pika.BasicProperties(
        content_type="application/json",
        headers={"text": "ä", "number": 2**40, "list": [1, "a", None], "table": {"b": True}},
        correlation_id="c",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        app_id="a",
        delivery_mode=2,
        priority=3,
    )
    channel.basic_publish("", queue, b"{}", sent)
    assert must_get(channel, queue)[1] == sent


def test_confirm_and_return(channel: BlockingChannel) -> None:
    queue = declare(channel)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"x", mandatory=True)
    with pytest.raises(pika.exceptions.UnroutableError) as back:
        channel.basic_publish("", "nobody", b"back", mandatory=True)
    assert back.value.messages[0].body == b"back"
    assert back.value.messages[0].method.reply_text == "NO_ROUTE"


def test_a_full_queue_nacks(channel: BlockingChannel) -> None:
    queue = declare(channel, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"fits")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", queue, b"does not")


def test_nack_and_requeue(channel: BlockingChannel) -> None:
    queue = declare(channel)
    for body in (b"1", b"2"):
        channel.basic_publish("", queue, body)
    method, _, body = must_get(channel, queue, auto_ack=False)
    assert (body, method.redelivered) == (b"1", False)
    channel.basic_nack(method.delivery_tag, requeue=True)
    method, _, body = must_get(channel, queue, auto_ack=False)
    assert (body, method.redelivered) == (b"1", True)
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert must_get(channel, queue)[2] == b"2"


def test_priority(channel: BlockingChannel) -> None:
    queue = declare(channel, **{"x-max-priority": 5})
    channel.confirm_delivery()
    for priority in (1, 5, 3):
        channel.basic_publish("", queue, b"%d" % priority, pika.BasicProperties(priority=priority))
    assert [must_get(channel, queue)[2] for _ in range(3)] == [b"5", b"3", b"1"]


def test_dead_letters(channel: BlockingChannel) -> None:
    grave = declare(channel)
    queue = declare(
        channel,
        **{
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": grave,
            "x-message-ttl": 30,
        },
    )
    channel.basic_publish("", queue, b"brief")
    _, properties, body = must_get(channel, grave)
    assert body == b"brief"
    assert properties.headers["x-death"][0]["reason"] == "expired"
    assert properties.headers["x-death"][0]["queue"] == queue


def test_tx(connection: pika.BlockingConnection) -> None:
    channel, other = connection.channel(), connection.channel()
    queue = declare(other)
    channel.tx_select()
    channel.basic_publish("", queue, b"no")
    channel.tx_rollback()
    channel.basic_publish("", queue, b"yes")
    assert other.basic_get(queue)[0] is None
    channel.tx_commit()
    assert must_get(other, queue)[2] == b"yes"
    assert other.basic_get(queue)[0] is None


def test_qos_bounds_what_is_in_flight(channel: BlockingChannel) -> None:
    queue = declare(channel)
    for number in range(10):
        channel.basic_publish("", queue, b"%d" % number)
    channel.basic_qos(prefetch_count=3)
    got: list[int] = []
    channel.basic_consume(queue, lambda _c, method, _p, _b: got.append(method.delivery_tag))
    limit = time.monotonic() + PATIENCE
    while len(got) < 3 and time.monotonic() < limit:
        channel.connection.process_data_events(0.1)
    channel.connection.process_data_events(0.1)
    assert got == [1, 2, 3]


def test_exchange_to_exchange_bindings(channel: BlockingChannel, unique: Unique) -> None:
    source, target = unique("source"), unique("target")
    channel.exchange_declare(source, "topic", auto_delete=True)
    channel.exchange_declare(target, "fanout", auto_delete=True)
    channel.exchange_bind(target, source, "a.#")
    queue = declare(channel)
    channel.queue_bind(queue, target)
    channel.basic_publish(source, "a.b", b"through")
    assert must_get(channel, queue)[2] == b"through"


def test_channel_errors_are_told(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.queue_declare("no-such-queue", passive=True)
    assert closed.value.reply_code == 404
    assert closed.value.reply_text == "NOT_FOUND - no queue 'no-such-queue' in vhost '/'"
    assert connection.channel().is_open


def test_a_wrong_password_is_told(amqp_address: Address) -> None:
    host, port = amqp_address
    with pytest.raises(pika.exceptions.AMQPConnectionError) as refused:
        pika.BlockingConnection(
            pika.ConnectionParameters(
                host, port, credentials=pika.PlainCredentials("guest", "wrong")
            )
        )
    assert isinstance(refused.value, pika.exceptions.ProbableAuthenticationError)


def test_reconnect(proxy: Proxy, unique: Unique) -> None:
    queue = unique("lasting")
    first = connect(proxy.address)
    channel = first.channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=2))
    must_get(channel, queue, auto_ack=False)
    proxy.cut()
    with pytest.raises(pika.exceptions.AMQPError):
        while True:
            channel.queue_declare(queue, passive=True)
    second = connect(proxy.address)
    again = second.channel()
    method, _, body = must_get(again, queue)
    assert (body, method.redelivered) == (b"x", True)
    again.queue_delete(queue)
    second.close()
