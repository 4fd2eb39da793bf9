"""What a store has promised by its crash journal, and whether one that came back keeps it.

    promises = Promises()
    promises.read(state.markers)
    promises.hold(folder, OPTIONS)

Kept must be, after any crash:

- a record that was confirmed is there, at its offset, with its content, in order; unless it may
  have been settled, purged, trimmed, truncated or deleted since
- no record is there that was never appended, was refused, or stands at another's offset
- of what was written as one, all is there or nothing
- what was durably settled, purged, trimmed, truncated or deleted stays so
- an offset that was confirmed or shown is never given again; nor is a log's id
- nothing is reported as damage: a power loss is none

and the store that came back does its work, and comes back from a clean stop as it was.
"""

import functools
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottermq.wal import Log, Options, Record, ReportKind, Store
from ottermq.wal.errors import InvalidArgument
from tests.faults.powerloss import CrashState
from tests.wal.crash_journal import content, when_there_is_room

LAST = 1 << 40  # records numbered from here on are our own
DAMAGE = {ReportKind.CORRUPT, ReportKind.WAL_HOLE, ReportKind.UNREADABLE}


class Broken(AssertionError):
    """A promise wasn't kept."""


def demand(kept: bool, why: str) -> None:
    if not kept:
        raise Broken(why)


@dataclass
class Purge:
    end: int
    spared: frozenset[int]

    def takes(self, offset: int) -> bool:
        return offset < self.end and offset not in self.spared


@dataclass
class LogPromises:
    id: int
    name: str
    kind: str
    #: Every record that may be there: number -> (offset, size).
    possible: dict[int, tuple[int, int]] = field(default_factory=dict)
    confirmed: set[int] = field(default_factory=set)
    #: Offsets, and what was done to them: surely, or maybe.
    settled: set[int] = field(default_factory=set)
    maybe_settled: set[int] = field(default_factory=set)
    purges: list[Purge] = field(default_factory=list)
    maybe_purges: list[Purge] = field(default_factory=list)
    start: int = 0
    maybe_start: int = 0
    maybe_end: int | None = None  # a truncate under way
    taken: set[int] = field(default_factory=set)
    last_seen: int = -1
    deleted: bool = False
    maybe_deleted: bool = False

    @property
    def has_cursor(self) -> bool:
        return self.kind != "stream"

    @property
    def never_again(self) -> int:
        """The last offset that was seen; what a truncate under way cuts off may be given again."""
        return self.last_seen if self.maybe_end is None else min(self.last_seen, self.maybe_end - 1)

    def see(self, offset: int) -> None:
        self.last_seen = max(self.last_seen, offset)

    def must_be_there(self) -> dict[int, int]:
        """Confirmed and neither trimmed nor truncated: offset -> number."""
        return {
            self.possible[n][0]: n
            for n in self.confirmed
            if self.possible[n][0] >= self.maybe_start
            and (self.maybe_end is None or self.possible[n][0] < self.maybe_end)
        }

    def may_be_settled(self, offset: int) -> bool:
        return offset in self.maybe_settled or any(p.takes(offset) for p in self.maybe_purges)

    def must_be_settled(self, offset: int) -> bool:
        if self.maybe_end is not None and offset >= self.maybe_end:
            return False  # whatever stands there may be new
        return (
            offset < self.start
            or offset in self.settled
            or any(purge.takes(offset) for purge in self.purges)
        )

    def truncate(self, offset: int) -> None:
        """Nothing at or past it was ever there; its offsets may be given again."""
        self.possible = {n: place for n, place in self.possible.items() if place[0] < offset}
        self.confirmed &= self.possible.keys()
        for offsets in (self.settled, self.maybe_settled, self.taken):
            offsets -= {at for at in offsets if at >= offset}
        for purge in self.purges + self.maybe_purges:
            purge.end = min(purge.end, offset)
        self.last_seen = min(self.last_seen, offset - 1)
        self.maybe_end = None


@dataclass
class Whole:
    """Written as one: (log id, number, offset) of its records, (log id, offset) of its settles."""

    records: list[tuple[int, int, int]]
    settles: list[tuple[int, int]]


class Promises:
    def __init__(self) -> None:
        self.logs: dict[int, LogPromises] = {}
        self.under_way: dict[int, Whole] = {}
        self.refused: dict[int, set[int]] = {}  # log id -> numbers
        self._read = 0

    # -- reading the marks

    def read(self, markers: Sequence[bytes]) -> None:
        """All marks so far; those that were read before are passed over."""
        for marker in markers[self._read :]:
            kind, *words = json.loads(marker)
            getattr(self, f"_read_{kind}")(*words)
        self._read = len(markers)

    def _read_create(self, id: int, name: str, kind: str) -> None:
        demand(id not in self.logs, f"log id {id} was given twice")
        self.logs[id] = LogPromises(id, name, kind)

    def _read_found(self, id: int, name: str, kind: str, numbers: list[int]) -> None:
        """A later life has begun: what it didn't find is gone for good. What a queue has settled
        may be left out of the files, and still be in the WAL."""
        log = self.logs.setdefault(id, LogPromises(id, name, kind))
        there = set(numbers)
        strange = there - log.possible.keys()
        demand(not strange, f"{name} came back with what was never appended: {strange}")
        log.possible = {
            n: place
            for n, place in log.possible.items()
            if n in there or (kind == "queue" and log.may_be_settled(place[0]))
        }
        log.confirmed &= log.possible.keys()
        self.under_way.clear()

    def _read_seen(self, id: int, offset: int) -> None:
        self.logs[id].see(offset)

    def _read_refused(self, key: int) -> None:
        whole = self.under_way.pop(key)
        for id, n, _ in whole.records:
            del self.logs[id].possible[n]
            self.refused.setdefault(id, set()).add(n)
        for id, offset in whole.settles:
            self.logs[id].maybe_settled.discard(offset)

    def _read_will(self, words: list[list[Any]]) -> None:
        for what, *rest in words:
            getattr(self, f"_will_{what}")(*rest)

    def _read_did(self, words: list[list[Any]]) -> None:
        for what, *rest in words:
            getattr(self, f"_did_{what}")(*rest)

    def _will_loose(self, id: int, first: int, numbered: list[list[int]]) -> None:
        for offset, (n, size) in enumerate(numbered, first):
            self.logs[id].possible[n] = (offset, size)

    def _will_append(self, key: int, parts: list[Any], settles: list[list[int]]) -> None:
        whole = self.under_way[key] = Whole([], [(id, offset) for id, offset in settles])
        for id, first, numbered in parts:
            self._will_loose(id, first, numbered)
            whole.records += [(id, n, first + i) for i, (n, _) in enumerate(numbered)]
        for id, offset in settles:
            self.logs[id].maybe_settled.add(offset)

    def _did_append(self, key: int, parts: list[Any], settles: list[list[int]]) -> None:
        whole = self.under_way.pop(key)
        for id, n, offset in whole.records:
            log = self.logs[id]
            if n in log.possible:  # not truncated meanwhile
                log.confirmed.add(n)
                log.see(offset)
        for id, offset in settles:
            self.logs[id].settled.add(offset)

    def _will_settle(self, id: int, offsets: list[int]) -> None:
        self.logs[id].maybe_settled.update(offsets)

    def _did_settle(self, id: int, offsets: list[int]) -> None:
        self.logs[id].settled.update(offsets)

    def _did_take(self, id: int, offsets: list[int]) -> None:
        self.logs[id].taken.update(offsets)

    def _will_purge(self, id: int, end: int, spared: list[int]) -> None:
        self.logs[id].maybe_purges.append(Purge(end, frozenset(spared)))

    def _did_purge(self, id: int, end: int, spared: list[int]) -> None:
        self.logs[id].purges.append(Purge(end, frozenset(spared)))

    def _will_trim(self, id: int, offset: int) -> None:
        self.logs[id].maybe_start = max(self.logs[id].maybe_start, offset)

    def _did_trim(self, id: int, offset: int) -> None:
        self.logs[id].start = max(self.logs[id].start, offset)

    def _will_truncate(self, id: int, offset: int) -> None:
        self.logs[id].maybe_end = offset

    def _did_truncate(self, id: int, offset: int) -> None:
        self.logs[id].truncate(offset)

    def _will_delete(self, id: int) -> None:
        self.logs[id].maybe_deleted = True

    def _did_delete(self, id: int) -> None:
        self.logs[id].deleted = True

    # -- holding a store to them

    def hold(self, folder: Path, options: Options) -> None:
        with Store.open(folder, options) as store:
            found = self.check(store)
            carry_on(store, found)
        with Store.open(folder, options) as store:
            check_reports(store)
            for log in store:
                Found(log, self.logs.get(log.id)).compare(found[log.id])

    def check(self, store: Store) -> dict[int, "Found"]:
        check_reports(store)
        found = {log.id: Found(log, self.logs.get(log.id)) for log in store}
        for id, log in self.logs.items():
            demand(not (log.deleted and id in found), f"{log.name} was deleted and is back")
            demand(log.maybe_deleted or id in found, f"{log.name} is gone")
        for id in found:
            demand(id in self.logs or id > max(self.logs, default=0), f"nobody made log {id}")
        for id, refused in self.refused.items():
            if id in found:
                back = refused & found[id].numbers.keys()
                demand(not back, f"refused and back in {found[id].log.name}: {sorted(back)}")
        for one in found.values():
            one.check()
        for whole in self.under_way.values():
            check_whole(whole, found)
        return found


def check_reports(store: Store) -> None:
    for report in store.reports():
        demand(report.kind not in DAMAGE, f"reported as damage: {report}")


class Found:
    """What a log turned out to hold. All that is ready is taken on the way."""

    def __init__(self, log: Log, promised: LogPromises | None) -> None:
        self.log = log
        self.promised = promised or LogPromises(log.id, log.name, kind_of(log))
        self.stat = log.stat()
        self.records = {record.offset: record for record in read_all(log)}
        self.numbers: dict[int, int] = {}
        for offset, record in self.records.items():
            number = int((record.value or b"?").split(b" ", 1)[0])
            demand(number not in self.numbers, f"{log.name}: record {number} is there twice")
            self.numbers[number] = offset
        self.ready: set[int] = set()
        if self.promised.has_cursor:
            flying = log.cursor().unacked_count
            demand(flying == 0, f"{log.name}: {flying} are in flight after a start")
            self.ready = set(log.acquire(log.cursor().ready_count))

    def fail(self, why: str, offsets: Iterable[int]) -> None:
        shown = sorted(offsets)
        if shown:
            raise Broken(f"{self.log.name}: {why}: {shown[:10]} of {len(shown)}; {self.stat}")

    def can_tell(self, offset: int) -> bool:
        """Whether it was settled: one that nobody was promised may have vanished instead."""
        if offset < self.stat.start_offset:
            return False
        return offset in self.records or offset in self.promised.must_be_there()

    def check(self) -> None:
        self.check_content()
        self.check_promised()
        if self.promised.has_cursor:
            self.check_cursor()

    def compare(self, before: "Found") -> None:
        """Nothing has changed since then; settled records may be gone, where none are kept."""
        name = self.log.name
        demand(self.ready == before.ready, f"{name}: others are ready after a clean stop")
        there, was = (
            {
                n
                for n, at in found.numbers.items()
                if found.promised.kind != "queue" or at in self.ready
            }
            for found in (self, before)
        )
        demand(there == was, f"{name}: other records after a clean stop")

    def check_content(self) -> None:
        """Nothing that was never appended, nothing at a wrong place, in order."""
        for number, offset in self.numbers.items():
            place = self.promised.possible.get(number)
            demand(place is not None, f"{self.log.name}: record {number} was never appended")
            assert place is not None
            demand(place[0] == offset, f"{self.log.name}: {number} is at {offset}, not {place[0]}")
            right = content(number, place[1])
            demand(self.records[offset].value == right, f"{self.log.name}: {offset} is damaged")
        in_order = sorted(self.numbers, key=self.numbers.__getitem__)
        demand(in_order == sorted(self.numbers), f"{self.log.name} is out of order")

    def check_promised(self) -> None:
        promised = self.promised
        must = promised.must_be_there()
        if promised.kind == "queue":
            must = {at: n for at, n in must.items() if not promised.may_be_settled(at)}
        self.fail("confirmed and lost", must.keys() - self.records.keys())
        demand(self.stat.start_offset >= promised.start, f"{self.log.name}: trimmed and back")
        demand(
            self.stat.next_offset > promised.never_again,
            f"{self.log.name}: offset {promised.never_again} was seen, next is {self.stat}",
        )

    def check_cursor(self) -> None:
        promised = self.promised
        self.fail("settled and back", filter(promised.must_be_settled, self.ready))
        must = {at for at in promised.must_be_there() if not promised.may_be_settled(at)}
        self.fail("confirmed and not ready", must - self.ready)
        self.fail("ready and not there", self.ready - self.records.keys())
        twice = {at for at in promised.taken & self.ready if self.log.counts(at)[0] < 2}
        self.fail("given out before and not told", twice)


def kind_of(log: Log) -> str:
    """Of one that was made and not yet told of."""
    try:
        log.cursor()
    except InvalidArgument:
        return "stream"
    return "queue"


def read_all(log: Log) -> Iterable[Record]:
    """From the start, epochs never going back."""
    at, epoch = log.stat().start_offset, 0
    first = at
    while batches := log.read(at):
        for batch in batches:
            why = f"{log.name}: an older epoch at {batch.base_offset}"
            demand(batch.leader_epoch >= epoch, why)
            epoch = batch.leader_epoch
            yield from (record for record in batch.records() if record.offset >= first)
            at = batch.last_offset + 1


def check_whole(whole: Whole, found: dict[int, Found]) -> None:
    """All or nothing, as far as it can still be told."""
    seen = {
        number in found[id].numbers
        for id, number, offset in whole.records
        if id in found and offset >= found[id].stat.start_offset
    }
    seen |= {
        offset not in found[id].ready
        for id, offset in whole.settles
        if id in found and found[id].can_tell(offset)
    }
    demand(len(seen) < 2, f"half of it is there: {whole}")


def hold_all(
    states: Iterable[CrashState], folder: Path, options: Options, before: Sequence[bytes] = ()
) -> None:
    """Every state keeps what was promised by then, and what was promised `before` it all."""
    promises = Promises()
    promises.read(before)
    for state in states:
        target = folder / "disk"
        state.materialise(target)
        promises.read([*before, *state.markers])
        try:
            promises.hold(target, options)
        except Exception as error:
            raise Broken(f"{error}\nafter a {state}") from error
        shutil.rmtree(target)


def carry_on(store: Store, found: dict[int, Found]) -> None:
    """An append to each log, durable and readable, at an offset of its own."""
    last = 0
    for id, one in found.items():
        one.stat = one.log.stat()
        last_words = [Record(b"%d after the crash" % (LAST + id))]
        done = when_there_is_room(store, functools.partial(one.log.append, last_words))
        end = one.stat.next_offset
        demand(done.first_offset == end, f"{one.log.name} goes on at {done}, not {end}")
        one.numbers[LAST + id] = end
        one.ready |= {end} if one.promised.has_cursor else set()
        last = max(last, done.seq)
    store.wait(last)
    for id, one in found.items():
        [record] = [r for b in one.log.read(one.numbers[LAST + id]) for r in b.records()]
        demand(record.value == b"%d after the crash" % (LAST + id), f"{one.log.name}: {record}")
