"""How long a segment's records are kept, in words that can be quoted to the data subject.

By the broker's own rules (wal/retention.py): whole segments go, in order, by any of the rules that
apply; a legal hold comes before all of them. Compaction takes single records out, by their key.
"""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ottermq.audit.report.formatting import moment, size
from ottermq.audit.snapshot import Log, Segment
from ottermq.config.units import format_time
from ottermq.wal.retention import Policy

HELD = "kept as long as the legal hold stands"
FOREVER = "kept forever: no retention rule applies"


class Until(NamedTuple):
    time: datetime | None  # when it goes, if the clock alone decides
    words: str


class Keeping(NamedTuple):
    """How a log is kept."""

    policy: Policy
    compacted: bool = False
    tombstones_stay: timedelta = timedelta(0)


def until(log: Log, segment: Segment | None, keeping: Keeping, *, by_key: bool = True) -> Until:
    """segment: None, only in the WAL yet. by_key: the subject's key is the record's own."""
    policy = keeping.policy
    if policy.legal_hold:
        return Until(None, HELD)
    time, rules = None, []
    if policy.max_age_ms is not None:
        age = timedelta(milliseconds=policy.max_age_ms)
        newest = _newest(log, segment)
        if newest is not None:
            time = newest + age
            is_open = segment is None or not segment.sealed
            earliest = ", or later if more is written to its segment" if is_open else ""
            rules.append(f"until {moment(time)} UTC (max_age {format_time(age)}{earliest})")
    if policy.drops_settled and log.cursor is not None:
        rules.append("until every message of its segment is settled")
    if policy.max_size is not None:
        rules.append(f"until the log outgrows max_size {size(policy.max_size)}")
    if keeping.compacted:
        rules.append(_compacted(keeping.tombstones_stay, by_key))
    if not rules:
        return Until(None, FOREVER)
    sooner = ", whichever comes first" if len(rules) > 1 else ""
    return Until(time, f"kept {' or '.join(rules)}{sooner}")


def _newest(log: Log, segment: Segment | None) -> datetime | None:
    """Segments go in order: those before it have to be old enough, too. None: one of them has a
    record without a time, and so no age."""
    known = [
        each.max_timestamp
        for each in log.segments
        if not each.missing and (segment is None or each.base_offset <= segment.base_offset)
    ]
    if segment is None:
        known += [each.max_timestamp for each in log.wal]
    if not known or min(known) < 0:
        return None
    return datetime.fromtimestamp(max(known) / 1000, UTC)


def _compacted(stay: timedelta, by_key: bool) -> str:
    whose = "this key" if by_key else "the record's own key, which isn't the subject's,"
    return (
        "until a newer record with the same key replaces it (compaction): a tombstone, a record "
        f"with {whose} and no value, removes it once both their segments are closed and compacted, "
        f"and goes itself {format_time(stay)} later"
    )
