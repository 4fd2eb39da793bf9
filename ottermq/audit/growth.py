"""The growth of a log: how much arrived when, and so how much there will be.

Spark adds up the records of each segment by the hour; their share of what the segment weighs on
disk is what that hour costs. (A record's own size says little: batches are compressed.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from ottermq.audit.snapshot import Log
from ottermq.audit.source.datasource import register
from ottermq.wal.retention import Policy

# Older than this, and younger than the next.
BANDS: dict[str, timedelta] = {
    "under 1 hour": timedelta(0),
    "1 to 24 hours": timedelta(hours=1),
    "1 to 7 days": timedelta(days=1),
    "7 to 30 days": timedelta(days=7),
    "30 to 365 days": timedelta(days=30),
    "over a year": timedelta(days=365),
}
COLUMNS = "vhost,queue,partition,timestamp,size,segment,tier,crc_ok"
LOOK_BACK = timedelta(days=7)  # what growth is measured over
DAY = timedelta(days=1)  # at least: a queue that was filled an hour ago doesn't go on like that
RESTS_ON = (
    "In 30 days: what came in the last 7d goes on, and the policy lets go. It rests on as much of "
    "those 7d as there are records of; what is less than a day is spread over one, and is a guess."
)


@dataclass(slots=True)
class Stock:
    """Of one log. Hours are those that records say; what says none counts as new."""

    records: int = 0
    oldest: int = -1  # ms
    newest: int = -1
    hours: dict[tuple[str, datetime], float] = field(default_factory=dict)  # tier, hour → bytes

    @property
    def bytes(self) -> int:
        return round(sum(self.hours.values()))

    def by_band(self, now: datetime) -> dict[tuple[str, str], float]:
        """(tier, band) → bytes; every band is there."""
        tiers = sorted({tier for tier, _ in self.hours})
        found = {(tier, band): 0.0 for tier in tiers for band in BANDS}
        for (tier, hour), count in self.hours.items():
            found[tier, band_of(now - hour)] += count
        return found


def band_of(age: timedelta) -> str:
    return next(name for name, least in reversed(BANDS.items()) if age >= least or not least)


def stocks(spark: SparkSession, data: Path, logs: Sequence[Log]) -> dict[int, Stock]:
    """By log id."""
    register(spark)
    rows = spark.read.format("ottermq").option("columns", COLUMNS).load(str(data))
    hour = f.date_trunc("hour", "timestamp")
    added = (
        rows.where("crc_ok")
        .groupBy("vhost", "queue", "partition", "tier", "segment", hour.alias("hour"))
        .agg(
            f.sum("size").alias("size"),
            f.count("*").alias("records"),
            f.unix_millis(f.min("timestamp")).alias("oldest"),
            f.unix_millis(f.max("timestamp")).alias("newest"),
            f.unix_seconds("hour").alias("since"),
        )
    )
    ids = {(log.vhost, log.queue, log.partition): log for log in logs}
    found: dict[int, Stock] = {}
    gathered: dict[tuple[int, str, int | None], list[Any]] = {}
    for row in added.toLocalIterator():
        log = ids.get((row.vhost, row.queue, row.partition))
        if log is not None:
            gathered.setdefault((log.id, row.tier, row.segment), []).append(row)
    by_id = {log.id: log for log in logs}
    for (id, tier, segment), some in gathered.items():
        _add(found.setdefault(id, Stock()), some, tier, _weight(by_id[id], segment))
    return found


def _weight(log: Log, segment: int | None) -> int:
    """Bytes on disk."""
    if segment is None:
        return sum(len(batch.data) for batch in log.wal)
    return sum(each.size for each in log.segments if each.base_offset == segment)


def _add(stock: Stock, rows: Sequence[Any], tier: str, weight: int) -> None:
    whole = sum(row["size"] for row in rows) or 1
    for row in rows:
        stock.records += row.records
        at = datetime.now(UTC) if row.since is None else datetime.fromtimestamp(row.since, UTC)
        key = (tier, at.replace(minute=0, second=0, microsecond=0))
        stock.hours[key] = stock.hours.get(key, 0) + weight * row["size"] / whole
        if row.oldest is not None:
            stock.oldest = row.oldest if stock.oldest < 0 else min(stock.oldest, row.oldest)
            stock.newest = max(stock.newest, row.newest)


def rests_on(stock: Stock, now: datetime) -> timedelta:
    """How much of the time that growth is measured over has records."""
    if stock.oldest < 0:
        return timedelta(0)
    age = now - datetime.fromtimestamp(stock.oldest / 1000, UTC)
    return max(min(age, LOOK_BACK), timedelta(0))


def projected(stock: Stock, policy: Policy, now: datetime, days: int) -> int:
    """Bytes in so many days: it goes on as in the last week, and the policy lets go as it says."""
    ahead = timedelta(days=days)
    recent = {hour: n for (_, hour), n in stock.hours.items() if now - hour < LOOK_BACK}
    span = max((now - hour for hour in recent), default=DAY)
    a_day = sum(recent.values()) / (max(span, DAY) / DAY)
    level = float(stock.bytes)
    if policy.max_age_ms is not None and not policy.legal_hold:
        age = timedelta(milliseconds=policy.max_age_ms)
        level = sum(n for (_, hour), n in stock.hours.items() if now - hour + ahead <= age)
        ahead = min(ahead, age)
    level += a_day * (ahead / DAY)
    if policy.max_size is not None and not policy.legal_hold:
        level = min(level, policy.max_size)
    return round(level)
