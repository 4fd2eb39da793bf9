"""One message to many queues: each has it, in the order of publishing, whatever else comes."""

import random
import signal
from collections.abc import Callable

import pytest

from tests.amqp.wire import Channel, Client, eventually
from tests.brokers import Broker
from tests.examples import shortened

Start = Callable[..., Broker]
Unique = Callable[[str], str]


def together(channel: Channel, *sends: tuple[bytes, str, str, int]) -> None:
    """In one piece, so that the broker finds them all in one tick."""
    parts: list[bytes] = []
    raw, channel.client.raw = channel.client.raw, parts.append  # type: ignore[method-assign, assignment]
    for body, exchange, key, mode in sends:
        channel.publish(body, key=key, exchange=exchange, delivery_mode=mode)
    channel.client.raw = raw  # type: ignore[method-assign]
    raw(b"".join(parts))


@pytest.fixture
def exchange(channel: Channel, unique: Unique) -> str:
    return channel.declare_exchange(unique("all"), "fanout")


def bound(channel: Channel, exchange: str, count: int, **flags: bool) -> list[str]:
    queues = [channel.declare(f"{exchange}.{n}", **flags) for n in range(count)]
    for queue in queues:
        channel.bind(queue, exchange)
    return queues


def test_each_queue_has_every_message_in_order(channel: Channel, exchange: str) -> None:
    queues = bound(channel, exchange, 5)
    bodies = [b"%d" % n for n in range(200)]
    channel.confirm()
    together(channel, *((body, exchange, "", 2) for body in bodies))
    channel.confirmed(200)
    for queue in queues:
        assert channel.drain(queue) == bodies


def test_what_goes_to_one_of_them_alone_keeps_its_place(channel: Channel, exchange: str) -> None:
    queues = bound(channel, exchange, 3, durable=True)
    chance = random.Random(3)
    sends: list[tuple[bytes, str, str, int]] = []
    wanted: dict[str, list[bytes]] = {queue: [] for queue in queues}
    for n in range(500):
        body, mode = b"%d" % n, chance.choice([1, 2])
        if chance.random() < 0.7:
            sends.append((body, exchange, "", mode))
            for each in wanted.values():
                each.append(body)
        else:
            queue = chance.choice(queues)
            sends.append((body, "", queue, mode))
            wanted[queue].append(body)
    channel.confirm()
    together(channel, *sends)
    channel.confirmed(500)
    for queue in queues:
        assert channel.drain(queue) == wanted[queue]
        channel.delete(queue)


def test_overlapping_routes_keep_each_queues_order(channel: Channel, unique: Unique) -> None:
    exchange = unique("topic")
    channel.declare_exchange(exchange, "topic")
    queues = [channel.declare(f"{exchange}.{n}") for n in range(4)]
    for n, queue in enumerate(queues):
        for m in range(n + 1):
            channel.bind(queue, exchange, f"to.{m}")
    chance = random.Random(7)
    marks = [chance.randrange(5) for _ in range(300)]
    channel.confirm()
    together(channel, *((b"%d" % n, exchange, f"to.{m}", 2) for n, m in enumerate(marks)))
    channel.confirmed(300)
    for n, queue in enumerate(queues):
        assert channel.drain(queue) == [b"%d" % i for i, mark in enumerate(marks) if mark <= n]


def test_a_full_queue_among_them_refuses_for_itself(channel: Channel, exchange: str) -> None:
    queues = bound(channel, exchange, 2)
    strict = channel.declare(
        f"{exchange}.strict", {"x-max-length": 1, "x-overflow": "reject-publish"}
    )
    channel.bind(strict, exchange)
    together(channel, (b"a", exchange, "", 2), (b"b", exchange, "", 2))
    assert eventually(lambda: channel.count(queues[1]) == 2)
    assert channel.drain(strict) == [b"a"]
    assert channel.drain(queues[0]) == [b"a", b"b"]


def test_durable_and_transient_queues_in_one_fanout(channel: Channel, exchange: str) -> None:
    kept = bound(channel, exchange, 2, durable=True)
    brief = channel.declare(f"{exchange}.brief")
    channel.bind(brief, exchange)
    channel.confirm()
    together(channel, *((b"%d" % n, exchange, "", 1 + n % 2) for n in range(50)))
    channel.confirmed(50)
    for queue in [*kept, brief]:
        assert channel.drain(queue) == [b"%d" % n for n in range(50)]
        channel.delete(queue)


def test_one_consumer_of_each_queue_settles_for_itself(
    channel: Channel, exchange: str, client: Client
) -> None:
    queues = bound(channel, exchange, 3)
    consumers = [client.channel() for _ in queues]
    for consumer, queue in zip(consumers, queues, strict=True):
        consumer.consume(queue)
    together(channel, *((b"%d" % n, exchange, "", 2) for n in range(20)))
    for consumer in consumers:
        assert [message.body for message in consumer.deliveries(20)] == [
            b"%d" % n for n in range(20)
        ]
    consumers[0].ack(20, multiple=True)
    consumers[1].nack(20, multiple=True, requeue=False)
    consumers[2].close()
    assert channel.becomes(queues[2], 20)
    assert channel.count(queues[0]) == channel.count(queues[1]) == 0


@pytest.mark.parametrize("end", shortened([signal.SIGKILL, signal.SIGTERM], 1))
def test_confirmed_ones_come_back_in_every_queue(start: Start, end: signal.Signals) -> None:
    bodies = [b"%d" % n * (1 + n % 3000) for n in range(300)]
    with start() as broker:
        channel = Client(broker.address("amqp")).channel()
        channel.declare_exchange("all", "fanout", durable=True)
        queues = bound(channel, "all", 4, durable=True)
        channel.confirm()
        together(channel, *((body, "all", "", 2) for body in bodies))
        channel.confirmed(300)
        for _ in range(100):
            channel.must_get(queues[0])
        channel.round_trip()
        broker.stop(end)
    with start() as broker:
        channel = Client(broker.address("amqp")).channel()
        assert channel.drain(queues[0])[-200:] == bodies[100:]
        for queue in queues[1:]:
            assert channel.drain(queue) == bodies
