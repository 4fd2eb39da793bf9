"""Cursors for tests: the C one in a thin wrapper, and what it should do in plain Python."""

from dataclasses import dataclass
from typing import Any

from tests.csrc.guard import Guard
from tests.internals import ffi, lib

FRESH, IN_FLIGHT, RETURNED = "fresh", "in flight", "returned"


@dataclass(frozen=True)
class Stat:
    floor: int
    next: int
    end: int
    ready_count: int
    ready_bytes: int
    unacked_count: int
    unacked_bytes: int
    returned_count: int
    memory: int


class Cursor:
    """om_cursor; results are handed on as they are, errors included."""

    def __init__(self, start: int = 0, raw: Any = None) -> None:
        self.raw: Any = ffi.gc(lib.om_cursor_new(start) if raw is None else raw, lib.om_cursor_free)
        assert self.raw != ffi.NULL

    def appended(self, first: int, count: int = 1, weight: int = 0) -> int:
        return int(lib.om_cursor_appended(self.raw, first, count, weight))

    def skip(self, first: int, last: int) -> int:
        return int(lib.om_cursor_skip(self.raw, first, last))

    def truncate(self, offset: int) -> int:
        return int(lib.om_cursor_truncate(self.raw, offset))

    def peek(self) -> int:
        return int(lib.om_cursor_peek(self.raw))

    def acquire(self, offset: int, weight: int = 0) -> int:
        return int(lib.om_cursor_acquire(self.raw, offset, weight))

    def take(self, count: int, weight: int = 0) -> list[int]:
        """Peek and acquire so many."""
        taken = []
        for _ in range(count):
            taken.append(self.peek())
            assert self.acquire(taken[-1], weight) == 0
        return taken

    def give_back(self, offset: int, weight: int = 0, counted: bool = False) -> int:
        return int(lib.om_cursor_return(self.raw, offset, weight, counted))

    def return_all(self, counted: bool = False) -> int:
        return int(lib.om_cursor_return_all(self.raw, counted))

    def settle(self, first: int, last: int | None = None, weight: int = 0) -> int:
        return int(lib.om_cursor_settle(self.raw, first, first if last is None else last, weight))

    def purge(self, before: int = 2**63 - 1) -> int:
        return int(lib.om_cursor_purge(self.raw, before))

    def unsettle(self, first: int, last: int | None = None) -> int:
        return int(lib.om_cursor_unsettle(self.raw, first, first if last is None else last))

    def pass_by(self, offset: int, weight: int = -1) -> int:
        return int(lib.om_cursor_pass(self.raw, offset, weight))

    def is_settled(self, offset: int) -> bool:
        return bool(lib.om_cursor_is_settled(self.raw, offset))

    def counts(self, offset: int) -> tuple[int, int, int]:
        """What the call returns, acquired, delivered."""
        acquired, delivered = ffi.new("int32_t *"), ffi.new("int32_t *")
        result = lib.om_cursor_counts(self.raw, offset, acquired, delivered)
        return result, acquired[0], delivered[0]

    @property
    def stat(self) -> Stat:
        out = ffi.new("om_cursor_stat *")
        lib.om_cursor_stat_get(self.raw, out)
        return Stat(**{name: getattr(out, name) for name in Stat.__dataclass_fields__})

    def encode(self) -> bytes:
        size = lib.om_cursor_encode(self.raw, ffi.NULL, 0)
        out = ffi.new("uint8_t[]", size)
        assert lib.om_cursor_encode(self.raw, out, size) == size
        return bytes(ffi.buffer(out, size))


guard = Guard(1 << 20)


def decode(data: bytes) -> Cursor | int:
    """The cursor, or the error. A read past the bytes would end the test run."""
    out = ffi.new("om_cursor **")
    result = lib.om_cursor_decode(out, guard.place(data), len(data))
    if result != 0:
        assert out[0] == ffi.NULL
        return int(result)
    return Cursor(raw=out[0])


@dataclass
class Record:
    weight: int
    state: str = FRESH
    acquired: int = 0
    delivered: int = 0


class Model:
    """The unsettled records, by offset; everything else below `end` is settled.

    Bytes are exact as long as the caller can be: after a range of ready and unacked records
    together, or of unknown weight, they are a guess until that kind of record has run out.
    """

    def __init__(self, start: int) -> None:
        self.records: dict[int, Record] = {}
        self.end = start
        self.exact = {True: True, False: True}

    def ready(self) -> dict[int, Record]:
        return {at: record for at, record in self.records.items() if record.state != IN_FLIGHT}

    def unacked(self) -> dict[int, Record]:
        return {at: record for at, record in self.records.items() if record.state == IN_FLIGHT}

    def in_state(self, state: str) -> list[int]:
        return sorted(at for at, record in self.records.items() if record.state == state)

    def floor(self) -> int:
        return min(self.records, default=self.end)

    def next(self) -> int:
        return min(self.in_state(FRESH), default=self.end)

    def peek(self) -> int:
        return min(self.in_state(RETURNED) or self.in_state(FRESH), default=-1)

    def append(self, first: int, weights: list[int]) -> None:
        for at, weight in enumerate(weights, first):
            self.records[at] = Record(weight)
        self.end = first + len(weights)

    def acquire(self, offset: int) -> None:
        record = self.records[offset]
        record.state = IN_FLIGHT
        record.acquired += 1

    def give_back(self, offset: int, counted: bool) -> None:
        record = self.records[offset]
        record.state = RETURNED
        record.delivered += counted

    def between(self, first: int, last: int) -> dict[int, Record]:
        return {at: record for at, record in self.records.items() if first <= at <= last}

    def settle(self, first: int, last: int, weighed: bool) -> int:
        gone = self.between(first, last)
        kinds = {record.state != IN_FLIGHT for record in gone.values()}
        if len(kinds) == 2 or not weighed:
            self.exact.update(dict.fromkeys(kinds, False))
        for at in gone:
            del self.records[at]
        return len(gone)

    def check(self, cursor: Cursor) -> None:
        stat = cursor.stat
        ready, unacked = self.ready(), self.unacked()
        assert (stat.floor, stat.next, stat.end) == (self.floor(), self.next(), self.end)
        assert stat.ready_count == len(ready)
        assert stat.unacked_count == len(unacked)
        assert stat.returned_count == len(self.in_state(RETURNED))
        assert cursor.peek() == self.peek()
        for is_ready, records, said in (
            (True, ready, stat.ready_bytes),
            (False, unacked, stat.unacked_bytes),
        ):
            self.exact[is_ready] = self.exact[is_ready] or not records
            assert said >= 0
            if self.exact[is_ready]:
                assert said == sum(record.weight for record in records.values())
        for at, record in self.records.items():
            counts = (int(record.acquired > 0), record.acquired, record.delivered)
            assert cursor.counts(at) == counts
            assert not cursor.is_settled(at)
