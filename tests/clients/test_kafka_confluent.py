"""confluent-kafka: librdkafka, as its users use it."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE = 60.0
Unique = Callable[[str], str]


def produce(kafka: str, topic: str, values: list[bytes], **options: Any) -> list[Message]:
    """What came back for each, in order."""
    told: list[Message] = []
    producer = Producer({"bootstrap.servers": kafka, **options})
    for value in values:
        producer.produce(
            topic, value, b"key", on_delivery=lambda error, message: told.append(message)
        )
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0
    return told


def consume(kafka: str, places: list[TopicPartition], count: int) -> list[Message]:
    settings = {"bootstrap.servers": kafka, "group.id": "nobody", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        consumer.assign(places)
        found: list[Message] = []
        limit = time.monotonic() + PATIENCE
        while len(found) < count and time.monotonic() < limit:
            found += consumer.consume(count - len(found), 0.5)
        assert not [message.error() for message in found if message.error()]
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_codec_and_every_acks_level(
    kafka: str, unique: Unique, codec: str, acks: str
) -> None:
    topic = unique("codec")
    values = [b"value %d " % n * 20 for n in range(200)]
    options = {"compression.type": codec, "acks": acks, "linger.ms": 20}
    told = produce(kafka, topic, values, **options)
    assert not [message.error() for message in told if message.error()]
    messages = consume(kafka, [TopicPartition(topic, 0, 0)], 200)
    assert [message.value() for message in messages] == values
    assert [message.offset() for message in messages] == list(range(200))


def test_records_go_to_the_partition_of_their_key(kafka: str, unique: Unique) -> None:
    topic = unique("keys")
    admin = AdminClient({"bootstrap.servers": kafka})
    for made in admin.create_topics([NewTopic(topic, 4, 1)]).values():
        made.result(PATIENCE)
    producer = Producer({"bootstrap.servers": kafka})
    for n in range(100):
        producer.produce(topic, b"%d" % n, b"key %d" % (n % 10))
    assert producer.flush(PATIENCE) == 0
    messages = consume(kafka, [TopicPartition(topic, each, 0) for each in range(4)], 100)
    assert sorted(int(message.value() or b"") for message in messages) == list(range(100))
    partitions = {(message.key(), message.partition()) for message in messages}
    assert len(partitions) == 10


def test_topics_are_described_and_deleted(kafka: str, unique: Unique) -> None:
    topic = unique("admin")
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(PATIENCE)
    assert len(admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions) == 2
    admin.delete_topics([topic])[topic].result(PATIENCE)
    with pytest.raises(KafkaException) as raised:
        admin.delete_topics([topic])[topic].result(PATIENCE)
    assert raised.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_ten_thousand_records_in_order(kafka: str, unique: Unique) -> None:
    topic = unique("many")
    values = [b"%d" % n for n in range(10_000)]
    produce(kafka, topic, values, acks="all")
    messages = consume(kafka, [TopicPartition(topic, 0, 0)], 10_000)
    assert [message.value() for message in messages] == values
