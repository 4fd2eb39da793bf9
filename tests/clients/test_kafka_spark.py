"""Spark's own Kafka connector against our Kafka port: batch and streaming, to read and to write."""

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from perf.served import free_port
from tests.brokers import Broker
from tests.clients import spark_kafka
from tests.clients.spark_kafka import Row, Spark
from tests.clients.test_kafka_admin import done
from tests.clients.test_kafka_transactions import in_transaction, transactional

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(
        not spark_kafka.FETCHED.exists(),
        reason="no Spark with a Kafka connector; .ci/clients --java fetches it, if Maven answers",
    ),
]
PATIENCE = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Unique = Callable[[str], str]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    with Spark(tmp_path_factory.mktemp("spark")) as running:
        yield running


def at(kafka: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka}


def topic_with(kafka: str, name: str, values: list[str], partitions: int = 1) -> str:
    admin = AdminClient(at_librdkafka(kafka))
    done(admin.create_topics([NewTopic(name, partitions)]))
    add(kafka, name, values, partitions)
    return name


def at_librdkafka(kafka: str) -> dict[str, Any]:
    return {"bootstrap.servers": kafka}


def add(kafka: str, topic: str, values: list[str], partitions: int = 1) -> None:
    producer = Producer(at_librdkafka(kafka))
    for number, value in enumerate(values):
        headers: list[tuple[str, str | bytes | None]] = [("number", str(number).encode())]
        producer.produce(topic, value, f"k{number}", partition=number % partitions, headers=headers)
    assert producer.flush(PATIENCE) == 0


def values(rows: list[Row]) -> list[str]:
    return [row["value"] for row in sorted(rows, key=lambda row: (row["partition"], row["offset"]))]


def numbered(count: int, name: str = "v") -> list[str]:
    return [f"{name}{number}" for number in range(count)]


# -- batches


def test_a_topic_is_read_with_keys_headers_and_times(
    kafka: str, spark: Spark, unique: Unique
) -> None:
    before = time.time() * 1000 - 1
    topic = topic_with(kafka, unique("spark"), numbered(20), partitions=2)
    rows = spark.read(**at(kafka), subscribe=topic, includeHeaders="true")
    assert sorted((row["partition"], row["offset"]) for row in rows) == [
        (partition, offset) for partition in range(2) for offset in range(10)
    ]
    for row in rows:
        number = row["offset"] * 2 + row["partition"]
        assert (row["topic"], row["key"], row["value"]) == (topic, f"k{number}", f"v{number}")
        assert row["headers"] == [{"key": "number", "value": str(number)}]
        assert before <= row["timestamp"] <= time.time() * 1000 + 1


@pytest.mark.parametrize("pieces", ["1", "6"])
def test_from_an_offset_to_an_offset(kafka: str, spark: Spark, unique: Unique, pieces: str) -> None:
    """However many tasks share the work."""
    topic = topic_with(kafka, unique("spark"), numbered(100))
    start, end = (json.dumps({topic: {"0": offset}}) for offset in (30, 71))
    span = {"startingOffsets": start, "endingOffsets": end, "minPartitions": pieces}
    assert values(spark.read(**at(kafka), subscribe=topic, **span)) == numbered(100)[30:71]


def test_from_a_time_to_a_time(kafka: str, spark: Spark, unique: Unique) -> None:
    topic = topic_with(kafka, unique("spark"), [])
    producer = Producer(at_librdkafka(kafka))
    first = int(time.time() * 1000) - 100_000
    for number in range(50):
        producer.produce(topic, f"v{number}", partition=0, timestamp=first + number * 1000)
    assert producer.flush(PATIENCE) == 0
    times = {"startingTimestamp": str(first + 9_500), "endingTimestamp": str(first + 20_000)}
    assert values(spark.read(**at(kafka), subscribe=topic, **times)) == numbered(50)[10:20]
    by_partition = {
        "startingOffsetsByTimestamp": json.dumps({topic: {"0": first + 40_000}}),
        "endingOffsetsByTimestamp": json.dumps({topic: {"0": first + 999_000}}),
    }
    assert values(spark.read(**at(kafka), subscribe=topic, **by_partition)) == numbered(50)[40:]


def test_topics_by_pattern_and_partitions_by_name(kafka: str, spark: Spark, unique: Unique) -> None:
    first, second = (
        topic_with(kafka, unique(name), numbered(4, name), partitions=2) for name in ("one", "two")
    )
    pattern = f"{re.escape(first)}|{re.escape(second)}"
    assert len(spark.read(**at(kafka), subscribePattern=pattern)) == 8
    assigned = spark.read(**at(kafka), assign=json.dumps({second: [1]}))
    assert values(assigned) == ["two1", "two3"]


@pytest.mark.parametrize("codec", CODECS)
def test_what_spark_writes_others_read(
    kafka: str, spark: Spark, unique: Unique, codec: str
) -> None:
    topic = topic_with(kafka, unique("spark"), [], partitions=2)
    rows = [
        {"topic": topic, "key": f"k{n}", "value": f"v{n}", "partition": n % 2, "headers": {"n": n}}
        for n in range(40)
    ]
    spark.write(rows, **at(kafka), includeHeaders="true", **{"kafka.compression.type": codec})
    consumer = Consumer({**at_librdkafka(kafka), "group.id": unique("group")})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    got = consumer.consume(40, PATIENCE)
    consumer.close()
    assert sorted(
        (record.partition(), record.key(), record.value(), record.headers()) for record in got
    ) == sorted(
        (n % 2, b"k%d" % n, b"v%d" % n, [("n", b"%d" % n)]) for n in range(40)
    )  # fmt: skip
    assert len(spark.read(**at(kafka), subscribe=topic)) == 40


# -- transactions


def test_only_what_was_committed(kafka: str, spark: Spark, unique: Unique) -> None:
    topic = topic_with(kafka, unique("spark"), [])
    producer = transactional(kafka, unique("id"))
    in_transaction(producer, topic, [b"a", b"b"], commit=True)
    in_transaction(producer, topic, [b"lost"], commit=False)
    in_transaction(producer, topic, [b"c"], commit=True)
    still_open = transactional(kafka, unique("open"))
    still_open.begin_transaction()
    still_open.produce(topic, b"open", partition=0)
    assert still_open.flush(PATIENCE) == 0
    committed = {"kafka.isolation.level": "read_committed"}
    assert values(spark.read(**at(kafka), subscribe=topic, **committed)) == ["a", "b", "c"]
    everything = ["a", "b", "lost", "c", "open"]
    assert values(spark.read(**at(kafka), subscribe=topic)) == everything
    still_open.commit_transaction(PATIENCE)
    assert values(spark.read(**at(kafka), subscribe=topic, **committed)) == ["a", "b", "c", "open"]


def test_a_stream_of_what_was_committed(
    kafka: str, spark: Spark, unique: Unique, tmp_path: Path
) -> None:
    topic = topic_with(kafka, unique("spark"), [])
    options = {**at(kafka), "subscribe": topic, "kafka.isolation.level": "read_committed"}
    options["startingOffsets"] = "earliest"
    producer = transactional(kafka, unique("id"))
    in_transaction(producer, topic, [b"a", b"b"], commit=True)
    in_transaction(producer, topic, [b"lost"], commit=False)
    assert values(spark.news(tmp_path, **options)) == ["a", "b"]
    in_transaction(producer, topic, [b"lost"], commit=False)
    in_transaction(producer, topic, [b"c"], commit=True)
    assert values(spark.news(tmp_path, **options)) == ["c"]


# -- streams


def test_a_stream_goes_on_from_its_checkpoint(
    kafka: str, spark: Spark, unique: Unique, tmp_path: Path
) -> None:
    topic = topic_with(kafka, unique("spark"), numbered(30), partitions=3)
    options = {**at(kafka), "subscribe": topic, "startingOffsets": "earliest"}
    limited = {**options, "maxOffsetsPerTrigger": "10"}  # in some micro-batches
    assert sorted(values(spark.news(tmp_path, **limited))) == sorted(numbered(30))
    assert spark.news(tmp_path, **options) == []
    add(kafka, topic, numbered(12, "w"), partitions=3)
    assert sorted(values(spark.news(tmp_path, **options))) == sorted(numbered(12, "w"))


def test_a_stream_from_topic_to_topic(
    kafka: str, spark: Spark, unique: Unique, tmp_path: Path
) -> None:
    source = topic_with(kafka, unique("spark"), numbered(10))
    sink = topic_with(kafka, unique("copy"), [])
    options = {**at(kafka), "subscribe": source, "startingOffsets": "earliest"}
    for already, count in ((0, 10), (10, 5)):
        if already:
            add(kafka, source, numbered(count, "w"))
        spark.copy(tmp_path, options, {**at(kafka), "topic": sink})
        assert len(spark.read(**at(kafka), subscribe=sink)) == already + count
    copied = values(spark.read(**at(kafka), subscribe=sink))
    assert sorted(copied) == sorted(each.upper() for each in numbered(10) + numbered(5, "w"))


def test_a_stream_outlives_a_killed_broker(spark: Spark, tmp_path: Path) -> None:
    port = free_port()
    kafka, data = f"127.0.0.1:{port}", tmp_path / "data"
    options = {**at(kafka), "subscribe": "spark", "startingOffsets": "earliest"}
    with Broker(data, "--kafka", kafka) as broker:
        topic_with(kafka, "spark", numbered(10))
        spark.follow(tmp_path / "checkpoint", **options)
        assert values(spark.seen(10)) == numbered(10)
        broker.stop(signal.SIGKILL)
    with Broker(data, "--kafka", kafka):
        add(kafka, "spark", numbered(10, "w"))
        assert values(spark.seen(20)) == numbered(10) + numbered(10, "w")
        spark.leave()


# -- AMQP


def test_an_amqp_queue_is_a_topic(
    kafka: str, amqp_address: tuple[str, int], spark: Spark, unique: Unique, tmp_path: Path
) -> None:
    queue = unique("spark")
    host, port = amqp_address
    with pika.BlockingConnection(pika.ConnectionParameters(host, port)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        properties = pika.BasicProperties(delivery_mode=2, headers={"colour": "blue"})
        for number in range(5):
            channel.basic_publish("", queue, b"v%d" % number, properties)
        rows = spark.read(**at(kafka), subscribe=queue, includeHeaders="true")
        assert values(rows) == numbered(5)
        assert {row["key"] for row in rows} == {queue}
        assert all({"key": "colour", "value": "blue"} in row["headers"] for row in rows)
        spark.write([{"key": queue, "value": "by Spark"}], **at(kafka), topic=queue)
        bodies = [channel.basic_get(queue, auto_ack=True)[2] for _ in range(6)]
    assert bodies == [*(b"v%d" % number for number in range(5)), b"by Spark"]
