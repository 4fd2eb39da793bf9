"""Retention audited, and its cost: logs written through real clients, then spoilt on purpose."""

import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pika
import pytest
from pyspark.sql import SparkSession

from ottermq.audit.findings import Severity
from ottermq.audit.jobs import job
from ottermq.audit.outcome import Bars, Context, Outcome
from ottermq.config import Config, load
from ottermq.wal import RemovalReason, Store, removals
from tests.audit.flawed_data import BODY, COUNT, HOUR, produce
from tests.audit.traffic import until
from tests.brokers import Broker
from tests.wal.stores import SMALL as SMALL_STORE

SMALL = {
    "OTTERMQ_WAL__SEGMENT_SIZE": "64KiB",
    "OTTERMQ_WAL__CHECKPOINT_INTERVAL": "1s",
    "OTTERMQ_WAL__RETENTION__CHECK_INTERVAL": "1s",
}


def run(
    spark: SparkSession,
    data: Path,
    config: Config | None = None,
    name: str = "retention",
    **more: Any,
) -> Outcome:
    context = Context(spark, data, datetime.now(UTC), config or Config(), more)
    return job(name).run(context)


def told(outcome: Outcome) -> Counter[tuple[str, str | None]]:
    return Counter((each.kind, each.queue) for each in outcome.findings)


def drained(broker: Broker, queue: str) -> None:
    host, port = broker.address("amqp")
    with pika.BlockingConnection(pika.ConnectionParameters(host, port)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        for _ in range(COUNT):
            channel.basic_publish("", queue, BODY, pika.BasicProperties(delivery_mode=2))
        time.sleep(3)  # what is settled before a checkpoint need never reach a segment
        for _ in range(COUNT // 2):
            method, _, _ = channel.basic_get(queue)
            channel.basic_ack(method.delivery_tag)


def gone(data: Path, name: str) -> bool:
    return any(each.name == name for each in removals.load(data).removals)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All kept as it should be: by age, size, settling, for ever, under hold, after a kill."""
    data = tmp_path_factory.mktemp("honest") / "data"
    with Broker(data, env=SMALL) as broker:
        produce(broker, "aged", {"retention.ms": str(HOUR)}, ages=2 * HOUR)
        produce(broker, "sized", {"retention.bytes": "150000", "segment.bytes": "65536"})
        produce(broker, "held", {"retention.ms": str(HOUR), "legal.hold": "true"}, ages=2 * HOUR)
        produce(broker, "free")
        drained(broker, "orders")
        until(lambda: all(gone(data, name) for name in ("aged", "sized", "orders")))
        broker.process.kill()
    with Broker(data, env=SMALL) as broker:
        produce(broker, "later", count=4)
        time.sleep(2)
    return data


@pytest.fixture
def data(honest: Path, tmp_path: Path) -> Iterator[Path]:
    copy = tmp_path / "data"
    shutil.copytree(honest, copy)
    yield copy
    shutil.rmtree(copy)


def segments(data: Path, name: str) -> list[Path]:
    return sorted(data.glob(f"vhosts/*/queues/{name}.*/*.log"))


def test_an_honest_directory_is_clean_and_told_of(spark: SparkSession, honest: Path) -> None:
    outcome = run(spark, honest)
    assert list(outcome.findings) == []
    rows = {row[1]: row for row in outcome.report_tables[0].rows}
    assert rows["held"][3] == "legal hold" and rows["held"][4] == COUNT
    assert rows["aged"][3] == "max_age 1h" and rows["aged"][4] == 0
    assert rows["orders"][3] == "until settled"
    rules = {(row[1], row[3]) for row in outcome.report_tables[1].rows}
    assert {("aged", "max_age"), ("sized", "max_size"), ("orders", "settled")} <= rules
    stored = sum(path.stat().st_size for path in segments(honest, "held"))
    assert outcome.summary["bytes"]["/:held"] == stored
    assert set(outcome.tables) == {"stock", "removals"}
    bands = outcome.charts[0]
    assert isinstance(bands, Bars)
    assert {len(values) for values in bands.series.values()} == {len(bands.labels)}


def test_a_directory_in_use_is_the_same(spark: SparkSession, data: Path) -> None:
    with Broker(data, env=SMALL):
        assert list(run(spark, data, load(environ=SMALL)).findings) == []


def test_a_stricter_policy_finds_what_is_kept_too_long(spark: SparkSession, data: Path) -> None:
    policy = {"OTTERMQ_WAL__RETENTION__MAX_SIZE": "100KiB"}
    found = run(spark, data, load(environ=policy)).findings
    assert {(each.kind, each.queue) for each in found} >= {("too-large", "free")}
    assert {each.severity for each in found if each.kind == "too-large"} == {Severity.WARNING}


def test_old_records_are_found_where_nobody_lets_them_go(
    spark: SparkSession, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with Broker(data, env=SMALL | {"OTTERMQ_WAL__RETENTION__CHECK_INTERVAL": "1h"}) as broker:
        time.sleep(1.5)  # the keeper's first look is over
        produce(broker, "stale", {"retention.ms": str(HOUR)}, ages=2 * HOUR)
    outcome = run(spark, data)
    assert set(told(outcome)) == {("too-old", "stale")}
    assert sum(told(outcome).values()) == len(segments(data, "stale"))
    assert all(each.severity is Severity.VIOLATION for each in outcome.findings)


def test_a_segment_that_somebody_removed_is_found(spark: SparkSession, data: Path) -> None:
    victim = segments(data, "free")[1]
    victim.unlink()
    [finding] = run(spark, data).findings
    assert (finding.kind, finding.queue) == ("segment-gone", "free")
    assert finding.segment == int(victim.stem)


def test_it_is_found_after_a_start_too(spark: SparkSession, data: Path) -> None:
    segments(data, "free")[1].unlink()
    with Broker(data, env=SMALL):
        pass
    assert told(run(spark, data)) == {("segment-gone", "free"): 1}


def test_a_hold_that_was_broken_by_hand_is_found(spark: SparkSession, data: Path) -> None:
    segments(data, "held")[1].unlink()
    assert told(run(spark, data)) == {("hold-broken", "held"): 1}


def test_a_removal_whose_record_was_taken_out_is_found(spark: SparkSession, data: Path) -> None:
    _without(data, "aged")
    outcome = run(spark, data)
    assert {each.kind for each in outcome.findings} == {"record-damaged", "no-record"}
    [finding] = [each for each in outcome.findings if each.kind == "no-record"]
    assert finding.queue == "aged" and finding.first_offset == 0


def test_a_removal_that_the_policy_doesnt_allow_is_found(spark: SparkSession, data: Path) -> None:
    """The policy says now that settled messages are kept."""
    policy = {"OTTERMQ_WAL__RETENTION__KEEP_SETTLED": "true"}
    outcome = run(spark, data, load(environ=policy))
    assert {(each.kind, each.queue) for each in outcome.findings} == {("gone-early", "orders")}


def test_a_removal_under_hold_is_found(spark: SparkSession, data: Path) -> None:
    """As a broker that didn't know of holds would do it."""
    with Store.open(data, SMALL_STORE) as store:
        log = store.get("free")
        store.note(log, RemovalReason.HOLD)
        store.checkpoint()
        log.trim(8, RemovalReason.DELETE_RECORDS)
        store.checkpoint()
        store.note(log, RemovalReason.LIFTED)
        store.checkpoint()
        log.trim(16, RemovalReason.DELETE_RECORDS)
    [finding] = run(spark, data).findings
    assert (finding.kind, finding.queue, finding.segment) == ("hold-broken", "free", 0)
    assert finding.rule == "delete_records"


def test_another_policy_would_save_all_but_what_is_held(spark: SparkSession, honest: Path) -> None:
    what_if = load(environ={"OTTERMQ_WAL__RETENTION__MAX_SIZE": "100KiB"})
    outcome = run(spark, honest, None, "cost", prices={"local": 1024.0}, what_if=what_if)
    held, free = (sum(f.stat().st_size for f in segments(honest, n)) for n in ("held", "free"))
    assert outcome.summary["a_month"]["/:held"] == pytest.approx(held / (1 << 20))
    freed = outcome.summary["would_free"]
    assert "/:held" not in freed and free - freed["/:free"] <= 100 * 1024
    assert list(outcome.findings) == []
    assert outcome.verdict.endswith(" USD a month")
    assert outcome.summary["currency"] == "USD" and "of history behind that" in outcome.headline


def test_a_policy_is_told_as_in_the_configuration_and_a_projection_with_what_it_rests_on(
    spark: SparkSession, honest: Path
) -> None:
    outcome = run(spark, honest)
    queues = next(each for each in outcome.report_tables if each.title == "Queues and topics")
    assert list(queues.columns[:3]) == ["vhost", "queue", "partition"]
    assert queues.columns[-2:] == ("in 30 days", "rests on") and "guess" in queues.note
    told = " ".join(str(row[3]) for row in queues.rows)
    assert "max_age" in told and not re.search(r"\d+:\d\d:\d\d|days", told)
    rests_on = outcome.summary["in_30_days_rests_on_seconds"]
    assert rests_on and all(0 <= each <= 7 * 86_400 for each in rests_on.values())


def _without(data: Path, name: str) -> None:
    """The record of what was removed, without one log's."""
    for path in sorted((data / removals.FOLDER).iterdir()):
        raw, kept, at = path.read_bytes(), b"", removals.HEADER.size
        for item in removals.parse(raw):
            size = int.from_bytes(raw[at : at + 4], "little")
            if not (isinstance(item, removals.Removal) and item.name == name):
                kept += raw[at : at + size]
            at += size
        path.write_bytes(raw[: removals.HEADER.size] + kept)
