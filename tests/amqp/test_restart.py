"""What a restart brings back, clean or by SIGKILL: topology, messages, cursors, counts."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.amqp.wire import Channel, Client, Gone, Refused, refused
from tests.brokers import Broker

pytestmark = pytest.mark.ottermq_only("a broker of the test's own")

Start = Callable[..., Broker]
ENDS = {"stop": signal.SIGTERM, "kill": signal.SIGKILL}


@pytest.fixture(params=ENDS)
def end(request: pytest.FixtureRequest) -> signal.Signals:
    return ENDS[request.param]


@contextmanager
def opened(broker: Broker) -> Iterator[Channel]:
    client = Client(broker.address("amqp"))
    yield client.channel()
    client.close()


def finish(broker: Broker, channel: Channel, end: signal.Signals) -> None:
    """With what the channel holds still in its hands."""
    broker.process.send_signal(end)
    with suppress(Refused, Gone, OSError):
        channel.client.wait(lambda: None)  # until the broker has said goodbye, or is gone
    broker.stop(end)


def publish(channel: Channel, queue: str, *bodies: bytes, **properties: Any) -> None:
    """On disk when this returns."""
    sender = channel.client.channel()
    sender.confirm()
    for body in bodies:
        sender.publish(body, key=queue, **{"delivery_mode": 2, **properties})
    sender.confirmed(len(bodies))
    sender.close()


def test_durable_topology_comes_back(start: Start, end: signal.Signals) -> None:
    with start() as broker, opened(broker) as channel:
        channel.declare_exchange("lasting", "topic", durable=True)
        channel.declare_exchange("inner", "fanout", durable=True, internal=True)
        channel.declare_exchange("brief", "topic")
        channel.declare("kept", {"x-max-length": 100}, durable=True)
        channel.declare("lost")
        channel.bind_exchange("inner", "lasting", "a.#")
        channel.bind("kept", "inner")
        channel.bind("lost", "inner")
        finish(broker, channel, end)
    with start() as broker, opened(broker) as channel:
        channel.declare("kept", {"x-max-length": 100}, durable=True)
        channel.publish(b"x", key="a.b", exchange="lasting", mandatory=True)
        assert channel.must_get("kept").body == b"x"
        assert not channel.inbox
        client = channel.client
        with refused(404):
            client.channel().look("lost")
        with refused(404):
            client.channel().declare_exchange("brief", passive=True)


def test_what_was_deleted_and_unbound_stays_so(start: Start, end: signal.Signals) -> None:
    with start() as broker, opened(broker) as channel:
        channel.declare_exchange("x", "fanout", durable=True)
        for queue in ("gone", "unbound"):
            channel.declare(queue, durable=True)
            channel.bind(queue, "x")
        publish(channel, "gone", b"1")
        channel.delete("gone")
        channel.unbind("unbound", "x")
        finish(broker, channel, end)
    with start() as broker, opened(broker) as channel:
        channel.declare("gone", durable=True)
        channel.publish(b"x", exchange="x", mandatory=True)
        assert channel.returned().body == b"x"
        assert channel.count("gone") == 0


def test_persistent_messages_come_back_in_order(start: Start, end: signal.Signals) -> None:
    bodies = [b"%d" % number for number in range(500)]
    with start() as broker, opened(broker) as channel:
        channel.declare("kept", durable=True)
        publish(channel, "kept", *bodies, content_type="text/plain", headers={"a": [1, {"b": 2}]})
        finish(broker, channel, end)
    with start() as broker, opened(broker) as channel:
        assert channel.count("kept") == 500
        first = channel.must_get("kept")
        assert (first.body, first.redelivered, first.key) == (b"0", False, "kept")
        assert first.properties.content_type == "text/plain"
        assert first.headers == {"a": [1, {"b": 2}]}
        assert channel.drain("kept") == bodies[1:]


def test_messages_from_nothing_to_a_megabyte_come_back_whole(
    start: Start, end: signal.Signals
) -> None:
    bodies = [bytes(size) + b"!" for size in (0, 1, 4096, 65_536, 300_000, 1 << 20)]
    with start() as broker, opened(broker) as channel:
        channel.declare("kept", durable=True)
        publish(channel, "kept", *bodies)
        finish(broker, channel, end)
    with start() as broker, opened(broker) as channel:
        assert channel.drain("kept") == bodies


def test_unacked_messages_come_back_as_redelivered_in_their_place(
    start: Start, end: signal.Signals
) -> None:
    with start() as broker, opened(broker) as channel:
        channel.declare("kept", durable=True)
        publish(channel, "kept", *(b"%d" % number for number in range(10)))
        channel.qos(6)
        channel.consume("kept")
        got = channel.deliveries(6)
        for number in (0, 2, 3):
            channel.ack(got[number].tag)
        channel.deliveries(3)
        # An ack is on disk with the next group or within a second: a confirm after it tells so.
        channel.declare("later", durable=True)
        publish(channel, "later", b"x")
        finish(broker, channel, end)
    with start() as broker, opened(broker) as channel:
        assert channel.becomes("kept", 7)
        back = [channel.must_get("kept") for _ in range(7)]
        assert [m.body for m in back] == [b"1", b"4", b"5", b"6", b"7", b"8", b"9"]
        assert [m.redelivered for m in back] == [True] * 6 + [False]


def test_acked_messages_stay_away(start: Start, end: signal.Signals) -> None:
    with start() as broker, opened(broker) as channel:
        channel.declare("kept", durable=True)
        publish(channel, "kept", *(b"%d" % number for number in range(100)))
        assert len(channel.drain("kept")) == 100
        publish(channel, "kept", b"last")
        finish(broker, channel, end)
    with start() as broker, opened(broker) as channel:
        assert channel.drain("kept") == [b"last"]


def test_purged_messages_stay_away(start: Start, end: signal.Signals) -> None:
    with start() as broker, opened(broker) as channel:
        channel.declare("kept", durable=True)
        publish(channel, "kept", b"1", b"2")
        assert channel.purge("kept") == 2
        publish(channel, "kept", b"3")
        finish(broker, channel, end)
    with start() as broker, opened(broker) as channel:
        assert channel.drain("kept") == [b"3"]


def test_a_committed_transaction_comes_back(start: Start, end: signal.Signals) -> None:
    with start() as broker, opened(broker) as channel:
        for queue in ("from", "to"):
            channel.declare(queue, durable=True)
        publish(channel, "from", b"job")
        worker = channel.client.channel()
        worker.tx_select()
        message = worker.must_get("from", no_ack=False)
        worker.publish(b"done", key="to", delivery_mode=2)
        worker.ack(message.tag)
        worker.tx_commit()
        worker.publish(b"never", key="to", delivery_mode=2)
        worker.round_trip()
        finish(broker, channel, end)
    with start() as broker, opened(broker) as channel:
        assert (channel.drain("from"), channel.drain("to")) == ([], [b"done"])


def test_priorities_come_back(start: Start, end: signal.Signals) -> None:
    with start() as broker, opened(broker) as channel:
        channel.declare("ranked", {"x-max-priority": 9}, durable=True)
        for priority in (1, 9, 5, 9, 1):
            publish(channel, "ranked", b"%d" % priority, priority=priority)
        finish(broker, channel, end)
    with start() as broker, opened(broker) as channel:
        assert channel.drain("ranked") == [b"9", b"9", b"5", b"1", b"1"]


def test_streams_come_back_with_their_offsets(start: Start, end: signal.Signals) -> None:
    with start() as broker, opened(broker) as channel:
        channel.declare("news", {"x-queue-type": "stream"}, durable=True)
        publish(channel, "news", b"0", b"1", b"2")
        finish(broker, channel, end)
    with start() as broker, opened(broker) as channel:
        publish(channel, "news", b"3")
        channel.qos(10)
        channel.consume("news", arguments={"x-stream-offset": "first"})
        got = channel.deliveries(4)
        assert [m.body for m in got] == [b"0", b"1", b"2", b"3"]
        offsets = [m.headers["x-stream-offset"] for m in got]
        assert offsets[:3] == [0, 1, 2] and offsets[3] >= 3


def test_delivery_counts_survive(start: Start, end: signal.Signals) -> None:
    with start() as broker, opened(broker) as channel:
        channel.declare("tried", {"x-queue-type": "quorum", "x-delivery-limit": 5}, durable=True)
        publish(channel, "tried", b"x")
        for _ in range(2):
            channel.reject(channel.must_get("tried", no_ack=False).tag, requeue=True)
        assert channel.becomes("tried", 1)
        publish(channel, "tried", b"y")  # its confirm says that the counts are on disk too
        finish(broker, channel, end)
    with start() as broker, opened(broker) as channel:
        message = channel.must_get("tried")
        assert message.headers["x-delivery-count"] == 2


def test_dead_letters_come_back_where_they_went(start: Start, end: signal.Signals) -> None:
    with start() as broker, opened(broker) as channel:
        channel.declare("grave", durable=True)
        channel.declare(
            "short",
            {
                "x-max-length": 1,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "grave",
            },
            durable=True,
        )
        publish(channel, "short", b"1", b"2", b"3")
        assert channel.becomes("grave", 2)
        publish(channel, "grave", b"last")
        finish(broker, channel, end)
    with start() as broker, opened(broker) as channel:
        dead = channel.must_get("grave")
        assert (dead.body, dead.headers["x-death"][0]["reason"]) == (b"1", "maxlen")
        assert channel.drain("grave") == [b"2", b"last"]
        assert channel.drain("short") == [b"3"]


def test_messages_that_expire_while_the_broker_is_down_are_gone(
    start: Start, end: signal.Signals
) -> None:
    with start() as broker, opened(broker) as channel:
        channel.declare("kept", durable=True)
        publish(channel, "kept", b"brief", expiration="100")
        publish(channel, "kept", b"lasting")
        finish(broker, channel, end)
    time.sleep(0.1)
    with start() as broker, opened(broker) as channel:
        assert channel.drain("kept") == [b"lasting"]


def test_delayed_messages_survive(start: Start, end: signal.Signals) -> None:
    with start() as broker, opened(broker) as channel:
        channel.declare_exchange(
            "later", "x-delayed-message", {"x-delayed-type": "direct"}, durable=True
        )
        channel.declare("kept", durable=True)
        channel.bind("kept", "later", "key")
        channel.confirm()
        channel.publish(
            b"x", key="key", exchange="later", delivery_mode=2, headers={"x-delay": 1500}
        )
        channel.confirmed(1)
        assert channel.count("kept") == 0
        finish(broker, channel, end)
    with start() as broker, opened(broker) as channel:
        assert channel.must_get("kept").body == b"x"


def test_a_restart_of_a_broker_with_much_to_remember_is_whole(
    start: Start, end: signal.Signals
) -> None:
    with start() as broker, opened(broker) as channel:
        names = [f"queue-{number}" for number in range(200)]
        for name in names:
            channel.declare(name, durable=True)
            channel.bind(name, "amq.topic", f"{name}.#")
        sender = channel.client.channel()
        sender.confirm()
        for name in names:
            sender.publish(name.encode(), key=f"{name}.x", exchange="amq.topic", delivery_mode=2)
        sender.confirmed(200)
        finish(broker, channel, end)
    with start() as broker, opened(broker) as channel:
        assert [channel.must_get(name).body.decode() for name in names] == names
