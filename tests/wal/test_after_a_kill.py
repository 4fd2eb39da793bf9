"""What a kill at an awkward moment once brought to light. A copy of a live store's folder is what
a kill leaves behind: all that was written is there, nothing was closed."""

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from ottermq.wal import Log, Options, Record, Store
from ottermq.wal.store import DirectIO
from tests.wal.stores import SMALL, die, put, until

OPTIONS = Options(wal_file_size=1 << 20, wal_max_size=4 << 20, direct_io=DirectIO.OFF)


@contextlib.contextmanager
def killed(store: Store, name: str = "killed") -> Iterator[Store]:
    """The store as it comes back after a kill at this moment."""
    target = store.data.parent / name
    try:
        shutil.copytree(store.data, target)
    except shutil.Error as error:
        # A new WAL file is made under another name: it may have got its own before it was copied.
        assert all(source.endswith(".tmp") for source, *_ in error.args[0]), error
    with Store.open(target, store.options) as again:
        yield again


def ready(log: Log) -> list[int]:
    return log.acquire(log.cursor().ready_count)


def test_a_settle_of_unknown_weight_is_replayed(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", OPTIONS) as store:
        log = store.create("q")
        store.wait(log.append([Record(b"x" * 10) for _ in range(10)]).seq)
        assert len(log.acquire(3)) == 3
        log.settle(0)
        settled, seq = log.settle(1)
        assert settled == 1
        store.wait(seq)
        with killed(store) as again:
            assert ready(again.get("q")) == list(range(2, 10))


def test_a_purge_spares_what_came_after_it(tmp_path: Path) -> None:
    """Even where the later records were in their segment already when the process died."""
    with Store.open(tmp_path / "data", OPTIONS) as store:
        log = store.create("q")
        log.append([Record(b"before")] * 5)
        store.checkpoint()
        count, _ = log.purge()
        assert count == 5
        after = log.append([Record(b"after")] * 3)
        store.wait(after.seq)
        # A transient record goes to the page cache at once, and what is before it as well.
        log.append([Record(b"transient")], unlogged=True)
        while log.stat().hot_batches:
            time.sleep(0.001)  # the writer tells nobody
        with killed(store) as again:
            values = [record.value for record in again.get("q").records(5)]
            assert values[:3] == [b"after"] * 3
            assert ready(again.get("q"))[:3] == [5, 6, 7]


def test_what_was_given_out_is_told_so_after_a_trim(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", OPTIONS) as store:
        log = store.create("q")
        store.wait(log.append([Record(b"x")] * 10).seq)
        log.trim(2)
        assert log.acquire(2) == [2, 3]
        store.wait(log.trim(2))
        with killed(store) as again:
            assert again.get("q").counts(2)[0] == again.get("q").counts(3)[0] == 1
            assert again.get("q").counts(4)[0] == 0


def test_what_is_appended_after_a_truncation_was_not_settled_before_it(tmp_path: Path) -> None:
    """The writer leaves settled records out: it must not take new ones for the old."""
    with Store.open(tmp_path / "data", OPTIONS) as store:
        log = store.create("q")
        log.append([Record(b"old")])
        store.wait(log.append([Record(b"old")] * 9).seq)
        assert len(log.acquire(10)) == 10
        _, seq = log.settle(0, 9)
        store.wait(seq)
        store.checkpoint()
        log.truncate(1)
        log.append([Record(b"new")] * 3)
        store.checkpoint()
        assert ready(log) == [1, 2, 3]
        assert [record.value for record in log.records(1)] == [b"new"] * 3
    with Store.open(tmp_path / "data", OPTIONS) as store:
        assert [record.value for record in store.get("q").records(1)] == [b"new"] * 3


def test_a_store_that_is_closed_at_once_closes(tmp_path: Path) -> None:
    """Recovery asks for a checkpoint: one that comes after the last must not wait for anybody."""
    with Store.open(tmp_path / "data", OPTIONS) as store:
        store.wait(store.create("q").append([Record(b"x")]).seq)
        for n in range(15):
            with killed(store, f"killed-{n}"):
                pass


def test_a_log_trimmed_into_a_gap_misses_no_segment(tmp_path: Path) -> None:
    """An unclean stop leaves a gap before the recovery point; no file needs to be there for it."""
    with Store.open(tmp_path / "data", OPTIONS) as store:
        store.wait(store.create("q").append([Record(b"x")] * 5).seq)
        store.checkpoint()
        with killed(store, "once") as once:
            assert once.get("q").stat().next_offset > 20
            once.checkpoint()
            once.get("q").trim(20)
            once.checkpoint()
            while list(once.data.glob("vhosts/*/queues/*/*.log")):
                time.sleep(0.01)  # it goes without hurry
            with killed(once, "twice") as twice:
                assert [report.text for report in twice.reports()] == []


def test_offsets_that_a_kill_left_unused_weigh_nothing(data: Path) -> None:
    """Two lives' records lie in one segment, and between them the rest of the first one's lease."""

    def first(store: Store) -> None:
        put(store, store.create("q"), [Record(b"x" * 1000)] * 3)
        store.checkpoint()

    def second(store: Store) -> None:
        log = store.get("q")
        put(store, log, [Record(b"y" * 10)] * 5, unlogged=True)
        until(lambda: log.stat().written_offset == log.stat().next_offset)
        assert log.acquire(3, bytes_each=1000) == [0, 1, 2]
        assert len(log.acquire(2, bytes_each=10)) == 2, "the ones behind the gap"
        store.wait(log.settle(0, 1, weight=2000)[1])

    die(data, first)
    die(data, second)
    with Store.open(data, SMALL) as store:
        found = store.get("q").cursor()
        assert (found.ready_count, found.ready_bytes) == (6, 1050)
