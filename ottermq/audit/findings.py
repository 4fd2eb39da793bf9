"""The findings of a job: one shape for all jobs, so that one report and one exit code fit them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from ottermq.audit.errors import CantRun


class Severity(Enum):
    VIOLATION = "violation"  # a promise is broken: data is gone, kept against the rule, or wrong
    WARNING = "warning"  # nothing is broken yet, and somebody should look
    NOTE = "note"  # worth knowing; a crash leaves it and the next start mends it, for instance


class Kind(NamedTuple):
    """The description of a kind of findings, shown once."""

    means: str  # a sentence
    do: str  # what to do about it


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str  # one word or two-words; `--fail-on` can name it
    severity: Severity
    message: str  # one line for people
    vhost: str | None = None  # None: of the data directory, not of a queue
    queue: str | None = None
    partition: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    segment: int | None = None  # its base offset
    time: datetime | None = None  # of the data, or of what was done to it; its place on a time line
    rule: str | None = None  # which rule of the policy it breaks
    segments: tuple[int, ...] = ()  # base offsets, of a finding about several segments


@dataclass(frozen=True, slots=True)
class OfQueue:
    """The findings of one kind in one queue."""

    vhost: str | None
    queue: str | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class OfKind:
    kind: str
    severity: Severity
    queues: tuple[OfQueue, ...]

    @property
    def count(self) -> int:
        return sum(len(each.findings) for each in self.queues)


def grouped(findings: Iterable[Finding]) -> list[OfKind]:
    """By kind, the worst first, and by queue; within a queue as they were found."""
    order = list(Severity)
    kinds: dict[tuple[Severity, str], dict[tuple[str, str], list[Finding]]] = {}
    for each in findings:
        queues = kinds.setdefault((each.severity, each.kind), {})
        queues.setdefault((each.vhost or "", each.queue or ""), []).append(each)
    return [
        OfKind(
            kind,
            severity,
            tuple(
                OfQueue(some[0].vhost, some[0].queue, tuple(some))
                for _, some in sorted(queues.items())
            ),
        )
        for (severity, kind), queues in sorted(
            kinds.items(), key=lambda item: order.index(item[0][0])
        )
    ]


NEVER = "never"


class FailOn:
    """The findings that make the exit code 1: severities, kinds, a mix of them, or none at all."""

    def __init__(self, words: Iterable[str], kinds: Iterable[str]) -> None:
        self._words = {word.strip() for word in words if word.strip()}
        known = {*(severity.value for severity in Severity), NEVER, *kinds}
        if unknown := sorted(self._words - known):
            listed = ", ".join(sorted(known))
            raise CantRun(f"--fail-on doesn't know {unknown[0]!r}; it knows {listed}")

    def counts(self, finding: Finding) -> bool:
        return finding.severity.value in self._words or finding.kind in self._words
