"""The trace: what a process did to its files, in the order in which it happened.

A trace is a run of records, each

    length u32 · event u8 · detail u8 · path length u16 · other length u16 · error u16 ·
    thread u32 · inode u64 · offset i64 · size i64 · sync u64 · path · other path · data

as shim.h draws it. Files are named by inode, since names move while descriptors stay; the path
is there for readers and for fault rules. The first records describe the folder as it was when
recording began, written by Python and ended by BEGIN: a trace tells the whole story by itself.
"""

import enum
import itertools
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

HEADER = struct.Struct("<IBBHHHIQqqQ")


class Event(enum.IntEnum):
    CREATE = 1
    TMPFILE = 2
    MKDIR = 3
    SYMLINK = 4
    LINK = 5
    RENAME = 6
    UNLINK = 7
    WRITE = 8
    TRUNCATE = 9
    GROW = 10
    SYNC_START = 11
    SYNC_END = 12
    MARK = 13
    FAULT = 14
    UNTRACED = 15
    BEGIN = 16


class SyncKind(enum.IntEnum):
    FSYNC = 0
    FDATASYNC = 1
    SYNCFS = 2


@dataclass(frozen=True, slots=True)
class Record:
    event: Event
    detail: int = 0
    error: int = 0
    thread: int = 0
    inode: int = 0
    offset: int = 0
    size: int = 0
    sync: int = 0
    path: str = ""
    other: str = ""
    data: memoryview | bytes = b""

    @property
    def zeros(self) -> bool:
        """A write of zeros only: the trace keeps its size, not its bytes."""
        return self.event is Event.WRITE and self.detail == 1

    @property
    def whole_file(self) -> bool:
        """A sync of everything, not just of the range an O_DSYNC write touched."""
        return self.size < 0

    def __str__(self) -> str:
        words = [self.event.name.lower(), self.path or "."]
        if self.other:
            words.append(f"-> {self.other}")
        match self.event:
            case Event.WRITE:
                words.append(f"[{self.offset}, {self.offset + self.size})")
            case Event.TRUNCATE | Event.GROW:
                words.append(str(self.size))
            case Event.SYNC_START | Event.SYNC_END:
                words.append(f"{SyncKind(self.detail).name.lower()} #{self.sync}")
            case Event.MARK | Event.UNTRACED:
                words.append(bytes(self.data).decode(errors="replace"))
        if self.error:
            words.append(os.strerror(self.error))
        return " ".join(words)


def pack(record: Record) -> bytes:
    path, other = os.fsencode(record.path), os.fsencode(record.other)
    length = HEADER.size + len(path) + len(other) + len(record.data)
    header = HEADER.pack(
        length,
        record.event,
        record.detail,
        len(path),
        len(other),
        record.error,
        record.thread,
        record.inode,
        record.offset,
        record.size,
        record.sync,
    )
    return b"".join((header, path, other, record.data))


def unpack(stored: memoryview) -> Iterator[Record]:
    at = 0
    while at < len(stored):
        (length, event, detail, path_len, other_len, error, thread, inode, offset, size, sync) = (
            HEADER.unpack_from(stored, at)
        )
        path_at = at + HEADER.size
        other_at = path_at + path_len
        data_at = other_at + other_len
        if length < data_at - at or at + length > len(stored):
            raise ValueError(f"the trace is damaged at byte {at}")
        yield Record(
            Event(event),
            detail,
            error,
            thread,
            inode,
            offset,
            size,
            sync,
            os.fsdecode(bytes(stored[path_at:other_at])),
            os.fsdecode(bytes(stored[other_at:data_at])),
            stored[data_at : at + length],
        )
        at += length


class Trace(Sequence[Record]):
    """Records to look at by index; `begin` is the first one the traced program made."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self.begin = next((i + 1 for i, r in enumerate(records) if r.event is Event.BEGIN), 0)
        self._marks = [i for i, r in enumerate(records) if r.event is Event.MARK]
        self._marks_before = list(
            itertools.accumulate((r.event is Event.MARK for r in records), initial=0)
        )

    @classmethod
    def load(cls, path: Path, end: int) -> "Trace":
        with path.open("rb") as file:
            stored = memoryview(mmap.mmap(file.fileno(), end, prot=mmap.PROT_READ))
        return cls(list(unpack(stored)))

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return self._records[index]

    def markers(self, before: int | None = None) -> list[bytes]:
        """What the program had said by then."""
        count = self._marks_before[len(self) if before is None else before]
        return [bytes(self._records[i].data) for i in self._marks[:count]]

    def of(self, *events: Event) -> list[Record]:
        return [record for record in self._records[self.begin :] if record.event in events]

    def __str__(self) -> str:
        own = enumerate(self._records[self.begin :], self.begin)
        return "\n".join(f"{i:6} {r}" for i, r in own)


def snapshot(root: Path) -> Iterator[Record]:
    """The folder as it lies there, all of it on disk, as the records a trace opens with."""
    yield Record(Event.MKDIR, inode=root.stat().st_ino)
    seen: set[int] = set()
    for folder, folders, files in os.walk(root):
        for name in sorted(folders) + sorted(files):
            path = Path(folder, name)
            yield from _entry(path, os.fspath(path.relative_to(root)), seen)
    yield Record(Event.SYNC_START, detail=SyncKind.SYNCFS, size=-1)
    yield Record(Event.SYNC_END, detail=SyncKind.SYNCFS, size=-1)
    yield Record(Event.BEGIN)


def _entry(path: Path, name: str, seen: set[int]) -> Iterator[Record]:
    inode = path.lstat().st_ino
    if path.is_symlink():
        target = os.fsencode(os.readlink(path))
        yield Record(Event.SYMLINK, inode=inode, path=name, data=target)
    elif path.is_dir():
        yield Record(Event.MKDIR, inode=inode, path=name)
    elif inode in seen:
        yield Record(Event.LINK, inode=inode, path=name)
    else:
        seen.add(inode)
        data = path.read_bytes()
        yield Record(Event.CREATE, inode=inode, path=name)
        if data:
            yield Record(Event.WRITE, inode=inode, path=name, size=len(data), data=data)
