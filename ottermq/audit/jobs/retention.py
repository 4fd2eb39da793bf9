"""Is each queue and topic kept as its policy says: not too long, not too short, holds respected?

too long    `wal.retention.expired`, the broker's own rule, says what should be gone by now; the
            keeper's interval and a grace are allowed for
too short   what isn't there any more must be in the record of removed segments, by a rule that the
            policy has (audit/coverage.py)
holds       no removal while one stood: the record tells from when to when

All that is found out in audit/keeping.py. Records are counted by Spark, an hour at a time; the rest
is small and is worked out here.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from ottermq.audit.findings import Finding
from ottermq.audit.growth import BANDS, Stock, projected, stocks
from ottermq.audit.keeping import Audit, Kept, moment, span, when
from ottermq.audit.outcome import Bars, Context, Lines, Outcome, Sheet
from ottermq.audit.report.words import size
from ottermq.audit.snapshot import Log
from ottermq.topology import QueueType
from ottermq.wal.removals import History, Removal

KINDS = {
    "too-old": "records that max_age should have let go",
    "too-large": "segments that max_size should have let go",
    "settled-kept": "settled segments that are still there",
    "gone-early": "a segment that went by a rule which the policy doesn't have",
    "segment-gone": "a segment that isn't there, and the broker hasn't removed",
    "no-record": "offsets that are gone, and no record says why",
    "hold-broken": "something went while a legal hold stood",
    "lost": "a damaged segment that recovery set aside",
    "record-damaged": "the record of removed segments itself isn't whole",
}


def run(context: Context) -> Outcome:
    audit = Audit(context)
    findings = [*audit.gone(), *audit.too_long()]
    counted = stocks(context.spark, context.data, audit.logs)
    return _outcome(context, audit.logs, audit.kept, audit.history, counted, findings)


# -- what comes out


def _outcome(
    context: Context,
    logs: Sequence[Log],
    kept: Mapping[int, Kept],
    history: History,
    counted: Mapping[int, Stock],
    findings: Sequence[Finding],
) -> Outcome:
    totals = {log.id: counted.get(log.id) or Stock() for log in logs}
    later = {
        log.id: projected(totals[log.id], kept[log.id].policy, context.now, days=30) for log in logs
    }
    return Outcome(
        headline={
            "queues and topics": len({(log.vhost, log.queue) for log in logs}),
            "stored": size(sum(each.bytes for each in totals.values())),
            "in 30 days": size(sum(later.values())),
            "under legal hold": sum(kept[log.id].policy.legal_hold for log in logs),
            "segments removed": len(history.removals),
        },
        findings=findings,
        sheets=[_queues(logs, kept, totals, later), _removed(history.removals)],
        charts=[_bands(logs, totals, context.now), _growth(totals.values(), later, context.now)],
        tables={
            "stock": _stock_table(logs, totals, context.now),
            "removals": _removal_table(history.removals),
        },
        summary={
            "bytes": {f"{log.vhost}:{log.name}": totals[log.id].bytes for log in logs},
            "in_30_days": {f"{log.vhost}:{log.name}": later[log.id] for log in logs},
        },
    )


def _queues(
    logs: Sequence[Log],
    kept: Mapping[int, Kept],
    totals: Mapping[int, Stock],
    later: Mapping[int, int],
) -> Sheet:
    rows = [
        (
            log.vhost, log.queue, log.partition, _said(log, kept[log.id]), totals[log.id].records,
            size(totals[log.id].bytes), when(totals[log.id].oldest), when(totals[log.id].newest),
            size(later[log.id]),
        )
        for log in logs
    ]  # fmt: skip
    columns = (
        "vhost", "queue", "partition", "policy", "records", "stored", "oldest", "newest",
        "in 30 days",
    )  # fmt: skip
    return Sheet("Queues and topics", columns, rows)


def _said(log: Log, kept: Kept) -> str:
    policy = kept.policy
    words = ["legal hold"] if policy.legal_hold else []
    if policy.max_age_ms is not None:
        words.append(f"max_age {span(policy.max_age_ms)}")
    if policy.max_size is not None:
        words.append(f"max_size {size(policy.max_size)}")
    if log.kind != QueueType.STREAM.value:
        words.append("until settled" if policy.drops_settled else "settled kept")
    return ", ".join([*words, *(["compacted"] if kept.compacted else [])]) or "for ever"


def _removed(gone: Iterable[Removal]) -> Sheet:
    by: dict[tuple[str, str, str], list[Removal]] = {}
    for each in gone:
        by.setdefault((each.vhost, each.name, each.rule.label), []).append(each)
    rows = [
        (*key, len(some), size(sum(each.bytes - each.left for each in some)), when(some[-1].time))
        for key, some in sorted(by.items())
    ]
    return Sheet("Removed", ("vhost", "queue", "rule", "segments", "bytes", "last"), rows)


def _bands(logs: Sequence[Log], totals: Mapping[int, Stock], now: datetime) -> Bars:
    names = sorted({(log.vhost, log.queue) for log in logs})
    bands = {name: totals_of(logs, totals, name, now) for name in names}
    series = {band: [bands[name].get(band, 0) for name in names] for band in BANDS}
    return Bars("Stored, by age", "bytes", [queue for _, queue in names], series, ordered=True)


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
        {"stored": [*levels, level, float(sum(later.values()))]}, now=now,
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


def _removal_table(gone: Iterable[Removal]) -> Any:
    rows = [
        {
            "vhost": each.vhost, "queue": each.name, "time": moment(each.time),
            "rule": each.rule.label, "log_id": each.log_id, "segment": each.segment,
            "first_offset": each.first, "next_offset": each.next, "bytes": each.bytes,
            "left": each.left, "newest": moment(each.max_timestamp),
        }
        for each in gone
    ]  # fmt: skip
    instant = pa.timestamp("ms", "UTC")
    schema = {
        "vhost": pa.string(), "queue": pa.string(), "time": instant, "rule": pa.string(),
        "log_id": pa.uint64(), "segment": pa.int64(), "first_offset": pa.int64(),
        "next_offset": pa.int64(), "bytes": pa.uint64(), "left": pa.uint64(), "newest": instant,
    }  # fmt: skip
    return pa.Table.from_pylist(rows, pa.schema(schema))
