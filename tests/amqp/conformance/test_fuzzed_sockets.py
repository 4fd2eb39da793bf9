"""Broken conversations through real sockets, while somebody else works and must not notice.

The conversations are those of tests/fuzz/seed_frames.py, mutated here. Each gets a connection of
its own, logged in as clients do. What the broker makes of it is free, as long as it answers in
whole frames or closes; the one beside gets every message it publishes, confirmed, in order.
"""

import random
import select
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from pamqp.commands import Channel, Connection, Tx

from tests.amqp.wire import PROTOCOL_HEADER, Address, Client
from tests.brokers import Broker
from tests.engine.plane import frame
from tests.fuzz.seed_frames import UNGREETED, conversations

SEEDS = [data for mode, data in conversations().values() if not mode & UNGREETED]
HANDSHAKE = (
    PROTOCOL_HEADER
    + frame(Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0)
    + frame(Connection.TuneOk(2047, 131072, 0), 0)
    + frame(Connection.Open("/"), 0)
    + frame(Channel.Open(), 1)
    + frame(Channel.Open(), 2)
    + frame(Tx.Select(), 2)
)
BLINK = 5.0  # seconds: on a busy machine, far from what it takes


def mutated(chance: random.Random) -> bytes:
    data = bytearray(b"".join(chance.choices(SEEDS, k=chance.randint(1, 3))))
    for _ in range(chance.randint(0, 5)):
        at = chance.randrange(len(data))
        match chance.randrange(6):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at] = chance.choice(b"\0\1\x7f\x80\xce\xff")
            case 2:
                del data[at : at + chance.randint(1, 40)]
            case 3:
                data[at:at] = data[at : at + chance.randint(1, 200)]
            case 4:
                data[at:at] = chance.randbytes(chance.randint(1, 30))
            case _:
                data = data[: max(at, 1)]
        data = data or bytearray(b"\0")
    return bytes(data)


def talk(address: Address, data: bytes) -> None:
    """Say it all, read whatever comes, leave."""
    with socket.create_connection(address, timeout=20) as sock:
        sock.setblocking(False)
        data = HANDSHAKE + data
        limit = time.monotonic() + 20
        silent = 0
        while silent < 2 and time.monotonic() < limit:
            wants = [sock] if data else []
            readable, writable, _ = select.select([sock], wants, [], 0.01)
            try:
                if writable:
                    data = data[sock.send(data) :]
                if readable and not sock.recv(1 << 16):
                    return
            except (ConnectionResetError, BrokenPipeError):
                return
            silent = 0 if readable or data else silent + 1


class Beside(threading.Thread):
    """Publishes, waits for the confirm, gets it back; again and again."""

    def __init__(self, client: Client, queue: str) -> None:
        super().__init__(daemon=True)
        self.channel = client.channel()
        self.channel.declare(queue)
        self.channel.confirm()
        self.queue = queue
        self.stopping = threading.Event()
        self.rounds = 0
        self.longest = 0.0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.wait(0.002):
                start = time.monotonic()
                body = b"%d" % self.rounds
                self.channel.publish(body, key=self.queue)
                self.channel.confirmed(self.rounds + 1)
                assert self.channel.must_get(self.queue).body == body
                self.longest = max(self.longest, time.monotonic() - start)
                self.rounds += 1
        except BaseException as error:
            self.failure = error


def furnish(client: Client) -> None:
    """The queues that the conversations are about."""
    channel = client.channel()
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "a"}
    kinds: dict[str, dict[str, object]] = {
        "a": {},
        "b": {"x-max-length": 3, **dead},
        "c": {"x-max-priority": 3, "x-message-ttl": 1, **dead},
        "d": {"x-queue-type": "quorum", "x-delivery-limit": 1, "x-max-length": 2, **dead},
        "e": {"x-overflow": "reject-publish", "x-max-length": 2},
        "f": {"x-queue-type": "stream"},
        "h": {"x-single-active-consumer": True, "x-max-length-bytes": 5000},
    }
    for name, arguments in kinds.items():
        channel.declare(name, arguments, durable=True)
    channel.declare_exchange("ex", "topic")
    for name in kinds:
        channel.bind(name, "ex", "abc")


def broken_conversations(start: Callable[..., Broker], count: int, seed: int) -> None:
    chance = random.Random(seed)
    with start() as broker:
        furnish(Client(broker.address("amqp")))
        beside = Beside(Client(broker.address("amqp")), "beside")
        beside.start()
        with ThreadPoolExecutor(4) as talkers:
            words = (mutated(chance) for _ in range(count))
            done = talkers.map(lambda data: talk(broker.address("amqp"), data), words)
            assert sum(1 for _ in done) == count
        rounds = beside.rounds
        beside.stopping.set()
        beside.join(30)
    assert beside.failure is None
    assert rounds > 0
    assert beside.longest < BLINK
    assert not [line for line in broker.lines if "failed" in line or "mistake" in line]


@pytest.mark.ottermq_only("it starts a broker of its own")
def test_hundreds_of_broken_conversations_disturb_nobody(start: Callable[..., Broker]) -> None:
    broken_conversations(start, 300, 1)


@pytest.mark.soak
@pytest.mark.ottermq_only("it starts a broker of its own")
def test_twenty_thousand_broken_conversations_disturb_nobody(start: Callable[..., Broker]) -> None:
    broken_conversations(start, 20_000, 2)
