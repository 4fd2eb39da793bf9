"""A data directory in which something of every kind is wrong, written through real clients in two
lives of a real broker.

first life    retention lets go: `early` by its size, `errands` when they are settled
between them  one segment of `letters` is cut off, one of `parcels` removed; a start finds that
second life   retention does nothing, so what should go stays: `stale`, `large`, `finished`
              `early` is to be kept for ever, now; `held` is under legal hold
              what flows and gets stuck (traffic.py), records of people, and the sample data
              (sample_data.py), where harm is done by hand while the broker runs

What each audit must find there, and nothing else, is in FOUND.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from ottermq.audit.snapshot import take
from ottermq.wal import removals
from ottermq.wal.removal_reasons import RemovalReason
from tests.audit import logs, sample_data, traffic
from tests.audit.sample_data import SampleData
from tests.brokers import KAFKA_ADMIN, Broker
from tests.wal.stopped_store import flip

POLICY = """\
wal: {segment_size: 64KiB, checkpoint_interval: 1s, retention: {check_interval: 1s}}
queues:
  - {match: 'busy*', retention: {keep_settled: true}}
"""
BUSY, RUSH = "busy", "rush"  # where the load goes: a queue and a stream
IDLE_KEEPER = {"OTTERMQ_WAL__RETENTION__CHECK_INTERVAL": "1d"}
BODY = bytes(8000)
COUNT = 40
HOUR = 3_600_000
ANN, CUSTOMER, HEADER = "ann", "customer-3", "subject"

FindingKey = tuple[str, str, str | None]  # kind, severity, queue
VIOLATION, WARNING, NOTE = "violation", "warning", "note"
# At rest.
FOUND: dict[str, set[FindingKey]] = {
    "integrity": {
        ("damage", VIOLATION, "clicks"),
        ("duplicate-id", WARNING, "orders"),
        ("duplicate-sequence", VIOLATION, "payments"),
        ("gap", VIOLATION, "letters"),
        ("gap", VIOLATION, "orders"),
        ("gap", VIOLATION, "parcels"),
        ("gap", VIOLATION, "visits"),
        ("index", VIOLATION, "taps"),
        ("left-over", NOTE, "letters"),
        ("manifest", VIOLATION, "shares"),
        ("missing", VIOLATION, "held"),
        ("missing", VIOLATION, "views"),
        ("orphan", WARNING, "orders"),
        ("orphan", WARNING, None),
        ("overlap", VIOLATION, "likes"),
        ("torn", NOTE, "notes"),
        ("unreadable", VIOLATION, "tags"),
    },
    "retention": {
        ("gone-early", VIOLATION, "early"),
        ("hold-broken", VIOLATION, "held"),
        ("lost", VIOLATION, "letters"),
        ("no-record", VIOLATION, "visits"),
        ("record-damaged", VIOLATION, None),
        ("segment-gone", VIOLATION, "parcels"),
        ("segment-gone", VIOLATION, "views"),
        ("settled-kept", WARNING, "finished"),
        ("too-large", WARNING, "large"),
        ("too-old", VIOLATION, "stale"),
    },
    "flow": {
        *(("backlog", WARNING, queue) for queue in ("errands", "finished", "grave", "jobs")),
        *(("backlog", WARNING, queue) for queue in ("orders", "post-box", "tasks")),
        ("late", NOTE, "readings"),
        ("poison", WARNING, "jobs"),
        ("redelivered", WARNING, "tasks"),
    },
    "cost": set(),
    "erase-check": {
        ("still-there", VIOLATION, queue)
        for queue in ("early", "held", "large", "payments", "post-box", "seen", "stale")
    },
}
# A broker that runs should have let go what a start would; and files may just be on their way.
IN_USE = {
    ("settled-kept", "finished"): VIOLATION,
    ("too-large", "large"): VIOLATION,
    ("orphan", None): NOTE,
}


@contextmanager
def plant(folder: Path) -> Iterator[Broker]:
    """The second life, with all of it planted. folder/data, folder/policy.yaml."""
    data, policy = folder / "data", folder / "policy.yaml"
    policy.write_text(POLICY)
    with Broker(data, "--config", str(policy)) as broker:
        _first_life(broker)
        traffic.until(lambda: {"early", "errands"} <= _removed(data))
    sample = SampleData(data)
    sample.cut_a_segment("letters")
    sample.remove_a_segment_and_its_indexes("parcels")
    with Broker(data, "--config", str(policy), env=IDLE_KEEPER) as broker:
        time.sleep(1.5)  # the keeper has looked, and won't again
        _second_life(broker)
        traffic.until(lambda: not any(log.wal for log in take(data).logs))
        _harm(sample)
        yield broker


def _removed(data: Path) -> set[str]:
    return {each.name for each in removals.load(data).removals}


def _first_life(broker: Broker) -> None:
    produce(broker, "early", {"retention.bytes": "150000", "segment.bytes": "65536"})
    drain(broker, "errands")
    with connected(broker) as channel:
        for stream in ("letters", "parcels"):
            channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
            for _ in range(COUNT):
                channel.basic_publish("", stream, BODY, traffic.PERSISTENT)


def _second_life(broker: Broker) -> None:
    where = AdminClient({"bootstrap.servers": logs.kafka_of(broker)})
    forget = ConfigEntry("retention.bytes", None, incremental_operation=AlterConfigOpType.DELETE)
    topic = ConfigResource(ConfigResource.Type.TOPIC, "early", incremental_configs=[forget])
    where.incremental_alter_configs([topic])[topic].result(60)
    produce(broker, "stale", {"retention.ms": str(HOUR)}, ages=2 * HOUR)
    produce(broker, "large", {"retention.bytes": "150000", "segment.bytes": "65536"})
    produce(broker, "held", {"legal.hold": "true"})
    drain(broker, "finished")
    sample_data.write_amqp(broker)
    sample_data.write_kafka(broker)
    traffic.write(broker)
    write_people(broker)


def _harm(sample: SampleData) -> None:
    sample.flip_a_bit("clicks")
    sample.remove_a_segment("views")
    sample.forget_a_segment("visits")
    sample.spoil_an_index("taps")
    sample.put_a_copy_back("likes")
    sample.lie_in_the_manifest("shares")
    sample.spoil_the_manifest("tags")
    sample.tear("notes")
    sample.forget_a_segment("orders")
    sample.leave_an_orphan("orders")
    sample.write_a_batch_again("payments-0")
    sample.remove_a_segment("held")
    (sample.data / "vhosts" / "%2F" / "queues" / "gone.999").mkdir()
    spoil_a_record(sample.data, "errands")


@contextmanager
def connected(broker: Broker) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    channel = logs.channel_to(broker)
    with channel.connection:
        yield channel


def produce(
    broker: Broker,
    topic: str,
    configs: dict[str, str] | None = None,
    *,
    count: int = COUNT,
    ages: int = 0,
) -> None:
    where: dict[str, Any] = {"bootstrap.servers": logs.kafka_of(broker), **KAFKA_ADMIN}
    admin = AdminClient(where)
    admin.create_topics([NewTopic(topic, 1, 1, config=configs or {})])[topic].result(60)
    producer = Producer({**where, "batch.size": 20_000})
    for _ in range(count):
        producer.produce(topic, BODY, key=ANN, timestamp=int(time.time() * 1000) - ages)
    assert producer.flush(60) == 0


def drain(broker: Broker, queue: str) -> None:
    """Half of it is settled, after it came to segments: before that it need never have."""
    with connected(broker) as channel:
        channel.queue_declare(queue, durable=True)
        for _ in range(COUNT):
            channel.basic_publish("", queue, BODY, traffic.PERSISTENT)
        traffic.until(lambda: not any(log.wal for log in take(broker.data).logs))
        for _ in range(COUNT // 2):
            channel.basic_ack(traffic.got(channel, queue))


def write_people(broker: Broker) -> None:
    """`post-box`: a queue, by routing key; `seen`: a stream that keeps for a week, by header."""
    with connected(broker) as channel:
        channel.exchange_declare("people", "topic", durable=True)
        channel.queue_declare("post-box", durable=True)
        channel.queue_bind("post-box", "people", "#")
        kept = {"x-queue-type": "stream", "x-max-age": "7D"}
        channel.queue_declare("seen", durable=True, arguments=kept)
        for number in range(30):
            who = (ANN, "bob", "cy")[number % 3]
            channel.basic_publish("people", who, b"x", traffic.PERSISTENT)
            by_header = pika.BasicProperties(headers={HEADER: who}, delivery_mode=2)
            channel.basic_publish("", "seen", b"x", by_header)


def spoil_a_record(data: Path, name: str) -> None:
    """A bit of what is written down about the removal of one of its segments."""
    [path] = (data / removals.FOLDER).iterdir()
    at = removals.HEADER.size
    raw = path.read_bytes()
    for item in removals.parse(raw):
        assert isinstance(item, removals.Removal)
        if item.name == name and item.rule is RemovalReason.SETTLED:
            flip(path, at + 50)
            return
        at += int.from_bytes(raw[at : at + 4], "little")
    raise AssertionError(f"nothing of {name} was removed")
