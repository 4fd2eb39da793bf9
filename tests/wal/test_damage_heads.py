"""A bit of what no checksum covers: a batch's base offset, length, leader epoch, magic.

Each bit of each of these, in the first, a middle and the last batch of the first and the last
segment, before a start and under a running store, for each way to read. It costs at most the batch
that it hits, which is told; nobody is given a record under another offset; the file stays.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottermq.wal import Log, LogFlags, ReportKind, Store
from ottermq.wal.errors import Unreadable
from ottermq.wal.segmentfile import Placed, batches
from ottermq.wal.window import Held, Window
from tests.wal.stores import flush, numbered, put, small

OPTIONS = small(segment_size=8_000)
FIELDS = {"base offset": (0, 8), "length": (8, 12), "leader epoch": (12, 16), "magic": (16, 17)}
BITS = 17 * 8
STRIDE = 23  # one flaw of so many, outside of the soak
LOSSES = (ReportKind.CORRUPT, ReportKind.UNREADABLE)
KINDS = {"queue": LogFlags(0), "stream": LogFlags.NO_CURSOR}


def ones(store: Store, log: Log) -> None:
    """A batch a record: every sixth has an index entry."""
    for number in range(30):
        put(store, log, numbered(1, number, size=700))


def runs(store: Store, log: Log) -> None:
    for number in range(0, 60, 3):
        put(store, log, numbered(3, number, size=321))


LAYOUTS: list[Callable[[Store, Log], None]] = [ones, runs]


@dataclass(frozen=True)
class Flaw:
    path: Path
    batch: Placed
    bit: int

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
    every = [
        Flaw(path.relative_to(data), batch, bit)
        for path in (files[0], files[-1])
        for there in [placed(path)]
        for batch in (there[0], there[len(there) // 2], there[-1])
        for bit in range(BITS)
    ]
    yield from every[::stride]


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
        for batch in batches(Held(raw)):
            assert isinstance(batch, Placed) and batch.problem is None, batch
            found += range(batch.base_offset, batch.last_offset + 1)
    return found, refused


WAYS = [one_by_one, many_at_once, each_alone, by_file]


# -- the tests


def check(data: Path, flaw: Flaw, is_running: bool, read: Callable[[Log, int], Found]) -> None:
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
    missing = set(range(end)) - set(found)
    assert len(found) == len(set(found))
    assert missing <= told <= flaw.hit, (missing, told)
    assert refused <= told
    assert flaw.field != "leader epoch" or not missing
    assert flaw.is_kept(data)


def check_all(
    place: Path, fill: Callable[[Store, Log], None], flags: LogFlags, stride: int
) -> None:
    with Store.open(place / "data", OPTIONS) as store:
        log = store.create("q", flags=flags)
        fill(store, log)
        flush(store)
    for is_running in (False, True):
        for read in WAYS:
            for flaw in flaws(place / "data", stride):
                shutil.copytree(place / "data", place / "harmed")
                try:
                    check(place / "harmed", flaw, is_running, read)
                except Exception as error:
                    when = "under a running store" if is_running else "before a start"
                    error.add_note(f"{flaw} {when}, read {read.__name__}")
                    raise
                shutil.rmtree(place / "harmed")


@pytest.mark.parametrize("fill", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_bit_without_a_checksum(
    tmp_path: Path, kind: str, fill: Callable[[Store, Log], None]
) -> None:
    check_all(tmp_path, fill, KINDS[kind], STRIDE)


@pytest.mark.soak
@pytest.mark.parametrize("fill", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_bit_without_a_checksum(
    tmp_path: Path, kind: str, fill: Callable[[Store, Log], None]
) -> None:
    check_all(tmp_path, fill, KINDS[kind], 1)
