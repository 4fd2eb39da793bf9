"""Records as Python sees them, and batches as the C core does: Apache Kafka's format v2."""

import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottermq._core import ffi, lib
from ottermq.wal.errors import check

CONTROL = lib.OM_ATTR_CONTROL
TRANSACTIONAL = lib.OM_ATTR_TRANSACTIONAL
CODECS = int(lib.OM_ATTR_CODEC_MASK)
OVERHEAD = int(lib.OM_BATCH_OVERHEAD)  # bytes before the records

Headers = Sequence[tuple[bytes, bytes | None]]


@dataclass(frozen=True, slots=True)
class Record:
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    offset: int = -1  # known once it is in a log


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch's header, and its bytes."""

    data: bytes
    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    crc: int

    @property
    def codec(self) -> int:
        return self.attributes & CODECS

    def opened(self, records: bytes) -> "Batch":
        """The same batch with its records as they were before they were compressed."""
        data = with_records(self.data, self.attributes & ~CODECS, records)
        return next(batches(data))

    def find_time(self, records: bytes, first: int, wanted: int) -> tuple[int, int] | None:
        """Offset and time of the first of these, which are the batch's records as they were before
        they were compressed, at `first` or behind and of that time or later."""
        data = bytearray(self.data[:OVERHEAD])
        data += records
        _seal(data, self.attributes & ~CODECS)
        found, time = ffi.new("int64_t *"), ffi.new("int64_t *")
        buffer = ffi.from_buffer(data)
        at_end = check(
            lib.om_records_find_time(buffer, len(data), first, wanted, found, time), "batch"
        )
        return None if at_end else (found[0], time[0])

    def records(self) -> Iterator[Record]:
        """Uncompressed batches only: what is compressed stays as its producer sent it."""
        iterator, before = ffi.new("om_record_iter *"), ffi.new("om_record_iter *")
        record, headers = ffi.new("om_record *"), ffi.new("om_header[]", 16)
        check(
            lib.om_record_iter_init(iterator, ffi.from_buffer(self.data), len(self.data)), "batch"
        )
        while True:
            before[0] = iterator[0]
            if check(lib.om_record_next(iterator, record, headers, len(headers)), "record"):
                return
            if record.header_count > len(headers):
                headers = ffi.new("om_header[]", record.header_count)
                iterator[0] = before[0]
                continue
            yield _record(record, headers)


def with_records(header: bytes, attributes: int, records: bytes) -> bytes:
    """A batch with this one's header around these records."""
    data = bytearray(header[:OVERHEAD])
    data += records
    _seal(data, attributes)
    return bytes(data)


def _seal(data: bytearray, attributes: int) -> None:
    """A header for what follows it: length, attributes, checksum."""
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, attributes)
    _checksum(data)


def sealed(data: bytearray) -> bytes:
    """With the checksum it ought to have."""
    _checksum(data)
    return bytes(data)


def _checksum(data: bytearray) -> None:
    struct.pack_into(">I", data, 17, lib.om_crc32c(0, ffi.from_buffer(data) + 21, len(data) - 21))


def batches(data: bytes) -> Iterator[Batch]:
    """Whole batches, one after the other, as a read gives them."""
    info = ffi.new("om_batch_info *")
    buffer = ffi.from_buffer(data)
    at = 0
    while at < len(data):
        check(lib.om_batch_check(buffer + at, len(data) - at, info), f"batch at byte {at}")
        yield _batch(data[at : at + info.size], info)
        at += info.size


def _batch(data: bytes, info: Any) -> Batch:
    return Batch(
        data=data,
        base_offset=info.base_offset,
        last_offset=info.base_offset + info.last_offset_delta,
        leader_epoch=info.leader_epoch,
        attributes=info.attributes,
        base_timestamp=info.base_timestamp,
        max_timestamp=info.max_timestamp,
        producer_id=info.producer_id,
        producer_epoch=info.producer_epoch,
        base_sequence=info.base_sequence,
        record_count=info.record_count,
        crc=info.crc,
    )


class RecordArray:
    """Records laid out for the C core; keeps alive what it points to."""

    __slots__ = ("_keep", "array", "count")

    def __init__(self, records: Sequence[Record]) -> None:
        self.count = len(records)
        self.array = ffi.new("om_record[]", self.count)
        self._keep: list[Any] = []
        for slot, record in zip(self.array, records, strict=True):
            slot.timestamp = record.timestamp
            self._point(slot.key, record.key)
            self._point(slot.value, record.value)
            if record.headers:
                slot.headers = self._headers(record.headers)
                slot.header_count = len(record.headers)

    def _point(self, span: Any, data: bytes | None) -> None:
        if data is None:
            span.len = -1
            return
        buffer = ffi.from_buffer("uint8_t[]", data)
        self._keep.append(buffer)
        span.data = buffer
        span.len = len(data)

    def _headers(self, headers: Headers) -> Any:
        array = ffi.new("om_header[]", len(headers))
        for slot, (key, value) in zip(array, headers, strict=True):
            self._point(slot.key, key)
            self._point(slot.value, value)
        self._keep.append(array)
        return array


def _bytes(span: Any) -> bytes | None:
    return None if span.len < 0 else bytes(ffi.buffer(span.data, span.len))


def _record(record: Any, headers: Any) -> Record:
    pairs = tuple(
        (_bytes(headers[i].key) or b"", _bytes(headers[i].value))
        for i in range(record.header_count)
    )
    return Record(_bytes(record.value), _bytes(record.key), pairs, record.timestamp, record.offset)
