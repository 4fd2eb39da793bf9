"""Records whose timestamps lie far behind one that came before them: late data.

To compare each record with all before it takes their order, and sorting all of them would be
expensive. So the oldest and newest of each stretch of offsets are asked for first, and only
stretches in which something can be late are read again, each sorted by itself:

    stretch      0         1         2
    newest     10:04     11:50     11:58
    oldest     10:00     11:02     10:01      <- behind what was reached before: this one
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from ottermq.audit.outcome import Context
from ottermq.audit.records import LOG, records
from ottermq.audit.volume import moment_of

STRETCH = 1 << 16  # offsets
SUSPECT = "vhost string, queue string, partition int, stretch bigint, reached bigint"
Suspect = tuple[str, str, int, int, int | None]


@dataclass(frozen=True, slots=True)
class Late:
    """Of one log."""

    vhost: str
    queue: str
    partition: int
    records: int
    behind_ms: int  # the one that is most
    first_offset: int
    last_offset: int
    time: datetime | None  # the oldest of them

    @property
    def behind(self) -> timedelta:
        return timedelta(milliseconds=self.behind_ms)


def late(context: Context, least: timedelta) -> list[Late]:
    """least: how far behind counts as late."""
    ms = least // timedelta(milliseconds=1)
    rows = (
        records(context, "offset", "timestamp")
        .where("timestamp is not null")
        .select(
            *LOG,
            "offset",
            F.unix_millis("timestamp").alias("time"),
            F.expr(f"offset div {STRETCH}").alias("stretch"),
        )
    )
    bounds = rows.groupBy(*LOG, "stretch").agg(
        F.min("time").alias("oldest"), F.max("time").alias("newest")
    )
    suspects = list(_suspects(bounds.orderBy(*LOG, "stretch").toLocalIterator(), ms))
    if not suspects:
        return []
    known = context.spark.createDataFrame(suspects, SUSPECT)
    stretch = Window.partitionBy(*LOG, "stretch").orderBy("offset")
    before = stretch.rowsBetween(Window.unboundedPreceding, -1)
    reached = F.greatest("reached", F.max("time").over(before))
    found = (
        rows.join(F.broadcast(known), [*LOG, "stretch"])
        .withColumn("behind", reached - F.col("time"))
        .where(F.col("behind") > ms)
        .groupBy(*LOG)
        .agg(
            F.count("*").alias("records"),
            F.max("behind").alias("behind_ms"),
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
            F.min("time").alias("time"),
        )
        .orderBy(*LOG)
    )
    return [Late(**{**row.asDict(), "time": moment_of(row.time)}) for row in found.collect()]


def _suspects(stretches: Iterable[Any], ms: int) -> Iterator[Suspect]:
    """Those that have a record so far behind the newest before it, or may have one."""
    log, reached = None, None
    for each in stretches:
        here = (each.vhost, each.queue, each.partition)
        if here != log:
            log, reached = here, None
        newest = each.newest if reached is None else max(each.newest, reached)
        if newest - each.oldest > ms:
            yield (*here, each.stretch, reached)
        reached = newest
