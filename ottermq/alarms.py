"""What an alarm's line says beside its reason: how much is used, where, and the key of its limit.

WARNING publishers have to wait reason="low on memory" used=520MiB limit=512MiB
    key=memory.high_watermark
WARNING publishers have to wait reason="low on disk" used=299GiB free=900MiB limit=1GiB
    key=wal.low_space_limit path=/var/lib/ottermq
"""

import shutil

from ottermq.config.units import SIZES, format_size
from ottermq.engine import Engine

LOW_ON_MEMORY = "low on memory"
MIB = SIZES["MIB"]


def measured(engine: Engine, reason: str) -> dict[str, object]:
    if reason == LOW_ON_MEMORY:
        return {
            "used": _rounded(engine.stat().message_bytes),
            "limit": format_size(engine.memory_limit),
            "key": "memory.high_watermark",
        }
    path = engine.store.data.resolve()
    limit = {
        "limit": format_size(engine.store.options.low_space_limit),
        "key": "wal.low_space_limit",
        "path": path,
    }
    try:
        disk = shutil.disk_usage(path)
    except OSError:  # gone, or as broken as the disk
        return limit
    return {"used": _rounded(disk.used), "free": _rounded(disk.free), **limit}


def _rounded(size: int) -> str:
    return format_size(size // MIB * MIB)
