"""Round numbers and dates for the axes of charts."""

import math
from datetime import UTC, datetime, timedelta

STEPS = (
    *(timedelta(seconds=each) for each in (1, 5, 15, 30)),
    *(timedelta(minutes=each) for each in (1, 5, 15, 30)),
    *(timedelta(hours=each) for each in (1, 3, 6, 12)),
    *(timedelta(days=each) for each in (1, 2, 7, 14, 30, 90, 180, 365)),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def round_steps(largest: float, unit: str, about: int = 4) -> list[float]:
    """From 0 to at least the largest: 0, 50, 100, 150; bytes in powers of two."""
    if largest <= 0:
        return [0.0, 1.0]
    raw = largest / about
    base = 2.0 if unit == "bytes" else 10.0
    power = base ** math.floor(math.log(raw, base))
    choices = (1, 2) if unit == "bytes" else (1, 2, 2.5, 5, 10)
    step = next(power * each for each in choices if power * each >= raw)
    count = math.ceil(largest / step)
    return [step * each for each in range(count + 1)]


def time_steps(first: datetime, last: datetime, about: int = 6) -> list[tuple[datetime, str]]:
    """Where ticks go, and what stands below them."""
    span = max(last - first, timedelta(seconds=1))
    step = next((each for each in STEPS if span / each <= about), span / about)
    tick = EPOCH + math.ceil((first - EPOCH) / step) * step
    found = []
    while tick <= last:
        found.append((tick, f"{tick:{_form(step, span)}}"))
        tick += step
    return found


def _form(step: timedelta, span: timedelta) -> str:
    if step < timedelta(minutes=1):
        return "%H:%M:%S"
    if span < timedelta(days=1):
        return "%H:%M"
    if step < timedelta(days=1):
        return "%d %b %H:%M"
    return "%d %b" if span < timedelta(days=300) else "%b %Y"
