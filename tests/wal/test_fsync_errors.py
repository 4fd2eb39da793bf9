"""A failed sync is final: the WAL is fenced, a segment is made again from it, and nobody is told
that something is on disk which isn't."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from ottermq.wal import Log, ReportKind
from ottermq.wal.errors import Fenced, Full, LogError, StorageFailure
from tests.faults.rules import Op, Rule
from tests.wal.faulty import Life, outlive

SYNC_OR_WRITE = {"sync": Op.FDATASYNC, "write": Op.WRITE}


def filled(life: Life, name: str, kind: str = "queue", batches: int = 5) -> Log:
    """A log with records that are confirmed, one of them settled for good."""
    log = life.journal.create(name, kind)
    for size in range(batches):
        life.journal.append(log, [100 + size, 2_000])
    life.journal.confirm()
    if kind != "stream":
        life.journal.take(log, 3)
        life.journal.settle(log, [0])
        life.journal.confirm()
    return log


def is_served(life: Life, log: Log) -> None:
    """Reading, giving out and settling go on."""
    assert life.journal.read(log, 1)
    [offset] = life.journal.take(log, 1)
    life.journal.settle(log, [offset])


# -- the WAL: what can't be synced fences ------------------------------------------------------


def raise_fence(life: Life, log: Log, **how: bool) -> Rule:
    """An append whose sync fails, once."""
    rule = life.faults.fail(Op.FDATASYNC, "wal/*.wal", times=1, **how)
    life.journal.append(log, [500] * 3)
    with pytest.raises(Fenced):
        life.journal.confirm()
    report = life.hear(ReportKind.FENCED)
    assert "Input/output error" in report.text
    assert rule.fired == 1
    return rule


def fenced_life(life: Life, op: str, carried_out: str) -> None:
    log, other = filled(life, "q"), filled(life, "other")
    life.faults.fail(SYNC_OR_WRITE[op], "wal/*.wal", times=1, carried_out=carried_out == "True")
    life.journal.append(log, [500] * 3)
    with pytest.raises(Fenced):
        life.journal.confirm()
    life.hear(ReportKind.FENCED)
    assert "fenced" in (life.store.trouble() or "")
    assert life.store.stat().fence_kept
    refusals: list[Callable[[], None]] = [
        lambda: life.journal.append(log, [10]),
        lambda: life.journal.append(other, [10]),
        lambda: life.journal.fanout([log, other], [10]),
        lambda: life.journal.transaction([(log, [10])], []),
        lambda: life.store.admits(),
        lambda: life.store.delete(log),
    ]
    for refused in refusals:
        with pytest.raises(Fenced):
            refused()
    is_served(life, log)
    is_served(life, other)


@pytest.mark.parametrize("carried_out", [False, True], ids=["undone", "done all the same"])
@pytest.mark.parametrize("op", SYNC_OR_WRITE)
def test_a_failed_sync_of_the_wal_refuses_what_was_under_way_and_all_that_follows(
    memory_path: Path, op: str, carried_out: bool
) -> None:
    """And nothing of it comes back, though the disk may have it."""
    outlive(fenced_life, memory_path, op, carried_out)


def a_wal_that_stays_broken(life: Life) -> None:
    log = filled(life, "q")
    rule = life.faults.fail(Op.FDATASYNC, "wal/*.wal")
    life.journal.append(log, [500])
    with pytest.raises(Fenced):
        life.journal.confirm()
    life.hear(ReportKind.FENCED)
    assert life.store.stat().fence_kept, "the fence file is another file"
    with pytest.raises(StorageFailure):
        life.store.unfence()
    with pytest.raises(Fenced):
        life.journal.append(log, [10])
    rule.clear()
    life.store.unfence()
    life.journal.append(log, [20])
    life.journal.confirm()


def test_a_fence_is_lifted_only_once_the_disk_is_well(memory_path: Path) -> None:
    outlive(a_wal_that_stays_broken, memory_path)


def a_disk_that_is_dead(life: Life) -> None:
    log = filled(life, "q")
    life.faults.fail(Op.SYNC, "wal/*", carried_out=True)
    life.journal.append(log, [500])
    with pytest.raises(Fenced):
        life.journal.confirm()
    report = life.hear(ReportKind.FENCED)
    assert not life.store.stat().fence_kept
    assert "may reappear" in report.text
    is_served(life, log)


def test_where_not_even_the_fence_can_be_written_the_outcome_is_open_and_said_to_be(
    memory_path: Path,
) -> None:
    outlive(a_disk_that_is_dead, memory_path)


def life_after_a_fence(life: Life) -> None:
    log, new = filled(life, "q"), life.journal.create("new")
    raise_fence(life, new)
    is_served(life, log)
    with pytest.raises(Fenced):
        life.journal.confirm()  # what was settled is settled in memory only
    life.store.unfence()
    assert life.store.trouble() is None
    for size in (10, 3_000, 70_000):
        life.journal.append(log, [size])
        life.journal.append(new, [size])
        life.journal.fanout([log, new], [size])
    life.journal.confirm()
    # Its first lease was refused with its first record: a reader must not see past it.
    life.journal.append_unlogged(new, [30])
    life.journal.confirm()
    life.journal.take(new, 100)
    life.store.checkpoint()
    life.journal.append(new, [40])
    life.journal.confirm()


def test_after_a_fence_is_lifted_appends_are_durable_again(memory_path: Path) -> None:
    outlive(life_after_a_fence, memory_path, crashes=30)


def a_lease_that_was_refused(life: Life) -> None:
    new, other = life.journal.create("new"), filled(life, "other")
    raise_fence(life, new)
    life.store.unfence()
    life.journal.append(other, [10])
    life.journal.confirm()
    life.journal.append_unlogged(new, [30])
    life.until(lambda: bool(life.journal.take(new, 1)), "the record is not given out")
    life.journal.append(other, [10])
    life.journal.confirm()


def test_offsets_whose_lease_was_refused_are_leased_again(memory_path: Path) -> None:
    outlive(a_lease_that_was_refused, memory_path, crashes=30)


def a_transaction_that_was_refused(life: Life) -> None:
    source, dead_letters = filled(life, "source"), filled(life, "dead letters")
    life.faults.fail(Op.FDATASYNC, "wal/*.wal", times=1)
    life.journal.transaction([(dead_letters, [100])], [(source, 1)])
    with pytest.raises(Fenced):
        life.journal.confirm()
    life.hear(ReportKind.FENCED)
    life.store.unfence()
    life.journal.append(source, [10])
    life.journal.confirm()
    life.store.checkpoint()


def test_a_refused_transaction_settles_nothing(memory_path: Path) -> None:
    """Or a dead-lettered message would be in neither queue."""
    outlive(a_transaction_that_was_refused, memory_path)


def what_was_given_out_behind_the_fence(life: Life) -> None:
    log = filled(life, "q")
    raise_fence(life, life.journal.create("other"))
    assert len(life.journal.take(log, 2)) == 2
    with pytest.raises(Fenced):
        life.journal.confirm()
    life.store.unfence()
    assert len(life.journal.take(log, 2)) == 2
    life.journal.confirm()


def test_what_was_given_out_behind_a_fence_comes_back(memory_path: Path) -> None:
    outlive(what_was_given_out_behind_the_fence, memory_path)


def refused_twice(life: Life) -> None:
    log = filled(life, "q")
    refused = []
    for times in (1, 2):
        life.faults.fail(Op.FDATASYNC, "wal/*.wal", times=1)
        life.journal.append(log, [10])
        refused.append(life.journal.owed_seq)
        with pytest.raises(Fenced):
            life.journal.confirm()
        life.hear(ReportKind.FENCED, times)
        life.store.unfence()
        life.journal.append(log, [10])
        life.journal.confirm()
    for seq in refused:
        with pytest.raises(Fenced):
            life.store.wait(seq)


def test_a_sequence_that_was_refused_is_never_called_durable(memory_path: Path) -> None:
    outlive(refused_twice, memory_path)


# -- segments: what can't be synced is made again ------------------------------------------------


def busy_logs(life: Life) -> list[Log]:
    """Several segments each, of which some records are settled; one log has transient ones."""
    logs = [filled(life, "q"), filled(life, "kept", "kept"), filled(life, "stream", "stream")]
    for log in logs:
        for _ in range(5):
            life.journal.append(log, [30_000, 20_000, 100])
        life.journal.append_unlogged(log, [50])
    life.journal.confirm()
    return logs


def one_segment_sync_fails(life: Life, op: str, error: str, skip: str) -> None:
    logs = busy_logs(life)
    life.store.checkpoint()
    for log in logs:
        life.journal.append(log, [40_000] * 3)
        life.journal.append_unlogged(log, [60])
        life.journal.append(log, [40_000] * 3)
    for log in logs[:2]:
        life.journal.settle(log, life.journal.take(log, 8))
    life.journal.confirm()
    rule = life.faults.fail(
        Op[op], "vhosts/*.log" if op == "FDATASYNC" else "*", error=getattr(errno, error),
        skip=int(skip), times=1,
    )  # fmt: skip
    life.store.checkpoint()
    assert rule.fired == 1
    report = life.hear(ReportKind.SEGMENT_REWRITTEN)
    assert "written again" in report.text
    assert life.store.stat().segments_rewritten >= 1
    for log in logs:
        life.journal.append(log, [100])
        is_whole(life, log)
    life.journal.confirm()
    life.store.checkpoint()
    for log in logs:
        is_whole(life, log)


def is_whole(life: Life, log: Log) -> None:
    """Readable to the end."""
    at, end = log.stat().start_offset, log.stat().readable_end
    while at < end and (batches := log.read(at)):
        at = batches[-1].last_offset + 1
    assert at == end or log.stat().hot_batches == 0


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("skip", range(0, 7, 2))
def test_a_segment_that_cannot_be_synced_is_made_again_from_the_wal(
    memory_path: Path, skip: int, error: str
) -> None:
    outlive(one_segment_sync_fails, memory_path, "FDATASYNC", error, skip, crashes=25)


def a_rewritten_segment_is_smaller(life: Life) -> None:
    """Records settled since they were written are left out, in segments that are full already."""
    log = life.journal.create("q")
    for _ in range(4):
        life.journal.append(log, [40_000] * 2)
        life.journal.append_unlogged(log, [50])  # to the page cache, with all before it
    life.journal.confirm()
    life.until(lambda: log.stat().hot_batches == 0, "not written")
    assert log.stat().segments > 2
    life.journal.settle(log, life.journal.take(log, 5))
    life.journal.confirm()
    rule = life.faults.fail(Op.FDATASYNC, "vhosts/*.log")
    life.store.checkpoint()
    rule.clear()
    assert life.store.stat().segments_rewritten > 1
    is_whole(life, log)
    life.journal.append(log, [10])
    life.journal.confirm()


def test_a_segment_that_was_made_again_may_be_smaller_than_it_was(memory_path: Path) -> None:
    outlive(a_rewritten_segment_is_smaller, memory_path)


def pages_that_the_kernel_dropped(life: Life) -> None:
    """What is read back after a failed sync may be anything: here it is made so."""
    logs = busy_logs(life)
    life.store.checkpoint()
    good = {log.id: log.stat().size_bytes for log in logs}
    for log in logs:
        life.journal.append(log, [300] * 50)
    life.journal.confirm()
    rule = life.faults.fail(Op.SYNC, "vhosts/*.log*")
    with pytest.raises(LogError):
        life.store.checkpoint()
    for log in logs:
        [folder] = life.store.data.glob(f"vhosts/*/queues/*.{log.id}")
        last = sorted(folder.glob("*.log"))[-1]
        kept = max(0, last.stat().st_size - (log.stat().size_bytes - good[log.id]))
        with last.open("r+b") as file:
            file.seek(kept)
            file.write(bytes(last.stat().st_size - kept))
    rule.clear()
    life.store.checkpoint()
    for log in logs:
        is_whole(life, log)


def test_pages_that_the_kernel_dropped_come_back_from_the_wal(memory_path: Path) -> None:
    outlive(pages_that_the_kernel_dropped, memory_path)


def one_sync_for_many_fails(life: Life) -> None:
    logs = [filled(life, f"q{n}", batches=2) for n in range(40)]
    rule = life.faults.fail(Op.SYNCFS, times=1)
    life.store.checkpoint()
    assert rule.fired == 1
    for log in logs:
        is_whole(life, log)
        life.journal.append(log, [100])
    life.journal.confirm()


def test_one_sync_for_many_segments_that_fails_says_not_whose_it_was(memory_path: Path) -> None:
    outlive(one_sync_for_many_fails, memory_path, crashes=25)


def segments_that_never_sync(life: Life) -> None:
    logs = busy_logs(life)
    rule = life.faults.fail(Op.SYNC, "vhosts/*.log*")
    with pytest.raises(LogError):
        life.store.checkpoint()
    life.hear(ReportKind.CHECKPOINT_FAILED)
    life.journal.is_patient = False
    with pytest.raises(Full):
        while True:
            life.journal.append(logs[2], [50_000] * 4)
            life.journal.confirm()
    for log in logs[:2]:
        is_served(life, log)
    assert life.count(ReportKind.CHECKPOINT_FAILED) == 1, "told once, not with every try"
    rule.clear()
    life.store.checkpoint()
    life.store.admits()
    assert life.store.stat().segments_rewritten
    for log in logs:
        life.journal.append(log, [100])
    life.journal.confirm()


def test_segments_that_never_sync_fill_the_wal_and_no_more(memory_path: Path) -> None:
    """Publishers are told, acks go on, and all is well once the disk is."""
    outlive(segments_that_never_sync, memory_path)


# -- writes that fail, or take only a part ---------------------------------------------------------


def writes_are_cut_short(life: Life, path: str) -> None:
    rule = life.faults.shorten(path, to=1000 if path == "wal/*.wal" else 50, times=None)
    logs = busy_logs(life)
    life.store.checkpoint()
    life.journal.append(logs[0], [100])
    life.journal.confirm()
    assert rule.fired > 3
    for log in logs:
        is_whole(life, log)


@pytest.mark.parametrize("path", ["wal/*.wal", "vhosts/*", "checkpoint.tmp", "*.tmp"])
def test_a_short_write_is_carried_on(memory_path: Path, path: str) -> None:
    crashes = 4 if path == "wal/*.wal" else 12
    outlive(writes_are_cut_short, memory_path, path, crashes=crashes)


def segments_that_cannot_be_written(life: Life, op: str) -> None:
    rule = life.faults.fail(Op[op], "vhosts/*.log")
    logs = busy_logs(life)
    with pytest.raises(LogError):
        life.store.checkpoint()
    life.hear(ReportKind.WRITE_FAILED)
    for log in logs:
        is_whole(life, log)
        life.journal.append(log, [10])
    life.journal.confirm()
    is_served(life, logs[0])
    rule.clear()
    life.store.checkpoint()
    for log in logs:
        is_whole(life, log)


@pytest.mark.parametrize("op", ["WRITE", "CREATE", "OPEN"])
def test_a_segment_that_cannot_be_written_is_tried_again(memory_path: Path, op: str) -> None:
    """The WAL has its records, and memory as well."""
    outlive(segments_that_cannot_be_written, memory_path, op)


# -- the checkpoint's own files -----------------------------------------------------------------


def a_checkpoint_that_fails(life: Life, op: str, path: str, carried_out: str) -> None:
    logs = busy_logs(life)
    life.store.checkpoint()
    for log in logs:
        life.journal.append(log, [50_000] * 4)
    life.journal.trim(logs[2], 9)
    life.journal.settle(logs[0], life.journal.take(logs[0], 5))
    life.journal.confirm()
    rule = life.faults.fail(Op[op], path, carried_out=carried_out == "True")
    with pytest.raises(LogError):
        life.store.checkpoint()
    life.hear(ReportKind.CHECKPOINT_FAILED)
    assert rule.fired
    for log in logs:
        life.journal.append(log, [100])
    life.journal.confirm()
    with pytest.raises(LogError):
        life.store.checkpoint()
    rule.clear()
    for log in logs:
        life.journal.append(log, [200])
    life.journal.confirm()
    life.store.checkpoint()
    life.journal.append(logs[0], [300])
    life.journal.confirm()


@pytest.mark.parametrize("carried_out", [False, True], ids=["undone", "done all the same"])
@pytest.mark.parametrize(
    ("op", "path"),
    [
        ("OPEN", "checkpoint.tmp"),
        ("WRITE", "checkpoint.tmp"),
        ("FSYNC", "checkpoint.tmp"),
        ("RENAME", "checkpoint"),
        ("FSYNC", ""),
        ("WRITE", "*manifest.tmp"),
        ("FSYNC", "*manifest.tmp"),
        ("RENAME", "*manifest"),
    ],
)
def test_a_checkpoint_that_fails_keeps_the_wal_and_is_made_again(
    memory_path: Path, op: str, path: str, carried_out: bool
) -> None:
    if op == "OPEN" and carried_out:
        pytest.skip("a descriptor that was not given can't be used")
    outlive(a_checkpoint_that_fails, memory_path, op, path, carried_out, crashes=15)
