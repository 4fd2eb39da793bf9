"""Subjects' records are found wherever they are, with what it takes until they are gone."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pika
import pytest
from pyspark.sql import SparkSession

from ottermq.audit.jobs import erase_check
from ottermq.audit.outcome import Context, Outcome
from ottermq.config import load
from tests.audit import yard as yards

DAY = timedelta(days=1)
PEOPLE = ("ann", "bob", "cy")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`mail`: a queue, by routing key; `seen`: a stream that keeps for seven days, by header."""
    folder = tmp_path_factory.mktemp("people") / "data"
    with yards.at_work(folder) as broker:
        host, port = broker.address("amqp")
        with pika.BlockingConnection(pika.ConnectionParameters(host, port)) as connection:
            channel = connection.channel()
            channel.exchange_declare("people", "topic", durable=True)
            channel.queue_declare("mail", durable=True)
            channel.queue_bind("mail", "people", "#")
            kept = {"x-queue-type": "stream", "x-max-age": "7D"}
            channel.queue_declare("seen", durable=True, arguments=kept)
            channel.confirm_delivery()
            for number in range(30):
                who = PEOPLE[number % 3]
                channel.basic_publish("people", who, b"x", pika.BasicProperties(delivery_mode=2))
                by_header = pika.BasicProperties(headers={"subject": who}, delivery_mode=2)
                channel.basic_publish("", "seen", b"x", by_header)
    return folder


def checked(spark: SparkSession, data: Path, **options: Any) -> Outcome:
    return erase_check.run(Context(spark, data, datetime.now(UTC), load(), options))


def test_records_are_found_by_key_and_by_header(spark: SparkSession, data: Path) -> None:
    outcome = checked(spark, data, keys=["ann", "zoe"], headers=["subject"])
    places = {row["queue"]: row for row in outcome.summary["places"]}
    assert {queue: (row["records"], row["tier"]) for queue, row in places.items()} == {
        "mail": (10, "local"),
        "seen": (10, "local"),
    }
    assert outcome.summary["subjects"] == {"asked": ["ann", "zoe"], "still_there": ["ann"]}
    assert places["mail"]["until"] == "all of its segment is settled"
    newest = places["seen"]["newest"]
    assert newest is not None and 7 * DAY <= places["seen"]["time"] - newest < 7.01 * DAY
    assert [each.kind for each in outcome.findings] == ["still-there"] * 2


def test_who_is_nowhere_is_clean(spark: SparkSession, data: Path) -> None:
    outcome = checked(spark, data, keys=["zoe"])
    assert not outcome.findings and outcome.headline["still there"] == 0
