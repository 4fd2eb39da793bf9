"""Numbers as people write them."""

import math
from datetime import UTC, datetime

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
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def plural(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
