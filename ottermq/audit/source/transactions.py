"""The aborted and the open transactions of a log.

The checkpoint knows most of them; markers behind it are read from the segments' tails and the WAL.
"""

import struct
from collections.abc import Iterator

from ottermq.audit.byte_source import ByteSource
from ottermq.audit.snapshot import Log
from ottermq.audit.source.decode import STILL_OPEN, Columns, Reading, Span, Wanted
from ottermq.wal import checkpoint
from ottermq.wal.file_window import MemoryRanges
from ottermq.wal.log import Aborted

NAMES = ("offset", "batch_base_offset", "producer_id", "transactional", "control", "key")
MARKER = struct.Struct(">hh")  # version, type
ABORT = 0


def of_log(home: ByteSource, log: Log) -> tuple[Aborted, ...]:
    known = checkpoint.decode_transactions(log.saved.producers if log.saved else b"")
    aborted = {(each.producer_id, each.last_offset): each for each in known.aborted}
    under_way = dict(known.open)
    for columns in _tail(home, log):
        for offset, base, producer, key in _transactional(columns):
            if offset <= known.ended.get(producer, -1):
                continue
            if key is None:
                under_way.setdefault(producer, base)
                continue
            first = under_way.pop(producer, None)
            if first is not None and MARKER.unpack_from(key)[1] == ABORT:
                aborted[producer, offset] = Aborted(producer, first, offset, offset)
    waiting = [Aborted(producer, first, STILL_OPEN, first) for producer, first in under_way.items()]
    return (*aborted.values(), *waiting)


def _tail(home: ByteSource, log: Log) -> Iterator[Columns]:
    """What lies behind the checkpoint."""
    saved = log.saved
    for segment in log.segments:
        if segment.missing or (saved and segment.next_offset <= saved.recovery_point):
            continue
        window = home.open(f"{log.folder}/{segment.file}")
        if window is None:
            continue
        here = saved is not None and saved.recovery_segment == segment.base_offset
        start = saved.recovery_position if saved and here else 0
        with window:
            yield from Reading(window, Span(start, segment.size, 0), Wanted()).batches(NAMES)
    for batch in log.wal:
        yield from Reading(MemoryRanges(batch.data), Span(0, len(batch.data), 0), Wanted()).batches(
            NAMES
        )


def _transactional(columns: Columns) -> Iterator[tuple[int, int, int, bytes | None]]:
    """Offset, base offset, producer id and, of a marker, its key; of a batch its first record."""
    flags = columns.array("transactional")
    if not flags.true_count:
        return
    arrays = [columns.array(name).filter(flags).to_pylist() for name in NAMES]
    for offset, base, producer, _, control, key in zip(*arrays, strict=True):
        if control and key and len(key) >= MARKER.size:
            yield offset, base, producer, key
        elif not control and offset == base:
            yield offset, base, producer, None
