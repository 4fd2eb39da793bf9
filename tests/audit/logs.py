"""A data directory as real clients left it, and what they know of it."""

import time
from pathlib import Path

import pika
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pika.adapters.blocking_connection import BlockingChannel

from tests.brokers import SMALL_WAL, Broker

PATIENCE = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ORDERS, ACKED = 200, 60
EACH = 25  # records a codec, and a transaction
PERSISTENT = pika.BasicProperties(delivery_mode=2, message_id="m", headers={"colour": "blue"})
COMMITTED, ABORTED, OPEN = b"committed", b"aborted", b"open"
# So that a log has some of them.
SMALL_SEGMENTS = {**SMALL_WAL, "OTTERMQ_WAL__SEGMENT_SIZE": "64KiB"}


def channel_to(broker: Broker) -> BlockingChannel:
    host, port = broker.address("amqp")
    channel = pika.BlockingConnection(pika.ConnectionParameters(host, port)).channel()
    channel.confirm_delivery()
    return channel


def kafka_of(broker: Broker) -> str:
    host, port = broker.address("kafka")
    return f"{host}:{port}"


def body_of(number: int) -> bytes:
    return b"order %d " % number + b"." * 1000


def write_all(broker: Broker) -> None:
    write_orders(broker)
    write_codecs(broker)
    write_transactions(broker)


def write_orders(broker: Broker) -> None:
    """Queue `orders`: the first are acked; a stream, a priority queue."""
    channel = channel_to(broker)
    channel.queue_declare("orders", durable=True)
    channel.queue_declare("events", durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_declare("jobs", durable=True, arguments={"x-max-priority": 2})
    for number in range(ORDERS):
        channel.basic_publish("", "orders", body_of(number), PERSISTENT)
        channel.basic_publish("", "events", b"event %d" % number, PERSISTENT)
    channel.basic_publish("", "jobs", b"urgent", pika.BasicProperties(delivery_mode=2, priority=2))
    channel.basic_qos(prefetch_count=ACKED)
    for method, _, _ in channel.consume("orders"):
        channel.basic_ack(method.delivery_tag)
        if method.delivery_tag == ACKED:
            break
    channel.cancel()
    time.sleep(1.2)  # acks are synced within a second
    channel.connection.close()


def write_codecs(broker: Broker) -> None:
    """Topic `clicks`, a partition a codec."""
    kafka = kafka_of(broker)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic("clicks", len(CODECS))])["clicks"].result(PATIENCE)
    for partition, codec in enumerate(CODECS):
        settings = {"bootstrap.servers": kafka, "compression.type": codec, "linger.ms": 200}
        producer = Producer(settings)
        for number in range(EACH):
            producer.produce(
                "clicks",
                b"click %d " % number * 20,
                b"key",
                partition=partition,
                headers=[("colour", b"red"), ("none", None)],
            )
        assert producer.flush(PATIENCE) == 0


def write_transactions(broker: Broker) -> None:
    """Topic `payments`: a transaction that was committed, one aborted, one that is open."""
    kafka = kafka_of(broker)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic("payments", 1)])["payments"].result(PATIENCE)
    for value in (COMMITTED, ABORTED, OPEN):
        settings = {"bootstrap.servers": kafka, "transactional.id": value.decode(), "linger.ms": 0}
        producer = Producer({**settings, "transaction.timeout.ms": 600_000})
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        for _ in range(EACH):
            producer.produce("payments", value, partition=0)
        assert producer.flush(PATIENCE) == 0
        if value == COMMITTED:
            producer.commit_transaction(PATIENCE)
        elif value == ABORTED:
            producer.abort_transaction(PATIENCE)


def segments_of(data: Path, queue: str) -> list[Path]:
    return sorted(data.glob(f"vhosts/*/queues/{queue}.*/*.log"))
