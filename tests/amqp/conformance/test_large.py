"""Large messages: they go from a segment's file to the socket, and arrive as they were sent."""

import random
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pamqp.commands import Basic

from tests.amqp.conformance.test_tls import TlsSetup
from tests.amqp.wire import Address, Channel, Client, Message, eventually
from tests.brokers import Broker
from tests.examples import shortened

pytestmark = pytest.mark.ottermq_only("our files")

Start = Callable[..., Broker]
KIB = 1024
# So that next to nothing stays in memory.
COLD = {"OTTERMQ_WAL__PAGE_CACHE__HOT_BUFFER_SIZE": "1MiB"}


def messages(count: int) -> list[bytes]:
    """Around the border of 64 KiB, of one frame and of several, and small ones between."""
    chance = random.Random(count)
    sizes = [10, 64 * KIB - 1, 64 * KIB, 70 * KIB, 128 * KIB - 8, 128 * KIB - 7, 300 * KIB]
    return [chance.randbytes(sizes[n % len(sizes)]) for n in range(count)]


def fill(channel: Channel, queue: str, bodies: list[bytes]) -> None:
    channel.declare(queue, durable=True)
    channel.confirm()
    for body in bodies:
        channel.publish(body, key=queue, delivery_mode=2)
    channel.confirmed(len(bodies))


def written(data: Path) -> int:
    return sum(path.stat().st_size for path in data.glob("vhosts/*/queues/*/*.log"))


def all_but_the_last(data: Path, bodies: list[bytes]) -> bool:
    """The writer stops when a quarter of the room is left over."""
    return eventually(lambda: written(data) > sum(map(len, bodies)) - 1024 * KIB)


def test_what_this_broker_wrote_is_sent_from_its_file(start: Start) -> None:
    bodies = messages(70)
    with start(**COLD) as broker:
        channel = Client(broker.address("amqp")).channel()
        fill(channel, "large", bodies)
        assert all_but_the_last(broker.data, bodies)
        channel.consume("large", no_ack=True)
        assert [message.body for message in channel.deliveries(70)] == bodies


@contextmanager
def watched(broker: Broker, trace: Path) -> Iterator[None]:
    """What its threads hand to sendfile is written down."""
    pid = str(broker.process.pid)
    strace = ["strace", "-f", "-p", pid, "-e", "trace=sendfile", "-o", str(trace)]
    with subprocess.Popen(strace, stderr=subprocess.PIPE, text=True) as watcher:
        assert watcher.stderr
        told = watcher.stderr.readline()
        if "attached" not in told:
            watcher.kill()
            pytest.skip(f"nobody may be watched here: {told}")
        try:
            yield
        finally:
            watcher.send_signal(signal.SIGINT)


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed here")
@pytest.mark.parametrize(("size", "goes"), [(99 * KIB, False), (100 * KIB, True)])
def test_bodies_go_by_sendfile_from_min_message_size_on(
    start: Start, tmp_path: Path, size: int, goes: bool
) -> None:
    trace, bodies = tmp_path / "trace", [random.randbytes(size) for _ in range(40)]
    with start(**COLD, OTTERMQ_WAL__ZERO_COPY__MIN_MESSAGE_SIZE="100KiB") as broker:
        channel = Client(broker.address("amqp")).channel()
        fill(channel, "large", bodies)
        assert all_but_the_last(broker.data, bodies)
        with watched(broker, trace):
            channel.consume("large", no_ack=True)
            assert [message.body for message in channel.deliveries(40)] == bodies
    sent = re.findall(r"(?:sendfile\(|sendfile resumed).*= (\d+)$", trace.read_text(), re.MULTILINE)
    if goes:
        assert sum(map(int, sent)) >= 20 * size  # the last of them were in memory still
    else:
        assert not sent


def test_unacked_ones_are_sent_again_from_the_file(start: Start) -> None:
    bodies = messages(40)
    with start(**COLD) as broker:
        channel = Client(broker.address("amqp")).channel()
        fill(channel, "large", bodies)
        assert all_but_the_last(broker.data, bodies)
        with Client(broker.address("amqp")) as first:
            other = first.channel()
            other.consume("large")
            assert [message.body for message in other.deliveries(40)] == bodies
        assert channel.becomes("large", 40)
        channel.consume("large")
        again = channel.deliveries(40)
        assert [message.body for message in again] == bodies
        assert all(message.redelivered for message in again)


@pytest.mark.parametrize("end", shortened([signal.SIGKILL, signal.SIGTERM], 1))
def test_files_of_an_earlier_life_are_sent_from(start: Start, end: signal.Signals) -> None:
    bodies = messages(40)
    with start(**COLD) as broker:
        fill(Client(broker.address("amqp")).channel(), "large", bodies)
        broker.stop(end)
    with start(**COLD) as broker:
        channel = Client(broker.address("amqp")).channel()
        channel.consume("large", no_ack=True)
        assert [message.body for message in channel.deliveries(40)] == bodies


def test_basic_get_and_streams_send_from_the_file_too(start: Start) -> None:
    bodies = messages(14)
    with start(**COLD) as broker:
        channel = Client(broker.address("amqp")).channel()
        channel.declare("stream", {"x-queue-type": "stream"}, durable=True)
        fill(channel, "large", bodies)
        for body in bodies:
            channel.publish(body, key="stream")
        channel.confirmed(2 * len(bodies))
        assert all_but_the_last(broker.data, bodies * 2)
        assert [channel.must_get("large").body for _ in bodies] == bodies
        channel.qos(100)
        channel.consume("stream", arguments={"x-stream-offset": "first"})
        assert [message.body for message in channel.deliveries(14)] == bodies


def test_what_is_on_its_way_arrives_though_its_queue_is_deleted(start: Start) -> None:
    """A message that was given out is in the output; its file lives until it has been sent."""
    bodies = [body for body in messages(70) if len(body) >= 64 * KIB]
    with start(**COLD) as broker:
        channel = Client(broker.address("amqp")).channel()
        fill(channel, "large", bodies)
        assert all_but_the_last(broker.data, bodies)
        slow = Client(broker.address("amqp")).channel()
        slow.consume("large", no_ack=True)
        got = [slow.delivery().body]
        channel.delete("large")
        while isinstance(said := slow.take(), Message):
            got.append(said.body)
        assert isinstance(said, Basic.Cancel)
        assert got == bodies[: len(got)]


def test_large_messages_of_a_file_over_tls(tmp_path: Path, amqp_address: Address) -> None:
    tls_setup, bodies = TlsSetup(tmp_path), messages(21)
    with tls_setup.start(**COLD) as broker:
        fill(Client(broker.address("amqp")).channel(), "large", bodies)
        assert all_but_the_last(broker.data, bodies)
        channel = Client(broker.address("amqps"), tls=tls_setup.context()).channel()
        channel.consume("large", no_ack=True)
        assert [message.body for message in channel.deliveries(21)] == bodies
        channel.client.close()
