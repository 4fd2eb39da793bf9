"""Recovery: what of a segment's file is believed, and what becomes of the rest."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.csrc.batches import Record, encode
from tests.csrc.segments import (
    NOW,
    TIME_ENTRY,
    Placed,
    Segment,
    batch_plans,
    file_cache,
    kafka_indexes,
)
from tests.examples import examples
from tests.internals import ffi, lib

quick = settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def files() -> Iterator[Any]:
    with file_cache() as cache:
        yield cache


@pytest.fixture
def segment(files: Any, tmp_path: Path) -> Iterator[Segment]:
    made = Segment(files, tmp_path, 1000)
    yield made
    made.close()


def scanned(segment: Segment, **how: int) -> tuple[Segment, Any]:
    """Opened anew and scanned; the list of batches is cut to what was found."""
    again = segment.reopen(trust=False)
    result, scan = again.scan(**how)
    assert result == lib.OM_OK
    again.batches = [b for b in segment.batches if b.position + len(b.data) <= scan.valid_size]
    assert scan.valid_size == again.size
    assert scan.next_offset == again.next_offset
    assert (again.c.size, again.c.written) == (again.size, again.size)
    return again, scan


def index_of(segment: Segment) -> tuple[bytes, bytes]:
    index = segment.c.index
    return (
        bytes(ffi.buffer(index.offsets, index.offset_count * lib.OM_OFFSET_ENTRY)),
        bytes(ffi.buffer(index.times, index.time_count * lib.OM_TIME_ENTRY)),
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@quick
@given(plan=batch_plans(), zeros=st.sampled_from([0, 1, 11, 12, 60, 61, 5000, 300_000]))
def test_a_whole_segment_is_believed_to_its_end(
    files: Any, tmp_path: Path, plan: list[tuple[list[Record], int]], zeros: int
) -> None:
    segment = Segment(files, tmp_path)
    for records, gap in plan:
        segment.append(records, gap, leader_epoch=3)
    with segment.path().open("ab") as file:
        file.write(bytes(zeros))
    before = contents(tmp_path)
    again, scan = scanned(segment)
    assert contents(tmp_path) == before
    assert scan.stopped == lib.OM_OK
    assert scan.valid_size == segment.size
    assert (scan.batches, scan.last_epoch) == (len(plan), 3)
    assert scan.records == sum(len(records) for records, _ in plan)
    stamps = [t for batch in segment.batches for _, t in batch.records]
    assert (scan.first_timestamp, scan.max_timestamp) == (stamps[0], max(stamps))
    offsets, times = kafka_indexes(segment.batches, 0)
    assert index_of(again)[0] == offsets
    assert times.startswith(index_of(again)[1])
    again.check_look_ups()
    again.close()
    segment.close()


def test_a_torn_last_batch_is_cut_wherever_it_was_torn(segment: Segment) -> None:
    segment.fill(12)
    last = segment.batches[-1]
    for size in range(last.position, segment.size):
        os.truncate(segment.path(), size)
        again, scan = scanned(segment)
        assert scan.valid_size == last.position
        torn = lib.OM_OK if size == last.position else lib.OM_E_SHORT
        # Offset 1022 starts with zeros: a few bytes of it are no different from nothing.
        few = last.data[: size - last.position]
        assert scan.stopped == (lib.OM_OK if not any(few) else torn)
        assert lib.om_segment_trim_file(again.c, scan.valid_size) == lib.OM_OK
        again.append([Record(NOW, None, b"after the crash")])
        again.check_look_ups()
        again.close()
        segment.path().write_bytes(segment.data)


def test_a_last_batch_that_lost_a_page_is_cut(segment: Segment) -> None:
    """As a power loss leaves it: the size is right, the bytes never came."""
    segment.append([Record(NOW, None, b"x" * 3000)])
    last = segment.append([Record(NOW, None, b"y" * 9000)])
    whole = segment.data
    for lost in range(0, len(whole), 4096):
        segment.path().write_bytes(whole[:lost] + bytes(4096) + whole[lost + 4096 :])
        again, scan = scanned(segment)
        assert scan.valid_size == (0 if lost < last.position else last.position)
        assert scan.stopped == lib.OM_E_CORRUPT
        again.close()


@pytest.mark.parametrize("flip", [0x01, 0x80])
def test_a_flipped_byte_is_never_taken_for_a_batch(segment: Segment, flip: int) -> None:
    segment.fill(5, 64)
    victim = segment.batches[3]
    for at in range(len(victim.data)):
        wrong = bytearray(segment.data)
        wrong[victim.position + at] ^= flip
        segment.path().write_bytes(wrong)
        again = segment.reopen(trust=False)
        result, scan = again.scan()
        assert result == lib.OM_OK
        if at < 8 or 12 <= at < 16:
            # Base offset and leader epoch lie outside the CRC. Going back is seen; a jump ahead
            # looks like a gap, and what follows then goes back.
            assert victim.position <= scan.valid_size <= segment.size
        else:
            assert scan.valid_size == victim.position
            assert scan.stopped in (lib.OM_E_CORRUPT, lib.OM_E_SHORT)
        again.close()


def write_raw(segment: Segment, *batches: bytes) -> None:
    segment.folder.mkdir(parents=True, exist_ok=True)
    segment.path().write_bytes(b"".join(batches))


def test_offsets_that_go_back_end_the_scan(segment: Segment) -> None:
    three = [Record(NOW)] * 3
    write_raw(segment, encode(three, base_offset=1000), encode(three, base_offset=1002))
    _, scan = (again := segment.reopen(trust=False)).scan()
    assert (scan.stopped, scan.next_offset, scan.batches) == (lib.OM_E_RANGE, 1003, 1)
    again.close()


def test_an_offset_below_the_first_expected_ends_the_scan(segment: Segment) -> None:
    write_raw(segment, encode([Record(NOW)], base_offset=1004))
    again = segment.reopen(trust=False)
    assert again.scan(first_offset=1005)[1].stopped == lib.OM_E_RANGE
    assert again.scan(first_offset=1004)[1].stopped == lib.OM_OK
    assert again.scan(first_offset=1002)[1].next_offset == 1005
    again.close()


def test_an_offset_out_of_the_segments_reach_ends_the_scan(segment: Segment) -> None:
    write_raw(segment, encode([Record(NOW)], base_offset=1000 + 2**31))
    again = segment.reopen(trust=False)
    assert again.scan()[1].stopped == lib.OM_E_RANGE
    again.close()


def test_an_epoch_that_goes_down_ends_the_scan(segment: Segment) -> None:
    batches = (
        encode([Record(NOW)], base_offset=1000 + n, leader_epoch=e)
        for n, e in enumerate((4, 5, 5, 4))
    )
    write_raw(segment, *batches)
    again = segment.reopen(trust=False)
    _, scan = again.scan()
    assert (scan.stopped, scan.batches, scan.last_epoch) == (lib.OM_E_STALE_EPOCH, 3, 5)
    _, scan = again.scan(epoch=5)
    assert (scan.stopped, scan.batches, scan.last_epoch) == (lib.OM_E_STALE_EPOCH, 0, 5)
    again.close()


def test_a_hole_with_batches_behind_it_is_damage(segment: Segment) -> None:
    segment.fill(10)
    whole = segment.data
    hole = segment.batches[4]
    end = hole.position + len(hole.data)
    segment.path().write_bytes(whole[: hole.position] + bytes(len(hole.data)) + whole[end:])
    _, scan = (again := segment.reopen(trust=False)).scan()
    assert (scan.stopped, scan.valid_size) == (lib.OM_E_CORRUPT, hole.position)
    again.close()


@pytest.mark.parametrize("size", [262_144 - 69, 262_144, 700_001, 5_000_000])
def test_a_batch_larger_than_a_chunk_is_checked_to_its_last_byte(
    segment: Segment, size: int
) -> None:
    segment.append([Record(NOW, None, b"before")])
    large = segment.append([Record(NOW, None, os.urandom(size))])
    segment.append([Record(NOW, None, b"after")])
    again, scan = scanned(segment)
    assert (scan.stopped, scan.batches) == (lib.OM_OK, 3)
    again.close()
    for at in (21, 61, len(large.data) // 2, len(large.data) - 1):
        with segment.path().open("r+b") as file:
            file.seek(large.position + at)
            kept = file.read(1)
            file.seek(large.position + at)
            file.write(bytes([kept[0] ^ 1]))
        again, scan = scanned(segment)
        assert (scan.valid_size, scan.stopped) == (large.position, lib.OM_E_CORRUPT)
        again.close()
        segment.path().write_bytes(segment.data)


def test_a_length_beyond_the_file_is_a_torn_batch(segment: Segment) -> None:
    segment.fill(2)
    last = segment.batches[-1]
    with segment.path().open("r+b") as file:
        file.seek(last.position + 8)
        file.write(struct.pack(">i", 2**31 - 100))
    _, scan = (again := segment.reopen(trust=False)).scan()
    assert (scan.valid_size, scan.stopped) == (last.position, lib.OM_E_SHORT)
    again.close()


# ---- from the recovery point on --------------------------------------------------------


def from_point(segment: Segment, keep: int, trust: bool) -> tuple[Segment, Any]:
    """As recovery does it: the manifest knows the first `keep` batches, the rest is tail."""
    known = segment.batches[:keep]
    again = segment.reopen(trust=False)
    position = sum(len(batch.data) for batch in known)
    first_offset = known[-1].last_offset + 1 if known else segment.base_offset
    if trust and known:
        stamps = [t for batch in known for _, t in batch.records]
        lib.om_segment_trust(again.c, first_offset, position, stamps[0], max(stamps))
    result, scan = again.scan(position, first_offset)
    assert result == lib.OM_OK
    assert scan.valid_size == again.c.size
    return again, scan


@pytest.mark.parametrize("trust", [True, False])
@pytest.mark.parametrize("index", ["saved", "behind", "missing", "no times", "few times", "wrong"])
@pytest.mark.parametrize("keep", [0, 1, 30, 59, 60])
def test_only_the_tail_is_scanned_and_the_index_is_whole(
    segment: Segment, keep: int, index: str, trust: bool
) -> None:
    for n in range(60):
        segment.append([Record(NOW + (n * 7) % 50 + n, None, b"x" * 900)])
        if n == 40 and index == "behind":
            segment.save_index()
    if index != "behind":
        segment.save_index()
    if index == "missing":
        segment.path(".index").unlink()
    if index == "no times":
        segment.path(".timeindex").unlink()
    if index == "few times":
        os.truncate(segment.path(".timeindex"), 2 * TIME_ENTRY.size)
    if index == "wrong":
        segment.path(".index").write_bytes(segment.path(".index").read_bytes()[:-1] + b"\1")
    again, scan = from_point(segment, keep, trust)
    assert (scan.stopped, scan.batches) == (lib.OM_OK, 60 - keep)
    assert scan.next_offset == segment.next_offset
    assert scan.max_timestamp == max(batch.max_timestamp for batch in segment.batches)
    assert scan.first_timestamp == NOW
    assert index_of(again)[0] == kafka_indexes(segment.batches, 1000)[0]
    again.check_look_ups()
    for n in range(20):
        again.append([Record(NOW + 40 + 5 * n, None, b"y" * 900)])
    again.check_look_ups()
    again.seal()
    assert again.path(".index").read_bytes() == kafka_indexes(again.batches, 1000)[0]
    again.check_look_ups()
    again.close()


def test_damage_before_the_recovery_point_shows_as_less_than_was_promised(segment: Segment) -> None:
    segment.fill(20)
    broken = segment.batches[5]
    with segment.path().open("r+b") as file:
        file.seek(broken.position + 16)
        file.write(b"\x09")
    again, scan = from_point(segment, 10, trust=False)
    assert (scan.valid_size, scan.stopped) == (broken.position, lib.OM_E_CORRUPT)
    again.close()


def test_a_file_shorter_than_its_recovery_point_is_told(segment: Segment) -> None:
    segment.fill(20)
    shorter = segment.batches[7].position
    os.truncate(segment.path(), shorter)
    again, scan = from_point(segment, 10, trust=False)
    assert (scan.valid_size, scan.stopped) == (shorter, lib.OM_E_SHORT)
    again.close()


def test_entries_of_the_time_before_the_crash_go_with_the_next_save(segment: Segment) -> None:
    segment.fill(100)
    segment.save_index()
    os.truncate(segment.path(), segment.batches[50].position)
    again, scan = scanned(segment)
    again.save_index()
    assert again.path(".index").read_bytes() == kafka_indexes(again.batches, 1000)[0]
    again.close()
    os.truncate(segment.path(), segment.batches[2].position)
    again, scan = scanned(segment)
    again.save_index()
    assert not again.path(".index").exists() and not again.path(".timeindex").exists()
    again.close()


def test_a_file_that_is_gone_is_an_error_not_an_empty_segment(segment: Segment) -> None:
    segment.fill(1)
    again = segment.reopen(trust=False)
    segment.path().unlink()
    assert again.scan()[0] == lib.OM_E_IO
    again.close()


# ---- set aside, rewritten --------------------------------------------------------------


def test_a_damaged_segment_is_set_aside_and_never_overwrites_an_older_one(
    segment: Segment,
) -> None:
    for n in (1, 2):
        fresh = Segment(segment.files, segment.folder, 1000)
        fresh.fill(30)
        fresh.save_index()
        path = ffi.new("char[]", 4096)
        assert lib.om_segment_set_aside(fresh.c, path, 4096) == lib.OM_OK
        aside = Path(ffi.string(path).decode())
        assert aside.name == f"{1000:020}.log.corrupt-{n}"
        assert aside.read_bytes() == fresh.data
        assert not fresh.path(".index").exists() and not fresh.path(".timeindex").exists()
        assert fresh.find(1000)[0] == lib.OM_E_UNREADABLE
        assert fresh.write(fresh.batches[:1]) == lib.OM_E_DELETED
        fresh.close()
    assert len(list(segment.folder.iterdir())) == 2


def rewrite(segment: Segment, good: int, rest: list[Placed]) -> int:
    fd = ffi.new("int *")
    result: int = lib.om_segment_rewrite_begin(segment.c, good, fd)
    if result != lib.OM_OK:
        return result
    os.pwrite(fd[0], b"".join(batch.data for batch in rest), good)
    return lib.om_segment_rewrite_commit(segment.c, fd[0])  # type: ignore[no-any-return]


@pytest.mark.parametrize("good", [0, 1, 10, 30])
def test_a_rewritten_segment_replaces_the_file_and_old_readers_keep_theirs(
    segment: Segment, good: int
) -> None:
    segment.fill(30)
    _, view = segment.view()
    old = ffi.new("int *")
    assert lib.om_range_open(segment.c, old) == lib.OM_OK
    start = segment.batches[good].position if good < 30 else segment.size
    with segment.path().open("r+b") as file:
        file.seek(start)
        file.write(bytes(segment.size - start))  # lost by the disk
    damaged = segment.path().read_bytes()
    assert rewrite(segment, start, segment.batches[good:]) == lib.OM_OK
    assert segment.path().read_bytes() == segment.data
    assert not segment.path(".log.rewrite").exists()
    assert segment.read() == segment.data
    segment.check_look_ups()
    assert bytes(ffi.buffer(view.data, view.len)) == damaged
    assert os.pread(old[0], len(damaged), 0) == damaged
    lib.om_view_release(view)
    lib.om_range_release(segment.c, old[0])
    segment.fill(3)
    assert segment.path().read_bytes() == segment.data


def test_a_rewrite_that_lacks_bytes_is_refused_and_the_old_file_stays(segment: Segment) -> None:
    segment.fill(10)
    good = segment.batches[5].position
    assert rewrite(segment, good, segment.batches[5:9]) == lib.OM_E_STALE
    assert segment.path().read_bytes() == segment.data
    assert not segment.path(".log.rewrite").exists()
    assert rewrite(segment, segment.size + 1, []) == lib.OM_E_IO
    fd = ffi.new("int *")
    assert lib.om_segment_rewrite_begin(segment.c, good, fd) == lib.OM_OK
    lib.om_segment_rewrite_abort(segment.c, fd[0])
    assert [path.name for path in segment.folder.iterdir()] == [segment.path().name]


def test_a_rewrite_lifts_the_fence(segment: Segment) -> None:
    segment.fill(10)
    data = segment.data
    lib.om_segment_cut(segment.c, segment.size, segment.next_offset)
    os.truncate(segment.path(), 100)
    assert segment.find(1000)[0] == lib.OM_E_UNREADABLE
    assert rewrite(segment, 0, segment.batches) == lib.OM_OK
    assert segment.read() == data
    segment.check_look_ups()
