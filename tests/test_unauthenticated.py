"""Connections that have not logged in: what they send holds nobody back, and costs little."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.amqp.wire import Client
from tests.brokers import Broker
from tests.weights import takes_at_most

PATIENCE = 30.0
LOGIN_ONLY = {
    "OTTERMQ_KAFKA__ANONYMOUS_USER": "null",
    "OTTERMQ_AMQP__HANDSHAKE_TIMEOUT": "5m",  # none goes because of that
    "OTTERMQ_MEMORY__HIGH_WATERMARK": "32MiB",
}


@contextmanager
def unauthenticated(address: tuple[str, int], count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(address)) for _ in range(count)]


def send_some(client: socket.socket, data: bytes) -> None:
    """As much as is taken within a moment; it may be cut off meanwhile."""
    client.settimeout(0.05)
    with suppress(OSError):
        client.sendall(data)


def is_closed(client: socket.socket) -> bool:
    client.settimeout(PATIENCE)
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def confirm_seconds(client: Client) -> float:
    channel = client.channel()
    queue = channel.declare()
    channel.confirm()
    started = time.monotonic()
    channel.publish(b"x", key=queue)
    channel.confirmed(1)
    return time.monotonic() - started


def test_half_sent_requests_before_a_login_hold_back_no_publisher(tmp_path: Path) -> None:
    half = struct.pack(">ihhih", 500_000, 18, 0, 1, -1) + bytes(490_000)
    with Broker(tmp_path / "data", env=LOGIN_ONLY) as broker:
        client = Client(broker.address("amqp"))
        confirm_seconds(client)
        with (
            takes_at_most(broker, mib=16, cpu_s=2),
            unauthenticated(broker.address("kafka"), 150) as crowd,
        ):
            for waiting in crowd:
                send_some(waiting, half)
            time.sleep(1.2)  # two of the sweeps in which memory is weighed
            assert confirm_seconds(client) < PATIENCE
        assert not [line for line in broker.lines if "low on memory" in line]


def test_of_too_many_unauthenticated_from_an_address_the_oldest_goes(tmp_path: Path) -> None:
    env = {**LOGIN_ONLY, "OTTERMQ_AUTH__UNAUTHENTICATED_PER_ADDRESS": "10"}
    with Broker(tmp_path / "data", env=env) as broker:
        friends = [Client(broker.address("amqp")) for _ in range(15)]  # who have logged in
        with unauthenticated(broker.address("amqp"), 30) as crowd:
            for waiting in crowd[:20]:
                assert is_closed(waiting)
            for waiting in crowd[20:]:
                waiting.settimeout(0.01)
                with suppress(TimeoutError):
                    assert waiting.recv(1) != b"", "it is one of the last ten"
        for friend in friends:
            friend.channel().declare()
