"""Where are these subjects' records still, in which tier, and until when?

A record is a subject's when its key, or one of the headers that were named, equals the subject's
key. Records are counted by segment: a segment goes as a whole, and only then are they gone. Each
finding is for one subject in one queue, with the segments and how long they are kept
(audit/until.py).
"""

from collections.abc import Sequence
from datetime import UTC
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottermq.audit.findings import Finding, Kind, Severity
from ottermq.audit.outcome import Bars, Context, Outcome, ReportTable
from ottermq.audit.policies import Policies
from ottermq.audit.records import records
from ottermq.audit.report.formatting import plural, queue_label, vhost_name
from ottermq.audit.snapshot import Log, take
from ottermq.audit.until import Keeping, until

KINDS = {
    "still-there": Kind(
        "Records of a subject are still there.",
        "What is told behind `kept` is what has to happen until they are gone: wait for the time, "
        "let consumers settle the queue, lift the hold, produce the tombstone, or set a rule of "
        "retention where there is none. Then run this again: exit code 0 is the proof.",
    )
}
PLACE = ("subject", "vhost", "queue", "partition", "segment", "tier")
TABLE = pa.schema(
    [(name, pa.string()) for name in ("subject", "vhost", "queue")]
    + [("partition", pa.int32()), ("segment", pa.int64()), ("tier", pa.string())]
    + [(name, pa.int64()) for name in ("records", "bytes", "first_offset", "last_offset")]
    + [(name, pa.timestamp("us", tz="UTC")) for name in ("oldest", "newest", "time")]
    + [("kept", pa.string())]
)


def run(context: Context) -> Outcome:
    keys: Sequence[str] = context.options["keys"]
    found = []
    if any(log.segments or log.wal for log in take(context.data).logs):
        found = _found(context, keys, context.options.get("headers", ())).collect()
    # After the records: a broker at work may have declared a queue since the snapshot before.
    snapshot = take(context.data)
    logs = {(log.vhost, log.queue, log.partition): log for log in snapshot.logs}
    policies = Policies(context.data, snapshot.logs, context.config)
    rows = [
        _row(each, log, _keeping(policies, log))
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
            F.bool_and(F.col("key").cast("string").eqNullSafe(F.col("subject"))).alias("by_key"),
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


def _keeping(policies: Policies, log: Log) -> Keeping:
    return Keeping(policies.of(log), policies.is_compacted(log), policies.tombstones_stay(log))


def _row(found: Any, log: Log, keeping: Keeping) -> dict[str, Any]:
    segment = next((each for each in log.segments if each.base_offset == found.segment), None)
    time, words = until(log, segment, keeping, by_key=found.by_key)
    return {
        **{name: found[name] for name in (*PLACE, "records", "bytes")},
        "first_offset": found.first_offset,
        "last_offset": found.last_offset,
        "oldest": found.oldest and found.oldest.astimezone(UTC),
        "newest": found.newest and found.newest.astimezone(UTC),
        "time": time,
        "kept": words,
    }


def _outcome(keys: Sequence[str], rows: list[dict[str, Any]]) -> Outcome:
    queues = sorted({(row["vhost"], row["queue"]) for row in rows})
    there = sorted({row["subject"] for row in rows})
    shown = [
        "subject",
        "vhost",
        "queue",
        "partition",
        "segment",
        "tier",
        "records",
        "bytes",
        "kept",
    ]
    charts = []
    if rows:
        labels = [queue_label(*queue) for queue in queues]
        series = {
            key: [
                float(sum(r["records"] for r in rows if _whose(r) == (key, *queue)))
                for queue in queues
            ]
            for key in there[:8]
        }
        charts.append(Bars("Records by queue", "records", labels, series))
    return Outcome(
        headline={
            "subjects": len(keys),
            "still there": len(there),
            "records": sum(row["records"] for row in rows),
            "queues": len(queues),
        },
        findings=[_finding(list(some)) for _, some in groupby(rows, key=_whose)],
        report_tables=[ReportTable("Where they are", shown, [_cells(row, shown) for row in rows])],
        charts=charts,
        tables={"places": pa.Table.from_pylist(rows, schema=TABLE)},
        summary={"subjects": {"asked": list(keys), "still_there": there}, "places": rows},
    )


def _cells(row: dict[str, Any], shown: Sequence[str]) -> list[Any]:
    """A segment by its file's name."""
    segment = None if row["segment"] is None else f"{row['segment']:020}"
    told = {**row, "vhost": vhost_name(row["vhost"]), "segment": segment}
    return [told[name] for name in shown]


def _whose(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["subject"], row["vhost"], row["queue"]


def _finding(rows: list[dict[str, Any]]) -> Finding:
    """Of one subject in one queue."""
    first, partitions = rows[0], {row["partition"] for row in rows}
    segments = tuple(row["segment"] for row in rows if row["segment"] is not None)
    count = sum(row["records"] for row in rows)
    times = [row["newest"] for row in rows if row["newest"] is not None]
    one = len(partitions) == 1
    return Finding(
        "still-there",
        Severity.VIOLATION,
        f"{first['subject']}: {plural(count, 'record')} in {_places(rows, segments)}, "
        f"{_kept(rows)}",
        first["vhost"],
        first["queue"],
        first["partition"] if one else None,
        min(row["first_offset"] for row in rows) if one else None,
        max(row["last_offset"] for row in rows) if one else None,
        segments[0] if len(rows) == 1 and segments else None,
        max(times, default=None),
        segments=segments,
    )


def _places(rows: list[dict[str, Any]], segments: tuple[int, ...]) -> str:
    parts = [plural(len(segments), "segment")] if segments else []
    if any(row["segment"] is None for row in rows):
        parts.append("the WAL")
    return " and ".join(parts)


def _kept(rows: list[dict[str, Any]]) -> str:
    """All of it: where the clock decides for each part, what goes last."""
    if all(row["time"] is not None for row in rows):
        return str(max(rows, key=lambda row: row["time"])["kept"])
    return "; ".join(dict.fromkeys(row["kept"] for row in rows))
