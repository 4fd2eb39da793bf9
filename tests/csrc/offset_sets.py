"""Offset sets for tests: the C ones in a thin wrapper, and a model as one big integer."""

import re
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.csrc.set_internals import ffi, lib

CHUNK = 65_536
MAX = 2**63 - 2


class OffsetSet:
    """om_offset_set; every call that can fail must succeed."""

    def __init__(self) -> None:
        self.raw: Any = ffi.gc(ffi.new("om_offset_set *"), lib.om_offset_set_clear)

    def add(self, first: int, last: int | None = None) -> None:
        assert lib.om_offset_set_add(self.raw, first, first if last is None else last) == 0

    def remove(self, first: int, last: int | None = None) -> None:
        assert lib.om_offset_set_remove(self.raw, first, first if last is None else last) == 0

    def clear(self) -> None:
        lib.om_offset_set_clear(self.raw)

    def __contains__(self, offset: int) -> bool:
        return bool(lib.om_offset_set_contains(self.raw, offset))

    def __bool__(self) -> bool:
        return not lib.om_offset_set_is_empty(self.raw)

    def next_member(self, start: int, to: int = MAX) -> int:
        return int(lib.om_offset_set_next_member(self.raw, start, to))

    def next_gap(self, start: int) -> int:
        return int(lib.om_offset_set_next_gap(self.raw, start))

    def count(self, first: int, last: int) -> int:
        return int(lib.om_offset_set_count(self.raw, first, last))

    def runs(self, start: int = 0) -> Iterator[tuple[int, int]]:
        first, last = ffi.new("int64_t *"), ffi.new("int64_t *")
        while lib.om_offset_set_next_run(self.raw, start, first, last):
            yield first[0], last[0]
            start = last[0] + 1

    @property
    def memory(self) -> int:
        return int(lib.om_offset_set_memory(self.raw))


class Bits:
    """The model: bit i of one big integer says whether base + i is a member."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.bits = 0

    def mask(self, first: int, last: int) -> int:
        return ((1 << (last - first + 1)) - 1) << (first - self.base)

    def add(self, first: int, last: int) -> None:
        self.bits |= self.mask(first, last)

    def remove(self, first: int, last: int) -> None:
        self.bits &= ~self.mask(first, last)

    def __contains__(self, offset: int) -> bool:
        return bool(self.bits >> (offset - self.base) & 1)

    def next_member(self, start: int, to: int = MAX) -> int:
        rest = self.bits >> (start - self.base)
        found = start + (rest & -rest).bit_length() - 1
        return found if rest and found <= to else -1

    def next_gap(self, start: int) -> int:
        rest = ~(self.bits >> (start - self.base))
        return start + (rest & -rest).bit_length() - 1

    def count(self, first: int, last: int) -> int:
        return (self.bits & self.mask(first, last)).bit_count()

    def runs(self) -> Iterator[tuple[int, int]]:
        for run in re.finditer("1+", f"{self.bits:b}"[::-1]):
            yield self.base + run.start(), self.base + run.end() - 1


def places(chunks: int) -> st.SearchStrategy[int]:
    """Offsets within so many chunks, the borders between them more often than by chance."""
    border = st.builds(
        lambda chunk, aside: max(0, min(chunks * CHUNK - 1, chunk * CHUNK + aside)),
        st.integers(0, chunks),
        st.integers(-3, 3),
    )
    return border | st.integers(0, chunks * CHUNK - 1)


def ranges(chunks: int) -> st.SearchStrategy[tuple[int, int]]:
    """Two ends, the lower one first: anything from one offset to all of them."""
    any_two = st.tuples(places(chunks), places(chunks)).map(lambda ends: (min(ends), max(ends)))
    short = st.builds(
        lambda first, length: (first, min(first + length, chunks * CHUNK - 1)),
        places(chunks),
        st.integers(0, 4),
    )
    whole_chunks = st.tuples(st.integers(0, chunks - 1), st.integers(0, chunks - 1)).map(
        lambda ends: (min(ends) * CHUNK, (max(ends) + 1) * CHUNK - 1)
    )
    return short | any_two | whole_chunks
