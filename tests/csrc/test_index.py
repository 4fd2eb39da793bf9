"""The sparse indexes: Kafka's bytes, searched against a plain list."""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.csrc.guard import Guard
from tests.internals import ffi, lib

OFFSET = struct.Struct(">ii")
TIME = struct.Struct(">qi")
MOST = 2**31 - 1
guard = Guard(1 << 16)


def growing(low: int, high: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(low, high), unique=True, max_size=60).map(sorted)


def pairs(first: tuple[int, int], second: tuple[int, int]) -> Any:
    """Entries whose two columns both grow."""
    return st.tuples(growing(*first), growing(*second)).map(lambda c: list(zip(*c, strict=False)))


offset_entries = pairs((0, MOST), (0, MOST)) | pairs((0, 100), (0, 100))
time_entries = pairs((0, 2**62), (0, MOST)) | pairs((0, 100), (0, 100))


@contextmanager
def an_index(offsets: list[tuple[int, int]], times: list[tuple[int, int]]) -> Iterator[Any]:
    index = ffi.new("om_index *")
    lib.om_index_init(index)
    for entry in offsets:
        assert lib.om_index_add(index, *entry) == lib.OM_OK
    for entry in times:
        assert lib.om_index_add_time(index, *entry) == lib.OM_OK
    try:
        yield index
    finally:
        lib.om_index_free(index)


def bytes_of(index: Any) -> tuple[bytes, bytes]:
    offsets = ffi.buffer(index.offsets, index.offset_count * lib.OM_OFFSET_ENTRY)
    times = ffi.buffer(index.times, index.time_count * lib.OM_TIME_ENTRY)
    return bytes(offsets), bytes(times)


def check(offsets: bytes, times: bytes, size: int = 2**31) -> int:
    at = guard.place(offsets + times)
    result: int = lib.om_index_check(at, len(offsets), at + len(offsets), len(times), size)
    return result


@given(offset_entries, time_entries)
def test_entries_are_laid_out_as_kafka_does(
    offsets: list[tuple[int, int]], times: list[tuple[int, int]]
) -> None:
    with an_index(offsets, times) as index:
        written = bytes_of(index)
    assert written[0] == b"".join(OFFSET.pack(*entry) for entry in offsets)
    assert written[1] == b"".join(TIME.pack(*entry) for entry in times)
    assert check(*written) == lib.OM_OK


@given(offset_entries, st.lists(st.integers(-5, MOST + 5)))
def test_an_offset_is_found_at_the_greatest_entry_at_or_below_it(
    offsets: list[tuple[int, int]], wanted: list[int]
) -> None:
    keys = [offset for offset, _ in offsets]
    near = [key + delta for key in keys for delta in (-1, 0, 1)]
    with an_index(offsets, []) as index:
        for offset in [*wanted, *near]:
            rank = bisect_right(keys, offset)
            assert lib.om_index_rank(index, offset) == rank
            assert not rank or lib.om_index_position(index, rank - 1) == offsets[rank - 1][1]


@given(time_entries, st.lists(st.integers(-5, 2**62 + 5)))
def test_a_timestamp_is_found_at_the_greatest_entry_at_or_below_it(
    times: list[tuple[int, int]], wanted: list[int]
) -> None:
    keys = [timestamp for timestamp, _ in times]
    near = [key + delta for key in keys for delta in (-1, 0, 1)]
    with an_index([], times) as index:
        for timestamp in [*wanted, *near]:
            rank = bisect_right(keys, timestamp)
            assert lib.om_index_rank_time(index, timestamp) == rank
            assert not rank or lib.om_index_time_offset(index, rank - 1) == times[rank - 1][1]


def test_an_entry_that_does_not_grow_is_refused() -> None:
    with an_index([(10, 5000)], [(77, 10)]) as index:
        for entry in ((10, 6000), (9, 6000), (11, 5000), (11, 4999), (-1, 6000), (11, -1)):
            assert lib.om_index_add(index, *entry) == lib.OM_E_INVALID
        for entry in ((77, 11), (76, 11), (78, 10), (78, 9), (-1, 11), (78, -1)):
            assert lib.om_index_add_time(index, *entry) == lib.OM_E_INVALID
        assert (index.offset_count, index.time_count) == (1, 1)


@given(offset_entries, time_entries, st.integers(0, MOST), st.integers(0, MOST))
def test_a_cut_drops_what_lies_at_or_past_it(
    offsets: list[tuple[int, int]], times: list[tuple[int, int]], offset: int, position: int
) -> None:
    with an_index(offsets, times) as index:
        lib.om_index_cut(index, offset, position)
        left = bytes_of(index)
    assert left[0] == b"".join(OFFSET.pack(*e) for e in offsets if e[1] < position)
    assert left[1] == b"".join(TIME.pack(*e) for e in times if e[1] < offset)


@given(offset_entries.filter(len))
def test_positions_must_lie_inside_the_segment(offsets: list[tuple[int, int]]) -> None:
    data = b"".join(OFFSET.pack(*entry) for entry in offsets)
    assert check(data, b"", offsets[-1][1] + 1) == lib.OM_OK
    assert check(data, b"", offsets[-1][1]) == lib.OM_E_CORRUPT


def test_bytes_that_are_no_index_are_told_apart() -> None:
    good = OFFSET.pack(3, 5000) + OFFSET.pack(9, 9999)
    times = TIME.pack(50, 3) + TIME.pack(51, 9)
    assert check(good, times) == lib.OM_OK
    assert check(b"", b"") == lib.OM_OK
    assert check(b"", b"", 0) == lib.OM_OK
    assert check(b"", times, 0) == lib.OM_E_CORRUPT
    for cut in range(1, 8):
        assert check(good[:-cut], times) == lib.OM_E_CORRUPT
    for cut in range(1, 12):
        assert check(good, times[:-cut]) == lib.OM_E_CORRUPT
    assert check(good + good, times) == lib.OM_E_CORRUPT
    assert check(good, times + times) == lib.OM_E_CORRUPT
    assert check(good + bytes(8), times) == lib.OM_E_CORRUPT
    assert check(good, times + bytes(12)) == lib.OM_E_CORRUPT
    assert check(OFFSET.pack(-1, 5000), b"") == lib.OM_E_CORRUPT
    assert check(OFFSET.pack(1, -5000), b"") == lib.OM_E_CORRUPT
    assert check(b"", TIME.pack(-1, 0)) == lib.OM_E_CORRUPT
    assert check(b"", TIME.pack(0, -1)) == lib.OM_E_CORRUPT


@given(st.binary(max_size=400), st.binary(max_size=400), st.integers(0, 2**33))
def test_what_passes_the_check_grows_and_nothing_reads_past_its_end(
    offsets: bytes, times: bytes, size: int
) -> None:
    if check(offsets, times, size) != lib.OM_OK:
        return
    entries = list(OFFSET.iter_unpack(offsets))
    for before, after in zip(entries, entries[1:], strict=False):
        assert before[0] < after[0] and before[1] < after[1] < size
    stamps = list(TIME.iter_unpack(times))
    for before, after in zip(stamps, stamps[1:], strict=False):
        assert before[0] < after[0] and before[1] < after[1]
