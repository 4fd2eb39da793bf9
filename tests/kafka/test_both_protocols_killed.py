"""Killed at random while clients of both protocols write to the same two logs, a queue and a
stream: what either was told is there, in the order of its protocol, and both see the same.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from tests.amqp.wire import Address, Client, Confirms
from tests.broker_life import live
from tests.brokers import Broker
from tests.kafka.test_durability import ONCE, PLAIN, Once, Plain
from tests.kafka.wire import Link

Start = Callable[..., Broker]
QUEUE, STREAM = PLAIN, ONCE  # what Kafka's producers of the durability test write to
OURS = b"amqp-"


@dataclass
class Publisher:
    """Numbers that were published once each into a log; Kafka's numbers have no `OURS`."""

    queue: str
    published: int = 0
    confirmed: set[int] = field(default_factory=set)

    def publish(self, address: Address) -> None:
        with Client(address) as client:
            channel = client.channel()
            channel.confirm()
            confirms, base = Confirms(channel), self.published
            while True:
                while self.published - base - confirms.floor < 20:
                    self.published += 1
                    channel.publish(OURS + b"%d" % self.published, key=self.queue, delivery_mode=2)
                confirms.next()
                assert not confirms.refused
                self.confirmed.update(base + tag for tag in confirms.taken)


@dataclass
class Consumer:
    """Acks most of what it gets from the queue."""

    chance: random.Random
    seen: set[bytes] = field(default_factory=set)
    acked: set[bytes] = field(default_factory=set)  # sent, though the kill may have come first

    def consume(self, address: Address) -> None:
        with Client(address) as client:
            channel = client.channel()
            channel.qos(20)
            channel.consume(QUEUE)
            while True:
                message = channel.delivery()
                self.note(message.body, message.redelivered)
                if self.chance.random() < 0.9:
                    self.acked.add(message.body)
                    channel.ack(message.tag)

    def note(self, body: bytes, redelivered: bool) -> None:
        assert redelivered or body not in self.seen, f"{body!r} twice without its flag"
        self.seen.add(body)


def by_protocol(bodies: list[bytes]) -> tuple[list[int], list[int]]:
    """AMQP's numbers and Kafka's, each in the order they came."""
    amqp = [int(body.removeprefix(OURS)) for body in bodies if body.startswith(OURS)]
    return amqp, [int(body) for body in bodies if not body.startswith(OURS)]


def is_in_order(numbers: list[int]) -> bool:
    return numbers == sorted(set(numbers))


def check_stream(broker: Broker, once: Once, publisher: Publisher) -> None:
    with Link(broker.address("kafka")) as link:
        found = link.read_all(STREAM, 0)
    with Client(broker.address("amqp")) as client:
        channel = client.channel()
        channel.qos(1000)
        channel.consume(STREAM, arguments={"x-stream-offset": "first"})
        for offset, value in found:
            message = channel.delivery()
            assert (message.headers["x-stream-offset"], message.body) == (offset, value)
            channel.ack(message.tag)
    published, produced = by_protocol([value for _, value in found])
    assert produced == list(range(len(produced))) and len(produced) >= once.acknowledged
    assert is_in_order(published) and publisher.confirmed <= set(published)


def check_queue(broker: Broker, plain: Plain, publisher: Publisher, consumer: Consumer) -> None:
    left: list[bytes] = []
    with Client(broker.address("amqp")) as client:
        channel = client.channel()
        while message := channel.get(QUEUE, no_ack=False):
            consumer.note(message.body, message.redelivered)
            left.append(message.body)
    published, produced = by_protocol(left)
    assert is_in_order(published) and is_in_order(produced)
    settled, settled_kafka = by_protocol(list(consumer.acked))
    assert publisher.confirmed <= {*published, *settled}
    assert plain.acknowledged.keys() <= {*produced, *settled_kafka}


@pytest.mark.parametrize(
    "rounds", [5, pytest.param(100, marks=pytest.mark.soak)], ids=["suite", "soak"]
)
def test_kills_lose_nothing_of_either_protocol(start: Start, rounds: int) -> None:
    chance = random.Random()
    plain, once, consumer = Plain(), Once(), Consumer(chance)
    publishers = Publisher(QUEUE), Publisher(STREAM)
    with start() as broker:
        with Client(broker.address("amqp")) as client:
            client.channel().declare(QUEUE, durable=True)
        with Link(broker.address("kafka")) as link:
            link.create(STREAM)
    for _ in range(rounds):
        with start() as broker:
            kafka, amqp = broker.address("kafka"), broker.address("amqp")
            acts = [partial(each.produce, kafka) for each in (plain, once)]
            acts += [partial(each.publish, amqp) for each in publishers]
            before = told(plain, once, *publishers)

            def has_moved(before: list[int] = before) -> bool:
                now = told(plain, once, *publishers)
                return all(new > old for new, old in zip(now, before, strict=True))

            live(broker, [*acts, partial(consumer.consume, amqp)], has_moved, chance)
    with start() as broker:
        check_stream(broker, once, publishers[1])
        check_queue(broker, plain, publishers[0], consumer)
    assert all(count >= rounds for count in told(plain, once, *publishers))


def told(plain: Plain, once: Once, *publishers: Publisher) -> list[int]:
    """How much each writer was told to be on disk."""
    confirmed = [len(each.confirmed) for each in publishers]
    return [len(plain.acknowledged), once.acknowledged, *confirmed]
