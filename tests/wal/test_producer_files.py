"""What Kafka's tools see of a log's producers, and that a restart doesn't need to look for them."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottermq._core import lib
from ottermq.wal import Log, LogFlags, Store
from tests.wal.producing import batch
from tests.wal.stores import die, flush, folder_of, segment_files, small, until

TOPIC = LogFlags.NO_CURSOR
OPTIONS = small(segment_size=64 << 10, wal_file_size=4 << 20, wal_max_size=16 << 20)
VALUE = b"v" * 4000

Aborted = tuple[int, int, int, int]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data", OPTIONS) as store:
        yield store


def fill(store: Store, log: Log, rounds: int = 60, first: int = 0) -> None:
    """Two segments, or three: a producer that goes on and one whose transactions are given up."""
    for sequence in range(first, first + rounds):
        log.append_raw(batch(5, sequence, value=VALUE))
        log.enlist(7, 0)
        log.append_raw(batch(7, sequence, transactional=True, value=b"never"))
        log.mark(7, 0, commit=False)
    flush(store)


def snapshots(store: Store, log: Log) -> dict[int, dict[int, int]]:
    """By the offset the log ended at: each producer's last offset."""
    found = {}
    for file in folder_of(store, log).glob("*.snapshot"):
        data = file.read_bytes()
        version, crc, count = struct.unpack_from(">hIi", data)
        assert (version, crc, len(data)) == (
            1,
            lib.om_crc32c(0, data[6:], len(data) - 6),
            10 + 46 * count,
        )
        entries = (struct.unpack_from(">qhiq", data, 10 + 46 * i) for i in range(count))
        found[int(file.stem)] = {id: offset for id, _, _, offset in entries}
    return found


def aborted(store: Store, log: Log) -> dict[int, list[Aborted]]:
    """By the segment."""
    return {
        int(file.stem): [entry[1:] for entry in struct.iter_unpack(">hqqqq", file.read_bytes())]
        for file in folder_of(store, log).glob("*.txnindex")
    }


def bases(store: Store, log: Log) -> list[int]:
    return [int(file.stem) for file in segment_files(store, log)]


def test_a_full_segment_leaves_them_while_the_log_is_written(store: Store) -> None:
    log = store.create("t", flags=TOPIC)
    fill(store, log)
    *full, active = bases(store, log)
    assert len(full) >= 3
    until(lambda: full[-1] in aborted(store, log))
    for end, producers in snapshots(store, log).items():
        assert full[1] <= end <= log.stat().next_offset
        assert set(producers) <= {5, 7} and all(last < end for last in producers.values())
    told = [(one.producer_id, one.first_offset, one.last_offset) for one in log.aborted(0, active)]
    seen = aborted(store, log)
    assert sorted(seen) == full
    assert [entry[:3] for base in full for entry in seen[base]] == told
    for base, end in zip(full, [*full[1:], active], strict=True):
        assert all(base <= last < end for _, _, last, _ in seen[base])


def test_they_go_with_their_segments(store: Store) -> None:
    log = store.create("t", flags=TOPIC)
    for life in range(4):
        fill(store, log, rounds=20, first=20 * life)
    until(lambda: bases(store, log)[-2] in aborted(store, log))
    before, kept = snapshots(store, log), bases(store, log)[-3:]
    assert len(before) > 3
    log.trim(kept[0])
    flush(store)
    until(lambda: bases(store, log) == kept)
    until(lambda: min(snapshots(store, log)) > kept[0])
    assert set(aborted(store, log)) <= set(kept)


def test_what_an_earlier_life_left_gives_way(tmp_path: Path) -> None:
    def life(store: Store) -> list[int]:
        log = store.create("t", flags=TOPIC)
        fill(store, log)
        until(lambda: bases(store, log)[-2] in aborted(store, log))
        return list(snapshots(store, log))

    left = die(tmp_path, life, OPTIONS)
    with Store.open(tmp_path, OPTIONS) as store:
        log = store.get("t")
        half = folder_of(store, log) / f"{max(left):020}.snapshot.tmp"
        half.touch()  # what a kill may leave
        fill(store, log, first=60)
        until(lambda: bases(store, log)[-2] in aborted(store, log))
        assert left and not set(left) & set(snapshots(store, log))
        assert not half.exists()
        assert sorted(aborted(store, log)) == bases(store, log)[:-1]
        folder = folder_of(store, log)
    with Store.open(tmp_path, OPTIONS) as store:  # a clean stop leaves one of the log's end
        log = store.get("t")
        assert max(snapshots(store, log)) == log.stat().next_offset
        store.delete(log)
        until(lambda: not folder.exists())


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_reads_no_full_segment_again(tmp_path: Path, clean: bool) -> None:
    """Two thousand producers, a hundred aborted transactions, segments that nobody can read."""
    producers = range(1000, 3000)

    def life(store: Store) -> tuple[list[int], int]:
        log = store.create("t", flags=TOPIC)
        for producer in producers:
            log.append_raw(batch(producer, 0, value=b"v" * 400))
        fill(store, log, rounds=100)
        last = [log.append_raw(batch(producer, 1)).seq for producer in producers[:100]][-1]
        store.wait(last)
        return bases(store, log), len(log.aborted(0, log.stat().next_offset))

    if clean:
        with Store.open(tmp_path, OPTIONS) as store:
            segments, given_up = life(store)
    else:
        segments, given_up = die(tmp_path, life, OPTIONS)
    assert len(segments) > 15 and given_up == 100
    [folder] = tmp_path.glob("vhosts/*/queues/t.*")
    for base in segments[:-1]:
        file = folder / f"{base:020}.log"
        file.write_bytes(b"\xff" * file.stat().st_size)
    with Store.open(tmp_path, OPTIONS) as store:
        assert store.progress().done < 1 << 20
        assert not list(store.reports())
        log = store.get("t")
        assert len(log.aborted(0, log.stat().next_offset)) == given_up
        for producer in producers:  # known, each: it is told where its first batch went
            again = log.append_raw(batch(producer, 0, value=b"v" * 400))
            assert again.first_offset == producer - 1000
