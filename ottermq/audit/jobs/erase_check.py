"""Where are these subjects' records still, in which tier, and until when?

A record is a subject's when its key, or one of the headers that were named, equals the subject's
key. What was found is counted by segment: a segment goes as a whole, and only then are they gone.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottermq.audit.findings import Finding, Severity
from ottermq.audit.outcome import Bars, Context, Outcome, Sheet
from ottermq.audit.policies import Policies
from ottermq.audit.records import records
from ottermq.audit.report.words import moment, plural, size
from ottermq.audit.snapshot import Log, Segment, take
from ottermq.wal.retention import Policy

KINDS = {"still-there": "records of a subject that are still there"}
PLACE = ("subject", "vhost", "queue", "partition", "segment", "tier")
TABLE = pa.schema(
    [(name, pa.string()) for name in ("subject", "vhost", "queue")]
    + [("partition", pa.int32()), ("segment", pa.int64()), ("tier", pa.string())]
    + [(name, pa.int64()) for name in ("records", "bytes", "first_offset", "last_offset")]
    + [(name, pa.timestamp("us", tz="UTC")) for name in ("oldest", "newest", "time")]
    + [("until", pa.string())]
)


def run(context: Context) -> Outcome:
    keys: Sequence[str] = context.options["keys"]
    found = []
    if any(log.segments or log.wal for log in take(context.data).logs):
        found = _found(context, keys, context.options.get("headers", ())).collect()
    # After the records: a broker at work may have declared a queue since the picture before.
    picture = take(context.data)
    logs = {(log.vhost, log.queue, log.partition): log for log in picture.logs}
    policies = Policies(context.data, picture.logs, context.config)
    rows = [
        _row(each, log, policies.of(log))
        for each in found
        if (log := logs.get((each.vhost, each.queue, each.partition)))  # else deleted meanwhile
    ]
    return _outcome(keys, rows)


def _found(context: Context, keys: Sequence[str], headers: Sequence[str]) -> DataFrame:
    wanted = ["offset", "timestamp", "key", "size", "segment", "tier"]
    return (
        records(context, *wanted, *(["headers"] if headers else []))
        .withColumn("subject", F.explode(F.array_distinct(_held(headers))))
        .where(F.col("subject").isin(list(keys)))
        .groupBy(*PLACE)
        .agg(
            F.count("*").alias("records"),
            F.sum("size").alias("bytes"),
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
            F.min("timestamp").alias("oldest"),
            F.max("timestamp").alias("newest"),
        )
        .orderBy(*PLACE)
    )


def _held(headers: Sequence[str]) -> Column:
    """All that may be a subject's key."""
    held = F.array(F.col("key").cast("string"))
    if not headers:
        return held
    named = F.array(*map(F.lit, headers))
    others = F.filter("headers", lambda each: F.array_contains(named, each.key))
    return F.concat(held, F.transform(others, lambda each: each.value.cast("string")))


def _row(found: Any, log: Log, policy: Policy) -> dict[str, Any]:
    segment = next((each for each in log.segments if each.base_offset == found.segment), None)
    time, until = _until(log, segment, policy)
    return {
        **{name: found[name] for name in (*PLACE, "records", "bytes")},
        "first_offset": found.first_offset,
        "last_offset": found.last_offset,
        "oldest": found.oldest and found.oldest.astimezone(UTC),
        "newest": found.newest and found.newest.astimezone(UTC),
        "time": time,
        "until": until,
    }


def _until(log: Log, segment: Segment | None, policy: Policy) -> tuple[datetime | None, str]:
    """When it goes, if the clock alone decides; and in words."""
    if policy.legal_hold:
        return None, "a legal hold stands"
    rules = []
    time = None
    if policy.max_age_ms is not None and segment is not None and segment.max_timestamp >= 0:
        newest = datetime.fromtimestamp(segment.max_timestamp / 1000, UTC)
        time = newest + timedelta(milliseconds=policy.max_age_ms)
        rules.append(f"{moment(time)} (max_age)")
    if policy.drops_settled and log.cursor is not None:
        rules.append("all of its segment is settled")
    if policy.max_size is not None:
        rules.append(f"the log is over {size(policy.max_size)} (max_size)")
    return time, " or ".join(rules) if rules else "for ever: no rule lets it go"


def _outcome(keys: Sequence[str], rows: list[dict[str, Any]]) -> Outcome:
    queues = sorted({row["queue"] for row in rows})
    there = sorted({row["subject"] for row in rows})
    shown = ["subject", "queue", "partition", "segment", "tier", "records", "bytes", "until"]
    charts = []
    if rows:
        series = {
            key: [
                float(sum(r["records"] for r in rows if (r["subject"], r["queue"]) == (key, queue)))
                for queue in queues
            ]
            for key in there[:8]
        }
        charts.append(Bars("Records by queue", "records", queues, series))
    return Outcome(
        headline={
            "subjects": len(keys),
            "still there": len(there),
            "records": sum(row["records"] for row in rows),
            "queues": len(queues),
        },
        findings=[_finding(row) for row in rows],
        sheets=[Sheet("Where they are", shown, [[row[name] for name in shown] for row in rows])],
        charts=charts,
        tables={"places": pa.Table.from_pylist(rows, schema=TABLE)},
        summary={"subjects": {"asked": list(keys), "still_there": there}, "places": rows},
    )


def _finding(row: dict[str, Any]) -> Finding:
    where = f"segment {row['segment']:020}" if row["segment"] is not None else "the WAL"
    return Finding(
        "still-there",
        Severity.VIOLATION,
        f"{row['subject']}: {plural(row['records'], 'record')} in {where}, until {row['until']}",
        row["vhost"],
        row["queue"],
        row["partition"],
        row["first_offset"],
        row["last_offset"],
        row["segment"],
        row["newest"],
    )
