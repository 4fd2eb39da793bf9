"""The data plane never needs the GIL: confirms and deliveries go on while Python is stuck."""

import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from pamqp.commands import Basic, Queue

from tests.amqp import gil_holder
from tests.amqp.wire import Channel, Client, Message
from tests.brokers import Broker

pytestmark = pytest.mark.ottermq_only("a broker of the test's own")

TRIES = 3  # a busy machine may spoil one
UNDELAYED = 0.3  # seconds; the GIL is held for much longer


def pass_one(channel: Channel, queue: str) -> None:
    """Published, confirmed, delivered, acked."""
    channel.publish(b"x" * 100, key=queue, delivery_mode=2)
    confirmed = delivered = False
    while not (confirmed and delivered):
        came = channel.take()
        if isinstance(came, Message):
            channel.ack(came.tag)
            delivered = True
        else:
            assert isinstance(came, Basic.Ack)
            confirmed = True


def longest_wait(channel: Channel, queue: str, until: float) -> float:
    waits = []
    while (begin := time.monotonic()) < until:
        pass_one(channel, queue)
        waits.append(time.monotonic() - begin)
    return max(waits)


def count_lines(broker: Broker, text: str) -> int:
    return sum(text in line for line in broker.lines)


def wait_for_lines(broker: Broker, text: str, count: int) -> None:
    limit = time.monotonic() + 20
    while count_lines(broker, text) < count:
        assert time.monotonic() < limit
        time.sleep(0.001)


def test_confirms_and_deliveries_go_on_while_the_gil_is_held(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", program=[gil_holder.__file__]) as broker:
        address = broker.address("amqp")
        with Client(address) as client, Client(address) as other:
            channel, control = client.channel(), other.channel()
            queue = channel.declare("busy", durable=True)
            channel.confirm()
            channel.consume(queue)
            for _ in range(10):  # from now on the route is warm
                pass_one(channel, queue)
            for number in range(1, TRIES + 1):
                broker.process.send_signal(signal.SIGUSR1)
                wait_for_lines(broker, "the GIL is held", number)
                begin = time.monotonic()
                control.send(Queue.Declare(queue=queue, passive=True))
                waited = longest_wait(channel, queue, begin + gil_holder.SECONDS * 0.8)
                control.expect(Queue.DeclareOk)
                # What needs Python had to wait, unless we were too late to see the GIL held.
                stuck = time.monotonic() - begin
                wait_for_lines(broker, "the GIL is free", number)
                if waited < UNDELAYED and stuck > gil_holder.SECONDS / 2:
                    return
            raise AssertionError(f"held up for {waited:.3f} s, Python for {stuck:.3f} s")


def flood(address: tuple[str, int], stop: threading.Event, answered: list[int]) -> None:
    """One health check after the other, as fast as they are answered."""
    while not stop.is_set():
        with socket.create_connection(address, timeout=30) as link:
            link.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            answered[0] += link.recv(12) == b"HTTP/1.1 200"


def test_a_flood_on_the_admin_port_delays_nobody(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker, Client(broker.address("amqp")) as client:
        channel = client.channel()
        queue = channel.declare("busy", durable=True)
        channel.confirm()
        channel.consume(queue)
        for _ in range(10):
            pass_one(channel, queue)
        stop, answered = threading.Event(), [0]
        admin = broker.address("admin")
        crowd = [threading.Thread(target=flood, args=(admin, stop, answered)) for _ in range(4)]
        for each in crowd:
            each.start()
        try:
            waits = [longest_wait(channel, queue, time.monotonic() + 0.7) for _ in range(TRIES)]
        finally:
            stop.set()
            for each in crowd:
                each.join()
        assert answered[0] > 20, "that was no flood"
        assert min(waits) < UNDELAYED
