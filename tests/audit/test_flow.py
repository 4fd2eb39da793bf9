"""What flows through a broker, counted to the last message: logs written through real clients."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from ottermq.audit import late_data, lineage
from ottermq.audit.jobs import flow
from ottermq.audit.outcome import Bars, Context, Lines, Outcome
from ottermq.audit.run import AuditRequest, run
from ottermq.config import load
from tests.audit import sample_data, traffic
from tests.audit.traffic import (
    DAY,
    DEATHS,
    GIVEN_OUT,
    HOUR,
    MAIL,
    MINUTE,
    READINGS,
    START,
    TASKS,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flow") / "data"
    with sample_data.at_work(folder) as broker:
        traffic.write(broker)
    return folder


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
    hours = table(outcome, "hours", "readings")
    assert [(row["time"], row["records"]) for row in hours] == [
        (START, 5),
        (START + HOUR, 4),
        (START + 2 * HOUR, 4),
    ]
    assert {row["waiting"] for row in hours} == {0}, "a topic has no backlog"


def test_sizes_are_told_as_bands_median_and_largest(outcome: Outcome) -> None:
    hours = table(outcome, "hours", "readings")
    assert [row["sizes"] for row in hours] == [[3, 0, 2, 0, 0, 0]] + 2 * [[3, 0, 1, 0, 0, 0]]
    assert all(row["median"] < 256 and 2000 < row["largest"] < 2100 for row in hours)
    assert all(row["p99"] == row["largest"] for row in hours)
    assert all(row["bytes"] > 2000 for row in hours)


def test_what_waits_is_counted_and_how_often_it_was_given_out(outcome: Outcome) -> None:
    found = {row["queue"]: row for row in outcome.summary["backlog"]}
    numbers = ("waiting", "given_out", "redeliveries", "most_deliveries")
    assert {queue: tuple(row[name] for name in numbers) for queue, row in found.items()} == {
        "tasks": (TASKS, 1, GIVEN_OUT - 1, GIVEN_OUT),
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
    keys = table(outcome, "keys", "readings")
    assert [(row["key"], row["records"]) for row in keys] == [("a", 9), ("b", 4)]
    assert keys[0]["share"] == pytest.approx(9 / READINGS)


@pytest.mark.parametrize("stretch", [1 << 16, 4])
def test_a_record_far_behind_those_before_it_is_late(
    spark: SparkSession, data: Path, monkeypatch: pytest.MonkeyPatch, stretch: int
) -> None:
    monkeypatch.setattr(late_data, "STRETCH", stretch)
    context = Context(spark, data, datetime.now(UTC), load())
    behind = 2 * HOUR + 11 * MINUTE - 30 * MINUTE
    (found,) = late_data.late(context, HOUR)
    assert (found.queue, found.records, found.behind) == ("readings", 1, behind)
    assert (found.first_offset, found.last_offset) == (READINGS - 1, READINGS - 1)
    assert found.time == START + 30 * MINUTE
    assert late_data.late(context, behind) == []


def test_what_got_stuck_is_found_and_nothing_else(outcome: Outcome) -> None:
    assert told(outcome) == {
        ("backlog", "tasks"): 1,
        ("backlog", "jobs"): 1,
        ("backlog", "grave"): 1,
        ("redelivered", "tasks"): 1,
        ("poison", "jobs"): 1,
        ("late", "readings"): 1,
    }
    said = {each.kind: each for each in outcome.findings if each.queue in ("jobs", "tasks")}
    assert said["poison"].message == f"1 message died up to {DEATHS} times in jobs (rejected)"
    backlog = next(each for each in outcome.findings if each.queue == "tasks")
    assert (backlog.first_offset, backlog.last_offset) == (0, TASKS - 1)
    assert (said["redelivered"].first_offset, said["redelivered"].last_offset) == (0, 0)


def test_with_more_patience_all_is_well(spark: SparkSession, data: Path) -> None:
    patient = audited(spark, data, timedelta(), again=DEATHS + 1, late=2 * HOUR)
    assert not patient.findings


def test_charts_show_growth_sizes_and_ages(outcome: Outcome) -> None:
    growth, sizes, ages = outcome.charts
    assert isinstance(growth, Lines) and isinstance(sizes, Bars) and isinstance(ages, Bars)
    readings = [level for level in growth.series["readings"] if level]
    assert readings == sorted(readings) and len(readings) >= 3
    assert sizes.series["1 to 16 KiB"][sizes.labels.index("readings")] == 4
    assert sum(ages.series["1 to 7 days"]) == TASKS + 1 + MAIL


def test_a_run_leaves_tables_by_date_and_queue(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    done = run(AuditRequest("flow", data, tmp_path, "local[2]", load(), ["poison"], {}, quiet=True))
    assert done.exit_code == 1
    assert {each.name for each in done.folder.iterdir() if each.is_dir()} == {
        "findings",
        "hours",
        "deaths",
        "keys",
        "late",
    }
    assert (done.folder / "hours" / f"date={START:%Y-%m-%d}" / "queue=readings").is_dir()
    hours = ds.dataset(done.folder / "hours", partitioning="hive").to_table()
    assert sum(hours["records"].to_pylist()) == done.outcome.headline["records"]
    assert "Growth by hour" in (done.folder / "report.html").read_text()


def test_an_empty_log_has_nothing_to_tell(spark: SparkSession, tmp_path: Path) -> None:
    with sample_data.at_work(tmp_path / "data"):
        pass
    nothing = audited(spark, tmp_path / "data", DAY)
    assert not nothing.findings and nothing.headline["records"] == 0


@pytest.mark.parametrize(
    "part", [b"", b"\x81", b"\x81\xff", b"\x81\0\x20\0\0\0\0\x05\x01", b"\x81\0\0\0"]
)
def test_what_only_looks_like_a_dead_letter_has_no_lineage(part: bytes) -> None:
    assert lineage.deaths_in(part) == []
