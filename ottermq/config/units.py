"""Sizes and times as people write them: `64MiB`, `512KB`, `10ms`, `7d`, `1h30m`.

Sizes are whole bytes: KiB, MiB … count in 1024s, KB, MB … in 1000s, a bare number is bytes.
Times are whole microseconds and need a unit, as nobody can guess whether 30 means s or ms;
only 0 goes without. Case doesn't matter, a space before the unit is fine.
"""

import re
from datetime import timedelta

SIZES = {
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KIB": 1024,
    "MIB": 1024**2,
    "GIB": 1024**3,
    "TIB": 1024**4,
}
# From long to short: a time like 1h30m names each unit once, in this order.
TIMES = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1000,
    "us": 1,
}

# 15 digits are more than any disk or clock here can hold, and keep int() cheap.
_SIZE = re.compile(r"([0-9]{1,15})\s*([A-Za-z]*)")
_TIME = re.compile("".join(rf"(?:([0-9]{{1,15}})\s*{unit}\s*)?" for unit in TIMES), re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes, or ValueError."""
    match = _SIZE.fullmatch(text.strip())
    unit = SIZES.get(match[2].upper() or "B") if match else None
    if match is None or unit is None:
        raise ValueError(text)
    return int(match[1]) * unit


def parse_microseconds(text: str) -> int:
    """Microseconds, or ValueError."""
    text = text.strip()
    if text == "0":
        return 0
    match = _TIME.fullmatch(text)
    if not text or match is None:
        raise ValueError(text)
    return sum(
        int(count) * unit for count, unit in zip(match.groups("0"), TIMES.values(), strict=True)
    )


def format_size(size: int) -> str:
    """The shortest exact way to write that many bytes; parse_size reads it back."""
    exact = [str(size)]
    for unit in ("TiB", "GiB", "MiB", "KiB", "TB", "GB", "MB", "KB"):
        count, rest = divmod(size, SIZES[unit.upper()])
        if count and not rest:
            exact.append(f"{count}{unit}")
    return min(exact, key=len)


def format_time(time: timedelta) -> str:
    """Exact, with the largest units first; parse_microseconds reads it back."""
    left = time // timedelta(microseconds=1)
    parts = []
    for name, unit in TIMES.items():
        count, left = divmod(left, unit)
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts) or "0"
