"""Is each queue and topic kept as its policy says: not too long, not too short, holds respected?

too long    `wal.retention.expired`, the broker's own rule, says what should be gone by now; the
            keeper's interval and a grace are allowed for
too short   missing offsets must be in the record of removed segments, by a rule that the
            policy has (audit/coverage.py)
holds       no removal while one stood: the record says from when to when

audit/retention_check.py makes these checks. Spark counts records, an hour at a time; the rest is
small and is worked out here.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from ottermq.audit.findings import Finding, Kind
from ottermq.audit.growth import BANDS, RESTS_ON, Stock, projected, rests_on, stocks
from ottermq.audit.outcome import Bars, Context, Lines, Outcome, ReportTable
from ottermq.audit.report.formatting import queue_label, size
from ottermq.audit.report.formatting import span as spoken
from ottermq.audit.retention_check import AppliedRules, RetentionCheck, moment, span, when
from ottermq.audit.snapshot import Log
from ottermq.topology import QueueType
from ottermq.topology.log_names import queue_and_priority
from ottermq.wal.removals import History, Removal

KINDS = {
    "too-old": Kind(
        "Records are still there that max_age should have let go.",
        "See that a broker runs and that its log has no errors of retention; a segment goes as a "
        "whole, when its newest record is old enough.",
    ),
    "too-large": Kind(
        "Segments are still there that max_size should have let go.",
        "See that a broker runs and that its log has no errors of retention.",
    ),
    "settled-kept": Kind(
        "Segments are still there although every message in them is settled.",
        "See that a broker runs; while none does, this is normal and its next start removes them.",
    ),
    "gone-early": Kind(
        "A segment went by a rule that the policy, as it is now, doesn't have.",
        "Compare with the policy of that time: policies have no history. If it didn't allow the "
        "removal either, restore the segment from a backup.",
    ),
    "segment-gone": Kind(
        "A segment that the log names isn't there, and the broker hasn't removed it.",
        "Find out who did, and restore it from a backup.",
    ),
    "no-record": Kind(
        "Offsets are gone, and no record says why.",
        "Somebody removed files and covered it up, or removals/ was lost: compare with a backup.",
    ),
    "hold-broken": Kind(
        "Something went while a legal hold stood.",
        "Inform the owner of the hold, and restore it from a backup.",
    ),
    "lost": Kind(
        "Recovery found a damaged segment and set it aside.",
        "Look at `*.corrupt-n` with `ottermq segment dump`, and restore the segment from a backup.",
    ),
    "record-damaged": Kind(
        "The record of removed segments itself isn't whole.",
        "Restore removals/ from a backup: without it nobody can tell removed from lost.",
    ),
}


def run(context: Context) -> Outcome:
    audit = RetentionCheck(context)
    findings = [*audit.gone(), *audit.too_long()]
    counted = stocks(context.spark, context.data, audit.logs)
    return _outcome(context, audit.logs, audit.kept, audit.history, counted, findings)


# -- what comes out


def _outcome(
    context: Context,
    logs: Sequence[Log],
    kept: Mapping[int, AppliedRules],
    history: History,
    counted: Mapping[int, Stock],
    findings: Sequence[Finding],
) -> Outcome:
    totals = {log.id: counted.get(log.id) or Stock() for log in logs}
    later = {
        log.id: projected(totals[log.id], kept[log.id].policy, context.now, days=30) for log in logs
    }
    history_of = {id: rests_on(stock, context.now) for id, stock in totals.items()}
    longest = max(history_of.values(), default=timedelta(0))
    return Outcome(
        headline={
            "queues and topics": len({(log.vhost, log.queue) for log in logs}),
            "stored": size(sum(each.bytes for each in totals.values())),
            "in 30 days": size(sum(later.values())),
            "of history behind that": spoken(longest),
            "under legal hold": sum(kept[log.id].policy.legal_hold for log in logs),
            "segments removed": len(history.removals),
        },
        findings=findings,
        report_tables=[
            _queues(logs, kept, totals, later, history_of),
            _removed(history.removals, logs),
        ],
        charts=[_bands(logs, totals, context.now), _growth(totals.values(), later, context.now)],
        tables={
            "stock": _stock_table(logs, totals, context.now),
            "removals": _removal_table(history.removals, logs),
        },
        summary={
            "bytes": {f"{log.vhost}:{log.name}": totals[log.id].bytes for log in logs},
            "in_30_days": {f"{log.vhost}:{log.name}": later[log.id] for log in logs},
            "in_30_days_rests_on_seconds": {
                f"{log.vhost}:{log.name}": round(history_of[log.id].total_seconds()) for log in logs
            },
        },
    )


def _queues(
    logs: Sequence[Log],
    kept: Mapping[int, AppliedRules],
    totals: Mapping[int, Stock],
    later: Mapping[int, int],
    history: Mapping[int, timedelta],
) -> ReportTable:
    rows = [
        (
            log.vhost, log.queue, log.partition, _said(log, kept[log.id]), totals[log.id].records,
            size(totals[log.id].bytes), when(totals[log.id].oldest), when(totals[log.id].newest),
            size(later[log.id]), spoken(history[log.id]),
        )
        for log in logs
    ]  # fmt: skip
    columns = (
        "vhost", "queue", "partition", "policy", "records", "stored", "oldest", "newest",
        "in 30 days", "rests on",
    )  # fmt: skip
    return ReportTable("Queues and topics", columns, rows, RESTS_ON)


def _said(log: Log, kept: AppliedRules) -> str:
    policy = kept.policy
    words = ["legal hold"] if policy.legal_hold else []
    if policy.max_age_ms is not None:
        words.append(f"max_age {span(policy.max_age_ms)}")
    if policy.max_size is not None:
        words.append(f"max_size {size(policy.max_size)}")
    if log.kind != QueueType.STREAM.value:
        words.append("until settled" if policy.drops_settled else "settled kept")
    return ", ".join([*words, *(["compacted"] if kept.compacted else [])]) or "for ever"


def _whose(each: Removal, logs: Mapping[int, Log]) -> tuple[str, str, int]:
    """Of a log that is gone, its own name is all that is known."""
    if log := logs.get(each.log_id):
        return log.vhost, log.queue, log.partition
    return each.vhost, *queue_and_priority(each.name)


def _removed(gone: Iterable[Removal], logs: Sequence[Log]) -> ReportTable:
    by_id = {log.id: log for log in logs}
    by: dict[tuple[str, str, int, str], list[Removal]] = {}
    for each in gone:
        by.setdefault((*_whose(each, by_id), each.rule.label), []).append(each)
    rows = [
        (*key, len(some), size(sum(each.bytes - each.left for each in some)), when(some[-1].time))
        for key, some in sorted(by.items())
    ]
    columns = ("vhost", "queue", "partition", "rule", "segments", "bytes", "last")
    return ReportTable("Removed", columns, rows)


def _bands(logs: Sequence[Log], totals: Mapping[int, Stock], now: datetime) -> Bars:
    names = sorted({(log.vhost, log.queue) for log in logs})
    bands = {name: totals_of(logs, totals, name, now) for name in names}
    series = {band: [bands[name].get(band, 0) for name in names] for band in BANDS}
    return Bars(
        "Stored, by age", "bytes", [queue_label(*name) for name in names], series, ordered=True
    )


def totals_of(
    logs: Sequence[Log], totals: Mapping[int, Stock], name: tuple[str, str], now: datetime
) -> dict[str, float]:
    found: dict[str, float] = {}
    for log in logs:
        if (log.vhost, log.queue) == name:
            for (_, band), count in totals[log.id].by_band(now).items():
                found[band] = found.get(band, 0) + count
    return found


def _growth(totals: Iterable[Stock], later: Mapping[int, int], now: datetime) -> Lines:
    by_day: dict[datetime, float] = {}
    for stock in totals:
        for (_, hour), count in stock.hours.items():
            day = hour.replace(hour=0)
            by_day[day] = by_day.get(day, 0) + count
    days, level, levels = sorted(by_day), 0.0, []
    for day in days:
        level += by_day[day]
        levels.append(level)
    return Lines(
        "Growth of what is stored now, and in 30 days", "bytes",
        [*days, now, now + timedelta(days=30)],
        {"stored": [*levels, level, float(sum(later.values()))]}, now=now, note=RESTS_ON,
    )  # fmt: skip


def _stock_table(logs: Sequence[Log], totals: Mapping[int, Stock], now: datetime) -> Any:
    rows = [
        {
            "vhost": log.vhost, "queue": log.queue, "partition": log.partition, "tier": tier,
            "band": band, "bytes": int(count), "date": now.date(),
        }
        for log in logs
        for (tier, band), count in totals[log.id].by_band(now).items()
    ]  # fmt: skip
    schema = {
        "vhost": pa.string(), "queue": pa.string(), "partition": pa.int32(), "tier": pa.string(),
        "band": pa.string(), "bytes": pa.int64(), "date": pa.date32(),
    }  # fmt: skip
    return pa.Table.from_pylist(rows, pa.schema(schema))


def _removal_table(gone: Iterable[Removal], logs: Sequence[Log]) -> Any:
    by_id = {log.id: log for log in logs}
    rows = [
        {
            **dict(zip(("vhost", "queue", "partition"), _whose(each, by_id), strict=True)),
            "name": each.name, "time": moment(each.time),
            "rule": each.rule.label, "log_id": each.log_id, "segment": each.segment,
            "first_offset": each.first, "next_offset": each.next, "bytes": each.bytes,
            "left": each.left, "newest": moment(each.max_timestamp),
        }
        for each in gone
    ]  # fmt: skip
    instant = pa.timestamp("ms", "UTC")
    schema = {
        "vhost": pa.string(), "queue": pa.string(), "partition": pa.int32(), "name": pa.string(),
        "time": instant, "rule": pa.string(),
        "log_id": pa.uint64(), "segment": pa.int64(), "first_offset": pa.int64(),
        "next_offset": pa.int64(), "bytes": pa.uint64(), "left": pa.uint64(), "newest": instant,
    }  # fmt: skip
    return pa.Table.from_pylist(rows, pa.schema(schema))
