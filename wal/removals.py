"""data/removals/*.removals, read: removals, when and why. csrc/store/removal_journal.c writes it.

header   "OTTERRMV" | version u32 | zero u32
record   96 bytes, see Removal, then the log's folder and its name, padded to 8 bytes

A crash leaves a torn end, and no segment that was in it has gone. Sequences that are missing
between records are another matter: somebody has changed the files.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from ottermq._core import ffi, lib
from ottermq.wal.errors import CorruptData
from ottermq.wal.removal_reasons import RemovalReason

FOLDER = "removals"
SUFFIX = ".removals"
MAGIC = b"OTTERRMV"
VERSION = 1
HEADER = struct.Struct("<8sII")
FIXED = struct.Struct("<IIQqQqqqQQqqBxHHxx")
CRC_AT, REST_AT = 4, 8


NOTHING_REMOVED = frozenset(
    (RemovalReason.LIFE, RemovalReason.HOLD, RemovalReason.LIFTED, RemovalReason.SKIPPED)
)


@dataclass(frozen=True, slots=True)
class Removal:
    seq: int
    time: int  # ms
    log_id: int
    segment: int  # base offset of the file; -1: no file went
    first: int  # offsets [first, next)
    next: int
    bytes: int
    left: int  # bytes that stay under the segment's name: compaction, a cut
    first_timestamp: int
    max_timestamp: int
    rule: RemovalReason
    folder: str
    name: str

    @property
    def vhost(self) -> str:
        """As its folder is called: cut if it is very long."""
        parts = self.folder.split("/")
        return unquote(parts[1]) if len(parts) > 1 else ""


@dataclass(frozen=True, slots=True)
class Bad:
    """Bytes that are no record."""

    position: int
    size: int
    torn: bool  # nothing good follows


def parse(raw: bytes) -> Iterator[Removal | Bad]:
    """One file. CorruptData: it isn't such a file."""
    if len(raw) < HEADER.size:
        return  # made, and never written to
    magic, version, _ = HEADER.unpack_from(raw)
    if magic != MAGIC or version != VERSION:
        raise CorruptData("not a record of removed segments, or of another version")
    at, bad_from = HEADER.size, -1
    while at < len(raw):
        found = _record(raw, at)
        if found is None:
            bad_from = at if bad_from < 0 else bad_from
            at += 8
            continue
        if bad_from >= 0:
            yield Bad(bad_from, at - bad_from, torn=False)
            bad_from = -1
        size, removal = found
        yield removal
        at += size
    if bad_from >= 0:
        yield Bad(bad_from, len(raw) - bad_from, torn=True)


def _record(raw: bytes, at: int) -> tuple[int, Removal] | None:
    if len(raw) - at < FIXED.size:
        return None
    size, crc, *fields, rule, folder_size, name_size = FIXED.unpack_from(raw, at)
    if size % 8 or not FIXED.size + folder_size + name_size <= size <= len(raw) - at:
        return None
    whole = raw[at : at + CRC_AT] + bytes(4) + raw[at + REST_AT : at + size]
    if lib.om_crc32c(0, ffi.from_buffer(whole), size) != crc:
        return None
    names = raw[at + FIXED.size : at + FIXED.size + folder_size + name_size]
    folder = names[:folder_size].decode(errors="replace")
    name = names[folder_size:].decode(errors="replace")
    return size, Removal(*(*fields, _rule(rule), folder, name))


def _rule(number: int) -> RemovalReason:
    return (
        RemovalReason(number)
        if number in RemovalReason.__members__.values()
        else RemovalReason.UNKNOWN
    )


@dataclass(frozen=True, slots=True)
class History:
    """All records of the files, each removal once, and the sequences that are missing."""

    records: tuple[Removal, ...]  # all, in order: holds and lives too
    problems: tuple[str, ...]

    @property
    def removals(self) -> tuple[Removal, ...]:
        return tuple(each for each in self.records if each.rule not in NOTHING_REMOVED)


def history(files: Iterable[tuple[str, bytes]]) -> History:
    """Of all the files: (name, bytes), oldest first."""
    found: dict[object, Removal] = {}
    seen: list[tuple[int, int]] = []  # sequences, [first, next)
    problems: list[str] = []
    for name, raw in files:
        try:
            for item in parse(raw):
                if isinstance(item, Removal):
                    seen.append((item.seq, item.seq + 1))
                    if item.rule is RemovalReason.DROPPED:
                        seen.append((item.first, item.next))
                    # One that a crash interrupted is recorded again, and less is known then.
                    found.setdefault(_identity(item), item)
                elif not item.torn:
                    problems.append(f"{name}: {item.size} bytes at {item.position} are damaged")
        except CorruptData as error:
            problems.append(f"{name}: {error}")
    end = 1
    for first, after in sorted(seen):
        if first > end:
            problems.append(f"records {end} to {first - 1} of removed segments are missing")
        end = max(end, after)
    return History(tuple(sorted(found.values(), key=lambda each: each.seq)), tuple(problems))


def _identity(item: Removal) -> object:
    if item.rule in NOTHING_REMOVED:
        return item.seq
    # A segment's file goes once, whatever is done to a part of it before.
    is_whole = item.segment >= 0 and item.left == 0
    part = () if is_whole else (item.rule, item.first, item.next, item.left)
    return (item.log_id, item.segment, *part)


def load(data: Path) -> History:
    paths = sorted((data / FOLDER).glob(f"*{SUFFIX}"))
    return history((path.name, path.read_bytes()) for path in paths)
