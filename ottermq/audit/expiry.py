"""The segments that a policy lets go by a certain time: the broker's own rule, on a snapshot."""

from ottermq.audit.snapshot import Log
from ottermq.wal.checkpoint import decode_cursor
from ottermq.wal.log import SegmentStat
from ottermq.wal.retention import Expired, Policy, expired


def due(log: Log, policy: Policy, by_ms: int) -> list[Expired]:
    segments = [
        SegmentStat(
            each.base_offset, each.next_offset, each.size, each.first_timestamp,
            each.max_timestamp, each.sealed, False,
        )
        for each in log.segments
        if not each.missing
    ]  # fmt: skip
    floor = decode_cursor(log.cursor).floor if log.cursor is not None else None
    return expired(segments, sum(each.size for each in segments), floor, by_ms, policy)
