"""A model of queues by time, over lives of a broker with pauses between them.

Random queues with TTLs, limits, priorities and types hand on what dies to others, by the default
exchange, by exchanges of their own and by ones that delay. Messages are published, the broker ends
in the middle of it, by SIGTERM or SIGKILL, time passes, and it starts again. In the end each lies
where the model says, as often as the model says: what was confirmed exactly, the rest at most.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.amqp.wire import Channel, Client, Confirms, Refused, eventually
from tests.broker_life import ENDINGS
from tests.brokers import Broker

pytestmark = pytest.mark.ottermq_only("a broker of the test's own")

Start = Callable[..., Broker]
LONGEST = 1200  # ms: of a TTL or a delay
DOWN = 0.6  # seconds between two lives, at most
QUIET = 0.3  # seconds, for what comes once too often
ENDS = (signal.SIGTERM, signal.SIGKILL)


@dataclass(frozen=True)
class Node:
    """A queue and where it hands on what dies; a sink keeps it all, or as many as fit."""

    name: str
    arguments: dict[str, Any]
    targets: tuple["Node", ...] = ()
    exchange: str = ""  # by which they are reached; "": by the name of the only one
    most: int | None = None  # of a sink

    @property
    def is_stream(self) -> bool:
        return self.arguments.get("x-queue-type") == "stream"


@dataclass
class World:
    sinks: list[Node]
    mortals: list[Node]
    delayed: dict[str, Node]  # exchanges, each with the one queue that is bound to it
    published: int = 0
    last_published: float = 0  # monotonic
    confirmed: set[int] = field(default_factory=set)
    entries: dict[int, Node] = field(default_factory=dict)

    def places(self, number: int) -> Iterator[str]:
        """The sinks it comes to, one more for each way; a full one hands on to its own target."""
        reached = [self.entries[number]]
        while reached:
            node = reached.pop()
            if node in self.sinks:
                yield node.name
            else:
                reached += node.targets


def random_time(chance: random.Random) -> int:
    """That ends within this life, or more likely while the broker is down."""
    return chance.choice((chance.randint(0, 100), chance.randint(LONGEST // 3, LONGEST)))


def random_world(chance: random.Random) -> World:
    """Built backwards: a queue hands on only to those that were there before it."""
    letters = list("abcdefghijklm")
    chance.shuffle(letters)  # the order of names is the order of a start
    names = iter(letters)
    rest = Node(next(names), {})
    most = chance.randint(1, 30)
    sinks = [
        rest,
        Node(next(names), {"x-queue-type": "stream"}),
        Node(next(names), {"x-queue-type": "quorum"}),
    ]
    limit = {
        "x-max-length": most,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": rest.name,
    }
    sinks.append(Node(next(names), limit, (rest,), most=most))
    mortals: list[Node] = []
    for _ in range(chance.randint(3, 6)):
        mortals.append(random_mortal(chance, next(names), [*sinks, *mortals]))
    delayed = {
        f"{letter}-later": chance.choice([*sinks, *mortals]) for letter in (letters[0], letters[-1])
    }
    return World(sinks, mortals, delayed)


def random_mortal(chance: random.Random, name: str, others: list[Node]) -> Node:
    targets = tuple(chance.sample(others, chance.choice((1, 1, 2))))
    kind = chance.choice(("classic", "classic", "quorum"))
    arguments: dict[str, Any] = {
        "x-queue-type": kind,
        "x-message-ttl": random_time(chance),
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": targets[0].name,
    }
    if kind == "classic" and chance.random() < 0.3:
        arguments["x-max-priority"] = 3
    if chance.random() < 0.3:
        arguments["x-max-length"] = chance.randint(1, 50)
    elif kind == "quorum" and chance.random() < 0.5:
        arguments |= {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    exchange = (
        "" if len(targets) == 1 and chance.random() < 0.6 else f"{chance.choice('az')}-{name}"
    )
    return Node(name, arguments | {"x-dead-letter-exchange": exchange}, targets, exchange)


def declare(channel: Channel, world: World) -> None:
    for node in (*world.sinks, *world.mortals):
        channel.declare(node.name, node.arguments, durable=True)
    for node in world.mortals:
        if node.exchange:
            channel.declare_exchange(node.exchange, "fanout", durable=True)
            for target in node.targets:
                channel.bind(target.name, node.exchange)
    for exchange, node in world.delayed.items():
        channel.declare_exchange(
            exchange, "x-delayed-message", {"x-delayed-type": "fanout"}, durable=True
        )
        channel.bind(node.name, exchange)


def publish(channel: Channel, world: World, chance: random.Random) -> None:
    """Some of them confirmed, when this returns."""
    channel.confirm()
    confirms, base, count = Confirms(channel), world.published, chance.randint(20, 200)
    try:
        with channel.client.together():
            for _ in range(count):
                send_one(channel, world, chance)
        while confirms.floor < chance.choice((1, count // 2, count)):
            confirms.next()
            world.confirmed.update(base + tag for tag in confirms.taken)
    except (*ENDINGS, Refused):
        pass
    world.last_published = time.monotonic()


def send_one(channel: Channel, world: World, chance: random.Random) -> None:
    world.published += 1
    body = b"%d" % world.published
    properties: dict[str, Any] = {"delivery_mode": 2, "priority": chance.randint(0, 3)}
    if chance.random() < 0.2:
        exchange = chance.choice(list(world.delayed))
        world.entries[world.published] = world.delayed[exchange]
        headers = {"x-delay": random_time(chance)}
        channel.publish(body, "", exchange, headers=headers, **properties)
        return
    if chance.random() < 0.3:
        properties["expiration"] = str(random_time(chance))
    node = world.entries[world.published] = chance.choice(world.mortals)
    channel.publish(body, node.name, **properties)


def one_life(broker: Broker, world: World, chance: random.Random) -> None:
    client = Client(broker.address("amqp"))
    publish(client.channel(), world, chance)
    time.sleep(chance.uniform(0, 0.1))
    broker.stop(chance.choice(ENDS))
    client.drop()
    time.sleep(chance.uniform(0, DOWN))


def taken(channel: Channel, node: Node) -> list[int]:
    count = channel.count(node.name)
    if not node.is_stream:
        return [int(body) for body in channel.drain(node.name)]
    channel.qos(count or 1)
    channel.consume(node.name, arguments={"x-stream-offset": "first"})
    return [int(message.body) for message in channel.deliveries(count)]


def check(channel: Channel, world: World) -> None:
    wanted = {n: Counter(world.places(n)) for n in world.entries}
    least = sum(sum(wanted[number].values()) for number in world.confirmed)

    def is_over() -> bool:
        return all(channel.count(node.name) == 0 for node in world.mortals) and (
            sum(channel.count(node.name) for node in world.sinks) >= least
        )

    # What an exchange still delays is in no queue, and unconfirmed ones may make up the number.
    time.sleep(max(world.last_published + LONGEST / 1000 + QUIET - time.monotonic(), 0))
    assert eventually(is_over), f"{least} messages should be there"
    time.sleep(QUIET)
    found: dict[int, Counter[str]] = {number: Counter() for number in wanted}
    for node in world.sinks:
        numbers = taken(channel.client.channel(), node)
        for number in numbers:
            found[number][node.name] += 1
        if node.most is not None:
            in_it = sum(wanted[number][node.name] for number in world.confirmed)
            assert min(in_it, node.most) <= len(numbers) <= node.most
    full = {node.name: node.targets[0].name for node in world.sinks if node.targets}
    for number, places in wanted.items():
        # A full sink may have handed on any of them.
        ours, theirs = (
            Counter(full.get(e, e) for e in c.elements()) for c in (places, found[number])
        )
        assert theirs <= ours, f"{number} should be in {ours}, and is in {theirs}"
        assert number not in world.confirmed or theirs == ours, f"{number} of {ours} is in {theirs}"


@pytest.mark.parametrize(
    "seed",
    [
        1,
        pytest.param(3, marks=pytest.mark.long),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, *range(4, 40))),
    ],
)
def test_what_is_confirmed_is_where_time_has_brought_it(start: Start, seed: int) -> None:
    chance = random.Random(seed)
    world = random_world(chance)
    with start() as broker:
        with Client(broker.address("amqp")) as client:
            declare(client.channel(), world)
    for _ in range(3):
        with start() as broker:
            one_life(broker, world, chance)
    with start() as broker, Client(broker.address("amqp")) as client:
        check(client.channel(), world)
    assert world.confirmed
