"""Trim, truncate, delete: what they take away, and that a crash doesn't bring it back."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottermq.wal import Log, LogFlags, LogOptions, Record, ReportKind, Store
from ottermq.wal.errors import InvalidArgument, OutOfRange
from ottermq.wal.store import DURABLE
from tests.faults.rules import Op
from tests.faults.shim import recorded
from tests.wal.faulty import Life, command, outlive
from tests.wal.stores import (
    SMALL,
    die,
    flush,
    kinds,
    numbered,
    numbers,
    offsets,
    put,
    segment_files,
    small,
    until,
)

TINY = LogOptions(segment_size=600)
STORE = small(segment_size=600)


def filled(store: Store, batches: int = 20, flags: LogFlags = DURABLE) -> Log:
    """Batches of five; the first half in segments."""
    log = store.create("q", flags=flags, options=TINY)
    for n in range(batches):
        if n == batches // 2:
            flush(store)
        put(store, log, numbered(5, n * 5))
    return log


# -- trim -------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [1, 4, 5, 37, 50, 52, 99, 100])
def test_below_the_start_nothing_can_be_read(store: Store, start: int) -> None:
    log = filled(store)
    store.wait(log.trim(start))
    assert log.stat().start_offset == start
    assert numbers(log) == list(range(start, 100))
    assert log.cursor().ready_count == 100 - start
    with pytest.raises(OutOfRange):
        log.read(start - 1)
    log.trim(start - 1)  # no way back
    assert log.stat().start_offset == start
    with pytest.raises(OutOfRange):
        log.trim(101)


@pytest.mark.parametrize("start", [1, 5, 37, 50, 52, 100])
@pytest.mark.parametrize("flags", [DURABLE, LogFlags.NO_CURSOR], ids=["queue", "stream"])
def test_a_trim_survives_a_crash(data: Path, start: int, flags: LogFlags) -> None:

    def life(store: Store) -> None:
        log = filled(store, flags=flags)
        store.wait(log.trim(start))

    die(data, life, STORE)
    with Store.open(data, STORE) as store:
        log = store.get("q")
        assert log.stat().start_offset == start
        assert numbers(log) == list(range(start, 100))
        if flags != LogFlags.NO_CURSOR:
            assert log.acquire(200) == list(range(start, 100))


def test_trimmed_files_go_after_a_checkpoint(store: Store) -> None:
    log = filled(store)
    flush(store)
    before = len(segment_files(store, log))
    log.trim(60)
    store.checkpoint()
    until(lambda: len(segment_files(store, log)) < before)
    assert numbers(log) == list(range(60, 100))


def test_a_log_trimmed_to_its_end_goes_on_there(data: Path) -> None:
    with Store.open(data, STORE) as store:
        log = filled(store)
        store.wait(log.trim(100))
        flush(store)
    for life in range(2):
        with Store.open(data, STORE) as store:
            log = store.get("q")
            assert log.stat().next_offset == 100 + life and log.stat().start_offset == 100
            assert put(store, log, numbered(1, 100 + life)) == 100 + life
            assert numbers(log) == list(range(100, 101 + life))
            assert store.reports() == []


# -- truncate ---------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [0, 5, 35, 50, 55, 95, 100])
def test_a_truncated_log_ends_there_and_goes_on_with_a_new_epoch(store: Store, end: int) -> None:
    log = filled(store)
    log.acquire(70)
    log.settle(0, 9)
    log.truncate(end)
    stat = log.stat()
    assert (stat.next_offset, stat.readable_end, stat.leader_epoch) == (end, end, 1)
    assert numbers(log) == list(range(end))
    left = max(0, min(end, 70) - 10) + max(0, end - 70)
    assert log.cursor().ready_count + log.cursor().unacked_count == left
    assert put(store, log, numbered(3, 500)) == end
    assert numbers(log) == [*range(end), 500, 501, 502]
    flush(store)
    assert numbers(log) == [*range(end), 500, 501, 502]
    assert log.read(end)[0].leader_epoch == 1


@pytest.mark.parametrize("crash", [False, True], ids=["clean", "crash"])
@pytest.mark.parametrize("end", [0, 5, 35, 50, 95])
def test_a_truncation_survives(data: Path, end: int, crash: bool) -> None:

    def life(store: Store) -> None:
        log = filled(store)
        log.truncate(end)
        put(store, log, numbered(3, 500))

    if crash:
        die(data, life, STORE)
    else:
        with Store.open(data, STORE) as store:
            life(store)
    for _ in range(2):
        with Store.open(data, STORE) as store:
            log = store.get("q")
            assert numbers(log) == [*range(end), 500, 501, 502]
            assert offsets(log) == list(range(end + 3))
            assert log.cursor().ready_count == end + 3
            assert ReportKind.CORRUPT not in kinds(store.reports())
            assert log.stat().leader_epoch == (2 if crash else 1)


def test_a_batch_is_not_cut_in_two(store: Store) -> None:
    """Its checksum covers all of it: what can't be done is refused, and nothing is lost."""
    log = filled(store)
    for middle in (3, 47, 53, 99):
        with pytest.raises(InvalidArgument):
            log.truncate(middle)
    assert numbers(log) == list(range(100))
    assert put(store, log, numbered(1, 100)) == 100
    assert log.cursor().ready_count == 101


def test_a_truncation_out_of_range_is_refused(store: Store) -> None:
    log = filled(store)
    store.wait(log.trim(10))
    for wrong in (5, 105, -1):
        with pytest.raises(OutOfRange):
            log.truncate(wrong)
    log.truncate(10)
    assert numbers(log) == []
    assert put(store, log, numbered(1)) == 10


def test_truncated_again_and_again(data: Path) -> None:

    def life(store: Store) -> None:
        log = store.create("q", options=TINY)
        for round in range(5):
            for n in range(6):
                put(store, log, numbered(5, round * 1000 + n * 5))
            log.truncate(log.stat().next_offset - 10)

    die(data, life, STORE)
    with Store.open(data, STORE) as store:
        assert numbers(store.get("q")) == [
            round * 1000 + n for round in range(5) for n in range(20)
        ]
        assert offsets(store.get("q")) == list(range(100))


# -- delete -----------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True], ids=["clean", "crash"])
def test_a_deleted_log_stays_away_and_a_new_one_of_its_name_is_new(data: Path, crash: bool) -> None:

    def life(store: Store) -> int:
        log = filled(store)
        store.delete(log)
        assert ("/", "q") not in store
        again = store.create("q", options=TINY)
        assert again.id > log.id
        put(store, again, numbered(2, 900))
        return log.id

    if crash:
        gone = die(data, life, STORE)
    else:
        with Store.open(data, STORE) as store:
            gone = life(store)
    with Store.open(data, STORE) as store:
        assert len(store) == 1
        assert numbers(store.get("q")) == [900, 901]
        assert not list(data.glob(f"vhosts/*/queues/*.{gone}"))
        assert store.create("later").id > store.get("q").id


def test_a_deleted_log_leaves_no_files(store: Store) -> None:
    log = filled(store)
    flush(store)
    store.delete(log)
    until(lambda: not list(store.data.glob("vhosts/*/queues/*")))
    assert store.stat().logs == 0
    assert store.stat().hot_bytes == 0


def test_a_deleted_log_that_waits_for_a_checkpoint_keeps_nobody_awake(store: Store) -> None:
    """It stays in the queue of what is to be written; every commit woke the writer for its sake."""
    put(store, other := store.create("other"), numbered(3))
    put(store, gone := store.create("gone"), numbered(3))
    store.delete(gone)
    until(lambda: not list(store.data.glob("vhosts/*/queues/gone.*")))
    before = times_slept("otter-writer")
    for _ in range(100):
        put(store, other, numbered(1))
    assert times_slept("otter-writer") - before < 10


def times_slept(thread: str) -> int:
    """How often that thread of this process went to sleep."""
    slept = 0
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == thread:
            status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
            slept += int(status["voluntary_ctxt_switches"])
    return slept


def test_a_deletion_the_catalogue_did_not_hear_of_is_finished(data: Path) -> None:
    """Killed between the WAL's record and the catalogue's row."""

    def life(store: Store) -> None:
        log = filled(store)
        store._catalog.remove = lambda ids: None  # type: ignore[method-assign]
        store.delete(log)

    die(data, life, STORE)
    with Store.open(data, STORE) as store:
        assert len(store) == 0
        assert ReportKind.DELETED in kinds(store.reports())
    with Store.open(data, STORE) as store:
        assert len(store) == 0 and store.reports() == []
        until(lambda: not list(data.glob("vhosts/*/queues/*")))


def test_a_log_without_a_row_never_existed(data: Path) -> None:
    """A folder that no catalogue names, as a crash in a deletion leaves it."""
    with Store.open(data, STORE) as store:
        log = filled(store)
        store._catalog.remove([log.id])
    with Store.open(data, STORE) as store:
        assert len(store) == 0
    assert not list(data.glob("vhosts/*/queues/*"))


def test_names_that_no_folder_could_have(data: Path) -> None:
    names = [".", "..", "a/b", "%", "é" * 100, "x" * 250, " ", "a\nb", "A", "a", "", "\U0001f9a6"]
    vhosts = ["/", "..", "a/b"]
    with Store.open(data, SMALL) as store:
        for vhost in vhosts:
            for log in store.create_many(names, vhost=vhost):
                log.append([Record(f"{vhost} {log.name}".encode())])
        flush(store)
        assert len(list(data.glob("vhosts/*/queues/*/*.log"))) == len(names) * len(vhosts)
    with Store.open(data, SMALL) as store:
        for vhost in vhosts:
            for name in names:
                [record] = store.get(name, vhost).records()
                assert record.value == f"{vhost} {name}".encode()
    assert {path.name for path in data.parent.iterdir()} == {"data"}


# -- beside a checkpoint ----------------------------------------------------------------------


def a_log_deleted_beside_a_checkpoint(life: Life) -> None:
    stays, goes = life.journal.create("stays"), life.journal.create("goes")
    for log in (stays, goes):
        life.journal.append(log, [100] * 3)
    life.journal.confirm()
    folder = life.store.data / f"vhosts/%2F/queues/goes.{goes.id}"
    late = life.faults.delay(Op.FDATASYNC, "vhosts/*.log", seconds=0.3)
    with ThreadPoolExecutor() as pool:
        checkpoint = pool.submit(life.store.checkpoint)
        life.until(lambda: late.fired, "nothing is synced")
        life.journal.delete(goes)
        checkpoint.result()  # what is gone is none of its business
    assert not life.count(ReportKind.CHECKPOINT_FAILED)
    life.until(lambda: not folder.exists(), "its files are left behind")


def test_a_log_may_be_deleted_while_a_checkpoint_has_it_in_hand(memory_path: Path) -> None:
    outlive(a_log_deleted_beside_a_checkpoint, memory_path)


def a_truncation_that_is_killed_before_its_checkpoint(life: Life) -> None:
    log = life.journal.create("s", "stream")
    for _ in range(10):
        life.journal.append(log, [30_000])  # four to a segment
        life.journal.confirm()
    life.faults.kill(Op.FSYNC, "checkpoint.tmp")
    life.journal.truncate(log, 7)


def test_what_was_truncated_stays_away_when_the_log_is_made_again_from_the_wal(
    memory_path: Path,
) -> None:
    """A hole in an early segment: from there on the second pass takes all from the WAL."""
    with recorded(memory_path) as rec:
        story = command(a_truncation_that_is_killed_before_its_checkpoint)
        assert rec.run(story, check=False).returncode == -9
    first, *rest = sorted(rec.root.glob("vhosts/*/queues/s.*/*.log"))
    assert rest, "one segment has no hole before its end"
    os.truncate(first, 45_000)  # what the power may leave of it, while the later ones are whole
    with Store.open(rec.root, SMALL) as store:
        assert offsets(store.get("s")) == list(range(7))
        assert put(store, store.get("s"), numbered(1)) >= 7
