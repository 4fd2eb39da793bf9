"""Record batches for tests: through the C core, and put together by hand to be wrong on purpose."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.internals import ffi, lib

OVERHEAD = 61
HEADER = struct.Struct(">qiibIhiqqqhii")
INFO_FIELDS = (
    "base_offset",
    "size",
    "leader_epoch",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)
Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Record:
    timestamp: int = 1_700_000_000_000
    key: bytes | None = None
    value: bytes | None = b"value"
    headers: tuple[Header, ...] = ()
    offset: int = -1
    """As read; a record to be written has none."""


@dataclass
class Info:
    """An om_batch_info in Python's hands."""

    result: int
    fields: dict[str, int] = field(default_factory=dict)

    def __getattr__(self, name: str) -> int:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(name) from None


def records(
    min_size: int = 1, max_size: int = 8, timestamps: st.SearchStrategy[int] | None = None
) -> st.SearchStrategy[list[Record]]:
    if timestamps is None:
        timestamps = st.integers(0, 2**62) | st.integers(1_700_000_000_000, 1_700_000_100_000)
    blob = st.none() | st.binary(max_size=200)
    headers = st.lists(st.tuples(st.text(max_size=20), blob), max_size=4).map(tuple)
    one = st.builds(Record, timestamps, blob, blob, headers)
    return st.lists(one, min_size=min_size, max_size=max_size)


def c_records(items: Sequence[Record]) -> tuple[Any, list[Any]]:
    """An om_record array, and what must stay alive for it."""
    alive: list[Any] = []

    def span(target: Any, data: bytes | None) -> None:
        if data is None:
            target.data, target.len = ffi.NULL, -1
            return
        alive.append(ffi.new("uint8_t[]", data))
        target.data, target.len = alive[-1], len(data)

    array = ffi.new("om_record[]", len(items))
    for target, item in zip(array, items, strict=True):
        target.timestamp = item.timestamp
        span(target.key, item.key)
        span(target.value, item.value)
        headers = ffi.new("om_header[]", len(item.headers))
        alive.append(headers)
        for header, (key, value) in zip(headers, item.headers, strict=True):
            span(header.key, key.encode())
            span(header.value, value)
        target.headers, target.header_count = headers, len(item.headers)
    return array, alive


def new_info(**fields: int) -> Any:
    return ffi.new(
        "om_batch_info *",
        {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, **fields},
    )


def read_info(result: int, info: Any) -> Info:
    return Info(result, {name: getattr(info, name) for name in INFO_FIELDS})


def encode(items: Sequence[Record], **fields: int) -> bytes:
    """A batch by om_batch_encode, in a buffer of exactly the size it was told to need."""
    array, alive = c_records(items)
    bound = lib.om_batch_size_bound(array, len(items))
    assert bound >= OVERHEAD, bound
    out = ffi.new("uint8_t[]", bound)
    size = lib.om_batch_encode(new_info(**fields), array, len(items), out, bound)
    assert OVERHEAD <= size <= bound, size
    return bytes(ffi.buffer(out, size))


def taken(growing: Any, **fields: int) -> bytes:
    """What was built; the build is empty then."""
    whole = lib.om_build_take(growing, new_info(**fields))
    assert whole != ffi.NULL
    batch = bytes(ffi.buffer(whole.data, whole.len))
    lib.om_buffer_unref(whole)
    return batch


def build(items: Iterable[Record], **fields: int) -> bytes:
    """The same by om_build: record by record."""
    growing = ffi.new("om_build *")
    lib.om_build_init(growing)
    try:
        for item in items:
            array, alive = c_records([item])
            assert lib.om_build_add(growing, array) == lib.OM_OK
        return taken(growing, **fields)
    finally:
        lib.om_build_free(growing)


def peek(at: Any, length: int) -> Info:
    info = ffi.new("om_batch_info *")
    return read_info(lib.om_batch_peek(at, length, info), info)


def check(at: Any, length: int) -> Info:
    info = ffi.new("om_batch_info *")
    return read_info(lib.om_batch_check(at, length, info), info)


def validate(at: Any, length: int, compacted: bool = False) -> Info:
    info = ffi.new("om_batch_info *")
    return read_info(lib.om_batch_validate(at, length, compacted, info), info)


def walk(at: Any, length: int, header_cap: int = 64) -> tuple[int, list[Record]]:
    """How om_record_next ended, and the records before that."""
    iterator = ffi.new("om_record_iter *")
    record = ffi.new("om_record *")
    headers = ffi.new("om_header[]", header_cap)
    found: list[Record] = []
    result: int = lib.om_record_iter_init(iterator, at, length)
    while result == lib.OM_OK:
        result = lib.om_record_next(iterator, record, headers, header_cap)
        if result == lib.OM_OK:
            found.append(_from_c(record, header_cap))
    return result, found


def _from_c(record: Any, header_cap: int) -> Record:
    stored = [record.headers[i] for i in range(min(record.header_count, header_cap))]
    return Record(
        timestamp=record.timestamp,
        key=_bytes(record.key),
        value=_bytes(record.value),
        headers=tuple((_text(header.key), _bytes(header.value)) for header in stored),
        offset=record.offset,
    )


def _bytes(span: Any) -> bytes | None:
    if span.len < 0:
        assert span.len == -1 and span.data == ffi.NULL
        return None
    return bytes(ffi.buffer(span.data, span.len))


def _text(span: Any) -> str:
    data = _bytes(span)
    assert data is not None
    return data.decode(errors="surrogateescape")


def varint(value: int) -> bytes:
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def raw_record(
    *,
    time_delta: bytes = varint(0),
    offset_delta: bytes = varint(0),
    key: bytes = varint(-1),
    value: bytes = varint(1) + b"v",
    headers: bytes = varint(0),
    length: int | None = None,
) -> bytes:
    """A record from its fields' bytes; the length is the true one unless given."""
    body = b"\0" + time_delta + offset_delta + key + value + headers
    return varint(len(body) if length is None else length) + body


def raw_batch(
    body: bytes,
    count: int,
    *,
    last_offset_delta: int | None = None,
    attributes: int = 0,
    base_offset: int = 0,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    magic: int = 2,
    length: int | None = None,
) -> bytes:
    """A batch around any bytes, with a right CRC: only its contents can be wrong."""
    last = count - 1 if last_offset_delta is None else last_offset_delta
    batch_length = OVERHEAD - 12 + len(body) if length is None else length
    fields = [base_offset, batch_length, 0, magic, 0, attributes, last, base_timestamp]
    return seal(HEADER.pack(*fields, max_timestamp, -1, -1, -1, count) + body)


def seal(batch: bytes) -> bytes:
    """The batch with the CRC its bytes ask for."""
    crc = lib.om_crc32c_portable(0, batch[21:], len(batch) - 21)
    return batch[:17] + struct.pack(">I", crc) + batch[21:]
