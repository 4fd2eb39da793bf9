"""Batches into Arrow's columns: csrc/inspect/columns.c writes, Arrow takes without a copy.

What is damaged is a row of its own, and the reading finds its way again behind it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import pyarrow as pa

from ottermq._core import ffi, lib
from ottermq.storage.codecs import Codec, NotDecompressed, decompress_records
from ottermq.wal.errors import CorruptData
from ottermq.wal.file_window import Ranges
from ottermq.wal.log import Aborted
from ottermq.wal.segmentfile import batch_behind, load_batch

ROWS = 1 << 14  # in a record batch, about: few enough to stay in the processor's cache
LEAST, MOST = -(1 << 63), (1 << 63) - 1
STILL_OPEN = MOST  # where a transaction ends that hasn't

HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
FIXED: dict[str, tuple[int, pa.DataType]] = {
    "offset": (lib.OM_COL_OFFSET, pa.int64()),
    "timestamp": (lib.OM_COL_TIMESTAMP, pa.timestamp("us", tz="UTC")),
    "size": (lib.OM_COL_SIZE, pa.int32()),
    "position": (lib.OM_COL_POSITION, pa.int64()),
    "batch_base_offset": (lib.OM_COL_BATCH_BASE, pa.int64()),
    "producer_id": (lib.OM_COL_PRODUCER_ID, pa.int64()),
    "producer_epoch": (lib.OM_COL_PRODUCER_EPOCH, pa.int32()),
    "base_sequence": (lib.OM_COL_BASE_SEQUENCE, pa.int32()),
    "leader_epoch": (lib.OM_COL_LEADER_EPOCH, pa.int32()),
    "deliveries": (lib.OM_COL_DELIVERIES, pa.int32()),
    "crc_ok": (lib.OM_COL_CRC_OK, pa.bool_()),
    "transactional": (lib.OM_COL_TRANSACTIONAL, pa.bool_()),
    "control": (lib.OM_COL_CONTROL, pa.bool_()),
    "aborted": (lib.OM_COL_ABORTED, pa.bool_()),
    "settled": (lib.OM_COL_SETTLED, pa.bool_()),
}
BYTES = {"key": lib.OM_COL_KEY, "body": lib.OM_COL_BODY}
CODECS = pa.array([codec.name.lower() for codec in Codec] + ["5", "6", "7"])


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows: offsets and timestamps (ms) from the first to before the second."""

    offsets: tuple[int, int] = (0, MOST)
    times: tuple[int, int] = (LEAST, MOST)


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a segment, and what is known of it from elsewhere."""

    start: int
    stop: int
    first_offset: int  # the lowest it may have
    cursor: bytes | None = None
    transactions: tuple[Aborted, ...] = ()


class Columns:
    """The columns of some rows; an array made of them keeps them alive."""

    def __init__(self, names: Sequence[str]) -> None:
        wanted = 0
        for name in names:
            if name in FIXED:
                wanted |= 1 << FIXED[name][0]
            elif name in BYTES:
                wanted |= 1 << BYTES[name]
            elif name == "codec":
                wanted |= 1 << lib.OM_COL_CODEC
            elif name == "headers":
                wanted |= 1 << lib.OM_COL_HEADERS
        handle = lib.om_columns_new(wanted, ROWS)
        if handle == ffi.NULL:
            raise MemoryError
        self.handle = ffi.gc(handle, lib.om_columns_free)

    @property
    def rows(self) -> int:
        return int(lib.om_columns_rows(self.handle))

    def array(self, name: str) -> pa.Array:
        if name in FIXED:
            column, type = FIXED[name]
            return self._fixed(column, type)
        if name in BYTES:
            return self._bytes(BYTES[name], pa.binary(), self.rows)
        if name == "headers":
            return self._headers()
        codes = self._fixed(lib.OM_COL_CODEC, pa.int8())
        return CODECS.take(codes)

    def _fixed(self, column: int, type: pa.DataType) -> pa.Array:
        valid = self._part(column, lib.OM_PART_VALID)
        values = self._part(column, lib.OM_PART_VALUES)
        return pa.Array.from_buffers(type, self.rows, [valid, values])

    def _bytes(self, column: int, type: pa.DataType, rows: int) -> pa.Array:
        parts = (lib.OM_PART_VALID, lib.OM_PART_ENDS, lib.OM_PART_VALUES)
        return pa.Array.from_buffers(type, rows, [self._part(column, part) for part in parts])

    def _headers(self) -> pa.Array:
        items = int(lib.om_columns_items(self.handle))
        # A name that is no UTF-8 would stop Spark: it is shown with what can be shown of it.
        keys = _as_text(self._bytes(lib.OM_COL_HEADER_KEY, pa.binary(), items))
        values = self._bytes(lib.OM_COL_HEADER_VALUE, pa.binary(), items)
        pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS.value_type))
        column = lib.OM_COL_HEADERS
        buffers = [self._part(column, lib.OM_PART_VALID), self._part(column, lib.OM_PART_ENDS)]
        return pa.Array.from_buffers(HEADERS, self.rows, buffers, children=[pairs])

    def _part(self, column: int, part: int) -> pa.Buffer | None:
        size = ffi.new("size_t *")
        pointer = lib.om_columns_part(self.handle, column, part, size)
        if part == lib.OM_PART_VALID and not size[0]:
            return None
        if pointer == ffi.NULL or not size[0]:
            return pa.py_buffer(b"")
        return pa.foreign_buffer(int(ffi.cast("uintptr_t", pointer)), size[0], base=self)


def _as_text(names: pa.Array) -> pa.Array:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [name.decode(errors="replace") for name in names.to_pylist()]
        return pa.array(texts, pa.string())


class Reading:
    """Over a stretch of batches, some rows at a time."""

    def __init__(self, window: Ranges, span: Span, wanted: Wanted) -> None:
        self._window = window
        self._stop = span.stop
        state = self._state = ffi.new("om_reading *")
        state.position = span.start
        state.next_offset = span.first_offset
        setattr(state, "from", wanted.offsets[0])
        state.to = wanted.offsets[1]
        state.since, state.until = wanted.times
        known = [astuple(each) for each in span.transactions]
        self._transactions = ffi.new("om_aborted[]", known)
        state.transactions = self._transactions
        state.transaction_count = len(span.transactions)
        self._cursor = _decode_cursor(span.cursor)
        state.cursor = self._cursor

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        columns = Columns(names)
        while self._state.position < self._stop:
            if self._fill(columns):
                yield columns
                columns = Columns(names)
        if columns.rows:
            yield columns

    def _fill(self, columns: Columns) -> bool:
        """Are they full?"""
        state, window = self._state, self._window
        pointer, have = window.at(state.position, lib.OM_BATCH_OVERHEAD)
        state.size = window.size
        result = lib.om_columns_read(columns.handle, state, pointer, have, self._stop)
        if result == lib.OM_E_SHORT and load_batch(window, state.position):
            return False
        if result == lib.OM_E_COMPRESSED:
            result = self._open(columns)
        if result == lib.OM_E_NO_MEMORY:
            raise MemoryError
        if result not in (lib.OM_OK, lib.OM_E_FULL):
            self._step_over(columns)
        return bool(result == lib.OM_E_FULL)

    def _open(self, columns: Columns) -> int:
        """The compressed batch that comes next."""
        info = ffi.new("om_batch_info *")
        position = self._state.position
        pointer, have = self._window.at(position, lib.OM_BATCH_OVERHEAD)
        lib.om_batch_peek(pointer, have, info)
        batch = self._window.read(position, info.size)
        try:
            records = decompress_records(
                info.attributes & lib.OM_ATTR_CODEC_MASK, batch[lib.OM_BATCH_OVERHEAD :]
            )
        except NotDecompressed:
            return int(lib.OM_E_CORRUPT)
        return int(
            lib.om_columns_decompressed(columns.handle, self._state, batch, records, len(records))
        )

    def _step_over(self, columns: Columns) -> None:
        state = self._state
        resumed = batch_behind(self._window, state.position, state.next_offset)
        end = self._stop if resumed is None else min(resumed, self._stop)
        if lib.om_columns_damaged(columns.handle, state, end - state.position) != lib.OM_OK:
            raise MemoryError


def _decode_cursor(raw: bytes | None) -> Any:
    if raw is None:
        return ffi.NULL
    out = ffi.new("om_cursor **")
    if lib.om_cursor_decode(out, raw, len(raw)) != lib.OM_OK:
        raise CorruptData("the cursor can't be read")
    return ffi.gc(out[0], lib.om_cursor_free)
