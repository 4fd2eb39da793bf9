"""Full disks across restarts: a broker on a small disk of its own is filled, drained, killed and
started again, in any order. It always starts, loses nothing that it has confirmed, and confirms
again as soon as there is space."""

import random
import signal
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pamqp.commands import Basic, Connection

from tests.amqp.wire import Client, Message
from tests.brokers import Broker
from tests.faults.mounted import Filler, free, memory_disk

QUEUES = ("a", "b", "c")
SIZES = (200, 5_000, 40_000, 150_000)
WINDOW = 16  # publishes under way
HELD_UP = 1.5  # seconds without a word: the disk is full
HEALS = 60.0  # seconds at most, once there is space
TIGHT = {
    "OTTERMQ_WAL__SEGMENT_SIZE": "256KiB",
    "OTTERMQ_WAL__PAGE_CACHE__HOT_BUFFER_SIZE": "2MiB",
    "OTTERMQ_WAL__CHECKPOINT_INTERVAL": "1s",
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with memory_disk(tmp_path / "disk", 32) as place:
        yield place


@dataclass
class Model:
    """What the broker owes: all that was confirmed and that nobody acknowledged."""

    published: int = 0
    owed: dict[int, str] = field(default_factory=dict)  # number -> queue

    def body(self, size: int) -> tuple[int, bytes]:
        self.published += 1
        return self.published, struct.pack(">Q", self.published) * (size // 8)


def number_of(message: Message) -> int:
    number = int(struct.unpack_from(">Q", message.body)[0])
    assert message.body == struct.pack(">Q", number) * (len(message.body) // 8), "another's bytes"
    return number


class Publisher:
    """Sends with confirms until it is held up."""

    def __init__(self, broker: Broker, model: Model, chance: random.Random) -> None:
        self.client = Client(broker.address("amqp"))
        self.channel = self.client.channel()
        self.channel.confirm()
        self.model, self.chance = model, chance
        self.sizes: tuple[int, ...] = SIZES
        self.sent: list[tuple[int, str]] = []
        self.answered = 0

    def fill(self, most: int) -> bool:
        """Was it held up before so many were taken?"""
        self.client.socket.settimeout(HELD_UP)
        try:
            for _ in range(most):
                number, body = self.model.body(self.chance.choice(self.sizes))
                queue = self.chance.choice(QUEUES)
                self.client.socket.settimeout(HELD_UP)
                self.sent.append((number, queue))
                self.channel.publish(body, key=queue, delivery_mode=2)
                self.hear(WINDOW)
            self.hear(0)
        except TimeoutError:
            return True
        return False

    def hear(self, most_open: int) -> None:
        while len(self.sent) - self.answered > most_open:
            answer = self.channel.wait(
                lambda item: isinstance(item, Basic.Ack | Basic.Nack), HELD_UP
            )
            last = answer.delivery_tag
            for number, queue in self.sent[self.answered if answer.multiple else last - 1 : last]:
                if isinstance(answer, Basic.Ack):
                    self.model.owed[number] = queue
            self.answered = max(self.answered, last)


def consume(broker: Broker, model: Model, most: int | None = None) -> set[int]:
    """Take and acknowledge: so many, or until nothing is left."""
    seen: set[int] = set()
    with Client(broker.address("amqp")) as client:
        channel = client.channel()
        for queue in QUEUES:
            while (most is None or len(seen) < most) and (message := channel.get(queue, False)):
                number = number_of(message)
                seen.add(number)
                model.owed.pop(number, None)
                channel.ack(message.tag)
    return seen


def declare(broker: Broker) -> None:
    with Client(broker.address("amqp")) as client:
        channel = client.channel()
        for queue in QUEUES:
            channel.declare(queue, durable=True)


def confirms_again(broker: Broker, model: Model, chance: random.Random) -> None:
    deadline = time.monotonic() + HEALS
    while True:
        publisher = Publisher(broker, model, chance)
        held_up = publisher.fill(5)
        publisher.client.drop()
        if not held_up:
            return
        assert time.monotonic() < deadline, "there is space, and nothing is confirmed"


def cycle(disk: Path, model: Model, chance: random.Random) -> None:
    """One life: starts on whatever the last one left, and ends by a kill."""
    filler = Filler(disk)
    act = chance.choice(("full", "full", "tight", "free"))
    if act == "full":
        filler.take()
    elif act == "tight":
        filler.take(left=chance.randrange(3 << 20))
    with Broker(disk / "data", env=TIGHT) as broker:
        for _ in range(chance.randrange(1, 4)):
            doing = chance.choice(("fill", "fill", "drain", "space"))
            if doing == "fill":
                publisher = Publisher(broker, model, chance)
                publisher.fill(chance.choice((20, 400)))
                publisher.client.drop()
            elif doing == "drain":
                consume(broker, model, chance.choice((10, 100, 400)))
            else:
                filler.give_back()
        if chance.random() < 0.3:
            filler.give_back()
            owed = dict(model.owed)
            missing = set(owed) - consume(broker, model)
            assert not missing, f"lost {sorted(missing)[:10]}"
            confirms_again(broker, model, chance)
        if chance.random() < 0.9:
            broker.stop(signal.SIGKILL)
    filler.give_back()


def survive(disk: Path, seed: int, cycles: int) -> None:
    model, chance = Model(), random.Random(seed)
    with Broker(disk / "data", env=TIGHT) as broker:
        declare(broker)
    for _ in range(cycles):
        cycle(disk, model, chance)
    with Broker(disk / "data", env=TIGHT) as broker:
        owed = set(model.owed)
        missing = owed - consume(broker, model)
        assert not missing, f"lost {sorted(missing)[:10]}"
        confirms_again(broker, model, chance)


def test_a_broker_starts_on_a_full_disk_and_is_drained_by_its_consumers(disk: Path) -> None:
    """Without help from outside: the rest of the disk stays somebody else's."""
    model, chance, filler = Model(), random.Random(7), Filler(disk)
    with Broker(disk / "data", env=TIGHT) as broker:
        declare(broker)
        filler.take(left=6 << 20)
        assert Publisher(broker, model, chance).fill(10_000), "the disk is never full"
        broker.stop(signal.SIGKILL)
    filler.take()
    assert free(disk) == 0
    with Broker(disk / "data", env=TIGHT) as broker:
        blocked = Publisher(broker, model, chance)
        blocked.fill(100)
        blocked.client.wait(lambda: blocked.client.inbox or None)
        assert blocked.client.expect(Connection.Blocked).reason == "low on disk"
        owed = set(model.owed)
        assert owed and owed <= consume(broker, model), "lost"
        blocked.client.expect(Connection.Unblocked)
        confirms_again(broker, model, chance)


def test_a_disk_full_of_our_own_segments_is_drained_by_acks_one_by_one(disk: Path) -> None:
    """Nobody else gives space back. There are many more messages than the WAL has blocks left, and
    retention isn't due."""
    model, chance = Model(), random.Random(8)
    seldom = {**TIGHT, "OTTERMQ_WAL__RETENTION__CHECK_INTERVAL": "10m"}
    with Broker(disk / "data", env=seldom) as broker:
        declare(broker)
        publisher = Publisher(broker, model, chance)
        publisher.sizes = (200,) * 15 + (40_000,)
        assert publisher.fill(20_000), "the disk is never full"
        owed = set(model.owed)
        assert len(owed) > 3_000
        assert owed <= consume(broker, model), "lost"
        confirms_again(broker, model, chance)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_filled_drained_and_killed_in_turns_it_starts_and_confirms_again(
    disk: Path, seed: int
) -> None:
    survive(disk, seed, cycles=5)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 110))
def test_over_many_cycles(disk: Path, seed: int) -> None:
    survive(disk, seed, cycles=25)
