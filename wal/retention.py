"""When whole segments go: the rules, as a pure function from a log's segments to those that expire.

    segments   | 0 settled | 60 settled | 120 in part | 180      | 240 active |
                                        ^ floor
    settled      goes        goes         stays         stays

Segments go from the start on and in order: the first one that no rule wants gone keeps all that
come after it. A segment may go by three rules, any mix of them:

    settled    every record in the segment is settled (work queues only: streams have no floor)
    max_age    its newest record is older than that, settled or not
    max_size   all segments together are larger than that: the oldest, until they fit

A legal hold comes before all of them: nothing goes while it stands.

The active segment goes too when its newest record is past max_age; by `settled` only once it is
worth the file operations: large, or idle for a while. It never goes by size: so a log can be
larger than max_size by what its active segment holds.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ottermq.wal.log import SegmentStat
from ottermq.wal.removal_reasons import RemovalReason

# A queue that is drained all the time would otherwise make and remove a file at every look.
ACTIVE_WORTH = 1 << 20
ACTIVE_IDLE_MS = 300_000


@dataclass(frozen=True)
class Policy:
    by_floor: bool = True
    max_age_ms: int | None = None
    max_size: int | None = None
    keep_settled: bool = False  # until age or size say otherwise: an audit trail
    legal_hold: bool = False  # nothing goes, whatever the rest says

    @property
    def drops_settled(self) -> bool:
        return self.by_floor and not self.keep_settled


@dataclass(frozen=True, slots=True)
class Expired:
    segment: SegmentStat
    rule: RemovalReason


def expired(
    segments: Iterable[SegmentStat], total_size: int, floor: int | None, now_ms: int, policy: Policy
) -> list[Expired]:
    """Which segments go, oldest first; `trim` to the last one's next offset does it.

    segments: in order, all of them or only the first few. total_size: of all. floor: of the log's
    cursor, None when it has none.
    """
    gone: list[Expired] = []
    for segment in () if policy.legal_hold else segments:
        rule = _rule(segment, total_size, floor, now_ms, policy)
        if rule is None:
            break
        gone.append(Expired(segment, rule))
        total_size -= segment.size
    return gone


def _rule(
    segment: SegmentStat, total_size: int, floor: int | None, now_ms: int, policy: Policy
) -> RemovalReason | None:
    if segment.next_offset == segment.base_offset:
        return None  # nothing in it yet
    # Producers may leave the timestamp out (-1): such records have no age.
    idle_ms = now_ms - segment.max_timestamp if segment.max_timestamp >= 0 else 0
    if policy.drops_settled and floor is not None and segment.next_offset <= floor:
        if segment.sealed or segment.size >= ACTIVE_WORTH or idle_ms >= ACTIVE_IDLE_MS:
            return RemovalReason.SETTLED
    if policy.max_age_ms is not None and idle_ms > policy.max_age_ms:
        return RemovalReason.MAX_AGE
    if policy.max_size is not None and total_size > policy.max_size and segment.sealed:
        return RemovalReason.MAX_SIZE
    return None
