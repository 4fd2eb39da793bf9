"""A bit of what no checksum covers: a batch's base offset, length, leader epoch, magic.

Each bit of each of these, in the first, a middle and the last batch of the first and the last
segment, before a start and under a running store, for each way to read. It costs at most the batch
that it hits, which is told; nobody is given a record under another offset; the file stays.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ottermq.wal import Log, LogFlags, Report, ReportKind, Store
from ottermq.wal.compaction import Codecs, Compaction
from ottermq.wal.errors import NotResident, Unreadable
from ottermq.wal.file_window import MemoryRanges, Window
from ottermq.wal.repair import repair
from ottermq.wal.segmentfile import Placed, batches
from ottermq.wal.verify import verify
from tests.examples import shortened
from tests.wal.stores import flush, numbered, put, small

OPTIONS = small(segment_size=8_000)
FIELDS = {"base offset": (0, 8), "length": (8, 12), "leader epoch": (12, 16), "magic": (16, 17)}
BITS = 17 * 8
LOSSES = (ReportKind.CORRUPT, ReportKind.UNREADABLE)


def ones(store: Store, log: Log) -> None:
    """A batch a record: every sixth has an index entry."""
    for number in range(30):
        put(store, log, numbered(1, number, size=700))


def runs(store: Store, log: Log) -> None:
    for number in range(0, 60, 3):
        put(store, log, numbered(3, number, size=321))


def settled(store: Store, log: Log) -> None:
    """What was settled in time was never written: there are gaps."""
    for number in range(0, 90, 3):
        put(store, log, numbered(3, number, size=700))
        if number % 4:
            store.wait(log.settle(log.cursor().floor, number + 2)[1])
        else:
            flush(store)


def compacted(store: Store, log: Log) -> None:
    """Every third record is gone, or two batches in a row."""
    for number in range(60):
        key = b"same" if number % 3 == 0 or number % 10 < 2 else b"%d" % number
        [record] = numbered(1, number, size=700)
        put(store, log, [replace(record, key=key)])
    flush(store)
    codecs = Codecs(lambda codec, data: None, lambda codec, data: data)
    compaction = Compaction(log, now_ms=0, delete_retention_ms=1 << 40, codecs=codecs)
    assert compaction.run(0, 60).dropped > 10
    flush(store)


QUEUE, STREAM = LogFlags(0), LogFlags.NO_CURSOR
Fill = Callable[[Store, Log], None]
CASES: list[tuple[LogFlags, Fill]] = [
    (QUEUE, ones),
    (QUEUE, runs),
    (QUEUE, settled),
    (STREAM, ones),
    (STREAM, runs),
    (STREAM, compacted),
]
one_of_so_many = pytest.mark.parametrize("stride", shortened([67, 23], 1))
cases = pytest.mark.parametrize(
    ("flags", "fill"),
    CASES,
    ids=[f"{fill.__name__} of a {'stream' if flags else 'queue'}" for flags, fill in CASES],
)


@dataclass(frozen=True)
class Flaw:
    path: Path
    batch: Placed
    bit: int
    room: range  # for its offsets, between its neighbours
    is_last: bool  # of its file
    near: frozenset[int]  # the offsets of its neighbours in the file

    @property
    def may_cost(self) -> set[int]:
        """Next to a gap it may be open which of two neighbours is wrong: neither is believed."""
        has_gap = self.field == "base offset" and len(self.room) > len(self.hit)
        return self.hit | self.near if has_gap else self.hit

    @property
    def still_fits(self) -> bool:
        """It lies in another place of a gap: nothing tells."""
        if self.field != "base offset":
            return False
        base = self.batch.base_offset ^ 1 << 63 - self.bit
        return base in self.room and base + len(self.hit) - 1 in self.room

    @property
    def hit(self) -> set[int]:
        return set(range(self.batch.base_offset, self.batch.last_offset + 1))

    def put(self, data: Path) -> None:
        with (data / self.path).open("r+b") as file:
            file.seek(self.batch.position + self.bit // 8)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 0x80 >> self.bit % 8]))

    def is_kept(self, data: Path) -> bool:
        path = data / self.path
        return path.exists() or any(path.parent.glob(f"{path.name}.corrupt-*"))

    @property
    def field(self) -> str:
        at = self.bit // 8
        return next(name for name, (start, end) in FIELDS.items() if start <= at < end)

    def __str__(self) -> str:
        return (
            f"bit {self.bit} ({self.field}) of batch {self.batch.base_offset} in {self.path.name}"
        )


def placed(path: Path) -> list[Placed]:
    with Window(path) as window:
        return [each for each in batches(window) if isinstance(each, Placed)]


def flaws(data: Path, stride: int) -> Iterator[Flaw]:
    files = sorted(data.glob("vhosts/*/queues/*/*.log"))
    assert len(files) >= 3
    every: list[Flaw] = []
    for path in (files[0], files[-1]):
        there = placed(path)
        for index in (0, len(there) // 2, len(there) - 1):
            first = there[index - 1].last_offset + 1 if index else int(path.stem)
            end = there[-1].last_offset + 1
            if index + 1 < len(there):
                end = there[index + 1].base_offset
            room = range(first, end)
            is_last = index + 1 == len(there)
            near = frozenset(
                offset
                for each in (*there[max(index - 1, 0) : index], *there[index + 1 : index + 2])
                for offset in range(each.base_offset, each.last_offset + 1)
            )
            of = (path.relative_to(data), there[index])
            every += [Flaw(*of, bit, room, is_last, near) for bit in range(BITS)]
    yield from (flaw for flaw in every[::stride] if not flaw.still_fits)


# -- ways to read: what came, and what was refused


Found = tuple[list[int], set[int]]


def right(value: bytes | None, offset: int) -> int:
    assert value is not None
    assert int(value.split(b".")[0] or b"-1") == offset, f"{value[:8]!r} is given as {offset}"
    return offset


def walk(log: Log, end: int, most: int) -> Found:
    found: list[int] = []
    refused: set[int] = set()
    at = log.stat().start_offset
    while at < end:
        try:
            some = log.read(at, max_bytes=most)
        except Unreadable as error:
            assert error.next_offset > at
            refused |= set(range(at, error.next_offset))
            at = error.next_offset
            continue
        if not some:
            break
        for batch in some:
            found += [right(record.value, record.offset) for record in batch.records()]
        at = some[-1].last_offset + 1
    return found, refused


def one_by_one(log: Log, end: int) -> Found:
    return walk(log, end, 1)


def many_at_once(log: Log, end: int) -> Found:
    return walk(log, end, 1 << 20)


def each_alone(log: Log, end: int) -> Found:
    """Backwards, so that none is read because another was."""
    found: list[int] = []
    refused: set[int] = set()
    for offset in reversed(range(end)):
        try:
            some = log.read(offset, max_bytes=1)
        except Unreadable as error:
            assert error.next_offset > offset
            refused.add(offset)
            continue
        for batch in some[:1]:
            offsets = [right(record.value, record.offset) for record in batch.records()]
            found += [offset] if offset in offsets else []
    return found[::-1], refused


def by_file(log: Log, end: int) -> Found:
    """As Kafka's Fetch sends it: a range of the file, whose checksums nobody looks at here."""
    found: list[int] = []
    refused: set[int] = set()
    at = log.stat().start_offset
    while at < end:
        try:
            with log.file_range(at, max_bytes=2000) as there:
                if there is None:
                    break
                raw = os.pread(there.fd, there.length, there.position)
                at = there.next_offset
        except Unreadable:
            with pytest.raises(Unreadable) as told:
                log.read(at)
            assert told.value.next_offset > at
            refused |= set(range(at, told.value.next_offset))
            at = told.value.next_offset
            continue
        for batch in batches(MemoryRanges(raw)):
            assert isinstance(batch, Placed) and batch.problem is None, batch
            found += range(batch.base_offset, batch.last_offset + 1)
    return found, refused


WAYS = [one_by_one, many_at_once, each_alone, by_file]


# -- the tests


def offsets_in(data: Path) -> set[int]:
    """Of all records, as files that are right have them."""
    return {
        offset
        for path in data.glob("vhosts/*/queues/*/*.log")
        for batch in placed(path)
        for offset in range(batch.base_offset, batch.last_offset + 1)
        if batch.records
    }


def check(data: Path, flaw: Flaw, is_running: bool, read: Callable[[Log, int], Found]) -> None:
    there = offsets_in(data)
    if not is_running:
        flaw.put(data)
    with Store.open(data, OPTIONS) as store:
        log = store.get("q")
        if is_running:
            flaw.put(data)
        end = log.stat().next_offset
        found, refused = read(log, end)
        told = {
            offset
            for report in store.reports()
            if report.kind in LOSSES
            for offset in range(report.first_offset, report.last_offset + 1)
        }
        assert put(store, log, numbered(1, end)) == end
    missing = there - set(found)
    assert len(found) == len(set(found))
    assert missing <= told and told & there <= flaw.may_cost, (missing, told)
    assert refused & there <= told
    assert flaw.field != "leader epoch" or not missing
    assert flaw.is_kept(data)


def check_all(data: Path, stride: int) -> None:
    for is_running in (False, True):
        when = "under a running store" if is_running else "before a start"
        for read in WAYS:
            for flaw in flaws(data, stride):
                with harmed(data, flaw, f"{when}, read {read.__name__}") as copy:
                    check(copy, flaw, is_running, read)


def prepare(place: Path, fill: Fill, flags: LogFlags) -> Path:
    with Store.open(place / "data", OPTIONS) as store:
        log = store.create("q", flags=flags)
        fill(store, log)
        flush(store)
    return place / "data"


@contextmanager
def harmed(data: Path, flaw: Flaw, what: str) -> Iterator[Path]:
    copy = data.with_name("harmed")
    shutil.copytree(data, copy)
    try:
        yield copy
    except Exception as error:
        error.add_note(f"{flaw}, {what}")
        raise
    shutil.rmtree(copy)


@one_of_so_many
@cases
def test_a_bit_without_a_checksum(tmp_path: Path, flags: LogFlags, fill: Fill, stride: int) -> None:
    check_all(prepare(tmp_path, fill, flags), stride)


@pytest.mark.soak
@cases
def test_every_bit_without_a_checksum(tmp_path: Path, flags: LogFlags, fill: Fill) -> None:
    check_all(prepare(tmp_path, fill, flags), 1)


def test_who_asks_again_while_it_is_looked_into_makes_nothing_worse(tmp_path: Path) -> None:
    """The engine's reads don't wait: each tick asks, until the survey is done. The first of two
    batches that contradict each other isn't the wrong one here."""
    data = prepare(tmp_path, ones, STREAM)
    path = sorted(data.glob("vhosts/*/queues/*/*.log"))[-1]
    there = placed(path)
    flaw = Flaw(path, there[5], 60, range(0), False, frozenset())  # eight offsets up, or down
    with Store.open(data, OPTIONS) as store:
        log = store.get("q")
        flaw.put(data)
        for _ in range(200):
            with suppress(NotResident):
                log.read(there[4].base_offset, max_bytes=1, nowait=True)
        _, refused = one_by_one(log, log.stat().next_offset)
        assert refused == flaw.hit
        told: list[Report] = []
        while not told:  # after the refusal, and before long
            told += store.reports()
        assert len(told) == 1


# -- tools


def check_tools(data: Path, flaw: Flaw) -> None:
    before, there = verify(data), offsets_in(data)
    assert not before.problems
    flaw.put(data)
    seen = verify(data)
    if flaw.field == "leader epoch" and flaw.is_last and not seen.problems:
        return  # nothing stands behind it that tells
    places = {(each.path, each.position) for each in seen.findings if each.is_problem}
    assert places == {(flaw.path, flaw.batch.position)}, list(seen.findings)
    assert seen.logs[0].records == before.logs[0].records - flaw.batch.records
    cuts = [cut for each in repair(data) for cut in each.cuts]
    if flaw.field == "leader epoch":
        assert not cuts
        return
    [cut] = cuts
    assert (cut.position, cut.end) == (flaw.batch.position, flaw.batch.position + flaw.batch.size)
    assert set(range(cut.first_offset, cut.last_offset + 1)) & there == flaw.hit & there
    assert not verify(data).problems
    assert flaw.is_kept(data)
    with Store.open(data, OPTIONS) as store:
        log = store.get("q")
        end = log.stat().next_offset
        found, refused = one_by_one(log, end)
        assert there - set(found) == flaw.hit & there and not refused
        assert store.reports() == []


def check_all_tools(data: Path, stride: int) -> None:
    for flaw in flaws(data, stride):
        if flaw.may_cost != flaw.hit:
            continue
        with harmed(data, flaw, "verified and repaired") as copy:
            check_tools(copy, flaw)


@one_of_so_many
@cases
def test_verify_names_it_and_repair_cuts_it_out(
    tmp_path: Path, flags: LogFlags, fill: Fill, stride: int
) -> None:
    check_all_tools(prepare(tmp_path, fill, flags), stride)


@pytest.mark.soak
@cases
def test_verify_names_every_one_and_repair_cuts_it_out(
    tmp_path: Path, flags: LogFlags, fill: Fill
) -> None:
    check_all_tools(prepare(tmp_path, fill, flags), 1)
