"""What is whole is clean, also after a kill. What is harmed: test_places.py."""

import json
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pika
import pytest
from pyspark.sql import SparkSession

from ottermq.audit.findings import Finding, Severity
from ottermq.audit.jobs import integrity
from ottermq.audit.outcome import Context, Outcome
from ottermq.config import load
from tests.audit import sample_data
from tests.audit.sample_data import EACH_STREAM, ORDERS, PAYMENTS, TWICE, SampleData
from tests.wal.stopped_store import flip

TWICE_IS_TOLD = ("duplicate-id", "warning", "orders")


def audited(spark: SparkSession, data: Path) -> Outcome:
    return integrity.run(Context(spark, data, datetime.now(UTC), load()))


def told(found: Finding) -> tuple[str, str, str | None]:
    return found.kind, found.severity.value, found.queue


def test_a_directory_at_rest_is_clean_but_for_the_id_that_came_twice(
    spark: SparkSession, whole: SampleData
) -> None:
    outcome = audited(spark, whole.data)
    assert [told(each) for each in outcome.findings] == [TWICE_IS_TOLD]
    assert outcome.findings[0].message == (
        f"2 messages that aren't settled share 1 message-id: '{TWICE}' (2 times)"
    )
    [logs] = outcome.report_tables
    assert list(logs.columns[:3]) == ["vhost", "queue", "partition"]
    counted = {(row["queue"], row["partition"]): row for row in outcome.summary["logs"]}
    assert counted["clicks", 0]["records"] == EACH_STREAM
    assert counted["orders", 0]["records"] <= ORDERS
    assert counted["payments", 0]["records"] + counted["payments", 1]["records"] == PAYMENTS
    assert counted["clicks", 0]["segments"] > 3


def test_copies_that_are_settled_are_no_duplicates_and_the_rest_one_finding_a_queue(
    spark: SparkSession, tmp_path: Path
) -> None:
    """`once`: an id twice, and one of them acked. `often`: three ids twice each. `ranked`: an id
    twice in each of two priorities."""
    with sample_data.at_work(tmp_path / "data") as broker:
        host, port = broker.address("amqp")
        with pika.BlockingConnection(pika.ConnectionParameters(host, port)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for queue, ids in (("once", "aa"), ("often", "aabbcc")):
                channel.queue_declare(queue, durable=True)
                for id in ids:
                    properties = pika.BasicProperties(delivery_mode=2, message_id=id)
                    channel.basic_publish("", queue, b"x", properties)
            channel.queue_declare("ranked", durable=True, arguments={"x-max-priority": 2})
            for priority in (0, 0, 1, 1):
                properties = pika.BasicProperties(
                    delivery_mode=2, message_id=f"of {priority}", priority=priority
                )
                channel.basic_publish("", "ranked", b"x", properties)
            channel.queue_declare("once", passive=True)
            got, _, _ = channel.basic_get("once")
            assert got and got.delivery_tag
            channel.basic_ack(got.delivery_tag)
    found, ranked = audited(spark, tmp_path / "data").findings
    assert told(ranked) == ("duplicate-id", "warning", "ranked")
    assert ranked.message.startswith("4 messages that aren't settled share 2 message-ids: ")
    assert (ranked.partition, ranked.first_offset) == (None, None)
    assert told(found) == ("duplicate-id", "warning", "often")
    assert found.message == (
        "6 messages that aren't settled share 3 message-ids: 'a' (2 times) and others"
    )
    assert (found.first_offset, found.last_offset) == (0, 5)


def newest_wal(data: Path) -> Path:
    return max(path for path in (data / "wal").glob("0*.wal"))


@pytest.mark.parametrize(
    ("place", "at"), [(lambda data: data / "checkpoint", 60), (newest_wal, 4096 + 30)]
)
def test_a_checkpoint_or_wal_that_cannot_be_read_is_told_and_the_rest_looked_at(
    spark: SparkSession, whole: SampleData, tmp_path: Path, place: Callable[[Path], Path], at: int
) -> None:
    harmed = whole.copy(tmp_path / "data")
    flip(place(harmed.data), at)
    outcome = audited(spark, harmed.data)
    assert {told(each) for each in outcome.findings} == {
        TWICE_IS_TOLD,
        ("unreadable", "violation", None),
    }
    counted = {(row["queue"], row["partition"]): row for row in outcome.summary["logs"]}
    assert counted["clicks", 0]["records"] == EACH_STREAM


def test_gaps_after_a_kill_are_explained(spark: SparkSession, tmp_path: Path) -> None:
    with sample_data.at_work(tmp_path / "data") as broker:
        sample_data.write_amqp(broker)
        sample_data.write_kafka(broker)
        broker.stop(signal.SIGKILL)
    outcome = audited(spark, tmp_path / "data")  # as the kill left it
    assert [each for each in outcome.findings if each.severity is Severity.VIOLATION] == []
    with sample_data.at_work(tmp_path / "data") as broker:
        sample_data.write_amqp(broker)
    outcome = audited(spark, tmp_path / "data")
    assert [each for each in outcome.findings if each.severity is Severity.VIOLATION] == []


def test_an_empty_log_is_clean(spark: SparkSession, tmp_path: Path) -> None:
    with sample_data.at_work(tmp_path / "data"):
        pass
    outcome = audited(spark, tmp_path / "data")
    assert outcome.findings == [] and outcome.headline["records"] == 0
    assert json.loads(json.dumps(outcome.summary))
