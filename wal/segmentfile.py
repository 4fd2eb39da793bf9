"""A segment's files as they lie on disk: batches, index entries, and damage.

`Walk` goes over the batches fast, in C, and gathers their flaws; `batches` gives them one by
one. Both find their way again behind damage: a place counts as a batch when all of it is right,
checksum included, and its offsets come after those before.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottermq._core import ffi, lib
from ottermq.wal.file_window import PIECE, Ranges

MAGIC_AT, MAGIC = 16, b"\x02"
NO_STOP = (1 << 64) - 1
NO_LIMIT = (1 << 63) - 1
GAPS_AT_A_TIME = 64
OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not what should be there."""

    position: int
    size: int
    what: str
    torn: bool = False  # nothing good follows: a write that was cut short looks like this
    offset: int = 0  # the first one that it may have held


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that no batch has, from `first` up to `end`. An unclean stop leaves some out, and the
    leader epoch goes up: then the epochs on both sides differ."""

    first: int
    end: int
    epoch_before: int
    epoch_after: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A batch header and where it lies. `problem`: why it can't be used all the same."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    records: int
    base_timestamp: int
    max_timestamp: int
    attributes: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    crc: int
    problem: str | None


def base_offset_of(path: Path) -> int | None:
    """00000000000000012345.log → 12345; None: not named like a segment's file."""
    digits = path.name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() else None


MERGED, MERGE = ".log.merged-", ".log.merge-"


def replaced(names: Iterable[str]) -> list[range]:
    """Offsets whose segments another file has taken the place of, though they are still there: a
    crash, or a look at this very moment, came before they went (csrc/store/segment_swap.c)."""
    there = set(names)
    found = []
    for name in there:
        base, is_merge, end = name.partition(MERGE)
        if is_merge and base.isdigit() and end.isdigit() and f"{base}{MERGED}{end}" not in there:
            found.append(range(int(base) + 1, int(end)))
    return found


_WHAT = {
    lib.OM_E_SHORT: "cut short",
    lib.OM_E_CORRUPT: "not a batch, or its checksum is wrong",
    lib.OM_E_RANGE: "its offsets don't fit between those of its neighbours",
    lib.OM_E_STALE_EPOCH: "its leader epoch doesn't fit between those of its neighbours",
}


def batches(window: Ranges) -> Iterator[Placed | Damage]:
    """One by one to the end of the file."""
    info = ffi.new("om_batch_info *")
    position, least = 0, 0
    while position < window.size:
        pointer, have = window.at(position, lib.OM_BATCH_OVERHEAD)
        peeked = lib.om_batch_peek(pointer, have, info)
        if peeked == lib.OM_OK and position + info.size <= window.size:
            batch = _placed(window, position, info, least)
            yield batch
            position += batch.size
            least = max(least, batch.last_offset + 1)
            continue
        if window.is_zero(position):
            yield Damage(position, window.size - position, "zeros up to the end", torn=True)
            return
        resumed = batch_behind(window, position, least)
        size = (window.size if resumed is None else resumed) - position
        if peeked == lib.OM_OK and resumed is None:
            what = f"cut short: a batch of {info.size} bytes, and {size} are there"
        else:
            what = "not a batch"
        yield Damage(position, size, what, torn=resumed is None)
        position += size


def _placed(window: Ranges, position: int, info: Any, least: int) -> Placed:
    pointer, have = window.at(position, info.size)
    checked = lib.om_batch_check(pointer, have, info)
    problem = None
    if checked != lib.OM_OK:
        problem = "wrong checksum" if have >= info.size else "cut short"
    elif info.base_offset < least:
        problem = _WHAT[lib.OM_E_RANGE]
    return Placed(
        position=position,
        size=info.size,
        base_offset=info.base_offset,
        last_offset=info.base_offset + info.last_offset_delta,
        records=info.record_count,
        base_timestamp=info.base_timestamp,
        max_timestamp=info.max_timestamp,
        attributes=info.attributes,
        leader_epoch=info.leader_epoch,
        producer_id=info.producer_id,
        producer_epoch=info.producer_epoch,
        base_sequence=info.base_sequence,
        crc=info.crc,
        problem=problem,
    )


def _is_batch(window: Ranges, position: int, least: int) -> bool:
    """A whole and right one, with such offsets?"""
    info = ffi.new("om_batch_info *")
    pointer, have = window.at(position, lib.OM_BATCH_OVERHEAD)
    if lib.om_batch_peek(pointer, have, info) != lib.OM_OK or info.base_offset < least:
        return False
    if position + info.size > window.size:
        return False
    pointer, have = window.at(position, info.size)
    return bool(lib.om_batch_check(pointer, have, info) == lib.OM_OK)


def batch_behind(window: Ranges, position: int, least: int) -> int | None:
    """The next whole and right one behind one that isn't: where its length says, if it is there."""
    info = ffi.new("om_batch_info *")
    pointer, have = window.at(position, lib.OM_BATCH_OVERHEAD)
    if lib.om_batch_peek(pointer, have, info) == lib.OM_OK:
        behind = position + info.size
        if behind < window.size and _is_batch(window, behind, least):
            return int(behind)
    return _find_batch(window, position + 1, least)


def _find_batch(window: Ranges, position: int, least: int) -> int | None:
    """Where the first such batch starts, from there on."""
    while position < window.size:
        piece = window.read(position + MAGIC_AT, PIECE)
        at = piece.find(MAGIC)
        while at >= 0:
            if _is_batch(window, position + at, least):
                return position + at
            at = piece.find(MAGIC, at + 1)
        position += max(len(piece), 1)
    return None


def load_batch(window: Ranges, position: int) -> bool:
    """Have the batch there in the window, whole, and the header behind it. False: there is none."""
    info = ffi.new("om_batch_info *")
    pointer, have = window.at(position, lib.OM_BATCH_OVERHEAD)
    if lib.om_batch_peek(pointer, have, info) != lib.OM_OK:
        return False
    _, have = window.at(position, info.size + lib.OM_BATCH_OVERHEAD)
    return bool(have >= info.size)


def base_offset_at(window: Ranges, position: int, last_offset: int) -> int | None:
    """Of the batch there; None: no batch that ends with that offset, as an index claimed."""
    info = ffi.new("om_batch_info *")
    pointer, have = window.at(position, lib.OM_BATCH_OVERHEAD)
    if lib.om_batch_peek(pointer, have, info) != lib.OM_OK:
        return None
    return info.base_offset if info.base_offset + info.last_offset_delta == last_offset else None


class Walk:
    """Over the batches of one segment, with the entries of its indexes looked at on the way."""

    def __init__(self, window: Ranges, base_offset: int, offsets: bytes, times: bytes) -> None:
        self.window = window
        self.damages: list[Damage] = []
        self.gaps: list[Gap] = []
        self.at_end = False
        self._indexes = offsets, times  # kept alive: the walk points into them
        state = self._state = ffi.new("om_walk *")
        state.base_offset = state.next_offset = base_offset
        state.first_timestamp = state.max_timestamp = state.max_timestamp_offset = -1
        state.wrong_offset = state.wrong_time = -1
        state.offsets = ffi.from_buffer("uint8_t[]", offsets)
        state.times = ffi.from_buffer("uint8_t[]", times)
        state.offset_count = len(offsets) // OFFSET_ENTRY.size
        state.time_count = len(times) // TIME_ENTRY.size
        self._gaps = ffi.new("om_gap[]", GAPS_AT_A_TIME)
        state.gaps, state.gap_room = self._gaps, GAPS_AT_A_TIME

    def to(self, stop: int = NO_STOP, limit: int = NO_LIMIT) -> None:
        """Up to that position, or the end, below `limit`; what is damaged is stepped over."""
        self._state.limit = limit
        while self.position < stop and not self.at_end:
            result = self._walk(stop)
            if self.position >= self.window.size:
                self.at_end = True
            elif result == lib.OM_E_FULL:
                continue
            elif result == lib.OM_E_SHORT and load_batch(self.window, self.position):
                continue
            elif result != lib.OM_OK:
                self._step_over(result)

    def to_damage(self) -> None:
        """Up to the end, or the first place where no whole and right batch is."""
        self._state.limit = NO_LIMIT
        result = lib.OM_E_FULL
        while result == lib.OM_E_FULL or (
            result == lib.OM_E_SHORT and load_batch(self.window, self.position)
        ):
            result = self._walk(NO_STOP)

    def _walk(self, stop: int) -> int:
        pointer, have = self.window.at(self.position, lib.OM_BATCH_OVERHEAD)
        self._state.size = self.window.size
        result = lib.om_walk_batches(self._state, pointer, have, stop)
        self._take_gaps()
        return int(result)

    def start_at(self, position: int, next_offset: int, max_timestamp: int) -> None:
        """The batches before it are known."""
        state = self._state
        state.position, state.next_offset = position, next_offset
        state.max_timestamp, state.max_timestamp_offset = max_timestamp, next_offset - 1

    def _take_gaps(self) -> None:
        for gap in self._gaps[0 : self._state.gap_count]:
            self.gaps.append(Gap(gap.first, gap.end, gap.epoch_before, gap.epoch_after))
        self._state.gap_count = 0

    def _step_over(self, result: int) -> None:
        window, position = self.window, self.position
        if window.is_zero(position):
            size = window.size - position
            self.damages.append(Damage(position, size, "zeros", True, self.next_offset))
            self.at_end = True
            return
        resumed = batch_behind(window, position, self.next_offset)
        end = window.size if resumed is None else resumed
        self.damages.append(
            Damage(position, end - position, _WHAT[result], resumed is None, self.next_offset)
        )
        self._state.position = end
        if result == lib.OM_E_STALE_EPOCH:
            self._state.epoch = 0  # said once
        self.at_end = resumed is None

    @property
    def position(self) -> int:
        return int(self._state.position)

    @property
    def next_offset(self) -> int:
        return int(self._state.next_offset)

    def wrong_entries(self) -> tuple[int | None, int | None]:
        """The number of the first wrong entry in each index, once the walk is at its end."""
        state = self._state
        return (
            _first_wrong(state.wrong_offset, state.offset_at, state.offset_count),
            _first_wrong(state.wrong_time, state.time_at, state.time_count),
        )

    @property
    def first_timestamp(self) -> int:
        return int(self._state.first_timestamp)

    @property
    def max_timestamp(self) -> int:
        return int(self._state.max_timestamp)

    @property
    def epochs(self) -> tuple[int, int]:
        """Of the first batch and the last."""
        return int(self._state.first_epoch), int(self._state.epoch)

    @property
    def left_out(self) -> int:
        """Offsets within batches that no record has."""
        return int(self._state.left_out)

    @property
    def batches(self) -> int:
        return int(self._state.batches)

    @property
    def records(self) -> int:
        return int(self._state.records)


def _first_wrong(wrong: int, looked_at: int, count: int) -> int | None:
    if wrong >= 0:
        return wrong
    return looked_at if looked_at < count else None  # it names a place past the end


def offset_entries(raw: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(last offset of a batch, its position); a part of an entry at the end is left out."""
    whole = len(raw) - len(raw) % OFFSET_ENTRY.size
    return [(base_offset + delta, at) for delta, at in OFFSET_ENTRY.iter_unpack(raw[:whole])]


def time_entries(raw: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(timestamp, last offset of the batch that brought it)"""
    whole = len(raw) - len(raw) % TIME_ENTRY.size
    return [(time, base_offset + delta) for time, delta in TIME_ENTRY.iter_unpack(raw[:whole])]
