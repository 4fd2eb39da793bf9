"""Torn writes: the WAL's last group and a segment's tail, cut and spoilt at every byte.

Recovery never fails, never invents, never loses what was confirmed; and of the last, unconfirmed
step all is there or nothing. (The WAL's own tests tear it by itself: here it is the whole store.)
"""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottermq.wal import LogFlags, Record, Store
from ottermq.wal.records import batches
from tests.wal.remote_store import KINDS
from tests.wal.stores import die, flush, kinds, numbered, numbers, put, small, until

OPTIONS = small(recovery_threads=1)
Files = dict[Path, bytes]
DAMAGED = {"CORRUPT", "WAL_HOLE", "UNREADABLE"}


def files_of(data: Path) -> Files:
    """Of all that isn't empty: spare WAL files are zeros, and may be missing."""
    found = {p.relative_to(data): p.read_bytes() for p in data.rglob("*") if p.is_file()}
    return {path: raw for path, raw in found.items() if raw.strip(b"\0")}


@dataclass
class Torn:
    """A folder as a kill left it, one file of which is written anew for each case."""

    place: Path
    files: Files
    path: Path
    old: bytes  # how that file began, before the write that is torn

    @property
    def new(self) -> bytes:
        return self.files[self.path]

    def changed(self) -> range:
        """From the first byte that was written to the last."""
        first = next(n for n in range(len(self.new)) if self.old[n : n + 1] != self.new[n : n + 1])
        return range(first, len(self.new.rstrip(b"\0")))

    def cut_at(self, at: int) -> bytes:
        return self.new[:at] + self.old[at:]

    def flipped_at(self, at: int) -> bytes:
        return self.new[:at] + bytes([self.new[at] ^ 1 << at % 8]) + self.new[at + 1 :]

    def cases(self, places: Iterable[int] | None, both: bool) -> Iterator[tuple[str, bytes]]:
        for at in places or self.changed():
            if both or at % 2 == 0:
                yield f"cut at {at}", self.cut_at(at)
            if both or at % 2 == 1:
                yield f"flipped at {at}", self.flipped_at(at)

    def each(
        self,
        check: Callable[[Store], None],
        places: Iterable[int] | None = None,
        both: bool = False,
    ) -> None:
        """At each of these places, or at each byte, it is cut or spoilt, or one after the other."""
        self.all(check, self.cases(places, both))

    def all(self, check: Callable[[Store], None], cases: Iterable[tuple[str, bytes]]) -> None:
        for number, (what, raw) in enumerate(cases):
            data = self.place / f"case {number}"
            for path, bytes_ in (self.files | {self.path: raw}).items():
                (data / path).parent.mkdir(parents=True, exist_ok=True)
                (data / path).write_bytes(bytes_)
            try:
                with Store.open(data, OPTIONS) as store:
                    check(store)
                    assert not [r for r in store.reports() if r.kind.name in DAMAGED]
            except Exception as error:
                raise AssertionError(f"{self.path} {what}") from error
            remove(data)


def remove(data: Path) -> None:
    for path in sorted(data.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    data.rmdir()


def torn_wal(place: Path, before: Callable[[Store], None], step: Callable[[Store], int]) -> Torn:
    """`before` is confirmed; `step` returns its sequence, and is what gets torn."""
    data = place / "data"

    def life(store: Store) -> dict[Path, bytes]:
        before(store)
        for log in store:
            store.wait(log.trim(0))
        was = files_of(data)
        store.wait(step(store))
        return was

    was = die(data, life, OPTIONS)
    now = files_of(data)
    changed = [
        path
        for path in now
        if was.get(path) != now[path] and path.parts[0] not in ("meta.db-shm", "handed")
    ]
    assert [path.parts[0] for path in changed] == ["wal"], changed
    return Torn(place, now, changed[0], was[changed[0]])


# -- the WAL's last group ---------------------------------------------------------------------


def queue_and_stream(store: Store) -> None:
    put(store, store.create("q"), numbered(5))
    put(store, store.create("s", flags=LogFlags.NO_CURSOR), numbered(3))
    store.get("q").acquire(4)
    store.get("q").settle(0)


def test_an_append_torn_at_every_byte(memory_path: Path) -> None:
    torn = torn_wal(memory_path, queue_and_stream, lambda s: s.get("q").append(numbered(2, 5)).seq)

    def check(store: Store) -> None:
        log = store.get("q")
        found = numbers(log, 1)
        assert found in ([1, 2, 3, 4], [1, 2, 3, 4, 5, 6])
        assert log.acquire(10) == found
        assert [log.counts(n)[0] for n in (1, 3, 4)] == [2, 2, 1]
        assert numbers(store.get("s")) == [0, 1, 2]
        assert put(store, log, numbered(1)) > found[-1]

    torn.each(check, both=True)


def test_a_fan_out_torn_at_every_byte(memory_path: Path) -> None:
    def step(store: Store) -> int:
        return store.fanout([store.get("q"), store.get("s")], numbered(1, 9))[0].seq

    def check(store: Store) -> None:
        queue, stream = numbers(store.get("q"), 1), numbers(store.get("s"))
        assert (queue, stream) in (
            ([1, 2, 3, 4], [0, 1, 2]),
            ([1, 2, 3, 4, 9], [0, 1, 2, 9]),
        )

    torn_wal(memory_path, queue_and_stream, step).each(check)


def test_a_transaction_torn_at_every_byte(memory_path: Path) -> None:
    def step(store: Store) -> int:
        work = store.transaction()
        work.append(store.get("s"), numbered(1, 9))
        work.settle(store.get("q"), 1, 2)
        work.append(store.get("q"), numbered(1, 9))
        return work.commit()

    def check(store: Store) -> None:
        ready = store.get("q").acquire(10)
        stream = numbers(store.get("s"))
        assert (ready, stream) in (([1, 2, 3, 4], [0, 1, 2]), ([3, 4, 5], [0, 1, 2, 9]))

    torn_wal(memory_path, queue_and_stream, step).each(check)


def test_a_purge_torn_at_every_byte(memory_path: Path) -> None:
    def check(store: Store) -> None:
        assert store.get("q").acquire(10) in ([1, 2, 3, 4], [1, 2, 3])

    torn_wal(memory_path, queue_and_stream, lambda store: store.get("q").purge()[1]).each(check)


def test_a_trim_torn_at_every_byte(memory_path: Path) -> None:
    def check(store: Store) -> None:
        assert numbers(store.get("s")) in ([0, 1, 2], [2])

    torn_wal(memory_path, queue_and_stream, lambda store: store.get("s").trim(2)).each(check)


def test_a_long_transaction_torn_in_any_of_its_parts(memory_path: Path) -> None:
    """Over half a MiB a record is cut into parts, and those may lie in several groups."""
    body = b"." * 300_000

    def step(store: Store) -> int:
        work = store.transaction()
        work.append(store.get("s"), [Record(b"8" + body)])
        work.append(store.get("q"), [Record(b"9" + body)])
        return work.commit()

    def check(store: Store) -> None:
        queue, stream = numbers(store.get("q"), 1), numbers(store.get("s"))
        assert (queue, stream) in (
            ([1, 2, 3, 4], [0, 1, 2]),
            ([1, 2, 3, 4, 9], [0, 1, 2, 8]),
        )

    torn = torn_wal(memory_path, queue_and_stream, step)
    changed = torn.changed()
    near = {changed[0] + (512 << 10) + n for n in range(-40, 41, 8)}
    some = {random.Random(1).choice(changed) for _ in range(20)}
    torn.each(check, sorted({changed[0], changed[-1]} | (near & set(changed)) | some))


# -- a segment's tail -------------------------------------------------------------------------


def torn_segment(place: Path, checkpointed: int) -> Torn:
    """Four logged batches, so many of them below the recovery point, and an unlogged one."""
    data = place / "data"

    def life(store: Store) -> tuple[str, int]:
        log = store.create("q")
        for n in range(4):
            put(store, log, numbered(2, n * 2))
            if n + 1 == checkpointed:
                flush(store)
        synced = log.segments()[0].size if checkpointed else 0
        log.append(numbered(2, 8), unlogged=True)
        until(lambda: log.stat().hot_batches == 0)
        [path] = data.glob("vhosts/*/queues/*/*.log")
        return str(path.relative_to(data)), synced

    path, synced = die(data, life, OPTIONS)
    files = files_of(data)
    return Torn(place, files, Path(path), files[Path(path)][:synced])


@pytest.mark.parametrize("checkpointed", [0, 2, 4])
def test_a_segments_tail_torn_at_every_byte(memory_path: Path, checkpointed: int) -> None:
    torn = torn_segment(memory_path, checkpointed)

    def check(store: Store) -> None:
        log = store.get("q")
        found = numbers(log)
        assert found in (list(range(8)), list(range(10)))
        assert log.acquire(20) == found
        assert put(store, log, numbered(1)) >= 10

    torn.each(check)


def test_a_record_that_stands_at_anothers_place_does_not_hide_it(data: Path) -> None:
    """A base offset has no checksum. A settled record whose base was spoilt must not pass for the
    one that comes next."""

    def life(store: Store) -> None:
        log = store.create("q")
        for n in range(6):
            put(store, log, numbered(1, n))
        log.acquire(6)
        store.wait(log.settle(2, 2)[1])
        log.append(numbered(1, 6), unlogged=True)
        until(lambda: log.stat().hot_batches == 0)

    die(data, life, OPTIONS)
    [path] = data.glob("vhosts/*/queues/*/*.log")
    raw = bytearray(path.read_bytes())
    place = sum(len(batch.data) for batch in list(batches(bytes(raw)))[:2])
    assert raw[place : place + 8] == (2).to_bytes(8, "big")
    raw[place + 7] ^= 1
    path.write_bytes(raw)
    with Store.open(data, OPTIONS) as store:
        log = store.get("q")
        ready = log.acquire(10)
        found = {record.offset: int(record.value or b"") for record in log.records()}
        assert [found[offset] for offset in ready][:5] == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("kind", ["queue", "stream", "kept"])
@pytest.mark.parametrize("segment_size", [64 << 20, 100], ids=["in one segment", "in its own"])
def test_an_unlogged_batch_at_a_spoilt_place_is_not_believed(
    memory_path: Path, kind: str, segment_size: int
) -> None:
    """Nobody has its base offset but the file, and the checksum doesn't cover it: that it goes on
    where the one before ended, or where the segment's name says, is all that can be asked."""

    def life(store: Store) -> None:
        log = store.create("q", flags=KINDS[kind])
        for n in range(3):
            log.append(numbered(1, n), unlogged=True)
            until(lambda: log.stat().hot_batches == 0)

    die(memory_path / "data", life, small(segment_size))
    files = files_of(memory_path / "data")
    path = max(path for path in files if path.suffix == ".log")
    *_, last = batches(files[path])
    whole = files[path]
    place = whole.rindex(last.data)
    assert whole[place : place + 8] == (2).to_bytes(8, "big")

    def check(store: Store) -> None:
        log = store.get("q")
        assert numbers(log) == [0, 1]
        assert put(store, log, numbered(1)) <= 1 << 20, "it didn't lead the log astray either"
        if log.has_cursor:
            assert len(log.acquire(10)) == log.cursor().unacked_count == 3

    spoilt = [bytearray(whole) for _ in range(63)]  # the sign's bit makes it no batch at all
    for bit, raw in enumerate(spoilt):
        raw[place + 7 - bit // 8] ^= 1 << bit % 8
    cases = ((f"bit {bit}", bytes(raw)) for bit, raw in enumerate(spoilt))
    Torn(memory_path, files, path, b"").all(check, cases)


@pytest.mark.parametrize("checkpointed", [0, 2])
def test_zeros_in_a_segments_tail(memory_path: Path, checkpointed: int) -> None:
    """Pages the kernel had not written when the power went: at the end, or with more behind."""
    torn = torn_segment(memory_path, checkpointed)

    def check(store: Store) -> None:
        assert numbers(store.get("q")) in (list(range(8)), list(range(10)))

    changed, new = torn.changed(), torn.new
    holes = [
        new[:at] + bytes(min(size, len(new) - at)) + new[at + size :]
        for at in changed[::13]
        for size in (1, 60, 1000)
    ]
    holes += [new[:at] + bytes(5000) for at in changed[::31]]
    torn.all(check, ((f"hole {n}", raw) for n, raw in enumerate(holes)))


def test_a_tail_that_was_cut_is_told(memory_path: Path) -> None:
    torn = torn_segment(memory_path, 2)
    last = torn.changed()[-1]
    torn.files[torn.path] = torn.cut_at(last - 10)
    for path, raw in torn.files.items():
        (memory_path / "data" / path).write_bytes(raw)
    with Store.open(memory_path / "data", OPTIONS) as store:
        assert [k.name for k in kinds(store.reports())] == ["TAIL_CUT"]
        assert numbers(store.get("q")) == list(range(8))


# -- left-overs -------------------------------------------------------------------------------


def test_half_written_files_of_a_crash_are_passed_over(data: Path) -> None:
    with Store.open(data, OPTIONS) as store:
        put(store, store.create("q"), numbered(3))
        flush(store)
    [folder] = data.glob("vhosts/*/queues/*")
    rubbish = random.Random(2).randbytes(5000)
    for name in ("manifest.tmp", "00000000000000000000.log.rewrite"):
        (folder / name).write_bytes(rubbish)
    (data / "checkpoint.tmp").write_bytes(rubbish)
    (data / "wal" / "new-000009.tmp").write_bytes(rubbish)
    with Store.open(data, OPTIONS) as store:
        assert numbers(store.get("q")) == [0, 1, 2]
        assert store.reports() == []
        put(store, store.get("q"), numbered(1, 3))
        flush(store)
    assert not list(folder.glob("*.tmp")) and not list(folder.glob("*.rewrite"))
    with Store.open(data, OPTIONS) as store:
        assert numbers(store.get("q")) == [0, 1, 2, 3]
