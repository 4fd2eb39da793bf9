"""The codecs of Kafka's batches, opened within limits.

A batch stays compressed as its producer sent it; it is opened for AMQP readers only. What comes out
may be a thousand times what went in, so room is given step by step up to a limit, and a batch that
wants more is refused: nobody fills our memory by mail.
"""

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

Into = Callable[[bytes, bytearray], int]


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class NotOpened(Exception):
    """The text says why."""


def open_records(codec: int, data: bytes) -> bytes:
    """A batch's records, plain."""
    limit = min(SIZE_LIMIT, max(ANY_RATIO, len(data) * RATIO_LIMIT))
    if codec == Codec.SNAPPY:
        return _open_snappy(data, limit)
    if codec not in STREAMS:
        raise NotOpened(f"codec {codec} is unknown")
    return _open_stream(STREAMS[Codec(codec)], data, limit)


def close_records(codec: int, data: bytes) -> bytes:
    """The other way: for a batch that lost some of its records."""
    return bytes(CLOSERS[Codec(codec)](data))


def _open_stream(into: Into, data: bytes, limit: int) -> bytes:
    room = min(max(FIRST_ROOM, len(data) * 4), limit)
    while True:
        out = bytearray(room)
        try:
            size = into(data, out)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise NotOpened(str(error)) from None
            if room == limit:
                raise NotOpened(f"more than {limit} bytes come out of {len(data)}") from None
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
            raise NotOpened("a snappy block is cut off")
        blocks.append(_open_block(block, limit))
        limit -= len(blocks[-1])
        at += 4 + size
    return b"".join(blocks)


def _open_block(data: bytes, limit: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > limit:
            raise NotOpened(f"more than {limit} bytes come out of {len(data)}")
        out = bytearray(size)
        cramjam.snappy.decompress_raw_into(data, out)
    except cramjam.DecompressionError as error:
        raise NotOpened(str(error)) from None
    return bytes(out)


STREAMS: dict[Codec, Into] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
CLOSERS: dict[Codec, Callable[[bytes], Any]] = {
    Codec.GZIP: cramjam.gzip.compress,
    Codec.SNAPPY: cramjam.snappy.compress_raw,
    Codec.LZ4: cramjam.lz4.compress,
    Codec.ZSTD: cramjam.zstd.compress,
}
