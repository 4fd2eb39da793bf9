"""The codecs of Kafka's batches, decompressed within limits.

A batch stays compressed as its producer sent it; it is decompressed for AMQP readers, for
compaction, and for topics that want another codec. The output may be a thousand times the input, so
room is given step by step up to a limit, and a batch that wants more is refused: no client fills
our memory with small batches.

Kafka's own clients must be able to open the batches compressed here. Java's reads lz4 only in
independent blocks, which cramjam's frames don't have: this module makes such frames itself.
"""

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import cramjam

SIZE_LIMIT = 128 << 20  # the largest AMQP message
RATIO_LIMIT = 1024
ANY_RATIO = 16 << 20  # so much may always come out: a message of zeros is a message, too
FIRST_ROOM = 64 << 10
XERIAL = b"\x82SNAPPY\x00"  # snappy in blocks, as the Java client frames it
XERIAL_HEAD = len(XERIAL) + 8  # two version numbers follow
# An lz4 frame's head: magic, independent blocks, of 64 KiB at most, checksum of these two.
LZ4_HEAD = b"\x04\x22\x4d\x18\x60\x40\x82"
LZ4_BLOCK = 64 << 10
LZ4_PLAIN = 1 << 31  # a block that would have grown
LZ4_END = bytes(4)
LZ4_FAST = 9  # Kafka's default level: not the ninth one, but the fast one
ZSTD_USUAL = 3

Into = Callable[[bytes, bytearray], int]


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class NotDecompressed(Exception):
    """The text says why."""


class TooMuch(NotDecompressed):
    """More would come out than we let."""


def decompress_records(codec: int, data: bytes, most: int | None = None) -> bytes:
    """A batch's records, plain: at most so many bytes."""
    limit = min(SIZE_LIMIT if most is None else most, max(ANY_RATIO, len(data) * RATIO_LIMIT))
    if codec != Codec.SNAPPY and codec not in STREAMS:
        raise NotDecompressed(f"codec {codec} is unknown")
    try:
        if codec == Codec.SNAPPY:
            return _open_snappy(data, limit)
        return _open_stream(STREAMS[Codec(codec)], data, limit)
    except Exception:
        raise
    except BaseException as error:  # a panic in the library: pyo3's isn't an Exception
        raise NotDecompressed(f"the codec failed: {error}") from None


def compress_records(codec: int, data: bytes, level: int | None = None) -> bytes:
    """The other way. level: as Kafka numbers them; None: its default."""
    return CLOSERS[Codec(codec)](data, level)


def _open_stream(into: Into, data: bytes, limit: int) -> bytes:
    room = min(max(FIRST_ROOM, len(data) * 4), limit)
    while True:
        out = bytearray(room)
        try:
            size = into(data, out)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise NotDecompressed(str(error)) from None
            if room == limit:
                raise TooMuch(f"more than {limit} bytes come out of {len(data)}") from None
            room = min(room * 4, limit)
        else:
            return bytes(memoryview(out)[:size])


def _open_snappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(XERIAL):
        return _open_block(data, limit)
    blocks = []
    at = XERIAL_HEAD
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        block = data[at + 4 : at + 4 + size]
        if len(block) < size or not size:
            raise NotDecompressed("a snappy block is cut off")
        blocks.append(_open_block(block, limit))
        limit -= len(blocks[-1])
        at += 4 + size
    return b"".join(blocks)


def _open_block(data: bytes, limit: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > limit:
            raise TooMuch(f"more than {limit} bytes come out of {len(data)}")
        out = bytearray(size)
        cramjam.snappy.decompress_raw_into(data, out)
    except cramjam.DecompressionError as error:
        raise NotDecompressed(str(error)) from None
    return bytes(out)


def _close_gzip(data: bytes, level: int | None) -> bytes:
    return bytes(cramjam.gzip.compress(data, level=None if level == -1 else level))


def _close_snappy(data: bytes, level: int | None) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _close_lz4(data: bytes, level: int | None) -> bytes:
    how: dict[str, Any] = {}
    if level not in (None, LZ4_FAST):
        how = {"mode": "high_compression", "compression": level}
    frame = bytearray(LZ4_HEAD)
    for at in range(0, len(data), LZ4_BLOCK):
        block = data[at : at + LZ4_BLOCK]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False, **how))
        if len(packed) < len(block):
            frame += struct.pack("<I", len(packed)) + packed
        else:
            frame += struct.pack("<I", len(block) | LZ4_PLAIN) + block
    return bytes(frame + LZ4_END)


def _close_zstd(data: bytes, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=ZSTD_USUAL if level is None else level))


STREAMS: dict[Codec, Into] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
CLOSERS: dict[Codec, Callable[[bytes, int | None], bytes]] = {
    Codec.NONE: lambda data, level: data,
    Codec.GZIP: _close_gzip,
    Codec.SNAPPY: _close_snappy,
    Codec.LZ4: _close_lz4,
    Codec.ZSTD: _close_zstd,
}
