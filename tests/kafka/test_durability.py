"""Killed at random while producers with acks=all are at work, again and again: nothing that was
acknowledged is lost or out of order, and an idempotent producer that sends again what it has no
answer for leaves no duplicate.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from tests.broker_life import live
from tests.brokers import Broker
from tests.engine.kafka_plane import batch
from tests.examples import shortened
from tests.kafka.wire import Link

Start = Callable[..., Broker]
Address = tuple[str, int]
PLAIN, ONCE = "plain", "once"
WINDOW = 5  # requests under way, as clients have it


@dataclass
class Plain:
    """Numbers that a producer sent once each, whatever became of them."""

    sent: int = 0
    acknowledged: dict[int, int] = field(default_factory=dict)  # to the offset it was told

    def produce(self, address: Address) -> None:
        with Link(address) as link:
            under_way: deque[int] = deque()
            while True:
                while len(under_way) < WINDOW:
                    self.sent += 1
                    link.send_produce(PLAIN, 0, batch(b"%d" % self.sent))
                    under_way.append(self.sent)
                error, offset = link.produced()
                assert error == 0, error
                self.acknowledged[under_way.popleft()] = offset


@dataclass
class Once:
    """Batches of an idempotent producer: what has no answer is sent again, in order."""

    producer: tuple[int, int] | None = None
    open: deque[tuple[int, bytes]] = field(default_factory=deque)  # first number, batch
    next: int = 0
    acknowledged: int = 0  # all below are

    def produce(self, address: Address) -> None:
        with Link(address) as link:
            if self.producer is None:
                self.producer = link.new_producer()
            for _, records in self.open:
                link.send_produce(ONCE, 0, records)
            while True:
                while len(self.open) < WINDOW:
                    numbers = range(self.next, self.next + 3)
                    values = [b"%d" % number for number in numbers]
                    records = batch(*values, producer=(*self.producer, self.next))
                    self.open.append((self.next, records))
                    self.next += len(numbers)
                    link.send_produce(ONCE, 0, records)
                error, _ = link.produced()
                assert error == 0, error
                first, _ = self.open.popleft()
                self.acknowledged = first + 3


def one_life(broker: Broker, plain: Plain, once: Once, chance: random.Random) -> None:
    address = broker.address("kafka")
    before = len(plain.acknowledged), once.acknowledged

    def has_moved() -> bool:
        return len(plain.acknowledged) > before[0] and once.acknowledged > before[1]

    live(broker, [partial(each.produce, address) for each in (plain, once)], has_moved, chance)


def check(address: Address, plain: Plain, once: Once) -> None:
    with Link(address) as link:
        found = {offset: int(value) for offset, value in link.read_all(PLAIN, 0)}
        numbers = list(found.values())
        assert numbers == sorted(set(numbers)), "out of order, or twice"
        for number, offset in plain.acknowledged.items():
            assert found.get(offset) == number, f"{number} isn't at {offset}"
        values = [int(value) for _, value in link.read_all(ONCE, 0)]
        assert values == list(range(len(values))), (
            "an idempotent producer's are there once, in order"
        )
        assert len(values) >= once.acknowledged


@pytest.mark.parametrize(
    "rounds", [*shortened([10, 20], 1), pytest.param(100, marks=pytest.mark.soak)]
)
def test_nothing_acknowledged_is_lost_by_kills(start: Start, rounds: int) -> None:
    chance = random.Random()
    plain, once = Plain(), Once()
    with start() as broker, Link(broker.address("kafka")) as link:
        link.create(PLAIN)
        link.create(ONCE)
    for _ in range(rounds):
        with start() as broker:
            one_life(broker, plain, once, chance)
    with start() as broker:
        check(broker.address("kafka"), plain, once)
    assert len(plain.acknowledged) >= rounds
    assert once.acknowledged >= rounds
