"""Is each queue and topic kept as its policy says: not too long, not too short, holds respected?

too long    `wal.retention.expired`, the broker's own rule, says what should be gone by now; the
            keeper's interval and a grace are allowed for
too short   what isn't there any more must be in the record of removed segments, by a rule that the
            policy has (audit/coverage.py)
holds       no removal while one stood: the record tells from when to when

Records are counted by Spark, an hour at a time; all else is small and is worked out here.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from ottermq.audit.coverage import unaccounted
from ottermq.audit.due import due
from ottermq.audit.findings import Finding, Severity
from ottermq.audit.growth import BANDS, Stock, projected, stocks
from ottermq.audit.outcome import Bars, Context, Lines, Outcome, Sheet
from ottermq.audit.policies import Policies
from ottermq.audit.report.words import size
from ottermq.audit.snapshot import Log, Picture, take
from ottermq.topology import QueueType
from ottermq.wal import removals
from ottermq.wal.catalog import INTERNAL_VHOST
from ottermq.wal.log import SegmentStat
from ottermq.wal.removals import History, Removal
from ottermq.wal.retention import Policy
from ottermq.wal.rules import Rule

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
KIND_OF = {Rule.MAX_AGE: "too-old", Rule.MAX_SIZE: "too-large", Rule.SETTLED: "settled-kept"}
# By these something was there, and is no more.
TAKES_AWAY = frozenset((
    Rule.UNKNOWN, Rule.SETTLED, Rule.MAX_AGE, Rule.MAX_SIZE, Rule.PURGE, Rule.DELETE,
    Rule.DELETE_RECORDS, Rule.COMPACTION, Rule.TRUNCATE, Rule.ORPHAN,
))  # fmt: skip
GRACE = timedelta(seconds=60)


def run(context: Context) -> Outcome:
    picture, history = take(context.data), removals.load(context.data)
    logs = [log for log in picture.logs if log.vhost != INTERNAL_VHOST]
    rules = Policies(context.data, logs, context.config)
    kept = {log.id: Kept(rules.of(log), rules.is_compacted(log)) for log in logs}
    audit = _Audit(context, picture, history, kept)
    findings = [
        *(
            Finding("record-damaged", Severity.VIOLATION, f"removals: {problem}")
            for problem in history.problems
        ),
        *(finding for log in logs for finding in audit.too_short(log)),
        *audit.holds(),
        *audit.too_long(logs),
    ]
    counted = stocks(context.spark, context.data, logs)
    return _outcome(context, logs, kept, history, counted, findings)


@dataclass(frozen=True, slots=True)
class Kept:
    """By which policy, and whether by compaction as well."""

    policy: Policy
    compacted: bool


@dataclass(frozen=True, slots=True)
class _Due:
    """A segment that should be gone."""

    log: Log
    segment: SegmentStat
    rule: Rule


class _Audit:
    def __init__(
        self, context: Context, picture: Picture, history: History, kept: Mapping[int, Kept]
    ) -> None:
        self.context = context
        self.picture = picture
        self.history = history
        self.kept = kept
        self.told: dict[int, list[Removal]] = {}
        for each in history.records:
            self.told.setdefault(each.log_id, []).append(each)
        interval = context.config.wal.retention.check_interval
        self.grace = context.options.get("grace") or 2 * interval + GRACE

    # -- too long

    def too_long(self, logs: Sequence[Log]) -> Iterator[Finding]:
        found = [each for log in logs for each in self._due(log)]
        sudden = [each for each in found if each.rule is not Rule.MAX_AGE]
        if sudden and self.picture.running:
            # When they became settled, or too many, nobody knows: the keeper gets its time.
            time.sleep(2 * self.context.config.wal.retention.check_interval.total_seconds() + 2)
            again = {log.id: log for log in take(self.context.data).logs}
            still = {
                (each.log.id, each.segment.base_offset)
                for log in logs
                if log.id in again
                for each in self._due(again[log.id])
            }
            found = [each for each in found if (each.log.id, each.segment.base_offset) in still]
        yield from map(self._kept_too_long, found)

    def _due(self, log: Log) -> Iterator[_Due]:
        by = int((self.context.now - self.grace).timestamp() * 1000)
        for each in due(log, self.kept[log.id].policy, by):
            yield _Due(log, each.segment, each.rule)

    def _kept_too_long(self, found: _Due) -> Finding:
        segment, newest = found.segment, found.segment.max_timestamp
        # By age it is too long whether or not a broker runs; the rest goes as soon as one does.
        certain = found.rule is Rule.MAX_AGE or self.picture.running
        policy = self.kept[found.log.id].policy
        why = {
            Rule.MAX_AGE: f"newest record of {_when(newest)}, max_age {_span(policy.max_age_ms)}",
            Rule.MAX_SIZE: f"the log is larger than max_size {size(policy.max_size or 0)}",
            Rule.SETTLED: "all of it is settled",
        }[found.rule]
        return _finding(
            KIND_OF[found.rule],
            Severity.VIOLATION if certain else Severity.WARNING,
            found.log,
            f"{size(segment.size)} should be gone: {why}",
            (segment.base_offset, segment.next_offset),
            segment=segment.base_offset,
            at=newest,
            rule=found.rule,
        )

    # -- too short

    def too_short(self, log: Log) -> Iterator[Finding]:
        told = self.told.get(log.id, [])
        gone = "hold-broken" if self.kept[log.id].policy.legal_hold else None
        for segment in log.segments:
            if segment.missing:
                yield _finding(
                    gone or "segment-gone", Severity.VIOLATION, log,
                    "a segment is gone, and the broker hasn't removed it",
                    (segment.base_offset, segment.next_offset),
                    segment=segment.base_offset, at=segment.max_timestamp,
                )  # fmt: skip
        for missing in unaccounted(self.picture.home, log, told):
            yield _finding(
                gone or "no-record", Severity.VIOLATION, log,
                "offsets are gone, and no record says why", missing,
            )  # fmt: skip
        for each in told:
            found = self._judged(log, each)
            if found:
                kind, message = found
                yield _finding(
                    kind, Severity.VIOLATION, log, message, (each.first, each.next),
                    segment=each.segment, at=each.time, rule=each.rule,
                )  # fmt: skip

    def _judged(self, log: Log, each: Removal) -> tuple[str, str] | None:
        policy = self.kept[log.id].policy
        if each.rule is Rule.MISSING:
            return "segment-gone", f"{_when(each.time)}: a segment wasn't there at a start"
        if each.rule is Rule.SET_ASIDE:
            return "lost", f"{_when(each.time)}: a damaged segment was set aside"
        if reason := _not_allowed(each, policy):
            return "gone-early", f"removed {_when(each.time)} by {each.rule.label}, but {reason}"
        return None

    # -- holds

    def holds(self) -> Iterator[Finding]:
        held: set[int] = set()
        by_id = {log.id: log for log in self.picture.logs}
        for each in self.history.records:
            if each.rule is Rule.LIFE:
                held.clear()
            elif each.rule is Rule.HOLD:
                held.add(each.log_id)
            elif each.rule is Rule.LIFTED:
                held.discard(each.log_id)
            elif each.log_id in held and each.rule in TAKES_AWAY:
                log = by_id.get(each.log_id)
                yield Finding(
                    "hold-broken", Severity.VIOLATION,
                    f"removed {_when(each.time)} by {each.rule.label} under legal hold",
                    each.vhost, log.queue if log else each.name, log.partition if log else 0,
                    each.first, each.next - 1, each.segment if each.segment >= 0 else None,
                    _time(each.time), each.rule.label,
                )  # fmt: skip


def _not_allowed(each: Removal, policy: Policy) -> str | None:
    """Why the policy as it is now doesn't let this go; None: it does, or a hold came later."""
    if policy.legal_hold:
        return None
    if each.rule is Rule.MAX_AGE:
        if policy.max_age_ms is None:
            return "there is no max_age"
        if each.max_timestamp >= 0 and each.time - each.max_timestamp < policy.max_age_ms:
            return f"its newest record was younger than {_span(policy.max_age_ms)}"
    if each.rule is Rule.MAX_SIZE and policy.max_size is None:
        return "there is no max_size"
    if each.rule is Rule.SETTLED and not policy.drops_settled:
        return "settled messages are to be kept"
    return None


def _finding(
    kind: str,
    severity: Severity,
    log: Log,
    message: str,
    offsets: tuple[int, int],
    *,
    segment: int | None = None,
    at: int = -1,
    rule: Rule | None = None,
) -> Finding:
    return Finding(
        kind=kind,
        severity=severity,
        message=message,
        vhost=log.vhost,
        queue=log.queue,
        partition=log.partition,
        first_offset=offsets[0],
        last_offset=offsets[1] - 1,
        segment=segment if segment is not None and segment >= 0 else None,
        time=_time(at),
        rule=rule.label if rule else None,
    )


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
            size(totals[log.id].bytes), _when(totals[log.id].oldest), _when(totals[log.id].newest),
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
        words.append(f"max_age {_span(policy.max_age_ms)}")
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
        (*key, len(some), size(sum(each.bytes - each.left for each in some)), _when(some[-1].time))
        for key, some in sorted(by.items())
    ]
    return Sheet("Removed", ("vhost", "queue", "rule", "segments", "bytes", "last"), rows)


def _bands(logs: Sequence[Log], totals: Mapping[int, Stock], now: datetime) -> Bars:
    names = sorted({(log.vhost, log.queue) for log in logs})
    bands = {name: totals_of(logs, totals, name, now) for name in names}
    series = {band: [bands[name].get(band, 0) for name in names] for band in BANDS}
    return Bars("Stored, by age", "bytes", [queue for _, queue in names], series)


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
            "vhost": each.vhost, "queue": each.name, "time": _time(each.time),
            "rule": each.rule.label, "log_id": each.log_id, "segment": each.segment,
            "first_offset": each.first, "next_offset": each.next, "bytes": each.bytes,
            "left": each.left, "newest": _time(each.max_timestamp),
        }
        for each in gone
    ]  # fmt: skip
    moment = pa.timestamp("ms", "UTC")
    schema = {
        "vhost": pa.string(), "queue": pa.string(), "time": moment, "rule": pa.string(),
        "log_id": pa.uint64(), "segment": pa.int64(), "first_offset": pa.int64(),
        "next_offset": pa.int64(), "bytes": pa.uint64(), "left": pa.uint64(), "newest": moment,
    }  # fmt: skip
    return pa.Table.from_pylist(rows, pa.schema(schema))


def _time(ms: int) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if ms >= 0 else None


def _when(ms: int) -> str:
    at = _time(ms)
    return f"{at:%Y-%m-%d %H:%M:%S}" if at else "–"


def _span(ms: int | None) -> str:
    return str(timedelta(milliseconds=ms)) if ms is not None else "–"
