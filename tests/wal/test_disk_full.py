"""A full disk: appends are refused with a clear error, reads and acks go on, nothing confirmed is
lost, and it heals by itself when space returns."""

import errno
import os
import select
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ottermq.wal import Log, LogFlags, Record, ReportKind, Store
from ottermq.wal.errors import Full, LogError, NoSpace
from tests.faults.mounted import any_disk
from tests.faults.rules import Op
from tests.faults.shim import recorded
from tests.wal.crash_journal import content, when_there_is_room
from tests.wal.faulty import OPTIONS, Life, command, outlive
from tests.wal.promises import Promises
from tests.wal.test_fsync_errors import busy_logs, filled, is_served, is_whole

GROWING = Op.CREATE | Op.WRITE | Op.ALLOCATE


def stays_refused(life: Life, log: Log, seconds: float = 1.0) -> None:
    """Not only for the moment: nobody says that there is space before there is."""
    for _ in range(int(seconds / 0.1)):
        with pytest.raises(NoSpace):
            life.journal.append(log, [10])
        life.pause(0.1)
    assert life.count(ReportKind.SPACE_BACK) == 0


def no_space_for_segments(life: Life) -> None:
    logs = busy_logs(life)
    life.store.checkpoint()
    for log in logs:
        life.journal.append(log, [50_000] * 4)
    life.journal.confirm()
    full = life.faults.fail(GROWING, "vhosts/*", error=errno.ENOSPC)
    with pytest.raises(NoSpace):
        life.store.checkpoint()
    life.hear(ReportKind.NO_SPACE)
    assert "space" in (life.store.trouble() or "")
    with pytest.raises(NoSpace):
        life.store.admits()
    with pytest.raises(NoSpace):
        life.journal.fanout(logs, [10])
    with pytest.raises(NoSpace):
        life.journal.transaction([(logs[0], [10])], [])
    stays_refused(life, logs[0])
    for log in logs:
        is_whole(life, log)
    for _ in range(5):
        is_served(life, logs[0])
        is_served(life, logs[1])
    life.journal.confirm()
    full.clear()
    life.hear(ReportKind.SPACE_BACK)
    assert life.store.trouble() is None
    for log in logs:
        life.journal.append(log, [100])
    life.journal.confirm()
    life.store.checkpoint()


def test_without_space_for_segments_appends_are_refused_and_acks_go_on(memory_path: Path) -> None:
    outlive(no_space_for_segments, memory_path, crashes=20)


def no_space_for_wal_files(life: Life) -> None:
    logs = [filled(life, "q"), filled(life, "other")]
    full = life.faults.fail(GROWING, "wal/new-*", error=errno.ENOSPC)
    life.journal.is_patient = False
    with pytest.raises((NoSpace, Full)):
        while True:
            life.journal.append(logs[1], [60_000] * 4)
    life.journal.is_patient = True
    life.until(lambda: refusal(life, logs[1]) is NoSpace, "NoSpace is not told")
    life.hear(ReportKind.NO_SPACE)
    assert "space" in (life.store.trouble() or "")
    is_served(life, logs[0])
    is_whole(life, logs[0])
    full.clear()
    life.until(lambda: refusal(life, logs[1]) is None, "it doesn't heal")
    life.hear(ReportKind.SPACE_BACK)
    assert life.store.trouble() is None
    life.journal.confirm()
    life.store.checkpoint()


def refusal(life: Life, log: Log) -> type[LogError] | None:
    try:
        life.journal.append(log, [10])
    except LogError as error:
        return type(error)
    return None


def test_without_space_for_wal_files_what_was_taken_waits_and_the_rest_is_refused(
    memory_path: Path,
) -> None:
    outlive(no_space_for_wal_files, memory_path, crashes=8)


def no_space_at_all(life: Life, left: str) -> None:
    logs = busy_logs(life)
    life.journal.is_patient = False
    life.faults.disk_full_after(int(left))
    with pytest.raises((NoSpace, Full)):
        while True:
            life.journal.append(logs[2], [50_000] * 4)
    life.journal.is_patient = True
    for log in logs:
        is_whole(life, log)
    is_served(life, logs[0])
    is_served(life, logs[1])
    life.faults.disk_has_room()
    life.until(lambda: refusal(life, logs[2]) is None, "it doesn't heal")
    life.journal.confirm()
    life.store.checkpoint()


@pytest.mark.parametrize("left", [0, 100_000, 1_500_000])
def test_a_disk_without_a_block_left_loses_nothing(memory_path: Path, left: int) -> None:
    outlive(no_space_at_all, memory_path, left, crashes=8)


def little_space(life: Life) -> None:
    log = filled(life, "q")
    life.faults.report_free_space(10 << 20)
    life.hear(ReportKind.NO_SPACE)
    stays_refused(life, log, seconds=0.3)
    is_served(life, log)
    life.journal.confirm()
    life.faults.report_free_space(None)
    life.hear(ReportKind.SPACE_BACK)
    life.journal.append(log, [10])
    life.journal.confirm()


little_space.options = replace(OPTIONS, low_space_limit=16 << 20)  # type: ignore[attr-defined]


def test_appends_are_refused_before_the_disk_is_full(memory_path: Path) -> None:
    outlive(little_space, memory_path)


def a_full_disk_does_not_hold_a_checkpoint_up(life: Life) -> None:
    """What was settled needs no space: its WAL is let go."""
    log = filled(life, "q")
    for _ in range(20):
        life.journal.append(log, [1_000] * 4)
    life.journal.confirm()
    life.journal.settle(log, life.journal.take(log, 200) + life.journal.in_flight[log.id][:2])
    life.journal.confirm()
    life.faults.fail(GROWING, "vhosts/*", error=errno.ENOSPC)
    life.store.checkpoint()
    life.journal.append(log, [10])
    life.journal.confirm()


def test_what_was_settled_needs_no_space(memory_path: Path) -> None:
    outlive(a_full_disk_does_not_hold_a_checkpoint_up, memory_path)


def acks_while_checkpoints_fail(life: Life) -> None:
    """They share groups as ever: a checkpoint that fails isn't tried with each of them, and doesn't
    use up what is left of the WAL."""
    log = filled(life, "q")
    other = life.journal.create("other")
    for _ in range(20):
        life.journal.append(log, [10] * 100)
    wanted = (
        OPTIONS.wal_max_size // 2
    )  # it asks for checkpoints; one may come before the disk is full
    for _ in range(20):
        for _ in range(24):
            life.journal.append(other, [100_000] * 2)
        life.journal.confirm()
        full = life.faults.fail(GROWING, "vhosts/*", error=errno.ENOSPC)
        with pytest.raises(NoSpace):
            life.store.checkpoint()
        before = life.store.stat()
        if before.wal_used > wanted:
            break
        told = life.count(ReportKind.SPACE_BACK)
        full.clear()
        life.hear(ReportKind.SPACE_BACK, told + 1)
    assert before.wal_used > wanted
    for number in range(1_500):
        life.journal.settle(log, life.journal.take(log, 1))
        if number == 100:
            life.journal.confirm()  # a group: it would ask now
        life.pause(0.001)
    groups = life.store.stat().wal_groups - before.wal_groups
    assert groups < 25, f"{groups} groups"


acks_while_checkpoints_fail.options = replace(OPTIONS, checkpoint_interval_ms=1000)  # type: ignore[attr-defined]


def test_acks_share_groups_while_checkpoints_fail(memory_path: Path) -> None:
    outlive(acks_while_checkpoints_fail, memory_path, crashes=4)


def trimmed_before_it_was_written(life: Life) -> None:
    """Batches have their places in several segments, none of which could be written. What is
    trimmed of them goes with its places: nobody writes for ever into a file that is gone."""
    stream = life.journal.create("s", "stream")
    life.journal.append(stream, [1_000])
    life.journal.confirm()
    life.store.checkpoint()
    full = life.faults.fail(GROWING, "vhosts/*", error=errno.ENOSPC)
    for _ in range(8):
        life.journal.append(stream, [60_000])
    life.journal.confirm()
    with pytest.raises(NoSpace):
        life.store.checkpoint()
    life.journal.trim(stream, stream.stat().next_offset - 3)
    with pytest.raises(NoSpace):
        life.store.checkpoint()  # which lets go what was trimmed
    folder = life.store.data / f"vhosts/%2F/queues/s.{stream.id}"
    life.until(lambda: not (folder / f"{0:020}.log").exists(), "it isn't removed")
    life.pause(0.5)  # it is tried meanwhile
    full.clear()
    life.hear(ReportKind.SPACE_BACK)
    life.store.checkpoint()
    is_whole(life, stream)
    life.journal.append(stream, [1_000])
    life.journal.confirm()
    assert life.count(ReportKind.WRITE_FAILED) == 0


def test_what_was_trimmed_before_it_was_written_needs_no_place(memory_path: Path) -> None:
    outlive(trimmed_before_it_was_written, memory_path)


# -- full for other reasons ----------------------------------------------------------------------


def a_slow_disk(life: Life) -> None:
    log = life.journal.create("q")
    life.faults.delay(Op.WRITE, "vhosts/*.log", seconds=0.3)
    life.journal.is_patient = False
    with pytest.raises(Full):
        while True:
            life.journal.append(log, [100_000] * 4)
    life.journal.confirm()
    life.pause(0)  # what the WAL had to say has been said
    life.journal.is_patient = True
    life.journal.append(log, [100])
    life.journal.confirm()


a_slow_disk.options = replace(OPTIONS, hot_buffer_size=1 << 20)  # type: ignore[attr-defined]


def test_who_was_told_that_the_hot_tail_is_full_hears_of_room(memory_path: Path) -> None:
    outlive(a_slow_disk, memory_path, crashes=4)


# -- a start ------------------------------------------------------------------------------------


def much_in_the_wal(life: Life) -> None:
    logs = busy_logs(life)
    for log in logs:
        life.journal.append(log, [100_000] * 9)
    life.journal.confirm()


def start_and_serve(life: Life) -> None:
    for log in life.store:
        is_whole(life, log)
    is_served(life, life.store.get("q"))


@pytest.mark.parametrize("left", [0, 100_000, 2_000_000])
def test_a_start_on_a_full_disk_works_or_says_why_not_and_loses_nothing(
    memory_path: Path, left: int
) -> None:
    with recorded(memory_path) as rec:
        rec.run(command(much_in_the_wal))
        promised = rec.trace.markers()
        rec.faults.disk_full_after(left)
        rec.run(command(start_and_serve), check=False)
    promises = Promises()
    promises.read(promised)
    promises.hold(rec.root, OPTIONS)


# -- a real one ----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with any_disk(tmp_path, 24) as place:
        yield place


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    options = replace(OPTIONS, hot_buffer_size=2 << 20, wal_max_size=5 << 20)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(4 << 20))
    confirmed: dict[int, int] = {}
    with Store.open(small_disk / "data", options) as store:
        queue, stream = store.create("queue"), store.create("stream", flags=LogFlags.NO_CURSOR)
        store.wait(queue.append([Record(b"to be settled")] * 100).seq)

        def append() -> None:
            number = len(confirmed)
            record = Record(content(number, 90_000))
            done = when_there_is_room(store, lambda: stream.append([record]))
            store.wait(done.seq)
            confirmed[done.first_offset] = number

        def fill() -> None:
            """Until the disk is full: what was confirmed by then is what counts."""
            while True:
                append()

        with pytest.raises(NoSpace):
            fill()
        assert len(confirmed) > 50
        check(stream, confirmed)
        assert queue.acquire(50) == list(range(50))
        for offset in range(40):
            queue.settle(offset)
        filler.unlink()
        when_there_is_space(store, append)
        with pytest.raises(NoSpace):
            fill()
        # Now without help from outside: what is trimmed makes space, though nothing can be written.
        stream.trim(max(confirmed) * 3 // 4)
        when_there_is_space(store, append)
        store.wait(queue.settle(40, 49)[1], timeout=60)
        when_there_is_space(store, store.checkpoint)
    with Store.open(small_disk / "data", options) as store:
        start = store.get("stream").stat().start_offset
        check(store.get("stream"), {at: n for at, n in confirmed.items() if at >= start})
        assert store.get("queue").acquire(100) == list(range(50, 100))


def when_there_is_space(store: Store, act: Callable[[], None]) -> None:
    """What comes back file by file may be used up again by what had to wait for it."""
    deadline = time.monotonic() + 60
    while True:
        wait_for_space(store)
        try:
            return act()
        except NoSpace:
            assert time.monotonic() < deadline, "it doesn't heal"


def wait_for_space(store: Store) -> None:
    deadline = time.monotonic() + 60
    while store.trouble():
        assert time.monotonic() < deadline, "it doesn't heal"
        if select.select([store.event_fd], [], [], 0.2)[0]:
            os.eventfd_read(store.event_fd)


def check(stream: Log, confirmed: dict[int, int]) -> None:
    found = {record.offset: record.value for record in stream.records()}
    for offset, number in confirmed.items():
        assert found[offset] == content(number, 90_000), offset
