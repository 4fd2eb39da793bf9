"""kafka-python, as its users use it."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import (
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

PATIENCE = 60.0
Unique = Callable[[str], str]


@pytest.fixture
def admin(kafka: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=kafka)
    yield client
    client.close()


def produce(kafka: str, topic: str, values: list[bytes], **options: Any) -> list[int]:
    """The offsets they got; acks=0 tells none."""
    settings: dict[str, Any] = {"enable_idempotence": False, **options}
    producer = KafkaProducer(bootstrap_servers=kafka, **settings)
    try:
        sent = [producer.send(topic, value, key=b"key", partition=0) for value in values]
        producer.flush(PATIENCE)
        return [each.get(PATIENCE).offset for each in sent]
    finally:
        producer.close()


def consume(kafka: str, topic: str, count: int, start: int = 0, **options: Any) -> list[Any]:
    consumer = KafkaConsumer(bootstrap_servers=kafka, group_id=None, **options)
    try:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, start)
        found: list[Any] = []
        limit = time.monotonic() + PATIENCE
        while len(found) < count and time.monotonic() < limit:
            for records in consumer.poll(500).values():
                found += records
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_codec_and_every_acks_level(
    kafka: str, unique: Unique, codec: str | None, acks: int | str
) -> None:
    topic = unique("codec")
    values = [b"value %d " % n * 20 for n in range(100)]
    offsets = produce(kafka, topic, values, compression_type=codec, acks=acks, linger_ms=5)
    if acks != 0:
        assert offsets == list(range(100))
    records = consume(kafka, topic, 100)
    assert [record.value for record in records] == values
    assert [record.offset for record in records] == list(range(100))
    assert {record.key for record in records} == {b"key"}


def test_a_fetch_may_begin_inside_a_batch(kafka: str, unique: Unique) -> None:
    topic = unique("middle")
    produce(kafka, topic, [b"%d" % n for n in range(50)], linger_ms=50)
    records = consume(kafka, topic, 10, start=40)
    assert [record.value for record in records] == [b"%d" % n for n in range(40, 50)]


def test_headers_timestamps_and_tombstones(kafka: str, unique: Unique) -> None:
    topic = unique("headers")
    producer = KafkaProducer(bootstrap_servers=kafka, enable_idempotence=False)
    producer.send(topic, b"v", headers=[("a", b"1"), ("a", b"2")], timestamp_ms=1_700_000_000_000)
    producer.send(topic, None, key=b"gone")
    producer.close()
    first, second = consume(kafka, topic, 2)
    assert list(first.headers) == [("a", b"1"), ("a", b"2")]
    assert first.timestamp == 1_700_000_000_000
    assert (second.key, second.value) == (b"gone", None)


def test_offsets_by_time(kafka: str, unique: Unique) -> None:
    topic = unique("times")
    producer = KafkaProducer(bootstrap_servers=kafka, enable_idempotence=False)
    for n in range(10):
        producer.send(topic, b"%d" % n, timestamp_ms=1_700_000_000_000 + 1000 * n).get(PATIENCE)
    producer.close()
    place = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=kafka, group_id=None)
    found = consumer.offsets_for_times({place: 1_700_000_004_500})
    assert found[place].offset == 5
    assert consumer.beginning_offsets([place])[place] == 0
    assert consumer.end_offsets([place])[place] == 10
    consumer.close()


def test_topics_come_and_go(admin: KafkaAdminClient, unique: Unique) -> None:
    name = unique("admin")
    admin.create_topics([NewTopic(name, num_partitions=3, replication_factor=1)])
    assert name in admin.list_topics()
    [described] = admin.describe_topics([name])
    assert len(described["partitions"]) == 3
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])
    admin.delete_topics([name])
    assert name not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([name])


def test_a_record_over_the_limit_is_refused(
    kafka: str, admin: KafkaAdminClient, unique: Unique
) -> None:
    topic = unique("large")
    limits = {"max.message.bytes": "2000"}
    admin.create_topics(
        [NewTopic(topic, num_partitions=1, replication_factor=1, topic_configs=limits)]
    )
    produce(kafka, topic, [b"x" * 1000])
    with pytest.raises(MessageSizeTooLargeError):
        produce(kafka, topic, [b"x" * 3000])
