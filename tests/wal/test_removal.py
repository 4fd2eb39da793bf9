"""Trimmed segments: from the log at once, from the disk when no checkpoint names them."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottermq.wal import Log, LogFlags, LogOptions, Record, Store
from ottermq.wal.errors import Deleted
from ottermq.wal.store import Interrupted, Progress
from tests.wal.stores import SMALL, die

SEGMENT = LogOptions(segment_size=65536)


def filled(store: Store, name: str = "orders", segments: int = 4, **more: Any) -> Log:
    """A log with so many segments, the last one active, all written."""
    log = store.create(name, options=SEGMENT, **more)
    while len(log.segments()) < segments:
        store.wait(log.append([Record(bytes(8000))] * 4).seq)
        store.checkpoint()
    return log


def files(store: Store) -> set[int]:
    return {int(path.stem) for path in store.data.rglob("*.log")}


def until(true: Callable[[], bool]) -> None:
    """The checkpoint's thread looks once a second, and there is nothing to wait on."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_trimmed_segments_file_goes_in_the_background(store: Store) -> None:
    log = filled(store)
    first, second, *_ = log.segments()
    log.trim(second.base_offset)
    assert log.segments()[0].base_offset == second.base_offset
    until(lambda: first.base_offset not in files(store))
    assert files(store) == {segment.base_offset for segment in log.segments()}


def test_the_active_segment_goes_when_all_of_it_is_trimmed(store: Store) -> None:
    log = filled(store)
    log.trim(log.segments()[-1].next_offset)
    assert log.segments() == []
    until(lambda: not files(store))
    done = log.append([Record(b"next")])
    store.wait(done.seq)
    store.checkpoint()
    assert files(store) == {done.first_offset}


def test_after_all_was_trimmed_a_restart_finds_nothing_missing(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        log = filled(store)
        end = log.segments()[-1].next_offset
        log.trim(end)
        store.checkpoint()
    with Store.open(tmp_path, SMALL) as store:
        assert store.reports() == []
        log = store.get("orders")
        assert log.stat().start_offset == log.stat().next_offset == end
        assert log.cursor().ready_count == 0
        assert not files(store)


def test_files_that_a_kill_kept_from_going_go_at_the_next_start(memory_path: Path) -> None:
    def life(store: Store) -> None:
        log = filled(store)
        seq = log.trim(log.segments()[-1].next_offset)
        store.wait(seq)
        store.checkpoint()

    die(memory_path, life)
    with Store.open(memory_path, SMALL) as store:
        store.checkpoint()
        until(lambda: not files(store))


def test_closing_removes_what_was_still_to_go(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        log = filled(store)
        last = log.segments()[-1].base_offset
        log.trim(last)
    assert files(store) == {last}


def test_a_log_deleted_after_a_trim_leaves_no_folder(store: Store) -> None:
    log = filled(store)
    log.trim(log.segments()[1].base_offset)
    store.delete(log)
    store.checkpoint()
    until(lambda: not list(store.data.glob("vhosts/*/queues/*")))


def test_a_scratch_log_is_trimmed_like_any_other(store: Store) -> None:
    log = store.create("replies", options=SEGMENT, flags=LogFlags.SCRATCH)
    while len(log.segments()) < 3:
        log.append([Record(bytes(8000))] * 4)
    first = log.segments()[0]
    log.trim(first.next_offset)
    until(lambda: first.base_offset not in files(store))


def test_who_still_holds_a_deleted_log_gets_an_error(store: Store) -> None:
    log = store.create("orders")
    store.delete(log)
    with pytest.raises(Deleted, match="orders"):
        log.stat()


def test_who_still_holds_a_log_of_a_closed_store_gets_an_error(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        log = store.create("orders")
    with pytest.raises(Deleted):
        log.append([Record(b"late")])


def test_a_start_can_be_called_off_and_the_next_one_recovers_all(memory_path: Path) -> None:
    def life(store: Store) -> None:
        log = store.create("orders")
        for _ in range(100):
            seq = log.append([Record(b"hello")] * 10).seq
        store.wait(seq)

    die(memory_path, life)
    store = Store(memory_path, SMALL)
    store.interrupt()
    with pytest.raises(Interrupted):
        store.start()
    store.close()  # nothing left to close: no error
    with Store.open(memory_path, SMALL) as store:
        assert store.get("orders").cursor().ready_count == 1000


def test_calling_off_a_start_that_is_over_changes_nothing(store: Store) -> None:
    thread = threading.Thread(target=store.interrupt)
    thread.start()
    thread.join()
    store.wait(store.create("orders").append([Record(b"hello")]).seq)
    store.checkpoint()


def test_logs_go_by_the_rules_for_their_names_from_the_start(tmp_path: Path) -> None:
    def rules(name: str) -> LogOptions:
        return LogOptions(keep_settled=name.startswith("audit."))

    def kept(log: Log) -> int:
        """Bytes in segments of a record that was settled before it had to be written."""
        log.append([Record(b"hello")])
        _, seq = log.settle(0, log.stat().next_offset)
        log._store.wait(seq)
        log._store.checkpoint()
        return sum(segment.size for segment in log.segments())

    store = Store(tmp_path, SMALL, rules)
    store.start()
    with store:
        assert kept(store.create("audit.logins")) > 0
        assert kept(store.create("orders")) == 0
    store = Store(tmp_path, SMALL, rules)
    store.start()
    with store:
        before = sum(segment.size for segment in store.get("audit.logins").segments())
        assert kept(store.get("audit.logins")) > before
        assert kept(store.get("orders")) == 0


def test_a_start_can_be_watched_and_called_off_to_its_very_end(memory_path: Path) -> None:
    """It shuts in its own thread while others still look."""

    def start(store: Store) -> None:
        with suppress(Interrupted):
            store.start()

    for _ in range(50):
        store = Store(memory_path, SMALL)
        thread = threading.Thread(target=start, args=(store,))
        thread.start()
        while thread.is_alive():
            store.progress()
            store.interrupt()
        store.close()
        assert store.progress() == Progress(0, 0, 0, 0, 0)
