"""Who doesn't read what we send holds bounded memory, whatever it asks for; and once it reads, it
gets all of it."""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from pamqp import body, frame, header
from pamqp.commands import Basic, Queue

from tests.amqp.crowd import memory
from tests.amqp.wire import PATIENCE, Channel, Client, Confirms, Message, eventually
from tests.brokers import Broker

pytestmark = pytest.mark.ottermq_only("memory of our own process")

MIB = 1 << 20
BODY = b"x" * (32 << 10)
SOCKETS = 12 * MIB  # what the kernel may hold of a connection, both ways, and the engine's limits


@pytest.fixture
def own(start: Callable[..., Broker]) -> Iterator[Broker]:
    with start(OTTERMQ_WAL__PAGE_CACHE__HOT_BUFFER_SIZE="1MiB") as broker:
        yield broker


@pytest.fixture
def channel(own: Broker) -> Iterator[Channel]:
    with Client(own.address("amqp")) as client:
        yield client.channel()


def fill(channel: Channel, queue: str, count: int) -> None:
    sender = channel.client.channel()
    sender.confirm()
    confirms = Confirms(sender)
    for number in range(1, count + 1):
        sender.publish(BODY, key=queue)
        confirms.until(number - 50)
    confirms.until(count)
    sender.close()


def send_until_refused(client: Client, data: bytes, most: int) -> int:
    """How many times it was sent before the broker took no more; the last one may be in part."""
    client.socket.settimeout(2)
    count = 0
    view = memoryview(b"")
    while count < most or view:
        view = view or memoryview(data)
        try:
            sent = client.socket.send(view)
        except TimeoutError:
            break
        view = view[sent:]
        count += not view
    client.unsent = bytes(view)  # type: ignore[attr-defined]
    return count


def unroutable(channel: Channel) -> bytes:
    """A mandatory publish that nobody gets."""
    parts = (
        Basic.Publish(0, "", "nobody", True),
        header.ContentHeader(0, len(BODY), Basic.Properties()),
        body.ContentBody(BODY),
    )
    return b"".join(frame.marshal(part, channel.number) for part in parts)


def is_well(broker: Broker) -> bool:
    with Client(broker.address("amqp")) as other:
        channel = other.channel()
        queue = channel.declare()
        channel.publish(b"x", key=queue)
        return channel.must_get(queue).body == b"x"


def test_a_consumer_that_never_reads_holds_bounded_memory(own: Broker, channel: Channel) -> None:
    count = 2000
    channel.declare("backlog", durable=True)
    fill(channel, "backlog", count)
    before = memory(own.process.pid)
    with Client(own.address("amqp")) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.channel().send(Basic.Consume(queue="backlog", consumer_tag="dead"))
        # Until it has been given all that it gets.
        assert eventually(lambda: channel.look("backlog")[1] == 1)
        last = -1
        while (left := channel.count("backlog")) != last:
            last = left
            time.sleep(0.2)
        assert (count - left) * len(BODY) < SOCKETS
        assert memory(own.process.pid) - before < SOCKETS
        assert is_well(own)
    assert channel.becomes("backlog", count)


def test_a_consumer_that_reads_late_gets_everything(own: Broker, channel: Channel) -> None:
    count = 600
    channel.declare("backlog", durable=True)
    fill(channel, "backlog", count)
    with Client(own.address("amqp")) as client:
        late = client.channel()
        late.send(Basic.Consume(queue="backlog", consumer_tag="late"))
        assert eventually(lambda: channel.count("backlog") < count)
        late.expect(Basic.ConsumeOk)
        tags = [late.delivery().tag for _ in range(count)]
        assert tags == list(range(1, count + 1))


def test_a_publisher_that_never_reads_its_returns_is_not_read(own: Broker) -> None:
    most = 4000
    assert is_well(own)
    before = memory(own.process.pid)
    with Client(own.address("amqp")) as client:
        channel = client.channel()
        data = unroutable(channel)
        sent = send_until_refused(client, data, most)
        assert sent * len(data) < 2 * SOCKETS  # it was made to wait
        if not os.environ.get("OTTERMQ_SANITIZE"):  # which keeps what was freed for a while
            assert memory(own.process.pid) - before < SOCKETS
        assert is_well(own)
        # It reads, and is read again: nothing is lost.
        unsent = client.unsent  # type: ignore[attr-defined]
        for _ in range(sent):
            assert channel.returned().body == BODY
        client.raw(unsent)
        if unsent:
            assert channel.returned().body == BODY
        channel.round_trip()


def test_gets_whose_answers_are_never_read_are_not_served(own: Broker, channel: Channel) -> None:
    count = 2000
    channel.declare("backlog", durable=True)
    fill(channel, "backlog", count)
    before = memory(own.process.pid)
    with Client(own.address("amqp")) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        greedy = client.channel()
        greedy.get("backlog", no_ack=True)
        gets = frame.marshal(Basic.Get(queue="backlog", no_ack=True), greedy.number)
        client.raw(gets * (count - 1))
        last = -1
        while (left := channel.count("backlog")) != last:
            last = left
            time.sleep(0.2)
        assert (count - left) * len(BODY) < 2 * SOCKETS
        assert memory(own.process.pid) - before < SOCKETS
        for _ in range(count - 1):
            assert isinstance(greedy.expect(Basic.GetOk), Message)
    assert channel.becomes("backlog", 0)


@pytest.mark.weighed
def test_questions_whose_answers_are_never_read_are_not_answered(
    own: Broker, channel: Channel
) -> None:
    """Those that Python answers, too."""
    name = "q" * 250
    channel.declare(name)
    question = frame.marshal(Queue.Declare(queue=name, passive=True, arguments={}), 1) * 100
    before = memory(own.process.pid)
    with Client(own.address("amqp")) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        asker = client.channel()
        sent = send_until_refused(client, question, 2000)
        assert sent < 2000
        assert memory(own.process.pid) - before < SOCKETS
        limit = time.monotonic() + PATIENCE
        for _ in range(sent * 100):
            while not asker.inbox:
                client.pump(limit)
            assert asker.inbox.popleft().queue == name


def test_a_full_connection_that_takes_nothing_is_given_up(own: Broker) -> None:
    """It isn't read, so its heartbeats can't be heard; what it takes is its sign of life."""
    client = Client(own.address("amqp"), heartbeat=1)
    channel = client.channel()
    with contextlib.suppress(ConnectionError):  # given up already
        send_until_refused(client, unroutable(channel), 4000)
    own.wait_for("output not drained")
    client.drop()
