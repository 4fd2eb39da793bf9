"""A cursor as bytes: as docs/cursor.md draws them, and nothing else is believed."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.csrc.cursors import Cursor, decode
from tests.examples import examples
from tests.internals import ffi, lib

CHUNK = 65_536
LARGEST = 2**63 - 1
EMPTY_SET = [0]
NO_COUNTS = [0]


def number(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def build(*parts: int | Sequence[int]) -> bytes:
    """Numbers, and lists of numbers, as varints one after the other."""
    out = b""
    for part in parts:
        out += number(part) if isinstance(part, int) else build(*part)
    return out


def cursor_bytes(
    floor: int = 0,
    given_out: int = 0,
    fresh: int = 0,
    *,
    weights: tuple[int, int] = (0, 0),
    settled: Sequence[int] = EMPTY_SET,
    returned: Sequence[int] = EMPTY_SET,
    again: Sequence[int] = NO_COUNTS,
    failed_counts: Sequence[int] = NO_COUNTS,
) -> bytes:
    return build(1, floor, given_out, fresh, *weights, settled, returned, again, failed_counts)


def busy_cursor(seed: int, count: int = 300_000) -> Cursor:
    """Every shape of chunk in every set."""
    rng = random.Random(seed)
    cursor = Cursor(1000)
    assert cursor.appended(1000, count, count) == 0
    cursor.take(count - 1000, 1)
    for _ in range(20_000):
        cursor.settle(1000 + rng.randrange(65_536), weight=1)
        cursor.give_back(1000 + rng.randrange(count // 2), 1, counted=rng.random() < 0.5)
    for _ in range(10_000):
        cursor.acquire(cursor.peek(), 1)
    cursor.settle(140_000, 140_000 + 2 * CHUNK, weight=2 * CHUNK + 1)
    for offset in range(1000 + count - 1000 - 300, 1000 + count - 1000, 7):
        cursor.settle(offset, weight=1)
    cursor.appended(10**10, 5, 5)
    return cursor


# ---- the format ----


def test_an_idle_cursor_is_a_few_bytes() -> None:
    assert Cursor(300).encode() == cursor_bytes(300) == bytes([1, 0xAC, 2, 0, 0, 0, 0, 0, 0, 0, 0])


def test_the_bytes_are_the_documented_ones() -> None:
    cursor = Cursor(CHUNK + 5)
    cursor.appended(CHUNK + 5, 20, 200)
    cursor.take(12, 10)
    for offset in (CHUNK + 7, CHUNK + 8, CHUNK + 12):
        cursor.settle(offset, weight=10)
    cursor.give_back(CHUNK + 6, 10, counted=True)
    cursor.take(1, 10)
    cursor.give_back(CHUNK + 6, 10, counted=True)
    cursor.skip(5 * CHUNK, 8 * CHUNK - 1)
    # settled: runs 7..8, 12, and from 25 to the chunk's end; then 6 full chunks, up to 8.
    settled = [2, 0 << 2 | 0, 2, 7, 1, 2, 0, 11, CHUNK - 1 - 25, 0 << 2 | 2, 5]
    returned = [1, 0, 0, 6, 0]
    again = [1, 1, 0, 0, 6, 0]
    failed_counts = [2, 0, 1, 0, 0, 6, 0]
    assert cursor.encode() == cursor_bytes(
        CHUNK + 5,
        12,
        8 * CHUNK - (CHUNK + 17),
        weights=(90, 80),
        settled=settled,
        returned=returned,
        again=again,
        failed_counts=failed_counts,
    )


def test_a_ragged_chunk_is_written_as_its_bitmap() -> None:
    cursor = Cursor(0)
    cursor.appended(0, CHUNK, 0)
    cursor.take(CHUNK)
    for offset in range(1, CHUNK, 3):
        cursor.settle(offset)
    words = sum(1 << at for at in range(1, CHUNK, 3)).to_bytes(8192, "little")
    head = build(1, 0, CHUNK, 0, 0, 0, 1, 0 << 2 | 1)
    assert cursor.encode() == head + words + build(EMPTY_SET, NO_COUNTS, NO_COUNTS)


def test_a_million_holes_take_a_bit_each() -> None:
    cursor = Cursor(0)
    cursor.appended(0, 1_000_000, 0)
    cursor.take(1_000_000)
    for offset in range(1, 1_000_000, 2):
        cursor.settle(offset)
    assert len(cursor.encode()) < 1_000_000 // 8 + 10_000


def test_too_little_room_is_left_alone() -> None:
    cursor = busy_cursor(0, 20_000)
    size = len(cursor.encode())
    room = ffi.new("uint8_t[]", b"\x55" * size)
    assert lib.om_cursor_encode(cursor.raw, room, size - 1) == size
    assert bytes(ffi.buffer(room, size)) == b"\x55" * size


@pytest.mark.parametrize("seed", range(3))
def test_everything_survives_the_round_trip(seed: int) -> None:
    cursor = busy_cursor(seed)
    data = cursor.encode()
    restored = decode(data)
    assert isinstance(restored, Cursor)
    before, after = cursor.stat, restored.stat
    assert [*vars(before).values()][:-1] == [*vars(after).values()][:-1]
    assert restored.encode() == data
    rng = random.Random(seed)
    for offset in (rng.randrange(before.floor, before.next) for _ in range(5000)):
        assert restored.counts(offset) == cursor.counts(offset)
        assert restored.is_settled(offset) == cursor.is_settled(offset)
    assert restored.return_all() == cursor.return_all() == before.unacked_count
    assert restored.encode() == cursor.encode()


def test_a_cursor_at_the_far_end_survives() -> None:
    cursor = Cursor(5)
    cursor.appended(5, 1, 1)
    cursor.appended(LARGEST - 1, 1, 1)
    restored = decode(cursor.encode())
    assert isinstance(restored, Cursor)
    assert restored.take(2, 1) == [5, LARGEST - 1]


# ---- what is not believed ----


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("nothing at all", b""),
        ("another version", b"\x02" + cursor_bytes()[1:]),
        ("a byte too many", cursor_bytes() + b"\0"),
        ("an end past the numbers", cursor_bytes(LARGEST - 5, 3, 3)),
        ("a number too long", b"\x01" + b"\x80" * 12 + cursor_bytes()[1:]),
        ("bytes of no ready record", cursor_bytes(0, 4, 0, weights=(1, 0))),
        ("bytes of no unacked record", cursor_bytes(0, 0, 4, weights=(0, 1))),
        ("a settled floor", cursor_bytes(0, 4, 4, settled=[1, 0, 0, 0, 0])),
        ("a settled next", cursor_bytes(0, 4, 4, settled=[1, 0, 0, 4, 0])),
        ("settled past the end", cursor_bytes(0, 4, 4, settled=[1, 0, 0, 6, 2])),
        ("settled far past the end", cursor_bytes(0, 4, 4, settled=[1, 9 << 2, 0, 6, 2])),
        ("settled below the floor", cursor_bytes(9, 4, 4, settled=[1, 0, 0, 6, 0])),
        ("returned below the floor", cursor_bytes(9, 4, 4, returned=[1, 0, 0, 6, 0])),
        ("returned before given out", cursor_bytes(0, 4, 4, returned=[1, 0, 0, 4, 0])),
        (
            "returned and settled",
            cursor_bytes(0, 9, 4, settled=[1, 0, 0, 4, 2], returned=[1, 0, 0, 5, 0]),
        ),
        ("a count for a fresh record", cursor_bytes(0, 4, 4, again=[1, 1, 0, 0, 5, 0])),
        (
            "a count for a settled record",
            cursor_bytes(0, 9, 4, settled=[1, 0, 0, 5, 0], failed_counts=[1, 1, 0, 0, 5, 0]),
        ),
        ("an empty plane on top", cursor_bytes(0, 4, 4, again=[2, 1, 0, 0, 2, 0, 0])),
        ("too many planes", cursor_bytes(0, 4, 4, again=[32, *[1, 0, 0, 2, 0] * 32])),
        ("a run past its chunk", cursor_bytes(0, CHUNK * 2, 4, settled=[1, 0, 0, 1, CHUNK - 1])),
        ("a run that starts past it", cursor_bytes(0, CHUNK * 2, 4, settled=[1, 0, 0, CHUNK, 0])),
        ("an unknown shape", cursor_bytes(0, CHUNK * 9, 4, settled=[1, 1 << 2 | 3, 0, 0, 0])),
        ("a chunk past all offsets", cursor_bytes(0, 4, 4, settled=[1, 2**62, 0, 1, 0])),
        ("full past all offsets", cursor_bytes(0, 4, LARGEST - 4, settled=[1, 6, 2**47 - 2])),
        ("a set that stops short", build(1, 0, 9, 9, 0, 0, 2, 0, 0, 3, 0)),
        ("a bitmap that stops short", build(1, 0, 9, 9, 0, 0, 1, 1) + b"\xff" * 8000),
        (
            "an empty bitmap",
            build(1, 0, 9, 9, 0, 0, 1, 1) + bytes(8192) + build(EMPTY_SET, NO_COUNTS, NO_COUNTS),
        ),
    ],
)
def test_bytes_that_do_not_hold_together_are_corrupt(what: str, data: bytes) -> None:
    assert decode(data) == lib.OM_E_CORRUPT, what


def live_through(cursor: Cursor) -> None:
    """Whatever was decoded must work: use all of it, and end with nothing left."""
    before = cursor.stat
    assert before.floor <= before.next <= before.end
    assert min(vars(before).values()) >= 0
    assert before.returned_count <= before.ready_count
    again = decode(cursor.encode())
    assert isinstance(again, Cursor)
    assert again.encode() == cursor.encode()
    assert cursor.return_all(counted=True) == before.unacked_count
    ready = cursor.stat.ready_count
    for _ in range(min(ready, 20)):
        offset = cursor.peek()
        _, acquired, delivered = cursor.counts(offset)
        assert cursor.acquire(offset, 1) == 0
        assert cursor.counts(offset) == (1, min(acquired + 1, 2**31 - 1), delivered)
    assert cursor.purge() + min(ready, 20) == ready
    assert cursor.settle(0, LARGEST, 0) == min(ready, 20)
    assert cursor.stat.floor == before.end
    assert cursor.stat.memory == Cursor().stat.memory


small = st.sampled_from([0, 1, 2, 3, 4, 5, 9, 100, CHUNK - 1, CHUNK, 2 * CHUNK, 10**9])
chunks = st.tuples(
    st.builds(lambda skipped: skipped << 2, st.integers(0, 2)),
    st.lists(st.tuples(small, small), min_size=1, max_size=4),
).map(lambda chunk: [chunk[0], len(chunk[1]) - 1, *(value for run in chunk[1] for value in run)])
full = st.tuples(st.integers(0, 2).map(lambda skipped: skipped << 2 | 2), st.integers(0, 3)).map(
    list
)
sets = st.lists(chunks | full, max_size=3).map(lambda made: [len(made), *sum(made, [])])
tallies = st.lists(sets, max_size=2).map(lambda made: [len(made), *sum(made, [])])
plausible = st.builds(
    lambda floor, given_out, fresh, *rest: build(1, floor, given_out, fresh, *rest),
    small,
    small,
    small,
    st.just(0),
    st.just(0),
    sets,
    sets,
    tallies,
    tallies,
)


@given(
    st.binary(max_size=200) | st.binary(max_size=200).map(lambda rest: b"\x01" + rest) | plausible
)
@settings(max_examples=examples(500), deadline=None)
def test_any_bytes_are_a_cursor_that_works_or_corrupt(data: bytes) -> None:
    result = decode(data)
    if isinstance(result, Cursor):
        live_through(result)
    else:
        assert result == lib.OM_E_CORRUPT


BUSY = busy_cursor(9, 150_000).encode()
mutations = st.lists(
    st.tuples(
        st.sampled_from(["flip", "set", "cut", "drop", "double"]),
        st.integers(0, len(BUSY) - 1) | st.integers(0, 60),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=4,
)


@given(mutations)
@example([("cut", 5, 0)])
@settings(max_examples=examples(200), deadline=None)
def test_damaged_bytes_are_a_cursor_that_works_or_corrupt(
    damage: list[tuple[str, int, int]],
) -> None:
    data = bytearray(BUSY)
    for what, at, value in damage:
        if what == "flip" and at < len(data):
            data[at] ^= 1 << (value & 7)
        elif what == "set" and at < len(data):
            data[at] = value
        elif what == "cut":
            del data[at:]
        elif what == "drop":
            del data[at : at + value]
        else:
            data[at:at] = data[at : at + value]
    result = decode(bytes(data))
    if isinstance(result, Cursor):
        live_through(result)
    else:
        assert result == lib.OM_E_CORRUPT


def test_bytes_cut_anywhere_are_corrupt() -> None:
    data = busy_cursor(10, 20_000).encode()
    for size in [*range(200), *range(200, len(data), 97), len(data) - 1]:
        assert decode(data[:size]) == lib.OM_E_CORRUPT
