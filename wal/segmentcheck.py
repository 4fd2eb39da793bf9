"""Is one segment right? Its batches, its indexes, and its entries in manifest and checkpoint."""

from dataclasses import dataclass
from typing import NamedTuple

from ottermq.wal.checkpoint import Saved
from ottermq.wal.file_window import Ranges
from ottermq.wal.manifest import Sealed
from ottermq.wal.segmentfile import NO_LIMIT, Gap, Walk

MOST_A_FILE = 5  # flaws; more of the same help nobody


@dataclass(frozen=True, slots=True)
class Flaw:
    what: str
    position: int | None
    is_problem: bool  # not: the next start mends it
    suffix: str  # of the file that has it
    offsets: tuple[int, int] | None = (
        None  # that can't be read for it: first, and one past the last
    )


class Trusted(NamedTuple):
    """Up to this position the file must be right, and all offsets lie below that one; what comes
    after may be torn."""

    size: int
    next_offset: int


def trusted_part(base: int, sealed: Sealed | None, saved: Saved | None) -> Trusted | None:
    """None: all of it."""
    if sealed:
        return Trusted(sealed.size, sealed.next_offset)
    if saved is None or base > saved.recovery_segment:
        return Trusted(0, base)
    if base == saved.recovery_segment:
        return Trusted(saved.recovery_position, saved.recovery_point)
    return None


class SegmentCheck:
    def __init__(self, base: int, sealed: Sealed | None, trusted: Trusted | None) -> None:
        self.base = base
        self.sealed = sealed
        self.trusted, self.limit = trusted or (0, NO_LIMIT)
        self.trust_all = trusted is None
        self.flaws: list[Flaw] = []
        self.size = self.batches = self.records = 0
        self.next_offset = base
        self.gaps: list[Gap] = []
        self.left_out = 0
        self.epochs = (0, 0)

    def add(
        self,
        what: str,
        position: int | None = None,
        is_problem: bool = True,
        suffix: str = ".log",
        offsets: tuple[int, int] | None = None,
    ) -> None:
        self.flaws.append(Flaw(what, position, is_problem, suffix, offsets))

    def run(self, window: Ranges, offsets: bytes, times: bytes) -> None:
        """offsets, times: its indexes."""
        if self.trust_all:
            self.trusted = window.size
        walk = Walk(window, self.base, offsets, times)
        walk.to(self.trusted, self.limit)
        if walk.position != self.trusted <= window.size and not walk.damages:
            self.add("no batch starts at the recovery point", self.trusted)
        walk.to()
        self._take(walk, window.size)
        self._check_indexes(walk, offsets, times)

    def _take(self, walk: Walk, size: int) -> None:
        self.size, self.batches, self.records = size, walk.batches, walk.records
        self.next_offset, self.epochs = walk.next_offset, walk.epochs
        self.left_out = walk.left_out
        damaged = {damage.offset for damage in walk.damages}
        ends = {gap.first: gap.end for gap in walk.gaps}
        self.gaps = [gap for gap in walk.gaps if gap.first not in damaged]
        for damage in walk.damages[:MOST_A_FILE]:
            is_problem = damage.position < self.trusted or not damage.torn
            after = "" if is_problem else "; after the recovery point: mended at the next start"
            what = f"{damage.size} bytes: {damage.what}{after}"
            offsets = (damage.offset, ends.get(damage.offset, damage.offset))
            self.add(what, damage.position, is_problem, offsets=offsets)
        if len(walk.damages) > MOST_A_FILE:
            self.add(f"and {len(walk.damages) - MOST_A_FILE} more damaged places")
        if size < self.trusted:
            self.add(f"{size} bytes, {self.trusted} should be there")
        elif self.sealed and not walk.damages:
            self._compare(walk, self.sealed)

    def _compare(self, walk: Walk, sealed: Sealed) -> None:
        found = {
            "next offset": (walk.next_offset, sealed.next_offset),
            "size": (walk.position, sealed.size),
            "first timestamp": (walk.first_timestamp, sealed.first_timestamp),
            "largest timestamp": (walk.max_timestamp, sealed.max_timestamp),
        }
        for what, (here, said) in found.items():
            if here != said:
                self.add(f"its {what} is {here}, the manifest says {said}")

    def _check_indexes(self, walk: Walk, offsets: bytes, times: bytes) -> None:
        if walk.damages:
            return  # entries that point into damage are not the index's fault
        # After the recovery point an index may be of another life: it is made anew.
        is_problem = bool(self.sealed)
        for suffix, size, raw, entry in zip(
            (".index", ".timeindex"), (8, 12), (offsets, times), walk.wrong_entries(), strict=True
        ):
            if entry is not None:
                self.add(f"wrong from entry {entry} on", entry * size, is_problem, suffix)
            elif len(raw) % size:
                self.add("part of an entry at its end", len(raw), is_problem, suffix)
