"""Spark's filters, as far as they say which files and batches to leave out.

They only narrow: Spark applies each of them to the rows again, so one that isn't understood here
costs time, never a row.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from ottermq.audit.source.plan import Limits

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMES = {"vhost": "vhosts", "queue": "queues", "partition": "partitions"}
Range = tuple[int, int]


def narrowed(limits: Limits, filters: Iterable[Filter]) -> Limits:
    for each in filters:
        column = getattr(each, "attribute", ("",))[0]
        value = getattr(each, "value", None)
        if column in NAMES:
            limits = _among(limits, NAMES[column], each)
        elif column == "offset" and isinstance(value, int):
            limits = replace(limits, offsets=_within(limits.offsets, each, value))
        elif column == "timestamp" and isinstance(value, datetime):
            limits = replace(limits, times=_within(limits.times, each, _ms(value)))
    return limits


def _among(limits: Limits, field: str, filter: Any) -> Limits:
    if isinstance(filter, EqualTo):
        found = frozenset((filter.value,))
    elif isinstance(filter, In):
        found = frozenset(filter.value)
    else:
        return limits
    before = getattr(limits, field)
    changed: dict[str, Any] = {field: found if before is None else before & found}
    return replace(limits, **changed)


def _within(range: Range, filter: Filter, value: int) -> Range:
    """From the first to before the second. A moment was cut to its millisecond, of which a record
    may be on either side: so the value itself is always within."""
    first, end = range
    if isinstance(filter, EqualTo | GreaterThanOrEqual | GreaterThan):
        first = max(first, value)
    if isinstance(filter, EqualTo | LessThanOrEqual | LessThan):
        end = min(end, value + 1)
    return first, end


def _ms(moment: datetime) -> int:
    """Rounded down."""
    aware = moment if moment.tzinfo else moment.astimezone()
    return (aware - EPOCH) // timedelta(milliseconds=1)
