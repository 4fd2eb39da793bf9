"""The WAL as recovery reads it, one change after the other: fan-outs and transactions taken apart.

csrc/wal/wal_reader.c does the reading: it knows where the log ends and what a hole is.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ottermq._core import ffi, lib
from ottermq.wal.errors import CorruptData
from ottermq.wal.walfile import FANOUT_ENTRY, SUB_RECORD

BATCH, FANOUT, ATOMIC, CURSOR, TRIM, DELETE, START = 2, 3, 4, 6, 7, 9, 10
BASE_OFFSET = struct.Struct(">q")
LEADER_EPOCH, LEADER_EPOCH_AT = struct.Struct(">i"), 12


@dataclass(frozen=True, slots=True)
class Change:
    seq: int
    kind: int  # never FANOUT or ATOMIC
    log_id: int  # 0: of all logs
    payload: bytes


def changes(folder: Path, after_seq: int) -> Iterator[Change]:
    """CorruptData at its end: there is a hole, or files were recycled while we read."""
    error = ffi.new("char[320]")
    reader = lib.om_wal_reader_open(os.fsencode(folder), after_seq, error, len(error))
    if reader == ffi.NULL:
        raise CorruptData(_text(error))
    try:
        record = ffi.new("om_wal_record *")
        result = lib.om_wal_reader_next(reader, record)
        while result == lib.OM_OK:
            payload = bytes(ffi.buffer(record.payload, record.len))
            yield from _apart(record.seq, record.type, record.log_id, payload)
            result = lib.om_wal_reader_next(reader, record)
        if result != lib.OM_END:
            raise CorruptData(_text(lib.om_wal_reader_error(reader)))
    finally:
        lib.om_wal_reader_close(reader)


def _text(chars: object) -> str:
    text: bytes = ffi.string(chars)
    return text.decode(errors="replace")


def _apart(seq: int, kind: int, log_id: int, payload: bytes) -> Iterator[Change]:
    try:
        if kind == FANOUT:
            yield from _fanout(seq, payload)
        elif kind == ATOMIC:
            yield from _atomic(seq, payload)
        else:
            yield Change(seq, kind, log_id, payload)
    except struct.error:
        raise CorruptData(f"WAL record {seq} is not what its type says") from None


def _fanout(seq: int, payload: bytes) -> Iterator[Change]:
    (count,) = struct.unpack_from("<I", payload)
    start = 8 + count * FANOUT_ENTRY.size
    batch = bytearray(payload[start:])
    for log_id, base, epoch, _ in FANOUT_ENTRY.iter_unpack(payload[8:start]):
        BASE_OFFSET.pack_into(batch, 0, base)
        LEADER_EPOCH.pack_into(batch, LEADER_EPOCH_AT, epoch)
        yield Change(seq, BATCH, log_id, bytes(batch))


def _atomic(seq: int, payload: bytes) -> Iterator[Change]:
    at = 0
    while at < len(payload):
        size, kind, log_id = SUB_RECORD.unpack_from(payload, at)
        at += SUB_RECORD.size
        yield from _apart(seq, kind, log_id, payload[at : at + size])
        at += (size + 7) // 8 * 8
