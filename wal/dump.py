"""The content of a file of the data directory, item by item, for `ottermq segment dump`.

Every kind of file becomes a stream of small items. Damaged parts are items too, with their
place, and not an exception: people look into a file to see them.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ottermq._core import lib
from ottermq.wal import checkpoint, manifest, removals, segmentfile, walfile
from ottermq.wal.errors import CorruptData, LogError
from ottermq.wal.file_window import Window
from ottermq.wal.log import CursorStat
from ottermq.wal.records import Record, batches

HANDED_MAGIC = b"OTTERHND"
HANDED_SLOT = struct.Struct("<Qq")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FLAGS = {
    lib.OM_ATTR_LOG_APPEND_TIME: "log-append-time",
    lib.OM_ATTR_TRANSACTIONAL: "transactional",
    lib.OM_ATTR_CONTROL: "control",
    lib.OM_ATTR_DELETE_HORIZON: "delete-horizon",
}


@dataclass(frozen=True, slots=True)
class BatchItem:
    kind: ClassVar = "batch"
    position: int
    size: int
    first_offset: int
    last_offset: int
    records: int
    base_timestamp: int
    max_timestamp: int
    codec: str
    flags: tuple[str, ...]
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    crc: int
    problem: str | None  # None: the checksum is right and the offsets grow


@dataclass(frozen=True, slots=True)
class RecordItem:
    kind: ClassVar = "record"
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class DamageItem:
    kind: ClassVar = "damage"
    position: int
    size: int
    what: str


@dataclass(frozen=True, slots=True)
class NoteItem:
    """Something worth saying that is no damage."""

    kind: ClassVar = "note"
    position: int
    what: str


@dataclass(frozen=True, slots=True)
class OffsetEntryItem:
    kind: ClassVar = "index entry"
    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeEntryItem:
    kind: ClassVar = "timeindex entry"
    timestamp: int
    offset: int


@dataclass(frozen=True, slots=True)
class WalFileItem:
    kind: ClassVar = "wal file"
    number: int
    epoch: int
    previous_last_seq: int
    first_seq: int


@dataclass(frozen=True, slots=True)
class WalRecordItem:
    kind: ClassVar = "wal record"
    position: int
    size: int
    seq: int
    type: str
    log_id: int
    starts_group: bool
    says: dict[str, object]


@dataclass(frozen=True, slots=True)
class CheckpointItem:
    kind: ClassVar = "checkpoint"
    wal_seq: int
    logs: int
    written_at: int


@dataclass(frozen=True, slots=True)
class CheckpointLogItem:
    kind: ClassVar = "checkpoint log"
    log_id: int
    start_offset: int
    next_offset: int
    lease_end: int
    recovery_point: int
    recovery_segment: int
    recovery_position: int
    first_segment: int
    leader_epoch: int
    cursor_seq: int
    cursor: CursorStat | None


@dataclass(frozen=True, slots=True)
class ManifestItem:
    kind: ClassVar = "manifest"
    log_id: int
    name: str


@dataclass(frozen=True, slots=True)
class ManifestSegmentItem:
    kind: ClassVar = "manifest segment"
    base_offset: int
    next_offset: int
    size: int
    first_timestamp: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class HandedItem:
    kind: ClassVar = "handed out"
    log_id: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class FenceItem:
    kind: ClassVar = "fence"
    epoch: int
    last_good_seq: int


@dataclass(frozen=True, slots=True)
class RemovalItem:
    kind: ClassVar = "removal"
    seq: int
    time: int
    rule: str
    vhost: str
    name: str
    log_id: int
    segment: int
    first_offset: int
    next_offset: int
    size: int
    left: int
    first_timestamp: int
    max_timestamp: int


Item = (
    BatchItem
    | RecordItem
    | DamageItem
    | NoteItem
    | OffsetEntryItem
    | TimeEntryItem
    | WalFileItem
    | WalRecordItem
    | CheckpointItem
    | CheckpointLogItem
    | ManifestItem
    | ManifestSegmentItem
    | HandedItem
    | FenceItem
    | RemovalItem
)


class UnknownFile(LogError):
    """Not a file that we write."""


def dump(path: Path, *, with_records: bool = False) -> Iterator[Item]:
    """The items of a file, in order. UnknownFile, OSError: it can't be read at all."""
    kind = file_kind(path)
    if kind == "log":
        return _segment(path, with_records)
    return _READERS[kind](path)


def file_kind(path: Path) -> str:
    """By its name, else by how it starts."""
    name = path.name
    for suffix in ("timeindex", "index", "wal", "log", "removals"):
        if name.endswith(f".{suffix}"):
            return suffix
    if ".log.corrupt-" in name:
        return "log"
    with Window(path) as window:
        start = window.read(0, 32)
    for magic, kind in _MAGICS.items():
        if start.startswith(magic):
            return kind
    if name in _READERS:
        return name
    raise UnknownFile(
        f"{path}: not a file of a data directory that can be shown (.log, .index, .timeindex, "
        ".wal, .removals, checkpoint, manifest, handed, fence)"
    )


_MAGICS = {
    walfile.MAGIC: "wal",
    walfile.FENCE_MAGIC: "fence",
    checkpoint.MAGIC: "checkpoint",
    manifest.MAGIC: "manifest",
    HANDED_MAGIC: "handed",
    removals.MAGIC: "removals",
}


def codec_name(attributes: int) -> str:
    codec = attributes & lib.OM_ATTR_CODEC_MASK
    return CODECS[codec] if codec < len(CODECS) else f"codec {codec}"


def _segment(path: Path, with_records: bool) -> Iterator[Item]:
    with Window(path) as window:
        for found in segmentfile.batches(window):
            if isinstance(found, segmentfile.Damage):
                yield DamageItem(found.position, found.size, found.what)
                continue
            yield _batch(found)
            if with_records and found.problem is None:
                yield from _records(window.read(found.position, found.size), found)


def _batch(found: segmentfile.Placed) -> BatchItem:
    return BatchItem(
        position=found.position,
        size=found.size,
        first_offset=found.base_offset,
        last_offset=found.last_offset,
        records=found.records,
        base_timestamp=found.base_timestamp,
        max_timestamp=found.max_timestamp,
        codec=codec_name(found.attributes),
        flags=tuple(name for bit, name in FLAGS.items() if found.attributes & bit),
        leader_epoch=found.leader_epoch,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        base_sequence=found.base_sequence,
        crc=found.crc,
        problem=found.problem,
    )


def _records(data: bytes, found: segmentfile.Placed) -> Iterator[Item]:
    if found.attributes & lib.OM_ATTR_CODEC_MASK:
        what = f"its records are compressed ({codec_name(found.attributes)}) and stay so"
        yield NoteItem(found.position, what)
        return
    try:
        for batch in batches(data):
            for record in batch.records():
                yield _record(record)
    except CorruptData as error:
        # The checksum is right, so its producer sent it so.
        yield DamageItem(found.position, found.size, f"its records can't be read: {error}")


def _record(record: Record) -> RecordItem:
    headers = tuple(record.headers)
    return RecordItem(record.offset, record.timestamp, record.key, record.value, headers)


def _index(path: Path) -> Iterator[Item]:
    raw = path.read_bytes()
    entries = segmentfile.offset_entries(raw, segmentfile.base_offset_of(path) or 0)
    return _entries(OffsetEntryItem, entries, raw, segmentfile.OFFSET_ENTRY.size)


def _timeindex(path: Path) -> Iterator[Item]:
    raw = path.read_bytes()
    entries = segmentfile.time_entries(raw, segmentfile.base_offset_of(path) or 0)
    return _entries(TimeEntryItem, entries, raw, segmentfile.TIME_ENTRY.size)


def _entries(
    kind: Callable[[int, int], Item], entries: list[tuple[int, int]], raw: bytes, size: int
) -> Iterator[Item]:
    before = (-1, -1)
    for number, entry in enumerate(entries):
        yield kind(*entry)
        if entry[0] <= before[0] or entry[1] <= before[1]:
            yield DamageItem(number * size, size, "entries must grow")
        before = entry
    if left := len(raw) % size:
        yield DamageItem(len(raw) - left, left, "part of an entry")


def _wal(path: Path) -> Iterator[Item]:
    with Window(path) as window:
        try:
            head = walfile.header(window)
        except CorruptData as error:
            yield DamageItem(0, walfile.BLOCK, str(error))
            return
        if head is None:
            yield NoteItem(0, "a spare file: never used yet")
            return
        yield WalFileItem(head.number, head.epoch, head.prev_last_seq, head.first_seq)
        for found in walfile.records(window, head):
            if isinstance(found, walfile.ChainEnd):
                yield NoteItem(found.position, f"the chain ends here; what follows: {found.what}")
            else:
                yield _wal_record(found)


def _wal_record(found: walfile.WalRecord) -> WalRecordItem:
    says: dict[str, object] = {}
    if found.payload is not None:
        says = walfile.describe(found.type, found.payload)
    kind = walfile.type_name(found.type)
    return WalRecordItem(
        found.position, found.size, found.seq, kind, found.log_id, found.starts_group, says
    )


def _checkpoint(path: Path) -> Iterator[Item]:
    raw = path.read_bytes()
    try:
        found = checkpoint.parse(raw)
    except CorruptData as error:
        yield DamageItem(0, len(raw), str(error))
        return
    yield CheckpointItem(found.wal_seq, len(found.logs), found.written_at)
    for saved in sorted(found.logs.values(), key=lambda saved: saved.log_id):
        cursor = None
        if saved.cursor:
            try:
                cursor = checkpoint.decode_cursor(saved.cursor)
            except CorruptData as error:
                yield DamageItem(0, len(saved.cursor), f"log {saved.log_id}: {error}")
        yield CheckpointLogItem(
            saved.log_id,
            saved.start_offset,
            saved.next_offset,
            saved.lease_end,
            saved.recovery_point,
            saved.recovery_segment,
            saved.recovery_position,
            saved.first_segment,
            saved.leader_epoch,
            saved.cursor_seq,
            cursor,
        )


def _manifest(path: Path) -> Iterator[Item]:
    raw = path.read_bytes()
    try:
        found = manifest.parse(raw)
    except CorruptData as error:
        yield DamageItem(0, len(raw), str(error))
        return
    yield ManifestItem(found.log_id, found.name)
    for sealed in found.segments:
        yield ManifestSegmentItem(
            sealed.base_offset,
            sealed.next_offset,
            sealed.size,
            sealed.first_timestamp,
            sealed.max_timestamp,
        )


def _handed(path: Path) -> Iterator[Item]:
    raw = path.read_bytes()
    if not raw.startswith(HANDED_MAGIC):
        yield DamageItem(0, len(raw), "not a file of what was handed out")
        return
    whole = raw[: len(raw) // HANDED_SLOT.size * HANDED_SLOT.size]
    for log_id, next_offset in HANDED_SLOT.iter_unpack(whole[HANDED_SLOT.size :]):
        if log_id:
            yield HandedItem(log_id, next_offset)


def _fence(path: Path) -> Iterator[Item]:
    raw = path.read_bytes()
    try:
        yield FenceItem(*walfile.parse_fence(raw))
    except CorruptData as error:
        yield DamageItem(0, len(raw), str(error))


def _removals(path: Path) -> Iterator[Item]:
    raw = path.read_bytes()
    try:
        for found in removals.parse(raw):
            if isinstance(found, removals.Removal):
                yield _removal(found)
            elif found.torn:
                yield NoteItem(found.position, f"{found.size} bytes: a write that was cut short")
            else:
                yield DamageItem(found.position, found.size, "no record")
    except CorruptData as error:
        yield DamageItem(0, len(raw), str(error))


def _removal(found: removals.Removal) -> RemovalItem:
    return RemovalItem(
        seq=found.seq,
        time=found.time,
        rule=found.rule.label,
        vhost=found.vhost,
        name=found.name,
        log_id=found.log_id,
        segment=found.segment,
        first_offset=found.first,
        next_offset=found.next,
        size=found.bytes,
        left=found.left,
        first_timestamp=found.first_timestamp,
        max_timestamp=found.max_timestamp,
    )


_READERS: dict[str, Callable[[Path], Iterator[Item]]] = {
    "index": _index,
    "timeindex": _timeindex,
    "wal": _wal,
    "checkpoint": _checkpoint,
    "manifest": _manifest,
    "handed": _handed,
    "fence": _fence,
    "removals": _removals,
}
