"""Killed at random while publishers and consumers are at work, again and again: every message
that was confirmed or committed is there, in order, none twice without the redelivered flag.

One life of the broker: a publisher with confirms, a publisher with transactions over two
queues, a consumer that acks most of what it gets and one that carries messages between two
queues, publish and ack in one transaction, and messages that die in all ways, until SIGKILL. What
each of them was told is written down; the deliveries of the lives that follow must agree with it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.amqp.wire import Address, Channel, Client, Confirms
from tests.broker_life import ENDINGS, live
from tests.brokers import Broker
from tests.examples import shortened

Start = Callable[..., Broker]

ORDERS, LEFT, RIGHT = "orders", "left", "right"
BANKS = ("this-bank", "that-bank")
CARRIED = 20  # messages, each on one bank or the other
MORTAL, GRAVE = "mortal", "grave"
DYING = {  # of age, of too many, or by a rejection
    "x-message-ttl": 60,
    "x-max-length": 20,
    "x-max-priority": 2,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": GRAVE,
}


@dataclass
class Ledger:
    """What the clients were told, over all lives."""

    published: int = 0  # the last number given out
    confirmed: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)  # sent, though the kill may have come first
    seen: set[int] = field(default_factory=set)
    begun: int = 0  # transactions
    committed: set[int] = field(default_factory=set)
    born: int = 0
    alive: set[int] = field(default_factory=set)  # confirmed; from then on here or in the grave

    def note(self, number: int, redelivered: bool, before: int) -> None:
        """A delivery, after the one numbered `before` in the same life."""
        assert number > before, f"{number} came after {before}"
        assert redelivered or number not in self.seen, f"{number} twice without its flag"
        self.seen.add(number)


def publish(address: Address, ledger: Ledger) -> None:
    channel = Client(address).channel()
    channel.confirm()
    confirms, base = Confirms(channel), ledger.published
    try:
        while True:
            while ledger.published - base - confirms.floor < 50:
                ledger.published += 1
                channel.publish(b"%d" % ledger.published, key=ORDERS, delivery_mode=2)
            confirms.next()
            assert not confirms.refused
            ledger.confirmed.update(base + tag for tag in confirms.taken)
    except ENDINGS:
        channel.client.drop()


def transact(address: Address, ledger: Ledger) -> None:
    channel = Client(address).channel()
    channel.tx_select()
    try:
        while True:
            ledger.begun += 1
            number = ledger.begun
            for queue in (LEFT, RIGHT, LEFT):
                channel.publish(b"%d" % number, key=queue, delivery_mode=2)
            channel.tx_commit()
            ledger.committed.add(number)
    except ENDINGS:
        channel.client.drop()


def consume(address: Address, ledger: Ledger, chance: random.Random) -> None:
    channel = Client(address).channel()
    channel.qos(20)
    channel.consume(ORDERS)
    before = 0
    kept: list[int] = []
    try:
        while True:
            message = channel.delivery()
            number = int(message.body)
            ledger.note(number, message.redelivered, before)
            before = number
            if chance.random() < 0.2 and len(kept) < 15:
                kept.append(message.tag)
            else:
                ledger.acked.add(number)
                channel.ack(message.tag)
    except ENDINGS:
        channel.client.drop()


def carry(address: Address, chance: random.Random) -> None:
    channel = Client(address).channel()
    channel.tx_select()
    try:
        while True:
            source, target = chance.sample(BANKS, 2)
            message = channel.get(source, no_ack=False)
            if message is not None:
                channel.publish(message.body, key=target, delivery_mode=2)
                channel.ack(message.tag)
                channel.tx_commit()
    except ENDINGS:
        channel.client.drop()


def bear(address: Address, ledger: Ledger) -> None:
    channel = Client(address).channel()
    channel.confirm()
    confirms, base = Confirms(channel), ledger.born
    try:
        while True:
            while ledger.born - base - confirms.floor < 30:
                ledger.born += 1
                number = ledger.born
                channel.publish(b"%d" % number, key=MORTAL, delivery_mode=2, priority=number % 3)
            confirms.next()
            ledger.alive.update(base + tag for tag in confirms.taken)
    except ENDINGS:
        channel.client.drop()


def doom(address: Address, chance: random.Random) -> None:
    channel = Client(address).channel()
    channel.qos(5)
    channel.consume(MORTAL)
    try:
        while True:
            channel.nack(channel.delivery().tag, requeue=chance.random() < 0.3)
    except ENDINGS:
        channel.client.drop()


def one_life(broker: Broker, ledger: Ledger, chance: random.Random) -> None:
    address = broker.address("amqp")
    acts: list[Callable[[], None]] = [
        lambda: publish(address, ledger),
        lambda: transact(address, ledger),
        lambda: consume(address, ledger, chance),
        lambda: carry(address, random.Random(chance.random())),
        lambda: bear(address, ledger),
        lambda: doom(address, random.Random(chance.random())),
    ]
    before = len(ledger.confirmed)
    live(broker, acts, lambda: len(ledger.confirmed) > before, chance)


def check(address: Address, ledger: Ledger) -> None:
    """What is left after the last life."""
    channel = Client(address).channel()
    left: set[int] = set()
    before = 0
    while message := channel.get(ORDERS, no_ack=False):
        number = int(message.body)
        ledger.note(number, message.redelivered, before)
        before = number
        left.add(number)
    lost = ledger.confirmed - left - ledger.acked
    assert not lost, f"confirmed and lost: {sorted(lost)[:10]}"
    one, other = transactions(channel, LEFT), transactions(channel, RIGHT)
    assert one == sorted(one) and other == sorted(other)
    assert one[::2] == one[1::2] == other  # each whole or not at all
    assert ledger.committed <= set(other)
    carried = sorted(number for bank in BANKS for number in transactions(channel, bank))
    assert carried == list(range(CARRIED))  # none lost on the way, none on both banks
    assert channel.becomes(MORTAL, 0)
    buried = transactions(channel, GRAVE)
    assert len(set(buried)) == len(buried)  # each died once
    assert ledger.alive <= set(buried)
    channel.client.close()


def transactions(channel: Channel, queue: str) -> list[int]:
    return [int(body) for body in channel.drain(queue)]


@pytest.mark.ottermq_only("a broker of the test's own")
@pytest.mark.parametrize(
    "rounds", [*shortened([10, 20], 1), pytest.param(100, marks=pytest.mark.soak)]
)
def test_nothing_confirmed_or_committed_is_lost_by_kills(start: Start, rounds: int) -> None:
    chance = random.Random()
    ledger = Ledger()
    with start() as broker:
        channel = Client(broker.address("amqp")).channel()
        for queue in (ORDERS, LEFT, RIGHT, *BANKS, GRAVE):
            channel.declare(queue, durable=True)
        channel.declare(MORTAL, DYING, durable=True)
        channel.confirm()
        for number in range(CARRIED):
            channel.publish(b"%d" % number, key=BANKS[0], delivery_mode=2)
        channel.confirmed(CARRIED)
        channel.client.close()
    for _ in range(rounds):
        with start() as broker:
            one_life(broker, ledger, chance)
    with start() as broker:
        check(broker.address("amqp"), ledger)
    assert len(ledger.confirmed) >= rounds
    assert ledger.committed
