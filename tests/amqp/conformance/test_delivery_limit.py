"""x-delivery-limit, as RabbitMQ 4.3 counts: a failure is a reject or a consumer that was lost;
a nack with requeue only hands the message back. x-acquired-count counts every delivery."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.amqp.wire import Channel, Client, eventually
from tests.brokers import Broker

Connect = Callable[..., Client]
Start = Callable[..., Broker]
Unique = Callable[[str], str]


def limited(channel: Channel, unique: Unique, limit: int | None) -> tuple[str, str]:
    """A quorum queue with that limit, and where its dead letters go."""
    grave = channel.declare()
    arguments: dict[str, Any] = {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": grave,
    }
    if limit is not None:
        arguments["x-delivery-limit"] = limit
    return channel.declare(unique("tried"), arguments, durable=True), grave


def test_a_message_rejected_too_often_is_dead_lettered(channel: Channel, unique: Unique) -> None:
    queue, grave = limited(channel, unique, 2)
    channel.publish(b"poison", key=queue)
    counts = []
    for _ in range(3):
        message = channel.must_get(queue, no_ack=False)
        counts.append(message.headers.get("x-delivery-count"))
        channel.reject(message.tag, requeue=True)
    assert counts[1:] == [1, 2] and not counts[0]
    dead = channel.must_get(grave)
    assert dead.body == b"poison"
    assert dead.headers["x-death"][0]["reason"] == "delivery_limit"
    assert channel.count(queue) == 0


@pytest.mark.ottermq_only("the default came with 4.0")
def test_the_limit_is_twenty_when_none_is_set(channel: Channel, unique: Unique) -> None:
    queue, grave = limited(channel, unique, None)
    channel.publish(b"poison", key=queue)
    for _ in range(21):
        assert channel.count(grave) == 0
        channel.reject(channel.must_get(queue, no_ack=False).tag, requeue=True)
    assert channel.must_get(grave).headers["x-death"][0]["reason"] == "delivery_limit"


@pytest.mark.ottermq_only("-1 means no limit since 4.0")
def test_a_limit_of_minus_one_is_none(channel: Channel, unique: Unique) -> None:
    queue, grave = limited(channel, unique, -1)
    channel.publish(b"stubborn", key=queue)
    for _ in range(30):
        channel.reject(channel.must_get(queue, no_ack=False).tag, requeue=True)
    assert channel.must_get(queue).body == b"stubborn"
    assert channel.count(grave) == 0


@pytest.mark.ottermq_only("since 4.3")
def test_nacks_hand_back_without_counting_as_a_failure(channel: Channel, unique: Unique) -> None:
    queue, grave = limited(channel, unique, 2)
    channel.publish(b"x", key=queue)
    for acquired in range(10):
        message = channel.must_get(queue, no_ack=False)
        assert message.headers.get("x-acquired-count", 0) == acquired
        assert message.headers.get("x-delivery-count", 0) == 0
        channel.nack(message.tag)
    assert channel.count(grave) == 0


@pytest.mark.ottermq_only("since 4.3")
def test_both_counts_are_told_apart(channel: Channel, unique: Unique) -> None:
    queue, _ = limited(channel, unique, 10)
    channel.publish(b"x", key=queue)
    channel.reject(channel.must_get(queue, no_ack=False).tag, requeue=True)
    channel.nack(channel.must_get(queue, no_ack=False).tag)
    headers = channel.must_get(queue).headers
    assert (headers["x-delivery-count"], headers["x-acquired-count"]) == (1, 2)


@pytest.mark.parametrize("end", ["close", "drop"])
def test_consumers_that_die_with_a_message_count(
    connect: Connect, unique: Unique, end: str
) -> None:
    channel = connect().channel()
    queue, grave = limited(channel, unique, 1)
    channel.publish(b"killer", key=queue)
    for _ in range(2):
        victim = connect()
        consumer = victim.channel()
        consumer.consume(queue)
        consumer.delivery()
        getattr(victim, end)()
    assert channel.must_get(grave).headers["x-death"][0]["reason"] == "delivery_limit"


def test_without_a_dead_letter_exchange_the_message_is_dropped(
    channel: Channel, unique: Unique
) -> None:
    queue = channel.declare(
        unique("tried"), {"x-queue-type": "quorum", "x-delivery-limit": 0}, durable=True
    )
    channel.publish(b"x", key=queue)
    channel.reject(channel.must_get(queue, no_ack=False).tag, requeue=True)
    assert channel.becomes(queue, 0)
    assert channel.get(queue) is None


@pytest.mark.ottermq_only("a setting of ours")
def test_what_is_nacked_for_ever_ends_where_nacks_count(start: Start, unique: Unique) -> None:
    """Messages under a limit of 5 come six times each, as in RabbitMQ before 4.3."""
    with (
        start(OTTERMQ_AMQP__NACKS_COUNT="true") as broker,
        Client(broker.address("amqp")) as client,
    ):
        channel = client.channel()
        queue, grave = limited(channel, unique, 5)
        for number in range(200):
            channel.publish(b"%d" % number, key=queue)
        channel.consume(queue)
        for _ in range(6 * 200):
            channel.nack(channel.delivery().tag)
        assert channel.becomes(grave, 200)
        assert channel.nothing_comes() and channel.count(queue) == 0
        assert channel.must_get(grave).headers["x-death"][0]["reason"] == "delivery_limit"


@pytest.mark.ottermq_only("the test reloads definitions")
def test_a_limit_that_was_lowered_ends_what_is_handed_back(start: Start, tmp_path: Path) -> None:
    """As in rabbit_fifo.erl: each return looks at the count, a nack as well."""
    file = tmp_path / "definitions.json"

    def define(limit: int) -> None:
        policy = {"name": "tries", "vhost": "/", "pattern": "^tried$", "apply-to": "queues",
                  "definition": {"delivery-limit": limit}}  # fmt: skip
        file.write_text(json.dumps({"policies": [policy]}))

    define(10)
    with start("--definitions", str(file)) as broker, Client(broker.address("amqp")) as client:
        channel = client.channel()
        queue = channel.declare("tried", {"x-queue-type": "quorum"}, durable=True)
        channel.publish(b"x", key=queue)
        for _ in range(3):
            channel.reject(channel.must_get(queue, no_ack=False).tag, requeue=True)
        message = channel.must_get(queue, no_ack=False)
        define(2)
        broker.process.send_signal(signal.SIGHUP)
        loads = "INFO definitions loaded"
        assert eventually(lambda: sum(loads in line for line in broker.lines) == 2)
        channel.nack(message.tag)
        assert channel.becomes(queue, 0)


def test_classic_queues_do_not_count(channel: Channel) -> None:
    queue = channel.declare()
    channel.publish(b"x", key=queue)
    for _ in range(30):
        message = channel.must_get(queue, no_ack=False)
        assert not message.headers
        channel.reject(message.tag, requeue=True)
    assert channel.must_get(queue).body == b"x"
