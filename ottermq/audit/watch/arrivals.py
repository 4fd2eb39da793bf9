"""Checks of a micro-batch: damage, missing offsets, sequences that are there twice.

Spark finds the exceptions; this module works out whether the log explains them, with a snapshot
taken after the rows were read: by then it shows what was settled or removed meanwhile.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottermq.audit.coverage import STILL_THERE, Range, holes, unaccounted
from ottermq.audit.findings import Finding, Severity
from ottermq.audit.gaps import ACKS_ARE_SYNCED, Settled, is_explained
from ottermq.audit.jobs.duplicates import sequences_twice
from ottermq.audit.outcome import Context
from ottermq.audit.records import LOG
from ottermq.audit.report.formatting import size
from ottermq.audit.retention_check import RetentionCheck
from ottermq.audit.snapshot import Log, Snapshot
from ottermq.audit.watch.ledger import Ledger, Reached, Seen, Sequence, identity
from ottermq.wal.segmentfile import Gap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

COLUMNS = (
    *LOG, "offset", "size", "segment", "position", "batch_base_offset", "crc_ok", "control",
    "producer_id", "producer_epoch", "base_sequence", "leader_epoch",
)  # fmt: skip
SEQUENCES = 1 << 31  # then they begin at 0 again

Name = tuple[str, str, int]  # vhost, queue, partition


def seen(context: Context, rows: "DataFrame", ledger: Ledger) -> Seen:
    rows = rows.persist()
    try:
        damaged = rows.where("not crc_ok").select(*LOG, "offset", "size", "segment", "position")
        found = _Rows(damaged.collect(), _edges(rows), _steps(rows))
    finally:
        rows.unpersist()
    audit = RetentionCheck(context)
    before = ledger.reached()
    gaps = list(_gaps(audit, found, before))
    if gaps and audit.snapshot.running:
        time.sleep(ACKS_ARE_SYNCED)  # a queue's records may be settled, and nobody knows it yet
        audit = RetentionCheck(context)
        gaps = list(_gaps(audit, found, before))
    logs = by_name(audit.snapshot)
    sequences, suspects = _sequences(found.steps, logs, ledger)
    findings = [*map(_damage, found.damaged), *gaps]
    for vhost, queue, partition, producer in suspects:
        findings += sequences_twice(
            context, vhost=vhost, queue=queue, partition=partition, producer_id=producer
        )
    return Seen(identified(findings, audit.snapshot), _reached(found, logs, before), sequences)


def by_name(snapshot: Snapshot) -> dict[Name, Log]:
    return {(log.vhost, log.queue, log.partition): log for log in snapshot.logs}


def identified(findings: Iterable[Finding], snapshot: Snapshot) -> dict[str, Finding]:
    """Violations, by their identity."""
    ids: dict[tuple[Any, ...], int] = {name: log.id for name, log in by_name(snapshot).items()}
    return {
        identity(each, ids.get((each.vhost, each.queue, each.partition))): each
        for each in findings
        if each.severity is Severity.VIOLATION
    }


# -- Spark's part


@dataclass(frozen=True, slots=True)
class _Rows:
    damaged: "list[Row]"
    edges: "list[Row]"
    steps: "list[Row]"


def _edges(rows: "DataFrame") -> "list[Row]":
    """Of each log the first batch and the last, those behind a jump, and those with holes."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    batches = (
        rows.where("crc_ok")
        .groupBy(*LOG, "batch_base_offset")
        .agg(
            F.min("offset").alias("first"),
            (F.max("offset") + 1).alias("next"),
            F.count("offset").alias("records"),
            F.max("leader_epoch").alias("epoch"),
            F.max("segment").alias("segment"),
        )
    )
    order = Window.partitionBy(*LOG).orderBy("first")
    return (
        batches.withColumn("next_before", F.lag("next").over(order))
        .withColumn("epoch_before", F.lag("epoch").over(order))
        .withColumn("is_last", F.lead("first").over(order).isNull())
        .where("next_before is null or is_last or first > next_before or records < next - first")
        .orderBy(*LOG, "first")
        .collect()
    )


def _steps(rows: "DataFrame") -> "list[Row]":
    """Of each idempotent producer the first batch and the last, and those that don't go on from the
    one before."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    producer = (*LOG, "producer_id", "producer_epoch")
    order = Window.partitionBy(*producer).orderBy("base")
    return (
        rows.where("crc_ok and not control and producer_id is not null")
        .groupBy(*producer, F.col("batch_base_offset").alias("base"))
        .agg(F.min("base_sequence").cast("bigint").alias("sequence"))
        .withColumn("before", F.lag("sequence").over(order))
        .withColumn("is_last", F.lead("base").over(order).isNull())
        .withColumn("step", F.expr(f"pmod(sequence - before, {SEQUENCES})"))
        .where(f"before is null or is_last or step = 0 or step > {SEQUENCES // 2}")
        .orderBy(*producer, "base")
        .collect()
    )


# -- damage and gaps


def _damage(row: "Row") -> Finding:
    place = "in the WAL" if row.segment is None else f"{row.segment:020}.log"
    at = "" if row.position is None else f" at byte {row.position:,}"
    return Finding(
        "damage", Severity.VIOLATION, f"{place}{at}: {size(row['size'])} can't be read",
        row.vhost, row.queue, row.partition, row.offset, segment=row.segment,
    )  # fmt: skip


def _gaps(audit: RetentionCheck, found: _Rows, before: Mapping[int, Reached]) -> Iterator[Finding]:
    logs = by_name(audit.snapshot)
    damaged: dict[Name, list[int]] = {}
    for row in found.damaged:
        damaged.setdefault(_name(row), []).append(row.offset)
    for row in found.edges:
        log = logs.get(_name(row))
        if log is None or log.id not in audit.kept or audit.kept[log.id].compacted:
            continue  # deleted meanwhile; or by its policy records may be missing
        known = before.get(log.id, Reached())
        after = known.next_offset if row.next_before is None else row.next_before
        epoch = known.leader_epoch if row.next_before is None else row.epoch_before
        is_damaged = any(
            after <= offset < row.first for offset in (known.damaged, *damaged.get(_name(row), ()))
        )
        if row.first > after and not is_damaged:
            gap = Gap(after, row.first, epoch, row.epoch)
            for first, end in _unexplained(audit, log, gap):
                message = f"offsets {first:,} to {end - 1:,} are in no segment"
                yield _gap(log, message, first, end, row.segment)
        if row.records < row.next - row.first and log.cursor is None:
            left_out = row.next - row.first - row.records
            message = f"{left_out:,} offsets inside a batch have no record"
            yield _gap(log, message, row.first, row.next, row.segment)


def _unexplained(audit: RetentionCheck, log: Log, gap: Gap) -> list[Range]:
    """Offsets that neither the log nor the record of removals accounts for. Missing segments of a
    stream are left to the audit of retention."""
    told = audit.told.get(log.id, [])
    known: list[Range] = [(0, max(gap.first, log.start_offset))]
    known += [(each.base_offset, each.next_offset) for each in log.segments if each.missing]
    known += [(each.first, each.next) for each in told if each.rule not in STILL_THERE]
    known += unaccounted(audit.snapshot.home, log, told)
    below = [(first, min(end, gap.end)) for first, end in known if first < gap.end]
    with Settled(log.cursor) as settled:
        return [
            (first, end)
            for first, end in holes(below, gap.end)
            if not is_explained(Gap(first, end, gap.epoch_before, gap.epoch_after), settled)
        ]


def _gap(log: Log, message: str, first: int, end: int, segment: int | None) -> Finding:
    """segment: the one behind it, or that it is in."""
    return Finding(
        "gap", Severity.VIOLATION, message, log.vhost, log.queue, log.partition, first, end - 1,
        segment,
    )  # fmt: skip


def _reached(
    found: _Rows, logs: Mapping[Name, Log], before: Mapping[int, Reached]
) -> dict[int, Reached]:
    out: dict[int, Reached] = {}
    for row in found.edges:
        log = logs.get(_name(row))
        if log is not None and row.is_last:
            damaged = before.get(log.id, Reached()).damaged
            out[log.id] = Reached(row.next, row.epoch, damaged)
    for row in found.damaged:
        log = logs.get(_name(row))
        if log is not None:
            known = out.get(log.id) or before.get(log.id, Reached())
            furthest = max(known.damaged, row.offset)
            out[log.id] = Reached(known.next_offset, known.leader_epoch, furthest)
    return out


# -- sequences


def _sequences(
    steps: "list[Row]", logs: Mapping[Name, Log], ledger: Ledger
) -> tuple[dict[tuple[int, int], Sequence], list[tuple[str, str, int, int]]]:
    """Each producer's last one, and the producers that went back."""
    last: dict[tuple[int, int], Sequence] = {}
    suspects = dict[tuple[str, str, int, int], None]()
    for row in steps:
        log = logs.get(_name(row))
        if log is None:
            continue
        key = log.id, row.producer_id
        known = ledger.sequence(*key)
        if row.before is not None:
            went_back = _is_back(row.before, row.sequence)
        elif known is not None and known.epoch == row.producer_epoch:
            # A batch may come in two parts, in two micro-batches.
            is_new = row.base > known.base_offset
            went_back = is_new and _is_back(known.sequence, row.sequence)
        else:
            went_back = False
        if went_back:
            suspects[(*_name(row), row.producer_id)] = None
        if row.is_last:
            last[key] = Sequence(row.producer_epoch, row.sequence, row.base)
    return last, list(suspects)


def _is_back(before: int, sequence: int) -> bool:
    step = (sequence - before) % SEQUENCES
    return step == 0 or step > SEQUENCES // 2


def _name(row: "Row") -> Name:
    return row.vhost, row.queue, row.partition
