"""py-amqp, the library below kombu and Celery."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from amqp.exceptions import AMQPError, MessageNacked, NotFound

import amqp
from tests.clients.proxy import Address, Proxy

Unique = Callable[[str], str]
PATIENCE = 20.0


def connect(address: Address, **options: Any) -> Any:
    host, port = address
    connection = amqp.Connection(
        f"{host}:{port}", userid="guest", password="guest", connect_timeout=PATIENCE, **options
    )
    connection.connect()
    return connection


@pytest.fixture
def connection(amqp_address: Address) -> Iterator[Any]:
    with connect(amqp_address) as opened:
        yield opened


@pytest.fixture
def channel(connection: Any) -> Any:
    return connection.channel()


def declare(channel: Any, **arguments: Any) -> str:
    return str(channel.queue_declare("", exclusive=True, arguments=arguments).queue)


def must_get(channel: Any, queue: str, no_ack: bool = True) -> Any:
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        if message := channel.basic_get(queue, no_ack=no_ack):
            return message
    raise AssertionError(f"nothing came to {queue}")


def drain(channel: Any, inbox: list[Any], count: int) -> None:
    while len(inbox) < count:
        channel.connection.drain_events(timeout=PATIENCE)


def test_publish_and_consume(channel: Any) -> None:
    queue = declare(channel)
    inbox: list[Any] = []

    def arrived(message: Any) -> None:
        inbox.append(message)
        channel.basic_ack(message.delivery_tag)

    channel.basic_qos(0, 10, False)
    channel.basic_consume(queue, callback=arrived)
    for number in range(20):
        channel.basic_publish(amqp.Message(f"{number}"), routing_key=queue)
    drain(channel, inbox, 20)
    assert [message.body for message in inbox] == [f"{number}" for number in range(20)]


def test_confirm(amqp_address: Address) -> None:
    with connect(amqp_address, confirm_publish=True) as connection:
        channel = connection.channel()
        queue = declare(channel, **{"x-max-length": 1, "x-overflow": "reject-publish"})
        channel.basic_publish_confirm(amqp.Message("fits"), routing_key=queue)
        with pytest.raises(MessageNacked):
            channel.basic_publish_confirm(amqp.Message("does not"), routing_key=queue)


def test_return(channel: Any) -> None:
    back: list[Any] = []
    channel.events["basic_return"].add(lambda *returned: back.append(returned))
    channel.basic_publish(amqp.Message("back"), routing_key="nobody", mandatory=True)
    drain(channel, back, 1)
    reason, _exchange, key, message = back[0]
    assert (reason.reply_code, reason.reply_text) == (312, "NO_ROUTE")
    assert (key, message.body) == ("nobody", "back")


def test_nack_requeue_and_recover(channel: Any) -> None:
    queue = declare(channel)
    channel.basic_publish(amqp.Message("x"), routing_key=queue)
    channel.basic_reject(must_get(channel, queue, no_ack=False).delivery_tag, requeue=True)
    again = must_get(channel, queue, no_ack=False)
    assert again.delivery_info["redelivered"]
    channel.basic_recover(requeue=True)
    channel.basic_ack(must_get(channel, queue, no_ack=False).delivery_tag)


def test_priority(channel: Any) -> None:
    queue = declare(channel, **{"x-max-priority": 5})
    for priority in (1, 5, 3):
        channel.basic_publish(amqp.Message(f"{priority}", priority=priority), routing_key=queue)
    while channel.queue_declare(queue, passive=True).message_count < 3:
        time.sleep(0.01)
    assert [must_get(channel, queue).body for _ in range(3)] == ["5", "3", "1"]


def test_dead_letters(channel: Any) -> None:
    grave = declare(channel)
    queue = declare(channel, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave})
    channel.basic_publish(amqp.Message("x"), routing_key=queue)
    channel.basic_reject(must_get(channel, queue, no_ack=False).delivery_tag, requeue=False)
    dead = must_get(channel, grave)
    assert dead.headers["x-death"][0]["reason"] == "rejected"


def test_tx(connection: Any) -> None:
    channel, other = connection.channel(), connection.channel()
    queue = declare(other)
    channel.tx_select()
    channel.basic_publish(amqp.Message("no"), routing_key=queue)
    channel.tx_rollback()
    channel.basic_publish(amqp.Message("yes"), routing_key=queue)
    assert other.basic_get(queue) is None
    channel.tx_commit()
    assert must_get(other, queue).body == "yes"


def test_exchange_bindings(channel: Any, unique: Unique) -> None:
    source, target = unique("source"), unique("target")
    channel.exchange_declare(source, "topic", auto_delete=True)
    channel.exchange_declare(target, "fanout", auto_delete=True)
    channel.exchange_bind(target, source, "a.*")
    queue = declare(channel)
    channel.queue_bind(queue, target)
    channel.basic_publish(amqp.Message("x"), exchange=source, routing_key="a.b")
    assert must_get(channel, queue).body == "x"


def test_channel_errors_are_told(channel: Any) -> None:
    with pytest.raises(NotFound, match="no queue 'no-such' in vhost '/'"):
        channel.queue_declare("no-such", passive=True)


def test_login_by_amqplain(amqp_address: Address) -> None:
    with connect(amqp_address, login_method="AMQPLAIN") as connection:
        connection.channel()


def test_heartbeats_are_answered(amqp_address: Address) -> None:
    with connect(amqp_address, heartbeat=2) as connection:
        assert connection.heartbeat == 2
        limit = time.monotonic() + PATIENCE
        while connection.bytes_recv < 2 and time.monotonic() < limit:
            connection.heartbeat_tick()
            time.sleep(0.05)
        connection.channel()


def test_reconnect(proxy: Proxy, unique: Unique) -> None:
    queue = unique("lasting")
    first = connect(proxy.address)
    channel = first.channel()
    channel.queue_declare(queue, durable=True, auto_delete=False)
    channel.basic_publish(amqp.Message("x", delivery_mode=2), routing_key=queue)
    must_get(channel, queue, no_ack=False)
    proxy.cut()
    with pytest.raises((OSError, AMQPError)):
        while True:
            channel.queue_declare(queue, passive=True)
    with connect(proxy.address) as second:
        channel = second.channel()
        message = must_get(channel, queue)
        assert (message.body, message.delivery_info["redelivered"]) == ("x", True)
        channel.queue_delete(queue)
