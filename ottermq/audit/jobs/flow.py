"""What flows through, and what got stuck on the way?

Volume and sizes per queue and hour, waiting messages and their age, redeliveries, dead letters
(where they died and why), the largest keys, and late data. Spark counts; this module works out
what deserves somebody's attention.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from ottermq.audit.catalogue import DELAYED
from ottermq.audit.findings import Finding, Kind, Severity
from ottermq.audit.growth import BANDS, band_of
from ottermq.audit.keys import Key, top_keys
from ottermq.audit.late_data import Late, late
from ottermq.audit.lineage import Deaths, lineage
from ottermq.audit.outcome import Bars, Context, Lines, Outcome, ReportTable
from ottermq.audit.report.formatting import moment, plural, queue_label, size, span, vhost_name
from ottermq.audit.snapshot import take
from ottermq.audit.volume import SIZES, Backlog, Hour, backlogs, hours

KINDS = {
    "backlog": Kind(
        "Messages have been waiting for long, and nobody has settled them.",
        "See whether the queue has consumers, and whether they keep up; --old says what is long.",
    ),
    "redelivered": Kind(
        "Messages are given out again and again, and never settled.",
        "Look at the message at that offset and at the consumer's log: it rejects, dies or runs "
        "into its time-out. A delivery limit and a dead-letter exchange end it.",
    ),
    "poison": Kind(
        "Dead letters fail again and again in the same queue.",
        "Look at one of them: its consumers can't handle it. Take it out of the cycle.",
    ),
    "late": Kind(
        "Records have timestamps far behind those that came before them.",
        "Nothing, where readers expect it; else look at the producer's clock.",
    ),
}
OLD, LATE, AGAIN = timedelta(days=1), timedelta(hours=1), 5
MOST_LINES = 8  # of a chart
Name = tuple[str, str]  # vhost and queue


@dataclass(frozen=True, slots=True)
class _Flow:
    """What was counted."""

    hours: Sequence[Hour]
    backlogs: Sequence[Backlog]
    deaths: Sequence[Deaths]
    keys: Sequence[Key]
    late: Sequence[Late]

    def by_log(self) -> dict[tuple[str, str, int], list[Hour]]:
        found: dict[tuple[str, str, int], list[Hour]] = {}
        for each in self.hours:
            found.setdefault((each.vhost, each.queue, each.partition), []).append(each)
        return found

    def by_queue(self) -> dict[Name, list[Hour]]:
        found: dict[Name, list[Hour]] = {}
        for each in self.hours:
            found.setdefault((each.vhost, each.queue), []).append(each)
        return found


def run(context: Context) -> Outcome:
    old: timedelta = context.options.get("old", OLD)
    again: int = context.options.get("again", AGAIN)
    # Messages of a delayed exchange wait on purpose.
    delayed = {(log.vhost, log.queue) for log in take(context.data).logs if log.kind == DELAYED}
    counted = hours(context)
    flow = _Flow(
        counted,
        [each for each in backlogs(counted) if each.log[:2] not in delayed],
        lineage(context, again),
        top_keys(context),
        late(context, context.options.get("late", LATE)),
    )
    findings = [
        *_stuck(flow.backlogs, context.now - old, again),
        *map(_poison, (each for each in flow.deaths if each.poisoned)),
        *map(_late, flow.late),
    ]
    return _outcome(flow, findings, context.now)


# -- what deserves attention


def _stuck(found: Sequence[Backlog], before: datetime, again: int) -> Iterator[Finding]:
    for each in found:
        if each.oldest is not None and each.oldest < before:
            yield Finding(
                "backlog",
                Severity.WARNING,
                f"{plural(each.waiting, 'message')} ({size(each.bytes)}) not settled, the oldest "
                f"of {moment(each.oldest)}",
                *each.log,
                *each.offsets,
                time=each.oldest,
            )
        worst = each.worst
        if worst.most_deliveries >= again:
            yield Finding(
                "redelivered",
                Severity.WARNING,
                f"a message was given out {worst.most_deliveries:,} times and isn't settled; all "
                f"together {each.redeliveries:,} redeliveries",
                *each.log,
                worst.most_offset,
                worst.most_offset,
                time=worst.time,
            )


def _poison(each: Deaths) -> Finding:
    return Finding(
        "poison",
        Severity.WARNING,
        f"{plural(each.poisoned, 'message')} died up to {each.most:,} times in {each.died_in} "
        f"({each.reason})",
        each.vhost,
        each.queue,
        each.partition,
        each.first_offset,
        each.last_offset,
        time=each.time,
    )


def _late(each: Late) -> Finding:
    return Finding(
        "late",
        Severity.NOTE,
        f"{plural(each.records, 'record')} up to {span(each.behind)} behind those before",
        each.vhost,
        each.queue,
        each.partition,
        each.first_offset,
        each.last_offset,
        time=each.time,
    )


# -- what comes out


def _outcome(flow: _Flow, findings: Sequence[Finding], now: datetime) -> Outcome:
    return Outcome(
        headline={
            "records": sum(each.records for each in flow.hours),
            "stored": size(sum(each.bytes for each in flow.hours)),
            "not settled": sum(each.waiting for each in flow.backlogs),
            "redeliveries": sum(each.redeliveries for each in flow.backlogs),
            "deaths": sum(each.deaths for each in flow.deaths),
            "late": sum(each.records for each in flow.late),
        },
        findings=findings,
        report_tables=[
            _volume_table(flow),
            _backlog_table(flow.backlogs, now),
            _death_table(flow.deaths),
            _key_table(flow.keys),
            _late_table(flow.late),
        ],
        charts=[_growth(flow), _sizes(flow), _ages(flow.backlogs, now)],
        tables={
            "hours": _table(flow.hours, HOURS),
            "deaths": _table(flow.deaths, DEATHS),
            "keys": _table(flow.keys, KEYS),
            "late": _table(flow.late, LATE_ONES),
        },
        summary={
            "backlog": [_told(each) for each in flow.backlogs],
            "deaths": [asdict(each) for each in flow.deaths],
            "keys": [asdict(each) for each in flow.keys],
        },
    )


def _told(each: Backlog) -> dict[str, Any]:
    vhost, queue, partition = each.log
    return {
        "vhost": vhost,
        "queue": queue,
        "partition": partition,
        "waiting": each.waiting,
        "bytes": each.bytes,
        "oldest": each.oldest,
        "given_out": each.given_out,
        "redeliveries": each.redeliveries,
        "most_deliveries": each.worst.most_deliveries,
    }


def _volume_table(flow: _Flow) -> ReportTable:
    rows = []
    for (vhost, queue, partition), some in flow.by_log().items():
        records, whole = sum(each.records for each in some), sum(each.bytes for each in some)
        came: Counter[datetime] = Counter()
        for each in some:
            if each.time:
                came[each.time] += each.records
        rows.append(
            (
                vhost_name(vhost), queue, partition, records, size(whole), size(whole / records),
                size(max(each.largest for each in some)), len(came), max(came.values(), default=0),
                moment(min(came)) if came else None, moment(max(came)) if came else None,
            )
        )  # fmt: skip
    columns = (
        "vhost", "queue", "partition", "records", "bytes", "average", "largest", "hours",
        "in the busiest",
        "first hour", "last hour",
    )  # fmt: skip
    return ReportTable("Volume", columns, rows, "what is still there; sizes before compression")


def _backlog_table(found: Sequence[Backlog], now: datetime) -> ReportTable:
    rows = [
        (
            *each.log, each.waiting, size(each.bytes), moment(each.oldest) if each.oldest else None,
            _age(now, each.oldest), each.given_out, each.redeliveries,
            each.worst.most_deliveries,
        )
        for each in found
    ]  # fmt: skip
    columns = (
        "vhost", "queue", "partition", "not settled", "bytes", "oldest", "age", "given out",
        "redeliveries", "most of one",
    )  # fmt: skip
    return ReportTable("Not settled", columns, rows)


def _age(now: datetime, since: datetime | None) -> str | None:
    return None if since is None else span(now - since)


def _death_table(found: Sequence[Deaths]) -> ReportTable:
    rows = [
        (
            each.vhost, each.died_in, each.reason, each.exchange or "(default)", each.queue,
            each.partition, each.messages, each.deaths, each.most,
        )
        for each in found
    ]  # fmt: skip
    columns = (
        "vhost", "died in", "reason", "published to", "now in", "partition", "messages",
        "deaths", "most of one",
    )  # fmt: skip
    return ReportTable("Dead letters", columns, rows, "those that are not settled")


def _key_table(found: Sequence[Key]) -> ReportTable:
    rows = [
        (each.vhost, each.queue, each.key, each.records, size(each.bytes), f"{each.share:.1%}")
        for each in found
    ]
    columns = ("vhost", "queue", "key", "records", "bytes", "share")
    return ReportTable("Top keys", columns, rows, "of all partitions together")


def _late_table(found: Sequence[Late]) -> ReportTable:
    rows = [
        (
            each.vhost, each.queue, each.partition, each.records, span(each.behind),
            each.first_offset, each.last_offset,
        )
        for each in found
    ]  # fmt: skip
    columns = (
        "vhost", "queue", "partition", "records", "most behind", "first offset", "last offset",
    )  # fmt: skip
    return ReportTable("Late", columns, rows)


def _growth(flow: _Flow) -> Lines:
    """Of the largest queues: how their records came to be so many."""
    queues = flow.by_queue()
    weights = {name: sum(each.bytes for each in some) for name, some in queues.items()}
    largest = sorted(queues, key=lambda name: -weights[name])[:MOST_LINES]
    times = sorted({each.time for name in largest for each in queues[name] if each.time})
    series: dict[str, Sequence[float | None]] = {}
    for name in largest:
        came = dict.fromkeys(times, 0.0)
        for each in queues[name]:
            if each.time:
                came[each.time] += each.bytes
        level, levels = 0.0, []
        for time in times:
            level += came[time]
            levels.append(level)
        series[queue_label(*name)] = levels
    return Lines("Growth by hour", "bytes", times, series)


def _sizes(flow: _Flow) -> Bars:
    queues = flow.by_queue()
    series = {
        band: [float(sum(each.sizes[at] for each in some)) for some in queues.values()]
        for at, band in enumerate(SIZES)
    }
    return Bars(
        "Sizes of records", "records", [queue_label(*name) for name in queues], series, ordered=True
    )


def _ages(found: Sequence[Backlog], now: datetime) -> Bars:
    names = list(dict.fromkeys(each.log[:2] for each in found))
    series = {band: [0.0] * len(names) for band in BANDS}
    for backlog in found:
        for hour in backlog.hours:
            since = hour.time or now
            series[band_of(now - since)][names.index(backlog.log[:2])] += hour.waiting
    return Bars(
        "Not settled, by age",
        "messages",
        [queue_label(*name) for name in names],
        series,
        ordered=True,
    )


# -- tables


TEXT, COUNT, MOMENT = pa.string(), pa.int64(), pa.timestamp("ms", "UTC")
LOG = {"vhost": TEXT, "queue": TEXT, "partition": pa.int32()}
OFFSETS = {"first_offset": COUNT, "last_offset": COUNT, "time": MOMENT}
HOURS = pa.schema(
    {
        **LOG, **OFFSETS, "records": COUNT, "bytes": COUNT, "median": COUNT, "p99": COUNT,
        "largest": COUNT, "sizes": pa.list_(COUNT), "waiting": COUNT, "waiting_bytes": COUNT,
        "oldest": MOMENT, "given_out": COUNT, "redeliveries": COUNT, "most_deliveries": COUNT,
        "most_offset": COUNT,
    }
)  # fmt: skip
DEATHS = pa.schema(
    {
        **LOG, **OFFSETS, "died_in": TEXT, "reason": TEXT, "exchange": TEXT, "messages": COUNT,
        "deaths": COUNT, "most": COUNT, "poisoned": COUNT,
    }
)  # fmt: skip
KEYS = pa.schema(
    {
        "vhost": TEXT, "queue": TEXT, "key": TEXT, "records": COUNT, "bytes": COUNT,
        "share": pa.float64(),
    }
)  # fmt: skip
LATE_ONES = pa.schema({**LOG, **OFFSETS, "records": COUNT, "behind_ms": COUNT})


def _table(rows: Sequence[Any], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([asdict(row) for row in rows], schema)
