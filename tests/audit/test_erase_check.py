"""Subjects' records are found wherever they are, with what it takes until they are gone."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pika
import pytest
from pyspark.sql import SparkSession

from ottermq.audit.jobs import erase_check
from ottermq.audit.outcome import Context, Outcome
from ottermq.audit.snapshot import Log, Segment
from ottermq.audit.until import Keeping, until
from ottermq.config import load
from ottermq.wal.retention import Policy
from tests.audit import sample_data
from tests.audit.sample_data import SampleData

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
PEOPLE = ("ann", "bob", "cy")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`mail`: a queue, by routing key; `seen`: a stream that keeps for seven days, by header."""
    folder = tmp_path_factory.mktemp("people") / "data"
    with sample_data.at_work(folder) as broker:
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
    assert places["mail"]["kept"] == "kept until every message of its segment is settled"
    newest = places["seen"]["newest"]
    assert newest is not None and 7 * DAY <= places["seen"]["time"] - newest < 7.01 * DAY
    until = f"{places['seen']['time']:%Y-%m-%d %H:%M:%S} UTC"
    told = {each.queue: each for each in outcome.findings}
    assert told["mail"].message == (
        "ann: 10 records in 1 segment, kept until every message of its segment is settled"
    )
    assert told["seen"].message.startswith(f"ann: 10 records in 1 segment, kept until {until}")
    assert {(each.vhost, each.partition, each.segments) for each in told.values()} == {
        ("/", 0, (0,))
    }


def test_who_is_nowhere_is_clean(spark: SparkSession, data: Path) -> None:
    outcome = checked(spark, data, keys=["zoe"])
    assert not outcome.findings and outcome.headline["still there"] == 0


def test_a_subject_in_many_segments_is_one_finding_a_queue(
    spark: SparkSession, whole: SampleData
) -> None:
    outcome = checked(spark, whole.data, keys=["customer-0", "customer-1"])
    assert [(each.queue, each.partition) for each in outcome.findings] == [
        ("payments", 0),
        ("payments", 1),
    ]
    for each in outcome.findings:
        assert len(each.segments) > 1 and each.segment is None
        assert each.message.endswith("segments, kept forever: no retention rule applies")


# -- the words, without Spark


NEWEST = datetime(2026, 11, 18, 12, tzinfo=UTC)


def segment(base: int, newest: datetime | None, sealed: bool = True) -> Segment:
    ms = -1 if newest is None else int(newest.timestamp() * 1000)
    return Segment(base, base + 10, 1000, ms, ms, sealed)


def log(*segments: Segment, cursor: bytes | None = None) -> Log:
    return Log(
        1, "/", "q", 0, "q", "stream", None, "", 0, 100, 0, segments, (), cursor, None, (), (), ()
    )  # fmt: skip


AGED = Policy(max_age_ms=7 * 86_400_000)
CLOSED, OPEN = segment(0, NEWEST), segment(0, NEWEST, sealed=False)


@pytest.mark.parametrize(
    ("of", "keeping", "words"),
    [
        (log(CLOSED), Keeping(Policy()), "kept forever: no retention rule applies"),
        (
            log(CLOSED),
            Keeping(Policy(legal_hold=True, max_age_ms=1), compacted=True),
            "kept as long as the legal hold stands",
        ),
        (log(CLOSED), Keeping(AGED), "kept until 2026-11-25 12:00:00 UTC (max_age 7d)"),
        (
            log(OPEN),
            Keeping(AGED),
            "kept until 2026-11-25 12:00:00 UTC (max_age 7d, or later if more is written to its "
            "segment)",
        ),
        (
            log(CLOSED, cursor=b""),
            Keeping(AGED),
            "kept until 2026-11-25 12:00:00 UTC (max_age 7d) or until every message of its segment "
            "is settled, whichever comes first",
        ),
        (
            log(CLOSED),
            Keeping(Policy(max_size=10 << 30)),
            "kept until the log outgrows max_size 10 GiB",
        ),
        (
            log(CLOSED),
            Keeping(Policy(), compacted=True, tombstones_stay=DAY),
            "kept until a newer record with the same key replaces it (compaction): a tombstone, a "
            "record with this key and no value, removes it once both their segments are closed and "
            "compacted, and goes itself 1d later",
        ),
    ],
)
def test_how_long_it_is_kept_is_told_in_words_to_quote(
    of: Log, keeping: Keeping, words: str
) -> None:
    assert until(of, of.segments[0], keeping).words == words


def test_a_segment_goes_no_sooner_than_those_before_it() -> None:
    late, early = segment(0, NEWEST + HOUR), segment(10, NEWEST)
    assert until(log(late, early), early, Keeping(AGED)).time == NEWEST + HOUR + 7 * DAY
    timeless = segment(0, None)
    assert until(log(timeless, early), early, Keeping(AGED)).time is None


def test_a_tombstone_needs_the_records_own_key() -> None:
    told = until(log(CLOSED), CLOSED, Keeping(Policy(), compacted=True), by_key=False).words
    assert "a record with the record's own key, which isn't the subject's, and no value" in told
