"""An alarm's lines: publishers are held back from the first to the second.

WARNING memory alarm set reason="low on memory" used=520MiB limit=512MiB key=memory.high_watermark
INFO memory alarm cleared
WARNING disk alarm set reason="low on disk" used=299GiB free=900MiB limit=1GiB
    key=wal.low_space_limit path=/var/lib/ottermq
INFO disk alarm cleared

Its reason may change while it stands: from memory to disk or back, one alarm is cleared and the
other set; a full disk whose writes stall, too, is set again. The reason is the one that publishers
get. The other fields are how much is used, where, and the key of the limit.
"""

import shutil
from contextlib import suppress

from ottermq import eventlog
from ottermq.config.units import SIZES, format_size
from ottermq.engine.engine import Engine

LOW_ON_MEMORY, LOW_ON_DISK = "low on memory", "low on disk"
MIB = SIZES["MIB"]


def tell_change(engine: Engine, before: str, reason: str) -> None:
    """ "": no alarm."""
    if before and (not reason or (before == LOW_ON_MEMORY) != (reason == LOW_ON_MEMORY)):
        _tell_cleared(before)
    if reason:
        _tell_set(engine, reason)


def _tell_set(engine: Engine, reason: str) -> None:
    fields = _measured(engine, reason)
    if reason == LOW_ON_MEMORY:
        eventlog.warning("memory alarm set", reason=reason, **fields)
    else:
        eventlog.warning("disk alarm set", reason=reason, **fields)


def _tell_cleared(reason: str) -> None:
    if reason == LOW_ON_MEMORY:
        eventlog.info("memory alarm cleared")
    else:
        eventlog.info("disk alarm cleared")


def _measured(engine: Engine, reason: str) -> dict[str, object]:
    """A disk whose writes stall is named by its path: no setting is its limit."""
    if reason == LOW_ON_MEMORY:
        return {
            "used": _rounded(engine.stat().message_bytes),
            "limit": format_size(engine.memory_limit),
            "key": "memory.high_watermark",
        }
    path = engine.store.data.resolve()
    found: dict[str, object] = {}
    with suppress(OSError):  # gone, or as broken as the disk
        disk = shutil.disk_usage(path)
        found = {"used": _rounded(disk.used), "free": _rounded(disk.free)}
    if reason == LOW_ON_DISK:
        found["limit"] = format_size(engine.store.options.low_space_limit)
        found["key"] = "wal.low_space_limit"
    return {**found, "path": path}


def _rounded(size: int) -> str:
    return format_size(size // MIB * MIB)
