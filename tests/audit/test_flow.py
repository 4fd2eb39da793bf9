"""What flows through a broker, counted to the last message: logs written through real clients."""

import shutil
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pika
import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession

from ottermq.audit import late, lineage
from ottermq.audit.jobs import flow
from ottermq.audit.outcome import Bars, Context, Lines, Outcome
from ottermq.audit.run import Order, run
from ottermq.config import load
from tests.audit import logs
from tests.audit import yard as yards
from tests.brokers import Broker

DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - 3 * HOUR
ORDERS, MAIL, DEATHS, GIVEN_OUT = 10, 3, 6, 5
CLICKS = 13  # four an hour, and one that is late
SMALL, LARGE = bytes(10), bytes(2000)
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flow") / "data"
    with yards.at_work(folder) as broker:
        channel = logs.channel_to(broker)
        write_orders(channel)
        write_poison(channel)
        write_mail(channel)
        write_delayed(channel)
        channel.connection.close()
        write_clicks(broker)
    return folder


def write_orders(channel: BlockingChannel) -> None:
    """The first of them is given out, and comes back, again and again."""
    channel.queue_declare("orders", durable=True)
    for _ in range(ORDERS):
        channel.basic_publish("", "orders", SMALL, PERSISTENT)
    for _ in range(GIVEN_OUT):
        channel.basic_nack(got(channel, "orders"), requeue=True)


def write_poison(channel: BlockingChannel) -> None:
    """A job that nobody can do: rejected, it waits a little in `pause` and comes back."""
    channel.queue_declare("jobs", durable=True, arguments=dying_to("pause"))
    channel.queue_declare(
        "pause", durable=True, arguments={"x-message-ttl": 20, **dying_to("jobs")}
    )
    channel.basic_publish("", "jobs", SMALL, PERSISTENT)
    for _ in range(DEATHS):
        channel.basic_reject(got(channel, "jobs"), requeue=False)
    until(lambda: waiting(channel, "jobs") == 1)


def write_mail(channel: BlockingChannel) -> None:
    """Rejected once each."""
    channel.exchange_declare("post", "fanout", durable=True)
    channel.queue_declare("mail", durable=True, arguments=dying_to("grave"))
    channel.queue_declare("grave", durable=True)
    channel.queue_bind("mail", "post")
    for _ in range(MAIL):
        channel.basic_publish("post", "", SMALL, PERSISTENT)
        channel.basic_reject(got(channel, "mail"), requeue=False)
    until(lambda: waiting(channel, "grave") == MAIL)


def write_delayed(channel: BlockingChannel) -> None:
    kind = {"x-delayed-type": "direct"}
    channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=kind)
    channel.queue_bind("orders", "later", "orders")
    in_a_week = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 7 * 86_400_000})
    channel.basic_publish("later", "orders", SMALL, in_a_week)


def write_clicks(broker: Broker) -> None:
    where = {"bootstrap.servers": logs.kafka_of(broker)}
    admin = AdminClient(where)
    admin.create_topics([NewTopic("clicks", 1)])["clicks"].result(60)
    producer = Producer(where)
    for number in range(CLICKS):
        at = START + number // 4 * HOUR + number * MINUTE
        if number == CLICKS - 1:
            at = START + 30 * MINUTE
        producer.produce(
            "clicks",
            SMALL if number % 4 else LARGE,
            key="aab"[number % 3],
            partition=0,
            timestamp=int(at.timestamp() * 1000),
            # It looks like a dead letter, and isn't one.
            headers=[("amqp", b"\x81")] if number == 5 else None,
        )
    assert producer.flush(60) == 0


def dying_to(queue: str) -> dict[str, Any]:
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}


def waiting(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def got(channel: BlockingChannel, queue: str) -> int:
    until(lambda: waiting(channel, queue) > 0)
    method, _, _ = channel.basic_get(queue)
    return int(method.delivery_tag)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def audited(spark: SparkSession, data: Path, ahead: timedelta, **options: Any) -> Outcome:
    return flow.run(Context(spark, data, datetime.now(UTC) + ahead, load(), options))


def told(outcome: Outcome) -> Counter[tuple[str, str | None]]:
    return Counter((each.kind, each.queue) for each in outcome.findings)


@pytest.fixture(scope="module")
def outcome(spark: SparkSession, data: Path) -> Outcome:
    """As it looks two days later."""
    return audited(spark, data, 2 * DAY)


def table(outcome: Outcome, name: str, queue: str) -> list[dict[str, Any]]:
    return [row for row in outcome.tables[name].to_pylist() if row["queue"] == queue]


def test_records_are_counted_by_the_hour(outcome: Outcome) -> None:
    hours = table(outcome, "hours", "clicks")
    assert [(row["time"], row["records"]) for row in hours] == [
        (START, 5),
        (START + HOUR, 4),
        (START + 2 * HOUR, 4),
    ]
    assert {row["waiting"] for row in hours} == {0}, "a topic has no backlog"


def test_sizes_are_told_as_bands_median_and_largest(outcome: Outcome) -> None:
    hours = table(outcome, "hours", "clicks")
    assert [row["sizes"] for row in hours] == [[3, 0, 2, 0, 0, 0]] + 2 * [[3, 0, 1, 0, 0, 0]]
    assert all(row["median"] < 256 and 2000 < row["largest"] < 2100 for row in hours)
    assert all(row["p99"] == row["largest"] for row in hours)
    assert all(row["bytes"] > 2000 for row in hours)


def test_what_waits_is_counted_and_how_often_it_was_given_out(outcome: Outcome) -> None:
    found = {row["queue"]: row for row in outcome.summary["backlog"]}
    numbers = ("waiting", "given_out", "redeliveries", "most_deliveries")
    assert {queue: tuple(row[name] for name in numbers) for queue, row in found.items()} == {
        "orders": (ORDERS, 1, GIVEN_OUT - 1, GIVEN_OUT),
        "jobs": (1, 0, 0, 0),
        "grave": (MAIL, 0, 0, 0),
    }
    assert all(timedelta() < datetime.now(UTC) - row["oldest"] < HOUR for row in found.values())


def test_dead_letters_tell_where_why_and_how_often(outcome: Outcome) -> None:
    found = {
        (row["queue"], row["died_in"], row["reason"], row["exchange"]): (
            row["messages"],
            row["deaths"],
            row["most"],
            row["poisoned"],
        )
        for row in outcome.summary["deaths"]
    }
    assert found == {
        ("jobs", "jobs", "rejected", ""): (1, DEATHS, DEATHS, 1),
        ("jobs", "pause", "expired", ""): (1, DEATHS, DEATHS, 0),
        ("grave", "mail", "rejected", "post"): (MAIL, MAIL, 1, 0),
    }


def test_the_keys_with_most_records_come_first(outcome: Outcome) -> None:
    keys = table(outcome, "keys", "clicks")
    assert [(row["key"], row["records"]) for row in keys] == [("a", 9), ("b", 4)]
    assert keys[0]["share"] == pytest.approx(9 / CLICKS)


@pytest.mark.parametrize("stretch", [1 << 16, 4])
def test_a_record_far_behind_those_before_it_is_late(
    spark: SparkSession, data: Path, monkeypatch: pytest.MonkeyPatch, stretch: int
) -> None:
    monkeypatch.setattr(late, "STRETCH", stretch)
    context = Context(spark, data, datetime.now(UTC), load())
    behind = 2 * HOUR + 11 * MINUTE - 30 * MINUTE
    (found,) = late.late(context, HOUR)
    assert (found.queue, found.records, found.behind) == ("clicks", 1, behind)
    assert (found.first_offset, found.last_offset) == (CLICKS - 1, CLICKS - 1)
    assert found.time == START + 30 * MINUTE
    assert late.late(context, behind) == []


def test_what_got_stuck_is_found_and_nothing_else(outcome: Outcome) -> None:
    assert told(outcome) == {
        ("backlog", "orders"): 1,
        ("backlog", "jobs"): 1,
        ("backlog", "grave"): 1,
        ("redelivered", "orders"): 1,
        ("poison", "jobs"): 1,
        ("late", "clicks"): 1,
    }
    said = {each.kind: each for each in outcome.findings if each.queue in ("jobs", "orders")}
    assert said["poison"].message == f"1 message died up to {DEATHS} times in jobs (rejected)"
    backlog = next(each for each in outcome.findings if each.queue == "orders")
    assert (backlog.first_offset, backlog.last_offset) == (0, ORDERS - 1)
    assert (said["redelivered"].first_offset, said["redelivered"].last_offset) == (0, 0)


def test_with_more_patience_all_is_well(spark: SparkSession, data: Path) -> None:
    patient = audited(spark, data, timedelta(), again=DEATHS + 1, late=2 * HOUR)
    assert not patient.findings


def test_a_directory_in_use_gives_the_same_answer(
    spark: SparkSession, data: Path, outcome: Outcome, tmp_path: Path
) -> None:
    copy = shutil.copytree(data, tmp_path / "data")
    with yards.at_work(copy):
        again = audited(spark, copy, 2 * DAY)
    assert again.summary == outcome.summary
    assert again.findings == outcome.findings


def test_charts_show_growth_sizes_and_ages(outcome: Outcome) -> None:
    growth, sizes, ages = outcome.charts
    assert isinstance(growth, Lines) and isinstance(sizes, Bars) and isinstance(ages, Bars)
    clicks = [level for level in growth.series["clicks"] if level]
    assert clicks == sorted(clicks) and len(clicks) >= 3
    assert sizes.series["1 to 16 KiB"][sizes.labels.index("clicks")] == 4
    assert sum(ages.series["1 to 7 days"]) == ORDERS + 1 + MAIL


def test_a_run_leaves_tables_by_date_and_queue(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    done = run(Order("flow", data, tmp_path, "local[2]", load(), ["poison"], {}, quiet=True))
    assert done.exit_code == 1
    assert {each.name for each in done.folder.iterdir() if each.is_dir()} == {
        "findings",
        "hours",
        "deaths",
        "keys",
        "late",
    }
    assert (done.folder / "hours" / f"date={START:%Y-%m-%d}" / "queue=clicks").is_dir()
    hours = ds.dataset(done.folder / "hours", partitioning="hive").to_table()
    assert sum(hours["records"].to_pylist()) == done.outcome.headline["records"]
    assert "Growth by hour" in (done.folder / "report.html").read_text()


def test_an_empty_log_has_nothing_to_tell(spark: SparkSession, tmp_path: Path) -> None:
    with yards.at_work(tmp_path / "data"):
        pass
    nothing = audited(spark, tmp_path / "data", DAY)
    assert not nothing.findings and nothing.headline["records"] == 0


@pytest.mark.parametrize(
    "part", [b"", b"\x81", b"\x81\xff", b"\x81\0\x20\0\0\0\0\x05\x01", b"\x81\0\0\0"]
)
def test_what_only_looks_like_a_dead_letter_has_no_lineage(part: bytes) -> None:
    assert lineage.deaths_in(part) == []
