"""Records that are there twice: by an idempotent producer's sequence, or by message-id.

A producer's sequence is counted by the broker, which promised to take each batch once: twice is a
violation. A message-id is the publisher's own, and at-least-once delivery may well bring it again:
twice is a warning, one for each queue; copies that are settled have done what they came for.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottermq.audit.findings import Finding, Severity
from ottermq.audit.outcome import Context
from ottermq.audit.records import LOG, records
from ottermq.audit.report.formatting import plural
from ottermq.audit.snapshot import Snapshot

MOST = 200  # batches, reported one by one


def duplicates(context: Context, snapshot: Snapshot) -> Iterator[Finding]:
    if not any(log.segments or log.wal for log in snapshot.logs):
        return
    yield from sequences_twice(context)
    yield from _ids_twice(context)


def sequences_twice(context: Context, **of: Any) -> Iterator[Finding]:
    """of: columns and their values, when not all records are asked for."""
    yield from _told(
        _by_sequence(context, of),
        "duplicate-sequence",
        Severity.VIOLATION,
        lambda row: (
            f"producer {row.producer_id}, epoch {row.producer_epoch}: sequence "
            f"{row.base_sequence:,} is there {row.times} times"
        ),
    )


def _by_sequence(context: Context, of: Mapping[str, Any]) -> DataFrame:
    batch = ("producer_id", "producer_epoch", "base_sequence")
    found = records(context, "timestamp", "segment", "batch_base_offset", *batch)
    found = found.where("producer_id is not null")
    for name, value in of.items():
        found = found.where(F.col(name) == value)
    return (
        found.groupBy(*LOG, *batch)
        .agg(
            F.count_distinct("batch_base_offset").alias("times"),
            F.min("batch_base_offset").alias("first"),
            F.max("batch_base_offset").alias("last"),
            F.max("segment").alias("segment"),
            F.max("timestamp").alias("time"),
        )
        .where("times > 1")
    )


def _ids_twice(context: Context) -> Iterator[Finding]:
    """One finding per queue, whatever partitions it has: offsets are those of one."""
    rows = (
        _by_id(context)
        .groupBy("vhost", "queue")
        .agg(
            F.min("partition").alias("partition"),
            F.count_distinct("partition").alias("partitions"),
            F.count("*").alias("ids"),
            F.sum("times").alias("messages"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
            F.max("time").alias("time"),
            F.min_by("id", "first").alias("id"),
            F.min_by("times", "first").alias("times"),
        )
        .orderBy("vhost", "queue")
        .collect()
    )
    for row in rows:
        one = row.partitions <= 1  # a queue of one log has no partition's number
        example = f"{row.id!r} ({row.times} times)"
        yield Finding(
            "duplicate-id",
            Severity.WARNING,
            f"{plural(row.messages, 'message')} that aren't settled share "
            f"{plural(row.ids, 'message-id')}: {example}{' and others' if row.ids > 1 else ''}",
            row.vhost,
            row.queue,
            row.partition if one else None,
            row.first if one else None,
            row["last"] if one else None,
            time=row.time.astimezone(UTC) if row.time else None,
        )


def _by_id(context: Context) -> DataFrame:
    ids = F.expr("get(filter(headers, each -> each.key = 'message-id'), 0).value")
    return (
        records(context, "offset", "timestamp", "headers", "settled")
        .where("settled is null or not settled")  # null: a stream, which settles nothing
        .select(*LOG, "offset", "timestamp", F.decode(ids, "UTF-8").alias("id"))
        .where("id is not null")
        .groupBy(*LOG, "id")
        .agg(
            F.count("*").alias("times"),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.max("timestamp").alias("time"),
        )
        .where("times > 1")
    )


def _told(found: DataFrame, kind: str, severity: Severity, say: Any) -> Iterator[Finding]:
    rows = found.orderBy(*LOG, "first").limit(MOST + 1).collect()
    for row in rows[:MOST]:
        yield Finding(
            kind,
            severity,
            say(row),
            row.vhost,
            row.queue,
            row.partition,
            row.first,
            row.last,
            row.segment,  # of the last one
            time=row.time.astimezone(UTC) if row.time else None,
        )
    if len(rows) > MOST:
        yield Finding(kind, severity, f"and more than these {MOST}")
