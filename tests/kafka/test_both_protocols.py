"""One log, two protocols: what comes in by one goes out by the other, at the same offset.

Clients as people use them, kafka-python and pika, against a broker process.
"""

import datetime
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pika
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic
from kafka.errors import KafkaError, OffsetOutOfRangeError
from pika.adapters.blocking_connection import BlockingChannel

from tests.brokers import Broker

PATIENCE = 60.0
SMALL_SEGMENTS = {
    "OTTERMQ_WAL__SEGMENT_SIZE": "64KiB",
    "OTTERMQ_WAL__CHECKPOINT_INTERVAL": "200ms",
    "OTTERMQ_WAL__RETENTION__CHECK_INTERVAL": "1s",
}


class Kafka:
    """The Kafka side: a producer, an admin, and whatever a test wants to read."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.producer = KafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=False
        )
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def close(self) -> None:
        self.producer.close(timeout=5)
        self.admin.close()

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        given = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, partitions, 1, topic_configs=given)
        self.admin.create_topics([topic])

    def send(self, topic: str, value: bytes | None, key: bytes | None = None, **more: Any) -> int:
        """Its offset, once it is on disk."""
        return int(self.producer.send(topic, value, key, **more).get(PATIENCE).offset)

    def read(
        self, topic: str, count: int, offset: int | None = None, partition: int = 0
    ) -> list[Any]:
        """So many records from there on, or from the start."""
        place = TopicPartition(topic, partition)
        with consumer(self.bootstrap) as client:
            client.assign([place])
            if offset is None:
                client.seek_to_beginning(place)
            else:
                client.seek(place, offset)
            return [next(client) for _ in range(count)]

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Where the log begins and ends."""
        place = TopicPartition(topic, partition)
        with consumer(self.bootstrap) as client:
            first, last = client.beginning_offsets([place]), client.end_offsets([place])
            return first[place], last[place]


def address(broker: Broker) -> str:
    host, port = broker.address("kafka")
    return f"{host}:{port}"


class consumer:
    def __init__(self, bootstrap: str, **more: Any) -> None:
        self.client = KafkaConsumer(
            bootstrap_servers=bootstrap, consumer_timeout_ms=int(PATIENCE * 1000), **more
        )

    def __enter__(self) -> KafkaConsumer:
        return self.client

    def __exit__(self, *_: object) -> None:
        self.client.close()


@pytest.fixture(scope="module")
def kafka(broker: Broker) -> Iterator[Kafka]:
    opened = Kafka(address(broker))
    yield opened
    opened.close()


@pytest.fixture
def amqp(broker: Broker) -> Iterator[BlockingChannel]:
    host, port = broker.address("amqp")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, port))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    if connection.is_open:
        connection.close()


@pytest.fixture
def name() -> str:
    return f"topic-{uuid4().hex[:12]}"


def publish(
    channel: BlockingChannel, key: str, body: bytes, exchange: str = "", **properties: Any
) -> None:
    channel.basic_publish(
        exchange, key, body, pika.BasicProperties(delivery_mode=2, **properties), mandatory=True
    )


def get(channel: BlockingChannel, queue: str) -> tuple[Any, Any, bytes]:
    found: list[tuple[Any, Any, bytes]] = []

    def one() -> bool:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            found.append((method, properties, body))
        return bool(found)

    until(one)
    return found[0]


def stream(
    channel: BlockingChannel, queue: str, count: int, offset: Any = "first"
) -> list[tuple[int, str, bytes]]:
    """(x-stream-offset, routing key, body) of so many messages of a stream."""
    found: list[tuple[int, str, bytes]] = []

    def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        found.append((int(properties.headers["x-stream-offset"]), method.routing_key, body))
        channel.basic_ack(method.delivery_tag)

    channel.basic_qos(prefetch_count=100)
    tag = channel.basic_consume(queue, take, arguments={"x-stream-offset": offset})
    until(lambda: _step(channel) or len(found) >= count)
    channel.basic_cancel(tag)
    return found[:count]


def _step(channel: BlockingChannel) -> bool:
    channel.connection.process_data_events(time_limit=0.05)
    return False


def until(condition: Callable[[], bool]) -> None:
    """Until it is so; what no event tells is asked for again."""
    waited = threading.Event()
    for _ in range(int(PATIENCE / 0.02)):
        if condition():
            return
        waited.wait(0.02)
    raise AssertionError("it never came")


# -- messages ------------------------------------------------------------------------------


def test_a_kafka_record_reaches_a_queues_consumer(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    amqp.queue_declare(name, durable=True)
    kafka.send(name, b"hello", b"some.key", headers=[("source", b"kafka"), ("raw", b"\xff\x00")])
    method, properties, body = get(amqp, name)
    assert (method.exchange, method.routing_key, body) == ("", "some.key", b"hello")
    assert properties.headers == {"source": "kafka", "raw": b"\xff\x00"}
    assert properties.delivery_mode == 2


def test_a_tombstone_is_an_empty_body_with_a_header(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    amqp.queue_declare(name, durable=True)
    kafka.send(name, None, b"gone")
    method, properties, body = get(amqp, name)
    assert (method.routing_key, body) == ("gone", b"")
    assert properties.headers == {"x-kafka-tombstone": True}
    kafka.send(name, b"", b"empty")
    _, properties, body = get(amqp, name)
    assert (properties.headers, body) == (None, b"")


def test_an_amqp_message_is_readable_for_kafka_consumers(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    amqp.queue_declare(name, durable=True)
    headers = {"text": "plain", "number": 7}
    publish(amqp, name, b"hello", headers=headers, content_type="text/plain", message_id="m1")
    [record] = kafka.read(name, 1)
    assert (record.offset, record.key, record.value) == (0, name.encode(), b"hello")
    shown = dict(record.headers)
    assert shown["content-type"] == b"text/plain"
    assert shown["message-id"] == b"m1"
    assert shown["text"] == b"plain"
    _, properties, body = get(amqp, name)
    assert (properties.headers, properties.message_id, body) == (headers, "m1", b"hello")


@pytest.mark.parametrize(
    "type, binding, key",
    [
        ("direct", "k", "k"),
        ("topic", "a.#", "a.b.k"),
        ("fanout", "", "any"),
        ("headers", "", "any"),
        ("x-consistent-hash", "1", "any"),
        ("x-random", "", "any"),
    ],
)
def test_what_goes_through_an_exchange_reaches_kafka_consumers(
    kafka: Kafka, amqp: BlockingChannel, name: str, type: str, binding: str, key: str
) -> None:
    amqp.queue_declare(name, durable=True)
    amqp.exchange_declare(f"{name}-in", type, durable=True)
    arguments = {"colour": "red"} if type == "headers" else None
    amqp.queue_bind(name, f"{name}-in", binding, arguments)
    publish(amqp, key, b"hello", exchange=f"{name}-in", headers={"colour": "red"})
    [record] = kafka.read(name, 1)
    assert (record.key, record.value) == (key.encode(), b"hello")
    assert ("colour", b"red") in record.headers


def test_acks_and_nacks_leave_kafkas_view_alone(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    amqp.queue_declare(name, durable=True)
    for number in range(4):
        kafka.send(name, b"%d" % number)
    for _ in range(3):
        get(amqp, name)
    assert [record.value for record in kafka.read(name, 1, 3)] == [b"3"]
    assert kafka.bounds(name)[1] == 4
    assert kafka.send(name, b"4") == 4


def test_a_priority_queue_has_a_partition_a_priority(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    amqp.queue_declare(name, durable=True, arguments={"x-max-priority": 2})
    kafka.send(name, b"low", partition=0)
    kafka.send(name, b"high", partition=2)
    publish(amqp, name, b"middle", priority=1)
    # Read first: what a work queue has settled may go at any time.
    assert [record.value for record in kafka.read(name, 1, 0, partition=1)] == [b"middle"]
    assert [get(amqp, name)[2] for _ in range(3)] == [b"high", b"middle", b"low"]


# -- streams -------------------------------------------------------------------------------


def test_a_stream_and_a_topic_are_one_and_offsets_are_equal(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    kafka.create(name)
    sent = []
    for number in range(6):
        if number % 2:
            publish(amqp, name, b"%d" % number)
        else:
            kafka.send(name, b"%d" % number, b"k")
        sent.append(b"%d" % number)
    seen = stream(amqp, name, 6)
    assert [(offset, body) for offset, _, body in seen] == list(enumerate(sent))
    records = kafka.read(name, 6)
    assert [(record.offset, record.value) for record in records] == list(enumerate(sent))
    assert stream(amqp, name, 1, offset=4)[0][0] == kafka.read(name, 1, 4)[0].offset == 4


def test_a_time_leads_to_the_same_record_by_both_protocols(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    kafka.create(name)
    early = int(time.time()) - 3600
    for number in range(4):
        kafka.send(name, b"%d" % number, timestamp_ms=(early + 600 * number) * 1000)
    place = TopicPartition(name, 0)
    for number in range(4):
        when = early + 600 * number - 1
        with consumer(kafka.bootstrap) as client:
            found = client.offsets_for_times({place: when * 1000})[place]
        # A stream's reader begins with the batch that holds it: here each has its own.
        at = datetime.datetime.fromtimestamp(when, datetime.UTC)
        [(offset, _, _)] = stream(amqp, name, 1, offset=at)
        assert found.offset == offset == number


def test_a_stream_that_amqp_declared_is_a_topic(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    amqp.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    assert kafka.send(name, b"first") == 0
    publish(amqp, name, b"second")
    assert [record.value for record in kafka.read(name, 2)] == [b"first", b"second"]


def test_a_topic_with_partitions_is_a_super_stream(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    kafka.create(name, 3)
    for partition in range(3):
        kafka.send(name, b"kafka %d" % partition, partition=partition)
        publish(amqp, str(partition), b"amqp %d" % partition, exchange=name)
    for partition in range(3):
        bodies = [body for _, _, body in stream(amqp, f"{name}-{partition}", 2)]
        assert bodies == [b"kafka %d" % partition, b"amqp %d" % partition]
        assert [r.value for r in kafka.read(name, 2, partition=partition)] == bodies
    topics = kafka.admin.list_topics()
    assert name in topics and f"{name}-0" not in topics


def test_a_super_stream_that_amqp_made_is_a_topic(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    amqp.exchange_declare(name, "direct", durable=True, arguments={"x-super-stream": True})
    for index, region in enumerate(("emea", "apac")):
        amqp.queue_declare(f"{name}-{region}", durable=True, arguments={"x-queue-type": "stream"})
        amqp.queue_bind(
            f"{name}-{region}", name, region, arguments={"x-stream-partition-order": index}
        )
    publish(amqp, "apac", b"hello", exchange=name)
    assert [record.value for record in kafka.read(name, 1, partition=1)] == [b"hello"]
    assert kafka.bounds(name, 0) == (0, 0)


def test_partitions_that_are_added_later_are_streams_too(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    kafka.create(name)
    kafka.send(name, b"zero")
    kafka.admin.create_partitions({name: NewPartitions(2)})
    publish(amqp, "1", b"one", exchange=name)
    assert [body for _, _, body in stream(amqp, f"{name}-1", 1)] == [b"one"]
    assert [record.value for record in kafka.read(name, 1, 0, partition=0)] == [b"zero"]
    assert [record.value for record in kafka.read(name, 1, 0, partition=1)] == [b"one"]


# -- what goes -----------------------------------------------------------------------------


def test_a_queue_that_amqp_deletes_is_no_topic_any_more(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    amqp.queue_declare(name, durable=True)
    assert name in kafka.admin.list_topics()
    amqp.queue_delete(name)
    assert name not in kafka.admin.list_topics()


def test_a_topic_that_kafka_deletes_is_no_queue_any_more(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    kafka.create(name, 2)
    cancelled: list[str] = []
    amqp.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    amqp.basic_qos(prefetch_count=1)
    tag = amqp.basic_consume(f"{name}-1", lambda *_: None)
    kafka.admin.delete_topics([name])
    until(lambda: _step(amqp) or cancelled == [tag])
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        amqp.queue_declare(f"{name}-0", passive=True)
    assert refused.value.reply_code == 404


def test_a_purged_queue_goes_on_at_the_next_offset(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    amqp.queue_declare(name, durable=True)
    for number in range(3):
        kafka.send(name, b"%d" % number)
    assert amqp.queue_purge(name).method.message_count == 3
    assert kafka.send(name, b"3") == 3
    assert [record.offset for record in kafka.read(name, 1, 3)] == [3]
    assert get(amqp, name)[2] == b"3"
    assert kafka.bounds(name)[1] == 4


def test_a_full_queue_drops_its_oldest_for_kafka_producers_too(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    amqp.queue_declare(name, durable=True, arguments={"x-max-length": 2})
    for number in range(5):
        kafka.send(name, b"%d" % number)
    assert [get(amqp, name)[2] for _ in range(2)] == [b"3", b"4"]
    first, last = kafka.bounds(name)
    assert 0 <= first <= last == 5


def test_expired_messages_keep_kafkas_view_consistent(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    amqp.queue_declare(name, durable=True, arguments={"x-message-ttl": 1})
    for number in range(3):
        kafka.send(name, b"%d" % number)
    until(lambda: not amqp.queue_declare(name, passive=True).method.message_count)
    first, last = kafka.bounds(name)
    assert 0 <= first <= last == 3
    assert kafka.send(name, b"3") == 3


@pytest.mark.parametrize(
    "arguments", [{"x-max-length": 10}, {"x-message-ttl": 1}], ids=["max-length", "ttl"]
)
def test_what_a_queue_dropped_is_out_of_range_once_its_segment_is_gone(
    tmp_path: Path, name: str, arguments: dict[str, Any]
) -> None:
    with Broker(tmp_path / "data", env=SMALL_SEGMENTS) as broker:
        kafka = Kafka(address(broker))
        host, port = broker.address("amqp")
        connection = pika.BlockingConnection(pika.ConnectionParameters(host, port))
        amqp = connection.channel()
        amqp.queue_declare(name, durable=True, arguments=arguments)
        for number in range(60):
            kafka.send(name, b"%d " % number + bytes(8000))
        until(lambda: kafka.bounds(name)[0] > 0)
        first, last = kafka.bounds(name)
        assert last == 60
        if "x-max-length" in arguments:
            assert first <= 50
            assert [get(amqp, name)[2].split()[0] for _ in range(10)] == [
                b"%d" % number for number in range(50, 60)
            ]
        else:
            assert not amqp.queue_declare(name, passive=True).method.message_count
        place = TopicPartition(name, 0)
        with consumer(kafka.bootstrap, auto_offset_reset="none") as client:
            client.assign([place])
            client.seek(place, 0)
            with pytest.raises(OffsetOutOfRangeError):
                next(client)
        assert kafka.send(name, b"60") == 60
        kafka.close()
        connection.close()


def test_deleted_records_are_gone_for_streams_and_seeks_below_are_out_of_range(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    kafka.create(name)
    for number in range(5):
        kafka.send(name, b"%d" % number)
    kafka.admin.delete_records({TopicPartition(name, 0): 3})
    assert kafka.bounds(name) == (3, 5)
    assert [offset for offset, _, _ in stream(amqp, name, 2)] == [3, 4]
    place = TopicPartition(name, 0)
    with consumer(kafka.bootstrap, auto_offset_reset="none") as client:
        client.assign([place])
        client.seek(place, 1)
        with pytest.raises(OffsetOutOfRangeError):
            next(client)


def test_retention_by_kafkas_config_is_seen_by_streams(
    kafka: Kafka, amqp: BlockingChannel, name: str
) -> None:
    kafka.create(name, segment_bytes="65536", retention_bytes="65536")
    for number in range(40):
        kafka.send(name, b"%d" % number + b"." * 8000)
    until(lambda: kafka.bounds(name)[0] > 0)
    first, last = kafka.bounds(name)
    assert last == 40
    assert stream(amqp, name, 1)[0][0] >= first


# -- a crash -------------------------------------------------------------------------------


def test_both_protocols_see_the_same_after_a_kill(tmp_path: Path, name: str) -> None:
    with Broker(tmp_path / "data") as broker:
        kafka = Kafka(address(broker))
        kafka.create(name, 2)
        offsets = [kafka.send(name, b"%d" % n, partition=1) for n in range(5)]
        kafka.close()
        broker.stop(signal.SIGKILL)
    with Broker(tmp_path / "data") as broker:
        kafka = Kafka(address(broker))
        host, port = broker.address("amqp")
        connection = pika.BlockingConnection(pika.ConnectionParameters(host, port))
        seen = stream(connection.channel(), f"{name}-1", 5)
        assert [offset for offset, _, _ in seen] == offsets
        assert [r.offset for r in kafka.read(name, 5, partition=1)] == offsets
        assert kafka.send(name, b"5", partition=1) > offsets[-1]
        connection.close()
        kafka.close()


def test_a_compacted_topic_keeps_the_last_of_each_key_for_both(tmp_path: Path, name: str) -> None:
    with Broker(tmp_path / "data", env={"OTTERMQ_KAFKA__COMPACTION_INTERVAL": "100ms"}) as broker:
        kafka = Kafka(address(broker))
        kafka.create(name, cleanup_policy="compact", segment_bytes="65536")
        for number in range(40):
            kafka.send(name, b"%d" % number + b"." * 8000, b"key %d" % (number % 4))
        until(lambda: any(" compacted log=" in line for line in list(broker.lines)))
        kafka.send(name, b"end", b"end")
        records: list[Any] = []
        with consumer(kafka.bootstrap, auto_offset_reset="earliest") as client:
            client.assign([TopicPartition(name, 0)])
            while not records or records[-1].key != b"end":
                records.append(next(client))
        assert len(records) < 40
        last = {record.key: record.offset for record in records}
        assert last == {b"key 0": 36, b"key 1": 37, b"key 2": 38, b"key 3": 39, b"end": 40}
        host, port = broker.address("amqp")
        connection = pika.BlockingConnection(pika.ConnectionParameters(host, port))
        seen = stream(connection.channel(), name, 5, offset=36)
        assert [offset for offset, _, _ in seen] == [36, 37, 38, 39, 40]
        with pytest.raises(KafkaError):
            kafka.send(name, b"no key")
        connection.close()
        kafka.close()
