"""Transactions of Kafka producers in one log: what is stable, what was aborted, who may see it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottermq.wal import FlushMode, Log, LogFlags, Store
from ottermq.wal.errors import Refused
from ottermq.wal.log import Aborted
from ottermq.wal.records import CONTROL, TRANSACTIONAL
from tests.wal.producing import COORDINATOR_FENCED, INVALID_EPOCH, INVALID_STATE, batch
from tests.wal.stores import die, segment_files, small, until
from tests.wal.test_after_a_kill import killed

TOPIC = LogFlags.NO_CURSOR


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data", small()) as store:
        yield store


@pytest.fixture
def log(store: Store) -> Log:
    return store.create("t", flags=TOPIC)


def write(store: Store, log: Log, producer: int, sequence: int, *, epoch: int = 0) -> int:
    log.enlist(producer, epoch)
    done = log.append_raw(batch(producer, sequence, epoch=epoch, transactional=True))
    store.wait(done.seq)
    return done.first_offset


def end(store: Store, log: Log, producer: int, *, commit: bool, epoch: int = 0) -> int:
    done = log.mark(producer, epoch, commit=commit)
    store.wait(done.seq)
    return done.first_offset


def test_nothing_past_an_open_transaction_is_stable(store: Store, log: Log) -> None:
    store.wait(log.append_raw(batch(-1, -1, epoch=-1)).seq)
    assert log.stat().last_stable == 1
    assert write(store, log, 7, 0) == 1
    store.wait(log.append_raw(batch(-1, -1, epoch=-1)).seq)
    stat = log.stat()
    assert (stat.last_stable, stat.high_watermark) == (1, 3)
    assert end(store, log, 7, commit=True) == 3
    assert log.stat().last_stable == 4


def test_the_oldest_of_several_transactions_decides(store: Store, log: Log) -> None:
    for producer in (1, 2, 3):
        write(store, log, producer, 0)
    end(store, log, 2, commit=True)
    assert log.stat().last_stable == 0
    end(store, log, 1, commit=False)
    assert log.stat().last_stable == 2
    end(store, log, 3, commit=True)
    assert log.stat().last_stable == 6


def test_what_is_not_on_disk_is_not_stable(store: Store) -> None:
    log = store.create("t", flags=TOPIC)
    done = log.append_raw(batch(-1, -1, epoch=-1))
    assert log.stat().last_stable <= log.stat().high_watermark
    store.wait(done.seq)
    assert log.stat().last_stable == 1


def test_a_marker_is_kafkas_control_batch(store: Store, log: Log) -> None:
    write(store, log, 7, 0, epoch=2)
    log.mark(7, 2, commit=False, coordinator_epoch=5)
    _, marker = log.read(0)
    assert marker.attributes == CONTROL | TRANSACTIONAL
    assert (marker.producer_id, marker.producer_epoch, marker.base_sequence) == (7, 2, -1)
    [record] = marker.records()
    assert record.key == b"\0\0\0\0"
    assert record.value == b"\0\0\0\0\0\5"


def test_aborted_transactions_are_told_to_who_reads_their_part(store: Store, log: Log) -> None:
    write(store, log, 1, 0)  # 0
    write(store, log, 2, 0)  # 1
    end(store, log, 1, commit=False)  # 2
    write(store, log, 1, 1)  # 3
    end(store, log, 2, commit=True)  # 4
    end(store, log, 1, commit=False)  # 5
    first = Aborted(1, 0, 2, 1)
    second = Aborted(1, 3, 5, 6)
    assert log.aborted(0, 6) == [first, second]
    assert log.aborted(0, 1) == [first]
    assert log.aborted(3, 6) == [second]
    assert log.aborted(3, 3) == []
    assert log.aborted(6, 100) == []


def test_sequences_go_on_behind_a_marker(store: Store, log: Log) -> None:
    write(store, log, 7, 0)
    end(store, log, 7, commit=True)
    assert write(store, log, 7, 1) == 2


def test_a_marker_of_a_later_epoch_fences_its_producer(store: Store, log: Log) -> None:
    write(store, log, 7, 0)
    end(store, log, 7, commit=False, epoch=1)
    with pytest.raises(Refused) as caught:
        log.append_raw(batch(7, 1, transactional=True))
    assert caught.value.code == INVALID_EPOCH
    with pytest.raises(Refused) as caught:
        end(store, log, 7, commit=True)
    assert caught.value.code == INVALID_EPOCH
    assert write(store, log, 7, 0, epoch=1) == 2


def test_a_coordinator_of_the_past_ends_nothing(store: Store, log: Log) -> None:
    write(store, log, 7, 0)
    log.mark(7, 0, commit=True, coordinator_epoch=3)
    with pytest.raises(Refused) as caught:
        log.mark(7, 0, commit=True, coordinator_epoch=2)
    assert caught.value.code == COORDINATOR_FENCED


def test_a_transaction_needs_to_be_known_again_after_its_end(store: Store, log: Log) -> None:
    write(store, log, 7, 0)
    end(store, log, 7, commit=True)
    with pytest.raises(Refused) as caught:
        log.append_raw(batch(7, 1, transactional=True))
    assert caught.value.code == INVALID_STATE


def test_plain_batches_stay_out_of_an_open_transaction(store: Store, log: Log) -> None:
    write(store, log, 7, 0)
    with pytest.raises(Refused) as caught:
        log.append_raw(batch(7, 1))
    assert caught.value.code == INVALID_STATE


def test_a_queue_gives_out_nothing_past_an_open_transaction(store: Store) -> None:
    log = store.create("q")
    write(store, log, 7, 0)
    store.wait(log.append_raw(batch(-1, -1, epoch=-1)).seq)
    assert log.acquire(10) == []
    end(store, log, 7, commit=True)
    assert log.acquire(10) == [0, 1]


def test_trimming_forgets_aborted_transactions(store: Store, log: Log) -> None:
    write(store, log, 7, 0)
    end(store, log, 7, commit=False)
    store.wait(log.append_raw(batch(-1, -1, epoch=-1)).seq)
    log.trim(2)
    assert log.aborted(0, 100) == []


# -- after a stop


@pytest.mark.parametrize("checkpoint_after", range(7))
@pytest.mark.parametrize("flags", [TOPIC, LogFlags(0)], ids=["topic", "queue"])
def test_a_kill_changes_nothing_wherever_the_checkpoint_was(
    tmp_path: Path, checkpoint_after: int, flags: LogFlags
) -> None:
    with Store.open(tmp_path / "data", small()) as store:
        log = store.create("t", flags=flags)
        steps: list[Callable[[], object]] = [
            lambda: write(store, log, 1, 0),  # 0
            lambda: write(store, log, 2, 0),  # 1
            lambda: write(store, log, 1, 1),  # 2
            lambda: end(store, log, 1, commit=False),  # 3
            lambda: write(store, log, 3, 0),  # 4
            lambda: end(store, log, 2, commit=True),  # 5
        ]
        for number, step in enumerate(steps):
            if number == checkpoint_after:
                store.checkpoint()
            step()
        if checkpoint_after == len(steps):
            store.checkpoint()
        with killed(store) as again:
            log = again.get("t")
            assert log.stat().last_stable == 4
            assert log.aborted(0, 100) == [Aborted(1, 0, 3, 1)]
            open_ones = {p.producer_id: p.first_open for p in log.producers()}
            assert open_ones == {1: -1, 2: -1, 3: 4}
            again.wait(log.mark(3, 0, commit=False).seq)
            assert [(a.producer_id, a.first_offset) for a in log.aborted(0, 2**40)] == [
                (1, 0),
                (3, 4),
            ]


def test_a_clean_stop_keeps_open_and_aborted_transactions(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", small()) as store:
        log = store.create("t", flags=TOPIC)
        write(store, log, 1, 0)
        end(store, log, 1, commit=False)
        write(store, log, 2, 0)
    for _ in range(2):
        with Store.open(tmp_path / "data", small()) as store:
            log = store.get("t")
            assert log.stat().last_stable == 2
            assert log.aborted(0, 100) == [Aborted(1, 0, 1, 2)]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_the_end_of_a_transaction_survives_the_power_whatever_the_flush_mode(
    tmp_path: Path, commit: bool
) -> None:
    """Its coordinator says it once: a log that forgot it would hold its readers up for ever."""
    data, options = tmp_path / "data", small(flush_mode=FlushMode.ASYNC)

    def life(store: Store) -> tuple[Path, int]:
        log = store.create("t", flags=TOPIC)
        write(store, log, 7, 0)
        until(lambda: log.stat().hot_batches == 0)
        store.checkpoint()
        [file] = segment_files(store, log)
        synced = log.stat().size_bytes
        end(store, log, 7, commit=commit)
        log.append_raw(batch(-1, -1, epoch=-1))
        return file, synced

    file, synced = die(data, life, options)
    with file.open("r+b") as segment:  # nobody synced the rest: a power loss takes it away
        segment.truncate(synced)
    with Store.open(data, options) as store:
        log = store.get("t")
        assert [each.first_open for each in log.producers()] == [-1]
        assert log.stat().last_stable == log.stat().high_watermark
        assert [(a.first_offset, a.last_offset) for a in log.aborted(0, 2**40)] == (
            [] if commit else [(0, 1)]
        )
