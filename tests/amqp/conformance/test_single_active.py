"""x-single-active-consumer: one consumer at a time, the next when it goes."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.amqp.wire import Channel, Client, refused

Connect = Callable[..., Client]
Unique = Callable[[str], str]

TYPES: dict[str, dict[str, Any]] = {
    "classic": {"x-single-active-consumer": True},
    "quorum": {"x-single-active-consumer": True, "x-queue-type": "quorum"},
}


@pytest.fixture(params=TYPES)
def queue(request: pytest.FixtureRequest, channel: Channel, unique: Unique) -> str:
    return channel.declare(unique("one-at-a-time"), TYPES[request.param], durable=True)


def test_only_the_first_consumer_gets_messages(client: Client, queue: str) -> None:
    first, second, sender = client.channel(), client.channel(), client.channel()
    first.consume(queue)
    second.consume(queue)
    for number in range(5):
        sender.publish(b"%d" % number, key=queue)
    assert [m.body for m in first.deliveries(5)] == [b"0", b"1", b"2", b"3", b"4"]
    assert second.nothing_comes()


def test_the_next_takes_over_when_the_first_is_cancelled(client: Client, queue: str) -> None:
    first, second, sender = client.channel(), client.channel(), client.channel()
    tag = first.consume(queue, no_ack=True)
    second.consume(queue, no_ack=True)
    sender.publish(b"1", key=queue)
    assert first.delivery().body == b"1"
    first.cancel(tag)
    sender.publish(b"2", key=queue)
    assert second.delivery().body == b"2"


def test_the_next_takes_over_with_what_was_unacked_when_the_first_is_lost(
    connect: Connect, queue: str
) -> None:
    first, second = connect().channel(), connect().channel()
    first.consume(queue)
    second.consume(queue)
    for number in range(3):
        second.publish(b"%d" % number, key=queue)
    first.deliveries(3)
    first.client.drop()
    got = second.deliveries(3)
    assert [(m.body, m.redelivered) for m in got] == [(b"0", True), (b"1", True), (b"2", True)]


def test_a_full_prefetch_of_the_active_one_does_not_let_others_in(
    client: Client, queue: str
) -> None:
    first, second, sender = client.channel(), client.channel(), client.channel()
    first.qos(1)
    first.consume(queue)
    second.consume(queue)
    sender.publish(b"1", key=queue)
    sender.publish(b"2", key=queue)
    message = first.delivery()
    assert second.nothing_comes()
    first.ack(message.tag)
    assert first.delivery().body == b"2"


def test_an_exclusive_consumer_is_refused_on_classic_queues(
    channel: Channel, unique: Unique
) -> None:
    queue = channel.declare(unique("one-at-a-time"), TYPES["classic"], durable=True)
    text = f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"
    with refused(403, text):
        channel.consume(queue, exclusive=True)


@pytest.mark.ottermq_only("since 3.12")
def test_a_higher_priority_takes_over_on_quorum_queues(client: Client, unique: Unique) -> None:
    first, second, sender = client.channel(), client.channel(), client.channel()
    queue = sender.declare(unique("ranked"), TYPES["quorum"], durable=True)
    first.consume(queue, no_ack=True, arguments={"x-priority": 1})
    second.consume(queue, no_ack=True, arguments={"x-priority": 2})
    sender.publish(b"x", key=queue)
    assert second.delivery().body == b"x"
    assert first.nothing_comes()


@pytest.mark.ottermq_only("since 3.12")
def test_a_busy_consumer_gets_nothing_new_while_a_higher_priority_waits(
    client: Client, unique: Unique
) -> None:
    first, second, sender = client.channel(), client.channel(), client.channel()
    queue = sender.declare(unique("ranked"), TYPES["quorum"], durable=True)
    first.consume(queue, arguments={"x-priority": 1})
    sender.publish(b"1", key=queue)
    held = first.delivery()
    second.consume(queue, arguments={"x-priority": 2})
    sender.publish(b"2", key=queue)
    assert first.nothing_comes() and second.nothing_comes()
    first.ack(held.tag)
    assert second.delivery().body == b"2"
    assert first.nothing_comes()
