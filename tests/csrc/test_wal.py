"""The WAL while it runs: appends, groups, files that go round, and what "full" means."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.csrc.wals import (
    BLOCK,
    CONTINUES,
    GROUP_START,
    MIB,
    PART,
    Wal,
    WalError,
    files,
    memory_folder,
    opened,
    parse_groups,
    parse_header,
    read,
)
from tests.examples import examples
from tests.internals import ffi, lib

FOREVER_MS = 3_600_000


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as memory:
        yield memory / "wal"


def test_what_was_committed_is_read_back_in_order(folder: Path) -> None:
    with opened(folder) as wal:
        wal.append(b"one", log_id=7, type=3)
        wal.append(b"", log_id=2**64 - 1, type=255)
        wal.append(b"in ", b"", b"two pieces", log_id=0)
        wal.submit()
        assert wal.wait(3) == lib.OM_OK
    entries = read(folder).entries
    assert [(e.seq, e.payload, e.log_id, e.type) for e in entries] == [
        (1, b"one", 7, 3),
        (2, b"", 2**64 - 1, 255),
        (3, b"in two pieces", 0, 2),
    ]
    assert {entry.epoch for entry in entries} == {1}


def test_closing_commits_what_was_appended(folder: Path) -> None:
    wal = Wal(folder)
    wal.append(b"submitted, lazily")
    wal.submit(lazy=True)
    wal.append(b"only appended")
    assert wal.close() == lib.OM_OK
    assert read(folder).payloads == [b"submitted, lazily", b"only appended"]


def test_nothing_is_durable_before_it_is_submitted(folder: Path) -> None:
    with opened(folder) as wal:
        seq = wal.append(b"record")
        assert (wal.last_seq, wal.durable) == (seq, 0)
        assert wal.wait(seq, timeout_ms=20) == lib.OM_E_TIMEOUT
        wal.submit()
        assert wal.wait(seq, timeout_ms=-1) == lib.OM_OK
        assert wal.durable == seq


def test_the_eventfd_tells_when_records_become_durable(folder: Path) -> None:
    with opened(folder) as wal:
        assert not wal.told(timeout=0)
        seq = wal.append(b"record")
        wal.submit()
        wal.until_told(seq)


@pytest.mark.parametrize("type", [0, PART])
def test_the_types_of_the_wal_itself_are_refused(folder: Path, type: int) -> None:
    with opened(folder) as wal:
        assert wal.append(b"record", type=type) == 0
        assert wal.last_seq == 0


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.lists(st.integers(0, 700_000) | st.integers(0, 300), max_size=5), max_size=6))
def test_records_of_any_length_come_back_whole(ticks: list[list[int]]) -> None:
    written = []
    with memory_folder() as folder:
        with opened(folder, max_size=64 * MIB, backlog_max=64 * MIB) as wal:
            for number, tick in enumerate(ticks):
                for length in tick:
                    payload = (b"%07d" % (number * 1000 + length) * (length // 7 + 1))[:length]
                    written.append((wal.append(payload), payload))
                wal.submit(lazy=number % 2 == 0)
        entries = read(folder).entries
    assert [(entry.seq, entry.payload) for entry in entries] == written


LENGTHS = st.integers(0, 300) | st.integers(32_000, 34_000) | st.integers(500_000, 1_100_000)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 600), LENGTHS), max_size=8), max_size=6),
    st.integers(0, 1),
)
@example([[(0, 34_000), (0, 600_000), (4_064, 33_000)], [(0, 1_100_000)]], 1)
def test_lent_payloads_of_any_length_come_back_whole(
    ticks: list[list[tuple[int, int]]], direct_io: int
) -> None:
    """A head that is copied, bytes that are not, and small records between."""
    written, lenders = [], []
    with memory_folder() as folder:
        options: dict[str, Any] = {
            "max_size": 64 * MIB,
            "backlog_max": 64 * MIB,
            "direct_io": direct_io,
        }
        with opened(folder, **options) as wal:
            for number, tick in enumerate(ticks):
                for head, length in tick:
                    payload = (b"%07d" % (number * 1000 + length) * (length // 7 + 1))[:length]
                    crc_from = 21 if head % 2 and length > 21 else 0
                    seq, lender = wal.lend(b"h" * head, payload, crc_from=crc_from)
                    lenders.append(lender)
                    written.append((seq, b"h" * head + payload))
                    written.append((wal.append(b"small"), b"small"))
                wal.submit(lazy=number % 2 == 0)
        entries = read(folder).entries
        assert all(lender.refs == 1 for lender in lenders)
        for lender in lenders:
            lib.om_buffer_unref(lender)
    assert [(entry.seq, entry.payload) for entry in entries] == written


def test_what_a_lender_knows_isnt_counted_again(folder: Path) -> None:
    """Bytes that changed since are found out by whoever reads them, as on a bad disk."""
    payload = os.urandom(40_000)
    with opened(folder) as wal:
        wal.commit(b"before")
        seq, lender = wal.lend(payload, crc_from=21)
        lender.data[30_000] ^= 1
        wal.submit()
        assert wal.wait(seq) == lib.OM_OK
        lib.om_buffer_unref(lender)
    assert read(folder).payloads == [b"before"]


@pytest.mark.parametrize("direct_io", [0, 1])
def test_many_loans_are_more_than_one_buffer_and_one_group_take(
    folder: Path, direct_io: int
) -> None:
    payloads = [os.urandom(33_000) for _ in range(700)]
    options: dict[str, Any] = {
        "file_size": 32 * MIB,
        "max_size": 128 * MIB,
        "backlog_max": 64 * MIB,
    }
    with opened(folder, batch_max_size=16 * MIB, direct_io=direct_io, **options) as wal:
        lent = [wal.lend(payload) for payload in payloads]
        assert all(lender.refs == 2 for _, lender in lent)
        wal.submit()
        assert wal.wait(lent[-1][0]) == lib.OM_OK
        for _, lender in lent:
            assert lender.refs == 1
            lib.om_buffer_unref(lender)
    assert read(folder).payloads == payloads


def test_the_disk_takes_large_payloads_from_where_they_lie(tmp_path: Path) -> None:
    """Past the page cache a lent record begins on a block, as its bytes lie in memory; a payload
    with a head before it lies otherwise, and is written all the same."""
    payloads = [os.urandom(length) for length in (32_768, 65_700, 700_000, 33_001)]
    options: dict[str, Any] = {"file_size": 8 * MIB, "max_size": 32 * MIB}
    with opened(tmp_path, direct_io=1, **options) as wal:
        if not wal.stat.direct_io:
            pytest.skip("this file system has no O_DIRECT")
        lenders = []
        for payload in payloads:
            assert wal.append(b"small")
            lenders.append(wal.lend(payload, crc_from=21)[1])
        seq, lender = wal.lend(b"head", payloads[1])
        wal.submit()
        assert wal.wait(seq) == lib.OM_OK
        assert wal.stat.direct_io, "and the disk took it"
        for each in (*lenders, lender):
            lib.om_buffer_unref(each)
    [group] = parse_groups(files(tmp_path)[1].read_bytes())
    sizes = [(raw.length, raw.position % BLOCK == 0) for raw in group]
    small, rest = 32 + len(b"small"), 700_000 - lib.OM_WAL_RECORD_MAX
    assert sizes == [
        (small, True),  # the group's first
        (32 + 32_768, True),
        (small, False),
        (32 + 65_700, True),
        (small, False),
        (32 + lib.OM_WAL_RECORD_MAX, True),
        (32 + rest, True),
        (small, False),
        (32 + 33_001, True),
        (32 + 4 + 65_700, False),
    ]
    mixed = [each for payload in payloads for each in (b"small", payload)]
    assert read(tmp_path).payloads == [*mixed, b"head" + payloads[1]]


def test_padding_counts_when_a_group_is_cut(tmp_path: Path) -> None:
    """A file's last group must not reach past its end because of what lies between its records."""
    payloads = [os.urandom(32_800) for _ in range(300)]
    options: dict[str, Any] = {"file_size": MIB, "max_size": 32 * MIB, "backlog_max": 32 * MIB}
    with opened(tmp_path, direct_io=1, **options) as wal:
        lent = [wal.lend(payload) for payload in payloads]
        wal.submit()
        assert wal.wait(lent[-1][0]) == lib.OM_OK
        for _, lender in lent:
            lib.om_buffer_unref(lender)
    assert all(path.stat().st_size == MIB for path in files(tmp_path).values())
    assert read(tmp_path).payloads == payloads


def test_a_long_record_is_written_in_parts_that_know_each_other(folder: Path) -> None:
    payload = os.urandom(lib.OM_WAL_RECORD_MAX * 2 + 5)
    with opened(folder, file_size=4 * MIB, max_size=16 * MIB) as wal:
        assert wal.commit(b"before", payload, b"after") == 5
    records = [raw for group in parse_groups(files(folder)[1].read_bytes()) for raw in group]
    assert [raw.type for raw in records] == [2, PART, PART, 2, 2]
    assert [raw.flags & CONTINUES for raw in records] == [0, 0, CONTINUES, CONTINUES, 0]
    assert read(folder).seqs == [1, 4, 5]
    assert read(folder).payloads == [b"before", payload, b"after"]


def test_a_long_record_is_durable_as_a_whole(folder: Path) -> None:
    with opened(folder, max_size=64 * MIB, backlog_max=64 * MIB) as wal:
        wal.commit(b"before")
        last = wal.append(bytes(9 * MIB))
        wal.submit()
        seen = {wal.durable}
        while wal.durable < last:
            assert wal.told()
            seen.add(wal.durable)
        assert wal.stat.groups > 9
    assert seen == {1, last}


# -- groups --


def test_each_group_starts_on_a_fresh_block(folder: Path) -> None:
    with opened(folder) as wal:
        for number in range(5):
            wal.commit(*[b"x" * 300] * (number * 5 + 1))
    groups = parse_groups(files(folder)[1].read_bytes())
    assert [len(group) for group in groups] == [1, 6, 11, 16, 21]
    for group in groups:
        assert group[0].position % BLOCK == 0
        assert [raw.flags & GROUP_START for raw in group] == [GROUP_START] + [0] * (len(group) - 1)


def test_what_gathers_while_a_sync_runs_is_one_group(folder: Path) -> None:
    """Idle waiting is the one way to make the moment of a sync certain without a slow disk."""
    with opened(folder, batch_max_wait_us=200_000) as wal:
        for number in range(20):
            seq = wal.append(b"%d" % number)
            wal.submit()
        assert wal.wait(seq) == lib.OM_OK
        assert (wal.stat.groups, wal.stat.records) == (1, 20)


def test_a_group_that_is_full_waits_for_nobody(folder: Path) -> None:
    with opened(folder, batch_max_wait_us=FOREVER_MS * 1000, batch_max_size=10_000) as wal:
        for _ in range(10):
            wal.append(b"x" * 1000)
            wal.submit()
        assert wal.wait(9) == lib.OM_OK, "the tenth doesn't fit and may wait"


def test_a_group_takes_no_more_than_its_limit(folder: Path) -> None:
    with opened(folder, batch_max_size=10_000) as wal:
        wal.commit(*[b"x" * 968] * 35)
        assert wal.stat.groups == 4
        assert wal.commit(b"a record longer than the limit" * 1000) == 36
        assert wal.stat.groups == 5


def test_in_immediate_mode_each_submit_is_a_group(folder: Path) -> None:
    with opened(folder, flush_immediate=1) as wal:
        for _ in range(50):
            wal.append(b"first")
            seq = wal.append(b"second")
            wal.submit()
        assert wal.wait(seq) == lib.OM_OK
        assert wal.stat.groups == 50


def test_lazy_records_go_with_the_next_group(folder: Path) -> None:
    with opened(folder, lazy_sync_ms=FOREVER_MS) as wal:
        for _ in range(3):
            wal.append(b"lazy")
            wal.submit(lazy=True)
        assert not wal.told(timeout=0.02)
        wal.append(b"urgent")
        wal.submit()
        wal.until_told(4)
        assert wal.stat.groups == 1


def test_lazy_records_are_synced_in_their_time_without_company(folder: Path) -> None:
    with opened(folder, lazy_sync_ms=10) as wal:
        wal.append(b"lazy")
        wal.submit(lazy=True)
        wal.until_told(1)


def test_many_lazy_records_are_synced_when_they_fill_a_group(folder: Path) -> None:
    with opened(folder, lazy_sync_ms=FOREVER_MS, batch_max_size=10_000) as wal:
        for _ in range(12):
            wal.append(b"x" * 1000)
            wal.submit(lazy=True)
        wal.until_told(9)


def test_waiting_for_a_lazy_record_hurries_it(folder: Path) -> None:
    with opened(folder, lazy_sync_ms=FOREVER_MS) as wal:
        seq = wal.append(b"lazy")
        wal.submit(lazy=True)
        assert wal.wait(seq) == lib.OM_OK


def test_many_threads_may_wait_for_one_sequence(folder: Path) -> None:
    with opened(folder) as wal:
        results: list[int] = []
        waiters = [
            threading.Thread(target=lambda: results.append(wal.wait(1, -1))) for _ in range(8)
        ]
        for waiter in waiters:
            waiter.start()
        wal.append(b"record")
        wal.submit()
        for waiter in waiters:
            waiter.join()
        assert results == [lib.OM_OK] * 8


# -- files --


def test_files_are_zero_filled_once_and_go_round(folder: Path) -> None:
    inodes: set[int] = set()
    with opened(folder, max_size=3 * MIB, reserve=0) as wal:
        for _ in range(40):
            seq = wal.commit(b"x" * 300_000)
            wal.release(seq)
            inodes.update(path.stat().st_ino for path in folder.glob("*.wal"))
        assert wal.stat.files <= 3
    assert max(files(folder)) >= 13
    assert len(inodes) <= 4, "two threads may make one file too many"
    assert all(path.stat().st_size == MIB for path in folder.glob("*.wal"))


def test_a_file_in_use_is_named_by_its_number(folder: Path) -> None:
    with opened(folder) as wal:
        for _ in range(5):
            wal.commit(b"x" * 600_000)
    assert {path.name for path in files(folder).values()} == {
        f"{number:016}.wal" for number in range(1, 6)
    }


def test_each_start_has_a_new_file_and_a_new_epoch(folder: Path) -> None:
    for start in range(1, 4):
        with opened(folder, read(folder)) as wal:
            wal.commit(b"start %d" % start)
    assert [(e.payload, e.epoch) for e in read(folder).entries] == [
        (b"start 1", 1),
        (b"start 2", 2),
        (b"start 3", 3),
    ]
    headers = [parse_header(path.read_bytes()) for path in files(folder).values()]
    assert [(h.number, h.epoch, h.prev_last_seq) for h in headers if h] == [
        (1, 1, 0),
        (2, 2, 1),
        (3, 3, 2),
    ]


def test_the_head_file_stays_when_everything_is_released(folder: Path) -> None:
    with opened(folder) as wal:
        wal.release(wal.commit(b"record"))
    reading = read(folder, after=1)
    assert (reading.result, reading.payloads) == (lib.OM_END, [])
    with opened(folder, reading, released=1) as wal:
        assert wal.commit(b"the next") == 2
    assert read(folder, after=1).payloads == [b"the next"]


def test_files_of_another_size_are_read_and_then_replaced(folder: Path) -> None:
    with opened(folder, file_size=2 * MIB) as wal:
        wal.commit(b"in a file of 2 MiB")
    reading = read(folder)
    assert reading.payloads == [b"in a file of 2 MiB"]
    with opened(folder, reading) as wal:
        wal.release(wal.commit(b"in a file of 1 MiB"))
        for _ in range(4):
            wal.release(wal.commit(b"x" * 900_000))
    assert {path.stat().st_size for path in folder.glob("*.wal")} == {MIB}


def test_half_made_files_are_swept_away(folder: Path) -> None:
    folder.mkdir()
    (folder / "new-000001.tmp").write_bytes(bytes(5000))
    with opened(folder) as wal:
        wal.commit(b"record")
    assert not list(folder.glob("*.tmp"))


def test_a_file_is_made_little_by_little_until_it_is_needed(folder: Path) -> None:
    """Zeros written in one go would hold up the commits of that moment."""
    with opened(folder, file_size=8 * MIB, max_size=32 * MIB) as wal:
        began = time.monotonic()
        wal.commit(b"first")
        while time.monotonic() < began + 0.3:
            assert wal.stat.spare_files == 0
        for _ in range(9):
            wal.commit(b"x" * MIB)
        assert wal.stat.files >= 2 and time.monotonic() < began + 1.2


def test_a_name_that_is_taken_is_not_overwritten(folder: Path) -> None:
    """After a crash the file of an old number may carry the next one's name."""
    with opened(folder) as wal:
        wal.commit(b"kept")
    files(folder)[1].rename(folder / f"{2:016}.wal")
    with opened(folder, read(folder)) as wal:
        wal.commit(b"new")
    assert read(folder).payloads == [b"kept", b"new"]


def test_spare_files_that_were_removed_are_no_loss(folder: Path) -> None:
    with opened(folder) as wal:
        for _ in range(12):
            wal.release(wal.commit(b"x" * 600_000))
    reading = read(folder, after=12)
    with opened(folder, reading, released=12) as wal:
        for path in folder.glob("*.wal"):
            if path != max(folder.glob("0*.wal")):  # that one is in use
                path.unlink()
        for _ in range(12):
            wal.commit(b"x" * 100_000)
        assert wal.fenced() is None


def test_a_log_is_not_opened_with_another_ones_end(folder: Path) -> None:
    with opened(folder) as wal:
        wal.commit(b"record")
    with pytest.raises(WalError, match="recovery ended with 0"):
        Wal(folder)
    assert read(folder).payloads == [b"record"]


@pytest.mark.parametrize(
    "options",
    [
        {"file_size": MIB + 1},
        {"file_size": MIB // 2},
        {"max_size": 2 * MIB},
        {"reserve": 7 * MIB},
        {"batch_max_size": 0},
        {"backlog_max": 0},
        {"direct_io": 3},
    ],
)
def test_options_out_of_range_are_refused(folder: Path, options: dict[str, int]) -> None:
    with pytest.raises(WalError):
        Wal(folder, None, **options)
    assert not folder.exists()


@pytest.mark.parametrize("direct_io", [1, 2])
def test_direct_writes_are_a_choice_that_changes_nothing(tmp_path: Path, direct_io: int) -> None:
    payloads = [os.urandom(length) for length in (10, 5000, 4064, 700_000, 3_000_000)]
    with opened(tmp_path, direct_io=direct_io, max_size=64 * MIB) as wal:
        assert wal.stat.direct_io in (0, 1)
        for payload in payloads:
            wal.commit(payload)
    assert read(tmp_path).payloads == payloads


# -- full is a state --


def test_appends_are_told_full_before_settles(folder: Path) -> None:
    with opened(folder, max_size=4 * MIB, reserve=2 * MIB) as wal:
        while wal.admit() == lib.OM_OK:
            wal.commit(b"x" * 100_000)
        assert wal.admit() == lib.OM_E_FULL
        assert wal.used <= 3 * MIB
        while wal.admit("SETTLE") == lib.OM_OK:
            wal.commit(b"x" * 100_000)
        assert wal.admit("SETTLE") == lib.OM_E_FULL
        assert wal.used <= 7 * MIB


def test_a_release_gives_room_and_says_so(folder: Path) -> None:
    with opened(folder, max_size=4 * MIB) as wal:
        while not wal.stat.spare_files:
            time.sleep(0.001)
        while wal.admit() == lib.OM_OK:
            seq = wal.commit(b"x" * 100_000)
        while wal.told(timeout=0):
            pass
        wal.release(seq)
        assert wal.told()
        assert wal.admit() == lib.OM_OK
        assert wal.used <= MIB


def test_only_what_is_durable_can_be_released(folder: Path) -> None:
    with opened(folder, lazy_sync_ms=FOREVER_MS) as wal:
        released = wal.commit(b"x")
        wal.append(b"not yet durable")
        wal.release(2**64 - 1)
        wal.submit()
        for _ in range(4):
            wal.commit(b"x" * 600_000)
    assert read(folder, after=released).payloads[0] == b"not yet durable"


def test_appends_are_told_full_when_the_disk_is_behind(folder: Path) -> None:
    with opened(folder, backlog_max=MIB, lazy_sync_ms=FOREVER_MS) as wal:
        while not wal.stat.spare_files:
            time.sleep(0.001)
        for _ in range(11):
            assert wal.admit() == lib.OM_OK
            wal.append(b"x" * 100_000)
        assert wal.admit() == lib.OM_E_FULL
        assert wal.admit("SETTLE") == lib.OM_OK
        for _ in range(11):
            wal.append(b"x" * 100_000)
        assert wal.admit("SETTLE") == lib.OM_E_FULL
        wal.submit()
        assert wal.wait(wal.last_seq) == lib.OM_OK
        assert wal.admit() == lib.OM_OK


def test_one_record_may_be_longer_than_the_whole_log(folder: Path) -> None:
    payload = os.urandom(9 * MIB)
    with opened(folder, max_size=3 * MIB, reserve=0, backlog_max=MIB) as wal:
        assert wal.admit() == lib.OM_OK
        seq = wal.commit(payload)
        assert wal.stat.files > 9
        assert wal.admit() == lib.OM_E_FULL
        assert wal.live().payloads == [payload]
        wal.release(seq)
        assert wal.admit() == lib.OM_OK
        assert wal.stat.files <= 3
        wal.commit(b"and on")
    assert read(folder, after=seq).payloads == [b"and on"]
    assert len(list(folder.glob("*.wal"))) <= 4


def test_used_counts_from_the_oldest_file_that_is_needed(folder: Path) -> None:
    with opened(folder) as wal:
        assert wal.used == BLOCK
        first = wal.commit(b"x" * 600_000)
        assert MIB // 2 < wal.used < MIB
        wal.commit(b"x" * 600_000)
        assert MIB < wal.used < 2 * MIB
        wal.release(first)
        assert wal.used < MIB


# -- reading while it is open --


def test_a_live_log_gives_what_is_durable_and_nothing_else(folder: Path) -> None:
    with opened(folder, lazy_sync_ms=FOREVER_MS) as wal:
        assert wal.live().payloads == []
        wal.commit(b"a", b"b")
        wal.append(b"not submitted")
        reading = wal.live()
        assert (reading.result, reading.payloads) == (lib.OM_END, [b"a", b"b"])
        assert wal.live(after=1).payloads == [b"b"]


def test_a_live_log_can_be_read_while_it_is_written(folder: Path) -> None:
    with opened(folder, max_size=64 * MIB) as wal:
        stop = threading.Event()
        readings: list[tuple[int, list[int], int]] = []

        def look() -> None:
            while not stop.is_set():
                durable = wal.durable
                reading = wal.live(after=max(0, durable - 50))
                readings.append((durable, reading.seqs, reading.result))

        looker = threading.Thread(target=look)
        looker.start()
        number = 0
        while number < 300 or (len(readings) <= 5 and number < 30_000):
            wal.commit(b"%d" % number * (5000 if number < 300 else 1))
            number += 1
        stop.set()
        looker.join()
    assert len(readings) > 5
    for durable, seqs, result in readings:
        assert result == lib.OM_END
        assert seqs == list(range(max(0, durable - 50) + 1, (seqs or [durable])[-1] + 1))
        assert not seqs or seqs[-1] >= durable


def test_a_null_pointer_is_closed_without_harm() -> None:
    lib.om_wal_reader_close(ffi.NULL)
