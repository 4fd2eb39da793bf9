"""One file of the write-ahead log, read: its header and the records that chain to it.

csrc/wal/wal_file.h and csrc/store/wal_records.h describe the bytes, docs/wal.md the whole. A file
by itself can't say whether its last record is the log's: only the next file's header knows that.
So the end of the chain is just reported, with the bytes that follow it.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ottermq._core import ffi, lib
from ottermq.wal.errors import CorruptData
from ottermq.wal.file_window import Window

BLOCK = 4096
MAGIC = b"OTTERWAL"
VERSION = 1
COPY_AT = 2048
HEADER = struct.Struct("<8sIIQQQII")  # magic version epoch number prev_last first seed crc
RECORD = struct.Struct("<IIBBHIQQ")  # len crc type flags mark epoch seq log id
RECORD_MAX = RECORD.size + 524_288
GROUP_START, CONTINUES = 1, 2
PART = 1

FENCE_MAGIC = b"OTTERFNC"
FENCE = struct.Struct("<8sIIQII")  # magic version epoch last good seq, zero, crc

TYPES = {
    PART: "part",
    2: "batch",
    3: "fanout",
    4: "atomic",
    5: "lease",
    6: "cursor",
    7: "trim",
    8: "truncate",
    9: "delete",
    10: "start",
    11: "named",
}
CURSOR_OPS = {
    1: "acquire",
    2: "settle",
    3: "return",
    4: "return counted",
    5: "purge",
    6: "pass",
}
CURSOR_OP = struct.Struct("<Qqqq")
FANOUT_ENTRY = struct.Struct("<QqiI")
SUB_RECORD = struct.Struct("<IB3xQ")


@dataclass(frozen=True, slots=True)
class FileHeader:
    number: int
    epoch: int
    prev_last_seq: int
    first_seq: int
    seed: int


@dataclass(frozen=True, slots=True)
class WalRecord:
    position: int
    size: int  # with its header, without padding
    seq: int
    type: int
    log_id: int
    epoch: int
    starts_group: bool
    payload: bytes | None  # of the whole record, with its last part; None: more follows


@dataclass(frozen=True, slots=True)
class ChainEnd:
    position: int
    what: str


def header(window: Window) -> FileHeader | None:
    """None: a file that was never used. CorruptData: neither copy is right."""
    block = window.read(0, BLOCK)
    if not block.strip(b"\0"):
        return None
    copies = [found for at in (0, COPY_AT) if (found := _header_at(block, at))]
    if not copies:
        raise CorruptData("not a WAL file, or both copies of its header are damaged")
    return max(copies, key=lambda copy: copy.number)


def _header_at(block: bytes, at: int) -> FileHeader | None:
    if len(block) < at + HEADER.size:
        return None
    magic, version, epoch, number, prev_last, first, seed, crc = HEADER.unpack_from(block, at)
    raw = block[at : at + HEADER.size - 4]
    if magic != MAGIC or version != VERSION or crc != lib.om_crc32c(0, raw, len(raw)):
        return None
    return FileHeader(number, epoch, prev_last, first, seed)


def records(window: Window, head: FileHeader) -> Iterator[WalRecord | ChainEnd]:
    """Each record that chains to the one before, then where and why the chain ends."""
    position, seq, chain = BLOCK, head.first_seq, head.seed
    joined: list[bytes] | None = None  # parts so far; None: not in the middle of a long one
    while True:
        place = _record_at(window, position)
        if place is None and position % BLOCK:
            position = (position + BLOCK - 1) // BLOCK * BLOCK  # a group's padding
            place = _record_at(window, position)
        if place is None:
            yield ChainEnd(position, _end(window, position))
            return
        size, crc, kind, flags, _, epoch, found_seq, log_id = place
        if epoch != head.epoch or found_seq != seq or kind == 0:
            yield ChainEnd(position, "of an earlier lap, or torn")
            return
        raw = window.read(position, size)
        if len(raw) < size or crc != _chained(chain, raw):
            yield ChainEnd(position, "torn, or damaged: the checksum is wrong")
            return
        if not flags & CONTINUES:
            joined = []
        payload = None
        if joined is not None:
            joined.append(raw[RECORD.size :])
            if kind != PART:
                payload, joined = b"".join(joined), None
        yield WalRecord(
            position, size, seq, kind, log_id, epoch, bool(flags & GROUP_START), payload
        )
        position += (size + 7) // 8 * 8
        seq, chain = seq + 1, crc


def _record_at(window: Window, position: int) -> Any:
    raw = window.read(position, RECORD.size)
    if len(raw) < RECORD.size:
        return None
    fields = RECORD.unpack(raw)
    return fields if RECORD.size <= fields[0] <= RECORD_MAX else None


def _chained(chain: int, raw: bytes) -> int:
    """The record's CRC, made while its own field was 0."""
    crc = lib.om_crc32c(chain, raw[:4] + bytes(4), 8)
    return int(lib.om_crc32c(crc, raw[8:], len(raw) - 8))


def _end(window: Window, position: int) -> str:
    if position >= window.size:
        return "the end of the file"
    return "not written yet" if not window.read(position, BLOCK).strip(b"\0") else "no record"


# -- the fields of a record


def describe(kind: int, payload: bytes) -> dict[str, object]:
    """Its fields by name. Bytes that don't fit are reported as such, never an exception."""
    try:
        return _DESCRIBE[kind](payload) if kind in _DESCRIBE else {}
    except (struct.error, CorruptData, IndexError):
        return {"problem": "the payload is not what its type says"}


def _batch(payload: bytes) -> dict[str, object]:
    info = ffi.new("om_batch_info *")
    if lib.om_batch_check(ffi.from_buffer("uint8_t[]", payload), len(payload), info) != lib.OM_OK:
        raise CorruptData("batch")
    last = info.base_offset + info.last_offset_delta
    return {"first_offset": info.base_offset, "last_offset": last, "records": info.record_count}


def _fanout(payload: bytes) -> dict[str, object]:
    (count,) = struct.unpack_from("<I", payload)
    start = 8 + count * FANOUT_ENTRY.size
    if len(payload) < start:
        raise CorruptData("fan-out")
    entries = FANOUT_ENTRY.iter_unpack(payload[8:start])
    places = [{"log_id": log_id, "first_offset": base} for log_id, base, _, _ in entries]
    return {"records": _batch(payload[start:])["records"], "logs": places}


def _atomic(payload: bytes) -> dict[str, object]:
    parts: list[dict[str, object]] = []
    at = 0
    while at < len(payload):
        size, kind, log_id = SUB_RECORD.unpack_from(payload, at)
        at += SUB_RECORD.size
        if kind == 4 or len(payload) - at < size:
            raise CorruptData("transaction")
        inner = describe(kind, payload[at : at + size])
        parts.append({"type": type_name(kind), "log_id": log_id, **inner})
        at += (size + 7) // 8 * 8
    return {"parts": parts}


def _cursor(payload: bytes) -> dict[str, object]:
    return {
        "ops": [
            {"op": CURSOR_OPS.get(kind, str(kind)), "first": first, "last": last, "bytes": weight}
            for kind, first, last, weight in CURSOR_OP.iter_unpack(payload)
        ]
    }


def _trim(payload: bytes) -> dict[str, object]:
    start, rule = struct.unpack_from("<qI", payload)
    return {"start": start, "rule": rule}


def _offset_and_epoch(offset_name: str, payload: bytes) -> dict[str, object]:
    offset, epoch = struct.unpack_from("<qi", payload)
    return {offset_name: offset, "epoch": epoch}


_DESCRIBE: dict[int, Callable[[bytes], dict[str, object]]] = {
    2: _batch,
    3: _fanout,
    4: _atomic,
    5: lambda payload: _offset_and_epoch("end", payload),
    6: _cursor,
    7: _trim,
    8: lambda payload: _offset_and_epoch("offset", payload),
}


def type_name(kind: int) -> str:
    return TYPES.get(kind, f"type {kind}")


def parse_fence(raw: bytes) -> tuple[int, int]:
    """(epoch, the last good sequence of it)"""
    if len(raw) != FENCE.size or not raw.startswith(FENCE_MAGIC):
        raise CorruptData("not a fence file")
    _, version, epoch, last_seq, _, crc = FENCE.unpack(raw)
    if crc != lib.om_crc32c(0, raw, FENCE.size - 4) or version != 1:
        raise CorruptData("the fence file is damaged")
    return epoch, last_seq
