"""Offsets of a log that are neither there nor accounted for.

Each offset of a stream or topic below its end is in a segment, in the WAL, or in the record of what
was removed (which also lists those that an unclean stop left out). A gap that an earlier version's
unclean stop left shows by the leader epoch: it goes up behind it.

Work queues are another matter: what is settled need never have reached a segment. Of those, only
segments that the log itself names can be missed.
"""

from collections.abc import Iterable, Sequence

from ottermq.audit.byte_source import ByteSource
from ottermq.audit.snapshot import Log, Segment
from ottermq.wal.removal_reasons import RemovalReason
from ottermq.wal.removals import Removal

Range = tuple[int, int]  # offsets, [first, next)
STILL_THERE = frozenset(
    (
        RemovalReason.PURGE,
        RemovalReason.COMPACTION,
        RemovalReason.TAIL_CUT,
        RemovalReason.REBUILT,
        RemovalReason.TRUNCATE,
    )
)
EPOCH_AT, EPOCH_SIZE = 12, 4  # in a batch header


def unaccounted(home: ByteSource, log: Log, told: Iterable[Removal]) -> list[Range]:
    """told: all that the record says of this log. Missing segments are not this check's."""
    if log.cursor is not None:
        return []
    known = [(each.base_offset, each.next_offset) for each in log.segments]
    known += [(each.base_offset, each.next_offset) for each in log.wal]
    known += [(each.first, each.next) for each in told if each.rule not in STILL_THERE]
    end = max((after for _, after in known), default=0)
    end = max(end, log.start_offset)
    return [gap for gap in holes(known, end) if not _a_life_began(home, log, gap)]


def holes(known: Sequence[Range], end: int) -> list[Range]:
    """The offsets below `end` that none of them has."""
    found, at = [], 0
    for first, after in sorted(known):
        if first > at:
            found.append((at, min(first, end)))
        at = max(at, after)
    return [*found, (at, end)] if at < end else found


def _a_life_began(home: ByteSource, log: Log, gap: Range) -> bool:
    before = [each for each in log.segments if each.next_offset <= gap[0]]
    behind = [each for each in log.segments if each.base_offset >= gap[1]]
    if not before or not behind:
        return False
    epochs = _epoch(home, log, before[-1]), _epoch(home, log, behind[0])
    return epochs[0] is not None and epochs[1] is not None and epochs[0] < epochs[1]


def _epoch(home: ByteSource, log: Log, segment: Segment) -> int | None:
    """Of its first batch: in a stream, a life begins with a segment."""
    file = home.open(f"{log.folder}/{segment.file}")
    if file is None:
        return None
    with file:
        raw = file.read(EPOCH_AT, EPOCH_SIZE)
    return int.from_bytes(raw, "big", signed=True) if len(raw) == EPOCH_SIZE else None
