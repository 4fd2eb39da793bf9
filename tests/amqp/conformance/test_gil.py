"""The data plane never needs the GIL: confirms and deliveries go on while Python is stuck."""

import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from pamqp.commands import Basic, Queue

from tests.amqp.conformance import gil_holder
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


def waits_until(channel: Channel, queue: str, until: float) -> list[float]:
    waits = []
    while (begin := time.monotonic()) < until:
        pass_one(channel, queue)
        waits.append(time.monotonic() - begin)
    return sorted(waits)


def at(waits: list[float], share: float) -> float:
    return waits[int(len(waits) * share)]


def is_undelayed(waits: list[float], usual: list[float]) -> bool:
    """As a whole they are what they were a moment before, and none is long."""
    return waits[-1] < UNDELAYED and all(
        at(waits, share) < 3 * at(usual, share) + 0.005 for share in (0.5, 0.95)
    )


def tell(waits: list[float]) -> str:
    p50, p95, worst = (1000 * wait for wait in (at(waits, 0.5), at(waits, 0.95), waits[-1]))
    return f"p50 {p50:.2f}, p95 {p95:.2f}, worst {worst:.1f} ms of {len(waits)}"


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
                usual = waits_until(channel, queue, time.monotonic() + 0.5)
                broker.process.send_signal(signal.SIGRTMIN)
                wait_for_lines(broker, "the GIL is held", number)
                begin = time.monotonic()
                control.send(Queue.Declare(queue=queue, passive=True))
                waits = waits_until(channel, queue, begin + gil_holder.SECONDS * 0.8)
                control.expect(Queue.DeclareOk)
                # What needs Python had to wait, unless we were too late to see the GIL held.
                stuck = time.monotonic() - begin
                wait_for_lines(broker, "the GIL is free", number)
                told = f"before: {tell(usual)}; held: {tell(waits)}; Python: {stuck:.3f} s"
                print(told)
                if is_undelayed(waits, usual) and stuck > gil_holder.SECONDS / 2:
                    return
            raise AssertionError(told)


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
        usual = waits_until(channel, queue, time.monotonic() + 0.5)
        stop, answered = threading.Event(), [0]
        admin = broker.address("admin")
        crowd = [threading.Thread(target=flood, args=(admin, stop, answered)) for _ in range(4)]
        for each in crowd:
            each.start()
        try:
            tries = [waits_until(channel, queue, time.monotonic() + 0.7) for _ in range(TRIES)]
        finally:
            stop.set()
            for each in crowd:
                each.join()
        assert answered[0] > 20, "that was no flood"
        told = "; ".join([f"before: {tell(usual)}", *(tell(waits) for waits in tries)])
        print(told)
        assert any(is_undelayed(waits, usual) for waits in tries), told
