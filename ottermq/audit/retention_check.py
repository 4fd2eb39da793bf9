"""Segments kept too long, gone too early, or gone from under a legal hold: of one snapshot.

`ottermq audit retention` reports them once (jobs/retention.py), `ottermq audit watch` all the time.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ottermq.audit.coverage import unaccounted
from ottermq.audit.expiry import due
from ottermq.audit.findings import Finding, Severity
from ottermq.audit.outcome import Context
from ottermq.audit.policies import Policies
from ottermq.audit.report.formatting import size
from ottermq.audit.snapshot import Log, take
from ottermq.config.units import format_time
from ottermq.wal import removals
from ottermq.wal.catalog import INTERNAL_VHOST
from ottermq.wal.log import SegmentStat
from ottermq.wal.removal_reasons import RemovalReason
from ottermq.wal.removals import Removal
from ottermq.wal.retention import Policy

KIND_OF = {
    RemovalReason.MAX_AGE: "too-old",
    RemovalReason.MAX_SIZE: "too-large",
    RemovalReason.SETTLED: "settled-kept",
}
# By these something was there, and is no more.
TAKES_AWAY = frozenset((
    RemovalReason.UNKNOWN, RemovalReason.SETTLED, RemovalReason.MAX_AGE, RemovalReason.MAX_SIZE,
    RemovalReason.PURGE, RemovalReason.DELETE, RemovalReason.DELETE_RECORDS,
    RemovalReason.COMPACTION, RemovalReason.TRUNCATE, RemovalReason.ORPHAN,
))  # fmt: skip
GRACE = timedelta(seconds=60)
SLACK = timedelta(seconds=2)  # for the keeper's own work


@dataclass(frozen=True, slots=True)
class AppliedRules:
    """By which policy, and whether by compaction as well."""

    policy: Policy
    compacted: bool


@dataclass(frozen=True, slots=True)
class Due:
    """A segment that should be gone."""

    log: Log
    segment: SegmentStat
    rule: RemovalReason

    @property
    def segment_id(self) -> tuple[int, int]:
        return self.log.id, self.segment.base_offset

    @property
    def is_sudden(self) -> bool:
        """When it became settled, or one too many, nobody knows."""
        return self.rule is not RemovalReason.MAX_AGE


class RetentionCheck:
    def __init__(self, context: Context) -> None:
        self.context = context
        # The record after the snapshot: what is gone from this was written to that before.
        self.snapshot, self.history = take(context.data), removals.load(context.data)
        self.logs = [log for log in self.snapshot.logs if log.vhost != INTERNAL_VHOST]
        rules = Policies(context.data, self.logs, context.config)
        self.kept = {
            log.id: AppliedRules(rules.of(log), rules.is_compacted(log)) for log in self.logs
        }
        self.told: dict[int, list[Removal]] = {}
        for each in self.history.records:
            self.told.setdefault(each.log_id, []).append(each)
        interval = context.config.wal.retention.check_interval
        self.grace = context.options.get("grace", 2 * interval + GRACE)
        self.keepers_time = 2 * interval + SLACK

    def gone(self) -> Iterator[Finding]:
        """All but what is kept too long."""
        for problem in self.history.problems:
            yield Finding("record-damaged", Severity.VIOLATION, f"removals: {problem}")
        for log in self.logs:
            yield from self._too_short(log)
        yield from self._holds()

    # -- too long

    def too_long(self) -> Iterator[Finding]:
        found = self.overdue()
        if any(each.is_sudden for each in found) and self.snapshot.running:
            time.sleep(self.keepers_time.total_seconds())
            again = {log.id: log for log in take(self.context.data).logs}
            still = {
                each.segment_id
                for log in self.logs
                if log.id in again
                for each in self._due(again[log.id])
            }
            found = [each for each in found if each.segment_id in still]
        yield from map(self.kept_too_long, found)

    def overdue(self) -> list[Due]:
        """Of what is sudden, the keeper may just be about to let it go."""
        return [each for log in self.logs for each in self._due(log)]

    def _due(self, log: Log) -> Iterator[Due]:
        by = int((self.context.now - self.grace).timestamp() * 1000)
        for each in due(log, self.kept[log.id].policy, by):
            yield Due(log, each.segment, each.rule)

    def kept_too_long(self, found: Due) -> Finding:
        segment, newest = found.segment, found.segment.max_timestamp
        # By age it is too long whether or not a broker runs; the rest goes as soon as one does.
        certain = found.rule is RemovalReason.MAX_AGE or self.snapshot.running
        policy = self.kept[found.log.id].policy
        age, most = span(policy.max_age_ms), size(policy.max_size or 0)
        why = {
            RemovalReason.MAX_AGE: f"newest record of {when(newest)}, max_age {age}",
            RemovalReason.MAX_SIZE: f"the log is larger than max_size {most}",
            RemovalReason.SETTLED: "all of it is settled",
        }[found.rule]
        return _finding(
            KIND_OF[found.rule],
            Severity.VIOLATION if certain else Severity.WARNING,
            found.log,
            f"{size(segment.size)} should be gone: {why}",
            (segment.base_offset, segment.next_offset),
            segment=segment.base_offset,
            at=newest,
            rule=found.rule,
        )

    # -- too short

    def _too_short(self, log: Log) -> Iterator[Finding]:
        told = self.told.get(log.id, [])
        gone = "hold-broken" if self.kept[log.id].policy.legal_hold else None
        for segment in log.segments:
            if segment.missing:
                yield _finding(
                    gone or "segment-gone", Severity.VIOLATION, log,
                    "a segment is gone, and the broker hasn't removed it",
                    (segment.base_offset, segment.next_offset),
                    segment=segment.base_offset, at=segment.max_timestamp,
                )  # fmt: skip
        for missing in unaccounted(self.snapshot.home, log, told):
            yield _finding(
                gone or "no-record", Severity.VIOLATION, log,
                "offsets are gone, and no record says why", missing,
            )  # fmt: skip
        for each in told:
            found = self._judged(log, each)
            if found:
                kind, message = found
                yield _finding(
                    kind, Severity.VIOLATION, log, message, (each.first, each.next),
                    segment=each.segment, at=each.time, rule=each.rule,
                )  # fmt: skip

    def _judged(self, log: Log, each: Removal) -> tuple[str, str] | None:
        policy = self.kept[log.id].policy
        if each.rule is RemovalReason.MISSING:
            return "segment-gone", f"{when(each.time)}: a segment wasn't there at a start"
        if each.rule is RemovalReason.SET_ASIDE:
            return "lost", f"{when(each.time)}: a damaged segment was set aside"
        if reason := _not_allowed(each, policy):
            return "gone-early", f"removed {when(each.time)} by {each.rule.label}, but {reason}"
        return None

    # -- holds

    def _holds(self) -> Iterator[Finding]:
        held: set[int] = set()
        by_id = {log.id: log for log in self.snapshot.logs}
        for each in self.history.records:
            if each.rule is RemovalReason.LIFE:
                held.clear()
            elif each.rule is RemovalReason.HOLD:
                held.add(each.log_id)
            elif each.rule is RemovalReason.LIFTED:
                held.discard(each.log_id)
            elif each.log_id in held and each.rule in TAKES_AWAY:
                log = by_id.get(each.log_id)
                yield Finding(
                    "hold-broken", Severity.VIOLATION,
                    f"removed {when(each.time)} by {each.rule.label} under legal hold",
                    each.vhost, log.queue if log else each.name, log.partition if log else 0,
                    each.first, each.next - 1, each.segment if each.segment >= 0 else None,
                    moment(each.time), each.rule.label,
                )  # fmt: skip


def _not_allowed(each: Removal, policy: Policy) -> str | None:
    """Why the policy as it is now doesn't let this go; None: it does, or a hold came later."""
    if policy.legal_hold:
        return None
    if each.rule is RemovalReason.MAX_AGE:
        if policy.max_age_ms is None:
            return "there is no max_age"
        if each.max_timestamp >= 0 and each.time - each.max_timestamp < policy.max_age_ms:
            return f"its newest record was younger than {span(policy.max_age_ms)}"
    if each.rule is RemovalReason.MAX_SIZE and policy.max_size is None:
        return "there is no max_size"
    if each.rule is RemovalReason.SETTLED and not policy.drops_settled:
        return "settled messages are to be kept"
    return None


def _finding(
    kind: str,
    severity: Severity,
    log: Log,
    message: str,
    offsets: tuple[int, int],
    *,
    segment: int | None = None,
    at: int = -1,
    rule: RemovalReason | None = None,
) -> Finding:
    return Finding(
        kind=kind,
        severity=severity,
        message=message,
        vhost=log.vhost,
        queue=log.queue,
        partition=log.partition,
        first_offset=offsets[0],
        last_offset=offsets[1] - 1,
        segment=segment if segment is not None and segment >= 0 else None,
        time=moment(at),
        rule=rule.label if rule else None,
    )


def moment(ms: int) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if ms >= 0 else None


def when(ms: int) -> str:
    at = moment(ms)
    return f"{at:%Y-%m-%d %H:%M:%S}" if at else "–"


def span(ms: int | None) -> str:
    """As config.yaml has it."""
    return format_time(timedelta(milliseconds=ms)) if ms is not None else "–"
