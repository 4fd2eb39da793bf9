"""data/checkpoint, read: recovery points and cursors. csrc/store/checkpoint_file.c writes it.

header   "OTTERCKP" | version u32 | zero u32 | WAL sequence u64 | entries u64 | written at i64
entry    104 bytes, see Saved, then the cursor and the producers, each padded to 8 bytes
trailer  xxh3 of all before, u64
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import xxhash

from ottermq._core import ffi, lib
from ottermq.wal.errors import CorruptData
from ottermq.wal.log import Aborted, CursorStat

NAME = "checkpoint"
MAGIC = b"OTTERCKP"
VERSION = 2
HEADER = struct.Struct("<8sIIQQq")
ENTRY = struct.Struct("<Qqqqq qQqq QqiIII")
TRAILER = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint's entry for one log."""

    log_id: int
    start_offset: int
    next_offset: int
    lease_end: int
    recovery_point: int
    recovery_segment: int  # its base offset, -1: none
    recovery_position: int
    first_timestamp: int  # of that segment
    max_timestamp: int
    cursor_seq: int
    first_segment: int  # files of smaller base offsets are left over from a trim
    leader_epoch: int
    cursor: bytes
    producers: bytes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    wal_seq: int  # recovery replays what comes after it
    written_at: int
    logs: dict[int, Saved]


def load(data: Path) -> Checkpoint | None:
    """None: there has been none yet."""
    try:
        return parse((data / NAME).read_bytes())
    except FileNotFoundError:
        return None


def parse(raw: bytes) -> Checkpoint:
    if len(raw) < HEADER.size + TRAILER.size or not raw.startswith(MAGIC):
        raise CorruptData("not a checkpoint")
    _, version, _, wal_seq, count, written_at = HEADER.unpack_from(raw)
    body = len(raw) - TRAILER.size
    if xxhash.xxh3_64_intdigest(raw[:body]) != TRAILER.unpack_from(raw, body)[0]:
        raise CorruptData("the checkpoint's checksum is wrong")
    if version != VERSION:
        raise CorruptData(f"a checkpoint of version {version}, not {VERSION}")
    logs = list(_entries(raw, body))
    if len(logs) != count:
        raise CorruptData(f"the checkpoint has {len(logs)} entries and says {count}")
    return Checkpoint(wal_seq, written_at, {saved.log_id: saved for saved in logs})


def _entries(raw: bytes, end: int) -> Iterator[Saved]:
    at = HEADER.size
    while at < end:
        if end - at < ENTRY.size:
            raise CorruptData(f"the checkpoint's entry at byte {at} is cut")
        fields = list(ENTRY.unpack_from(raw, at))
        *fields, cursor_size, producers_size, _ = fields
        at += ENTRY.size
        for size in (cursor_size, producers_size):
            if end - at < size:
                raise CorruptData(f"the checkpoint's entry before byte {at} is cut")
            fields.append(raw[at : at + size])
            at += (size + 7) // 8 * 8
        yield Saved(*fields)


@dataclass(frozen=True, slots=True)
class Transactions:
    """A checkpoint's record of a log's transactions."""

    open: dict[int, int]  # producer id → first offset
    ended: dict[int, int]  # producer id → its last marker's offset
    aborted: list[Aborted]


PRODUCERS = struct.Struct("<II")
PRODUCER = struct.Struct("<qqqqqihH")  # id, first open, ended first and at, heard, epochs, batches
PRODUCER_BATCH = struct.Struct("<iiqq")
ABORTED = struct.Struct("<qqqq")


def decode_transactions(raw: bytes) -> Transactions:
    out = Transactions({}, {}, [])
    if not raw:
        return out
    try:
        producers, aborted = PRODUCERS.unpack_from(raw)
        at = PRODUCERS.size
        for _ in range(producers):
            id, first_open, _, ended, _, _, _, batches = PRODUCER.unpack_from(raw, at)
            at += PRODUCER.size + batches * PRODUCER_BATCH.size
            out.ended[id] = ended
            if first_open >= 0:
                out.open[id] = first_open
        for _ in range(aborted):
            out.aborted.append(Aborted(*ABORTED.unpack_from(raw, at)))
            at += ABORTED.size
    except struct.error:
        raise CorruptData("the producers can't be read") from None
    return out


def decode_cursor(raw: bytes) -> CursorStat:
    out = ffi.new("om_cursor **")
    if lib.om_cursor_decode(out, ffi.from_buffer("uint8_t[]", raw), len(raw)) != lib.OM_OK:
        raise CorruptData("the cursor can't be read")
    stat = ffi.new("om_cursor_stat *")
    lib.om_cursor_stat_get(out[0], stat)
    lib.om_cursor_free(out[0])
    return CursorStat(*(getattr(stat, field) for field in CursorStat.__dataclass_fields__))
