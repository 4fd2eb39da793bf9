"""The log read without the C core: an afternoon's code, for comparison.

Segments as bytes, headers by `struct`, varints by hand, a tuple per record. No checksum is checked.
"""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

HEADER = struct.Struct(">qiibIhiqqqhii")
Row = tuple[str, str, int, int, int, int]  # vhost, queue, partition, offset, timestamp, size


def rows(places: Iterable[tuple[str, str, int, Path]]) -> Iterator[Row]:
    for vhost, queue, partition, path in places:
        for offset, timestamp, size in records(path.read_bytes()):
            yield vhost, queue, partition, offset, timestamp, size


def records(data: bytes) -> Iterator[tuple[int, int, int]]:
    position = 0
    while position + HEADER.size <= len(data):
        header = HEADER.unpack_from(data, position)
        base, length, base_timestamp, count = header[0], header[1], header[7], header[12]
        at = position + HEADER.size
        for _ in range(count):
            start = at
            length_of_record, at = _varint(data, at)
            end = at + length_of_record
            time_delta, at = _varint(data, at + 1)
            offset_delta, at = _varint(data, at)
            yield base + offset_delta, base_timestamp + time_delta, end - start
            at = end
        position += 12 + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
