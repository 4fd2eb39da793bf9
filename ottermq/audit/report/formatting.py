"""Numbers as people write them."""

import math
from datetime import UTC, datetime, timedelta

from ottermq.audit.findings import Finding
from ottermq.config.units import format_time
from ottermq.wal.catalog import INTERNAL_VHOST

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
MOST_SEGMENTS = 3  # in a line
SMALL = 0.1  # below it, digits behind the point are counted from the first that isn't 0
SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
COUNTS = ("", "k", "M", "G")


def size(count: float) -> str:
    """1.5 MiB"""
    number, unit = abs(count), 0
    while number >= 1024 and unit < len(SIZES) - 1:
        number, unit = number / 1024, unit + 1
    sign = "-" if count < 0 else ""
    return f"{sign}{_short(number)} {SIZES[unit]}"


def short(count: float) -> str:
    """12.3k"""
    number, unit = abs(count), 0
    while number >= 1000 and unit < len(COUNTS) - 1:
        number, unit = number / 1000, unit + 1
    sign = "-" if count < 0 else ""
    return f"{sign}{_short(number)}{COUNTS[unit]}"


def _short(number: float) -> str:
    if number >= 100 or number == int(number):
        return f"{number:.0f}"
    if number < SMALL:
        return _small(number)
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}".rstrip("0").rstrip(".")


def _small(number: float) -> str:
    """0.0012: two digits that say something, and no exponent."""
    return f"{number:.{1 - math.floor(math.log10(abs(number)))}f}"


def in_unit(value: float, unit: str) -> str:
    """As an axis says it; the unit stands above the chart."""
    return size(value) if unit == "bytes" else short(value)


def cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _small(value) if 0 < abs(value) < SMALL else f"{value:,.2f}"
    if isinstance(value, datetime):
        return moment(value)
    return str(value)


def moment(time: datetime) -> str:
    """UTC; the report says so once."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def span(time: timedelta) -> str:
    """In config.yaml's form, with two units at most: 3d4h, 1h30m, 12s."""
    for least, step in ((DAY, HOUR), (HOUR, MINUTE), (MINUTE, SECOND)):
        if time >= least:
            return format_time(timedelta(seconds=round(time / step) * step.total_seconds()))
    return format_time(time)


def vhost_name(vhost: str) -> str:
    return "(internal)" if vhost == INTERNAL_VHOST else vhost


def queue_label(vhost: str, queue: str) -> str:
    """For a chart, where there is no room for two columns."""
    return queue if vhost == "/" else f"{vhost_name(vhost)}:{queue}"


def place(finding: Finding) -> str:
    """Which log, as the broker's own log lines have it; empty: of the whole directory."""
    if finding.queue is None or finding.vhost is None:
        return ""
    partition = "" if finding.partition is None else f" partition={finding.partition}"
    return f"vhost={vhost_name(finding.vhost)} queue={finding.queue}{partition}"


def extent(finding: Finding) -> str:
    """Where in that log: segment=00000000000000000060 offsets=60-119"""
    parts = []
    if len(finding.segments) > 1:
        named = ",".join(f"{base:020}" for base in finding.segments[:MOST_SEGMENTS])
        parts.append(f"segments={named}{',…' if len(finding.segments) > MOST_SEGMENTS else ''}")
    elif finding.segment is not None:
        parts.append(f"segment={finding.segment:020}")
    if finding.first_offset is not None:
        last = finding.last_offset
        until = "" if last is None or last <= finding.first_offset else f"-{last}"
        parts.append(f"offsets={finding.first_offset}{until}")
    return " ".join(parts)


def plural(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
