"""Records per hour, their sizes, and those that still wait: one pass over the records.

Only what is still there can be counted. A work queue's settled messages go, and need never have
reached a segment; of those that wait the cursor knows how often each was given out.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import functions as F

from ottermq.audit.outcome import Context
from ottermq.audit.records import LOG, records

# Bytes of a record: from this on, and below the next.
SIZES = {
    "under 256 B": 0,
    "256 B to 1 KiB": 1 << 8,
    "1 to 16 KiB": 1 << 10,
    "16 to 256 KiB": 1 << 14,
    "256 KiB to 1 MiB": 1 << 18,
    "from 1 MiB": 1 << 20,
}


@dataclass(frozen=True, slots=True)
class Hour:
    """Of one log."""

    vhost: str
    queue: str
    partition: int
    time: datetime | None  # when it began; None: records without a time
    records: int
    bytes: int
    median: int  # of the records' sizes
    p99: int
    largest: int
    sizes: list[int]  # records per band of SIZES
    waiting: int  # not settled; of a stream or topic, none
    waiting_bytes: int
    oldest: datetime | None  # of those that wait
    first_offset: int | None  # of those that wait
    last_offset: int | None
    given_out: int  # of those that wait: once or more
    redeliveries: int  # how often beyond the first time
    most_deliveries: int
    most_offset: int | None  # of the one that was given out most


COUNTED = {
    "records": "count(*)",
    "bytes": "sum(size)",
    "median": "percentile_approx(size, 0.5)",
    "p99": "percentile_approx(size, 0.99)",
    "largest": "max(size)",
    "waiting": "count_if(not settled)",
    "waiting_bytes": "coalesce(sum(size) filter (where not settled), 0)",
    "oldest": "unix_millis(min(timestamp) filter (where not settled))",
    "first_offset": "min(offset) filter (where not settled)",
    "last_offset": "max(offset) filter (where not settled)",
    "given_out": "count_if(deliveries > 0)",
    "redeliveries": "coalesce(sum(deliveries - 1) filter (where deliveries > 1), 0)",
    "most_deliveries": "coalesce(max(deliveries), 0)",
    # Of several, the first: whichever came first to Spark would be another one each time.
    "most_offset": "max_by(offset, struct(deliveries, -offset)) filter (where not settled)",
}


def hours(context: Context) -> list[Hour]:
    """By vhost, queue, partition and time."""
    counted = [F.expr(sql).alias(name) for name, sql in COUNTED.items()]
    found = (
        records(context, "offset", "timestamp", "size", "settled", "deliveries")
        .groupBy(*LOG, F.unix_millis(F.date_trunc("hour", "timestamp")).alias("time"))
        .agg(*counted, F.expr(f"array({_bands()})").alias("sizes"))
        .orderBy(*LOG, "time")
    )
    out = []
    for row in found.toLocalIterator():
        values = row.asDict()
        values |= {name: moment_of(values[name]) for name in ("time", "oldest")}
        out.append(Hour(**values))
    return out


def _bands() -> str:
    bounds = [*SIZES.values(), 1 << 31]
    pairs = zip(bounds, bounds[1:], strict=False)
    return ", ".join(f"count_if(size >= {low} and size < {high})" for low, high in pairs)


def moment_of(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


@dataclass(slots=True)
class Backlog:
    """What waits in one log, of all hours."""

    hours: list[Hour]

    @property
    def log(self) -> tuple[str, str, int]:
        return self.hours[0].vhost, self.hours[0].queue, self.hours[0].partition

    @property
    def waiting(self) -> int:
        return sum(each.waiting for each in self.hours)

    @property
    def bytes(self) -> int:
        return sum(each.waiting_bytes for each in self.hours)

    @property
    def oldest(self) -> datetime | None:
        return min((each.oldest for each in self.hours if each.oldest), default=None)

    @property
    def offsets(self) -> tuple[int, int]:
        """The first and the last."""
        firsts = [each.first_offset for each in self.hours if each.first_offset is not None]
        lasts = [each.last_offset for each in self.hours if each.last_offset is not None]
        return min(firsts), max(lasts)

    @property
    def given_out(self) -> int:
        return sum(each.given_out for each in self.hours)

    @property
    def redeliveries(self) -> int:
        return sum(each.redeliveries for each in self.hours)

    @property
    def worst(self) -> Hour:
        """The one that has the message that was given out most."""
        return max(self.hours, key=lambda each: each.most_deliveries)


def backlogs(counted: Iterable[Hour]) -> list[Backlog]:
    """Of the logs where something waits."""
    by_log: dict[tuple[str, str, int], list[Hour]] = {}
    for each in counted:
        if each.waiting:
            by_log.setdefault((each.vhost, each.queue, each.partition), []).append(each)
    return [Backlog(some) for some in by_log.values()]
