"""kombu: the messaging library of Celery."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from amqp.exceptions import MessageNacked
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.exceptions import OperationalError

from tests.clients.proxy import Proxy

Unique = Callable[[str], str]
PATIENCE = 20.0


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with Connection(url, transport_options={"confirm_publish": True}) as opened:
        yield opened


def receive(connection: Connection, queue: Queue, count: int) -> list[Any]:
    got: list[Any] = []

    def take(message: Any) -> None:
        got.append(message)
        message.ack()

    with Consumer(connection, [queue], on_message=take):
        while len(got) < count:
            connection.drain_events(timeout=PATIENCE)
    return got


def test_publish_and_consume_any_body(connection: Connection, unique: Unique) -> None:
    exchange = Exchange(unique("news"), "topic", auto_delete=True)
    queue = Queue(unique("readers"), exchange, routing_key="a.#", auto_delete=True)
    producer = Producer(connection, exchange)
    for serializer in ("json", "yaml", "pickle"):
        producer.publish(
            {"by": serializer}, routing_key="a.b", serializer=serializer, declare=[queue]
        )
    with connection.channel():
        got: list[Any] = []

        def take(body: Any, message: Any) -> None:
            got.append(body)
            message.ack()

        accept = ["json", "yaml", "pickle"]
        with Consumer(connection, [queue], callbacks=[take], accept=accept):
            while len(got) < 3:
                connection.drain_events(timeout=PATIENCE)
    assert got == [{"by": "json"}, {"by": "yaml"}, {"by": "pickle"}]


def test_a_simple_queue(connection: Connection, unique: Unique) -> None:
    simple = connection.SimpleQueue(unique("simple"))
    for number in range(5):
        simple.put({"number": number}, compression="zlib")
    got = []
    for _ in range(5):
        message = simple.get(timeout=PATIENCE)
        got.append(message.payload["number"])
        message.ack()
    assert got == list(range(5))
    simple.close()
    connection.default_channel.queue_delete(simple.queue.name)


def test_return(connection: Connection) -> None:
    back: list[Any] = []
    producer = Producer(connection, on_return=lambda *returned: back.append(returned))
    producer.publish("back", routing_key="nobody", mandatory=True)
    limit = time.monotonic() + PATIENCE
    while not back and time.monotonic() < limit:
        connection.drain_events(timeout=PATIENCE)
    reason, _exchange, key, _message = back[0]
    assert (reason.reply_code, key) == (312, "nobody")


def test_confirm(connection: Connection, unique: Unique) -> None:
    refusing = {"x-overflow": "reject-publish"}
    queue = Queue(unique("narrow"), max_length=1, auto_delete=True, queue_arguments=refusing)
    producer = Producer(connection)
    producer.publish("fits", routing_key=queue.name, declare=[queue])
    with pytest.raises(MessageNacked):
        producer.publish("does not", routing_key=queue.name)
    (kept,) = receive(connection, queue, 1)
    assert kept.decode() == "fits"


def test_tx(url: str, unique: Unique) -> None:
    with Connection(url) as connection:
        queue = Queue(unique("whole"), auto_delete=True)(connection.default_channel)
        queue.declare()
        channel = connection.channel()
        channel.tx_select()
        producer = Producer(channel)
        producer.publish("no", routing_key=queue.name)
        channel.tx_rollback()
        producer.publish("yes", routing_key=queue.name)
        assert queue.get() is None
        channel.tx_commit()
        got = queue.get()
        assert got.decode() == "yes"
        got.ack()
        queue.delete()


def test_requeue_reject_and_dead_letters(connection: Connection, unique: Unique) -> None:
    grave = Queue(unique("grave"), auto_delete=True)
    queue = Queue(
        unique("work"),
        auto_delete=True,
        queue_arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave.name},
    )
    grave(connection.default_channel).declare()
    Producer(connection).publish("x", routing_key=queue.name, declare=[queue])
    flags = []

    def arrived(message: Any) -> None:
        flags.append(message.delivery_info["redelivered"])
        if len(flags) == 1:
            message.requeue()
        else:
            message.reject()

    with Consumer(connection, [queue], on_message=arrived):
        while len(flags) < 2:
            connection.drain_events(timeout=PATIENCE)
    assert flags == [False, True]
    (dead,) = receive(connection, grave, 1)
    assert dead.headers["x-death"][0]["reason"] == "rejected"


def test_priority(connection: Connection, unique: Unique) -> None:
    queue = Queue(unique("ranked"), max_priority=5, auto_delete=True)
    producer = Producer(connection)
    for priority in (1, 5, 3):
        producer.publish(priority, routing_key=queue.name, priority=priority, declare=[queue])
    assert [m.decode() for m in receive(connection, queue, 3)] == [5, 3, 1]


def test_expiration(connection: Connection, unique: Unique) -> None:
    queue = Queue(unique("brief"), auto_delete=True)
    producer = Producer(connection)
    producer.publish("brief", routing_key=queue.name, expiration=0.03, declare=[queue])
    bound = queue(connection.default_channel)
    limit = time.monotonic() + PATIENCE
    while bound.queue_declare(passive=True).message_count:
        assert time.monotonic() < limit


def test_heartbeats(url: str) -> None:
    with Connection(url, heartbeat=2) as connection:
        connection.connect()
        connection.heartbeat_check()
        assert connection.get_heartbeat_interval() == 2


def test_reconnect_by_ensure(proxy: Proxy, unique: Unique) -> None:
    host, port = proxy.address
    options = {"confirm_publish": True}  # else what goes into a wire just cut is lost unseen
    with Connection(f"amqp://guest:guest@{host}:{port}//", transport_options=options) as connection:
        queue = Queue(unique("lasting"), auto_delete=False, durable=True)
        producer = Producer(connection)
        publish = connection.ensure(
            producer, producer.publish, max_retries=20, interval_start=0.1, interval_max=0.5
        )
        publish("before", routing_key=queue.name, declare=[queue])
        proxy.cut()
        publish("after", routing_key=queue.name, declare=[queue])
        producer.publish("end", routing_key=queue.name, retry=True)
        got = [m.decode() for m in receive(connection, queue, 3)]
        assert got == ["before", "after", "end"]
        queue(connection.default_channel).delete()


def test_a_broker_that_is_not_there_is_told() -> None:
    with Connection("amqp://guest:guest@127.0.0.1:1//") as connection:
        with pytest.raises(OperationalError):
            connection.ensure_connection(max_retries=1, interval_start=0)
