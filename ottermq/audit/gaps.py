"""Offsets that no batch has, and whether the log itself says why:

settled      a work queue's cursor knows them as settled: they need never have reached a segment
epoch        the leader epoch goes up behind them: an unclean stop left them out
compaction   the topic is compacted (the caller knows that from its policy)
"""

import time
from pathlib import Path
from typing import Any

from ottermq._core import ffi, lib
from ottermq.audit.snapshot import Log, Snapshot, take
from ottermq.wal.segmentfile import Gap

ACKS_ARE_SYNCED = 2.0  # seconds; they are within one


def known_since(snapshot: Snapshot, data: Path) -> dict[int, Log]:
    """Its logs by id, with what is known of them by now. While a broker works, a queue's records
    may be settled, and so never come to a segment, and the snapshot doesn't know it yet."""
    logs = {log.id: log for log in snapshot.logs}
    if snapshot.running:
        time.sleep(ACKS_ARE_SYNCED)
        logs |= {log.id: log for log in take(data).logs}
    return logs


def is_explained(gap: Gap, settled: "Settled") -> bool:
    return gap.epoch_after > gap.epoch_before or settled.all(gap.first, gap.end)


class Settled:
    """A cursor, asked for stretches. None: a stream's, where nothing is ever settled."""

    def __init__(self, raw: bytes | None) -> None:
        self._raw = raw
        self._cursor: Any = ffi.NULL
        self._floor = 0

    def __enter__(self) -> "Settled":
        if self._raw:
            out = ffi.new("om_cursor **")
            if lib.om_cursor_decode(out, self._raw, len(self._raw)) == lib.OM_OK:
                self._cursor = out[0]
                stat = ffi.new("om_cursor_stat *")
                lib.om_cursor_stat_get(self._cursor, stat)
                self._floor = stat.floor
        return self

    def __exit__(self, *error: object) -> None:
        if self._cursor != ffi.NULL:
            lib.om_cursor_free(self._cursor)

    def all(self, first: int, end: int) -> bool:
        if self._cursor == ffi.NULL:
            return False
        first = max(first, self._floor)
        return all(lib.om_cursor_is_settled(self._cursor, offset) for offset in range(first, end))
