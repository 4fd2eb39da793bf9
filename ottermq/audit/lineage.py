"""Dead letters that still wait somewhere: where they died, why and how often.

The broker writes each death into the message (`x-death`, csrc/format/x_death.c) and marks the
record; only marked ones are decoded. A message that goes round leaves a settled record behind each
time; settled ones don't count, so none is counted twice.
"""

import struct
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pamqp.header import ContentHeader
from pyspark.sql import functions as F

from ottermq.audit.outcome import Context
from ottermq.audit.records import LOG, records
from ottermq.audit.volume import moment_of

FIRST = "get(headers, 0)"  # the AMQP part of a record (docs/log-format.md)
# In compressed batches it is a Kafka producer's invention: the broker writes none.
MARKED = f"codec = 'none' and {FIRST}.key = 'amqp' and hex(substring({FIRST}.value, 1, 1)) = '81'"
FRAME = struct.pack(">HHQ", 60, 0, 0)  # what stands before properties in a content header frame
DEATHS = "array<struct<died_in: string, reason: string, exchange: string, times: bigint>>"
# What merely waited until it expired is no poison: a retry queue does that on purpose.
FAILED = ("rejected", "delivery_limit")
Death = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True)
class Deaths:
    """In one queue, for one reason, of messages that now wait in one log."""

    vhost: str
    queue: str
    partition: int
    died_in: str
    reason: str
    exchange: str  # where they had been published to
    messages: int
    deaths: int
    most: int  # of one message
    poisoned: int  # messages that failed again and again
    first_offset: int
    last_offset: int
    time: datetime | None  # when the last of them came to where it is


def lineage(context: Context, again: int) -> list[Deaths]:
    """again: so many deaths make a message poison."""
    deaths = F.udf(deaths_in, DEATHS, useArrow=False)
    failed = ", ".join(f"'{reason}'" for reason in FAILED)
    place = (*LOG, "died_in", "reason", "exchange")
    found = (
        records(context, "offset", "timestamp", "settled", "headers", "codec")
        .where(f"settled is not true and {MARKED}")
        .select(*LOG, "offset", "timestamp", F.inline(deaths(F.expr(f"{FIRST}.value"))))
        .groupBy(*place)
        .agg(
            F.count("*").alias("messages"),
            F.sum("times").alias("deaths"),
            F.max("times").alias("most"),
            F.expr(f"count_if(times >= {again} and reason in ({failed}))").alias("poisoned"),
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
            F.unix_millis(F.max("timestamp")).alias("time"),
        )
        .orderBy(*place)
    )
    return [
        Deaths(**{**row.asDict(), "time": moment_of(row.time)}) for row in found.toLocalIterator()
    ]


def deaths_in(value: Any) -> list[Death]:
    """Of a marked record's AMQP part; none, where a Kafka producer only made it look like one."""
    part = bytes(value)
    header = ContentHeader()
    try:
        header.unmarshal(FRAME + part[2 + part[1] :])  # version and exchange come first
        headers: Any = header.properties.headers or {}
        return [_death(each) for each in headers["x-death"]]
    except (ValueError, LookupError, TypeError, struct.error):
        return []


def _death(entry: Any) -> Death:
    return str(entry["queue"]), str(entry["reason"]), str(entry["exchange"]), int(entry["count"])
