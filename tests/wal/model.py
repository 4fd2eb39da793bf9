"""What a store should hold, in plain Python: the model that test_model.py holds it against.

A step makes a new Model; the old ones of a life that wasn't confirmed yet are kept, because a
crash may go back to any of them. The WAL is one sequence for all logs, so what comes back after a
crash is *one* state that the store was in: no earlier than the last one that was confirmed, and
the same for all logs. Only unlogged records are outside of that: each may be there or not; and
that a record was given out, which is known in any case.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tests.wal.remote_store import Seen, Spec, content


@dataclass(frozen=True)
class Entry:
    """A record, and how a queue's cursor sees it."""

    spec: Spec
    logged: bool
    settled: bool = False
    in_flight: bool = False
    acquired: int = 0
    delivered: int = 0


Entries = dict[int, Entry]
Found = dict[int, tuple[bytes | None, bytes | None, int]]  # offset: key, value, timestamp


@dataclass(frozen=True)
class LogModel:
    kind: str
    entries: Entries = field(default_factory=dict)
    borders: frozenset[int] = frozenset({0})  # where batches start, and the end
    start: int = 0
    next: int = 0
    epoch: int = 0

    @property
    def is_queue(self) -> bool:
        return self.kind != "stream"

    # -- steps

    def append(self, specs: Sequence[Spec], logged: bool) -> "LogModel":
        fresh = {self.next + n: Entry(spec, logged) for n, spec in enumerate(specs)}
        end = self.next + len(specs)
        return replace(
            self, entries=self.entries | fresh, next=end, borders=self.borders | {self.next, end}
        )

    def _changed(self, offsets: Iterable[int], **changes: object) -> "LogModel":
        changed = {offset: replace(self.entries[offset], **changes) for offset in offsets}  # type: ignore[arg-type]
        return replace(self, entries=self.entries | changed)

    def ready(self) -> list[int]:
        """In the order in which they would be given out."""
        there = [o for o, e in self.entries.items() if not e.settled and not e.in_flight]
        return sorted(there, key=lambda o: (self.entries[o].acquired == 0, o))

    def in_flight(self) -> list[int]:
        return sorted(o for o, e in self.entries.items() if e.in_flight and not e.settled)

    def unsettled(self) -> list[int]:
        return sorted(o for o, e in self.entries.items() if not e.settled)

    def acquire(self, offsets: Sequence[int]) -> "LogModel":
        model = self
        for offset in offsets:
            acquired = self.entries[offset].acquired + 1
            model = model._changed([offset], in_flight=True, acquired=acquired)
        return model

    def next_fresh(self) -> int:
        """What would be given out for the first time, next; or where it would be appended."""
        fresh = (o for o, e in self.entries.items() if not e.settled and not e.acquired)
        return min(fresh, default=self.next)

    def give_back(self, offset: int, counted: bool) -> "LogModel":
        delivered = self.entries[offset].delivered + counted
        return self._changed([offset], in_flight=False, delivered=delivered)

    def settle(self, first: int, last: int) -> "LogModel":
        there = [o for o in self.unsettled() if first <= o <= last]
        return self._changed(there, settled=True, in_flight=False)

    def purge(self) -> "LogModel":
        return self._changed(self.ready(), settled=True)

    def trim(self, offset: int) -> "LogModel":
        trimmed = self.settle(0, offset - 1) if self.is_queue else self
        return replace(trimmed, start=max(self.start, offset))

    def truncate(self, offset: int) -> "LogModel":
        left = {o: e for o, e in self.entries.items() if o < offset}
        borders = frozenset(b for b in self.borders if b <= offset)
        return replace(self, entries=left, next=offset, borders=borders, epoch=self.epoch + 1)

    # -- what must be

    def cursor(self) -> tuple[int, int, int] | None:
        if not self.is_queue:
            return None
        ready = self.ready()
        returned = sum(self.entries[offset].acquired > 0 for offset in ready)
        return len(ready), len(self.in_flight()), returned

    def must_be_there(self, offset: int, written: int = 0) -> bool:
        """Below `written` it is in a file, logged or not."""
        entry = self.entries[offset]
        wanted = not entry.settled or self.kind in ("kept", "stream")
        return offset >= self.start and wanted and (entry.logged or offset < written)


def fits(entry: Entry, found: tuple[bytes | None, bytes | None, int]) -> bool:
    number = entry.spec[0]
    return found == (b"k%d" % number, content(entry.spec), number)


@dataclass(frozen=True)
class Model:
    logs: dict[str, LogModel] = field(default_factory=dict)

    def with_log(self, name: str, log: LogModel) -> "Model":
        return Model(self.logs | {name: log})

    def without(self, name: str) -> "Model":
        return Model({n: log for n, log in self.logs.items() if n != name})


@dataclass(frozen=True)
class Recovered:
    """A log as it came back."""

    seen: Seen
    found: Found
    counts: dict[int, tuple[int, int]]


class Mismatch(AssertionError):
    pass


def demand(fact: bool, text: str) -> None:
    if not fact:
        raise Mismatch(text)


def told_as_given_out(entries: Entries, last: LogModel, handed: int, came: Recovered) -> Entries:
    """A kill loses what the WAL was to be told, but not the mark of how far was given out. Below
    it, what isn't settled counts as given out once: what was, for certain; what was only settled
    or truncated then, and is back or new, perhaps."""
    told = dict(entries)
    for offset, entry in entries.items():
        if entry.settled or offset not in came.counts:
            continue
        counted, _ = came.counts[offset]
        once = last.entries.get(offset)
        given_out = once is not None and once.spec == entry.spec and once.acquired > 0
        demand(counted > 0 or not given_out, f"{offset} was given out, and doesn't say so")
        if counted == 1 and not entry.acquired and offset < handed:
            told[offset] = replace(entry, acquired=1)
    return told


def after_crash(
    was: LogModel, last: LogModel, shown: int, written: int, handed: int, came: Recovered
) -> LogModel:
    """The log that came back, as one that was in the state `was`; Mismatch if it can't have been.

    last: its last state, the one that was lost, for unlogged records that came after `was`.
    shown: offsets below were shown to somebody and may not be given again.
    written: records below were in a file, logged or not.
    handed: records below were given out, or passed over.
    """
    seen = came.seen
    entries: Entries = {}
    for offset, found in came.found.items():
        entry = was.entries.get(offset)
        if entry is None:
            later = last.entries.get(offset)
            demand(later is not None and not later.logged, f"{offset} was never there")
            assert later is not None
            entry = Entry(later.spec, logged=False)
        demand(fits(entry, found), f"{offset} is {found!r:.60}, not {entry.spec}")
        entries[offset] = replace(entry, in_flight=False)
    for offset, entry in was.entries.items():
        demand(
            offset in came.found or not was.must_be_there(offset, written),
            f"{offset} {entry} is missing",
        )
    demand(seen.start == was.start, f"it starts at {seen.start}, not {was.start}")
    demand(seen.next >= was.next, f"{seen.next} would be given again: it had {was.next}")
    demand(seen.next >= shown, f"{seen.next} would be given again: {shown} were shown")
    demand(seen.epoch >= was.epoch, f"epoch {seen.epoch} after {was.epoch}")
    if was.is_queue:
        entries = told_as_given_out(entries, last, handed, came)
    # What isn't there any more counts as settled: lost without having been logged.
    borders = {b for b in was.borders | last.borders if b in entries or b - 1 in entries}
    back = replace(
        was, entries=entries, next=seen.next, epoch=seen.epoch,
        borders=frozenset(borders | {seen.next}),
    )  # fmt: skip
    if was.is_queue:
        demand(seen.cursor == back.cursor(), f"the cursor has {seen.cursor}, not {back.cursor()}")
        for offset, counted in came.counts.items():
            entry = back.entries.get(offset)
            lost = entry is None or entry.settled
            expected = (0, 0) if lost or entry is None else (entry.acquired, entry.delivered)
            demand(counted == expected, f"{offset} was counted {counted}, not {expected}")
    return back
