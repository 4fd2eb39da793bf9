"""A consistent snapshot of a data directory, at rest or in use by a running broker.

    meta.db      which logs there are               (one transaction)
    checkpoint   recovery points, cursors, producers
    WAL          what was done since: batches, acks, trims
    folders      manifests, then the segments' ends

are read in this order, which makes the snapshot whole: a logged batch is in the WAL before it is in
its segment, and leaves the WAL only behind a checkpoint. So each record that was durable when the
snapshot began is in it, once: in its segment, or, where the writer hasn't come to it, as a batch
of the WAL. Of an active segment only whole batches count; what a write is adding just now isn't
seen. Files that a broker lets go while we look mean that the look is taken again.

What no snapshot has: queues that aren't durable (they live in `scratch/` and end with the broker),
and acks of the last second, which the broker itself would forget when killed.
"""

import sqlite3
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottermq._core import ffi, lib
from ottermq.audit import catalogue
from ottermq.audit.byte_source import Directory, Found
from ottermq.audit.catalogue import Named
from ottermq.topology import QueueSettings
from ottermq.wal import LogError, checkpoint, manifest, replay
from ottermq.wal.checkpoint import Checkpoint, Saved
from ottermq.wal.errors import CorruptData
from ottermq.wal.manifest import Sealed
from ottermq.wal.replay import Change
from ottermq.wal.segmentfile import Walk, base_offset_of, replaced
from ottermq.wal.verify import is_running

TRIES = 8
PAUSE = 0.1  # seconds, longer each time
ASIDE = ".log.corrupt-"


class NoSnapshot(LogError):
    """Not a data directory, or one that can't be read."""


@dataclass(frozen=True, slots=True)
class Segment:
    base_offset: int
    next_offset: int
    size: int  # of its whole batches
    first_timestamp: int
    max_timestamp: int  # -1: none
    sealed: bool
    missing: bool = False  # named by the manifest or the checkpoint, and not there

    @property
    def file(self) -> str:
        return f"{self.base_offset:020}.log"


@dataclass(frozen=True, slots=True)
class Batch:
    """In the WAL, in no segment yet."""

    base_offset: int
    next_offset: int
    max_timestamp: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Log:
    id: int
    vhost: str
    queue: str
    partition: int
    name: str  # what the broker calls it: a super stream's partition has one of its own
    kind: str  # classic, quorum, stream, delayed, internal
    settings: QueueSettings | None  # arguments and policies; None: not a queue's
    folder: str  # below the data directory
    start_offset: int
    next_offset: int
    leader_epoch: int
    segments: tuple[Segment, ...]
    wal: tuple[Batch, ...]
    cursor: bytes | None  # as csrc/cursor/cursor_codec.c has it; None: a stream or topic
    saved: Saved | None  # what the checkpoint says
    files: tuple[str, ...]  # all in its folder, when the segments were looked for
    leftovers: tuple[Found, ...]  # trimmed files about to go, segments set aside
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    data: Path
    taken_at: int  # ms
    running: bool  # a broker is at work there
    logs: tuple[Log, ...]
    orphans: tuple[str, ...]  # folders that no log has
    problems: tuple[str, ...]

    @property
    def home(self) -> Directory:
        return Directory(self.data)


class _Moved(Exception):
    """The broker let go what we were about to read."""


def take(data: Path) -> Snapshot:
    """NoSnapshot: the text says why."""
    if not data.is_dir():
        raise NoSnapshot(f"{data}: no such directory")
    if not (data / "meta.db").exists():
        raise NoSnapshot(f"{data}: not a data directory of OtterMQ (no meta.db)")
    for tried in range(TRIES):
        try:
            return _take(data)
        except _Moved:
            time.sleep(PAUSE * (tried + 1))
        except (sqlite3.Error, OSError) as error:
            raise NoSnapshot(f"{data}: {error}") from None
    raise NoSnapshot(f"{data}: the broker moves on faster than it can be looked at")


def _take(data: Path) -> Snapshot:
    taken_at = time.time_ns() // 1_000_000
    running = is_running(data)
    problems: list[str] = []
    named = catalogue.read(data)
    try:
        saved = checkpoint.load(data)
    except CorruptData as error:
        saved = None
        problems.append(f"checkpoint: {error}")
    pending = {each.entry.id: _Pending(each, saved) for each in named}
    _replay(data, saved, pending, running, problems)
    logs = tuple(_Look(data, each).log() for each in pending.values() if not each.deleted)
    folders = {log.folder for log in logs}
    found = (str(path.relative_to(data)) for path in data.glob("vhosts/*/queues/*"))
    orphans = tuple(sorted(set(found) - folders))
    return Snapshot(data, taken_at, running, logs, orphans, tuple(problems))


# -- the WAL


@dataclass(slots=True)
class _Pending:
    """A log, with what the WAL says happened to it since the checkpoint."""

    named: Named
    checkpoint: Checkpoint | None
    saved: Saved | None = field(init=False)
    batches: list[Batch] = field(default_factory=list)
    cursor: list[bytes] = field(default_factory=list)
    trim: int = 0
    deleted: bool = False

    def __post_init__(self) -> None:
        found = self.checkpoint
        self.saved = found.logs.get(self.named.entry.id) if found else None

    @property
    def has_cursor(self) -> bool:
        return not self.named.entry.flags & lib.OM_LOG_NO_CURSOR

    def take(self, change: Change) -> None:
        if change.kind == replay.BATCH:
            self._take_batch(change.payload)
        elif change.kind == replay.CURSOR:
            if self.saved is None or change.seq > self.saved.cursor_seq:
                self.cursor.append(change.payload)
        elif change.kind == replay.TRIM:
            self.trim = struct.unpack_from("<q", change.payload)[0]
        elif change.kind == replay.DELETE:
            self.deleted = True

    def _take_batch(self, data: bytes) -> None:
        info = ffi.new("om_batch_info *")
        if lib.om_batch_check(data, len(data), info) != lib.OM_OK:
            raise CorruptData(f"a batch of '{self.named.entry.name}' in the WAL can't be read")
        if self.saved is None or info.base_offset >= self.saved.recovery_point:
            last = info.base_offset + info.last_offset_delta
            self.batches.append(Batch(info.base_offset, last + 1, info.max_timestamp, data))


def _replay(
    data: Path,
    saved: Checkpoint | None,
    pending: dict[int, _Pending],
    running: bool,
    problems: list[str],
) -> None:
    try:
        for change in replay.changes(data / "wal", saved.wal_seq if saved else 0):
            log = pending.get(change.log_id)
            if log is not None:
                log.take(change)
            elif change.kind == replay.START:
                for each in pending.values():
                    if each.saved is None or change.seq > each.saved.cursor_seq:
                        each.cursor.append(b"")
    except CorruptData as error:
        if running:
            raise _Moved from None  # files were recycled while we read
        problems.append(f"wal: {error}")


# -- one log


def base_of(found: Found) -> int:
    base = base_offset_of(Path(found.name)) if found.name.endswith(".log") else None
    return -1 if base is None else base


class _Look:
    """At a log's folder, after the WAL."""

    def __init__(self, data: Path, pending: _Pending) -> None:
        self.data = data
        self.pending = pending
        self.saved = pending.saved
        self.folder = pending.named.entry.folder
        self.home = Directory(data)
        self.problems: list[str] = []

    def log(self) -> Log:
        named, saved, entry = self.pending.named, self.saved, self.pending.named.entry
        files = self._files()
        segments = self._segments(files)
        end = max((each.next_offset for each in segments), default=0)
        start = max(saved.start_offset if saved else 0, self.pending.trim)
        wal = tuple(_behind(self.pending.batches, max(end, start)))
        next_offset = max(end, start, saved.next_offset if saved else 0)
        if wal:
            next_offset = max(next_offset, wal[-1].next_offset)
        return Log(
            id=entry.id,
            vhost=entry.vhost,
            queue=named.queue,
            partition=named.partition,
            name=entry.name,
            kind=named.kind,
            settings=named.settings,
            folder=self.folder,
            start_offset=start,
            next_offset=next_offset,
            leader_epoch=saved.leader_epoch if saved else 0,
            segments=tuple(segments),
            wal=wal,
            cursor=self._cursor(start, next_offset) if self.pending.has_cursor else None,
            saved=saved,
            files=tuple(each.name for each in files),
            leftovers=self._left_over(files),
            problems=tuple(self.problems),
        )

    def _files(self) -> list[Found]:
        """Listed twice: a file that is made while its folder is read may be left out, though a
        later one is in the list. What is older than the newest of the first list is in the second;
        records of newer ones are in the WAL, which was read before."""
        newest = max((base_of(each) for each in self.home.list(self.folder)), default=-1)
        return [each for each in self.home.list(self.folder) if base_of(each) <= newest]

    def _left_over(self, files: list[Found]) -> tuple[Found, ...]:
        first = self.saved.first_segment if self.saved else 0
        gone = [range(first), *replaced(each.name for each in files)]

        def is_it(found: Found) -> bool:
            base = base_offset_of(Path(found.name))
            goes = base is not None and any(base in each for each in gone)
            return ASIDE in found.name or (goes and found.name.endswith(".log"))

        return tuple(each for each in files if is_it(each))

    # -- segments

    def _segments(self, files: list[Found]) -> list[Segment]:
        sealed = {each.base_offset: each for each in self._sealed()}
        first = self.saved.first_segment if self.saved else 0
        there: dict[int, int] = {}
        gone = replaced(found.name for found in files)
        for found in files:
            base = base_offset_of(Path(found.name))
            if base is None or any(base in each for each in gone):
                continue
            if found.name.endswith(".log") and base >= first:
                there[base] = found.size
        wanted = {base: each.next_offset for base, each in sealed.items() if base >= first}
        if self.saved and self.saved.recovery_segment >= 0:
            wanted.setdefault(self.saved.recovery_segment, self.saved.recovery_point)
        out = []
        for base in sorted(there.keys() | wanted.keys()):
            known = sealed.get(base)
            if base not in there:
                out += self._missing(base, wanted[base], known)
            elif known:
                out.append(_of_manifest(known))
            else:
                out.append(self._active(base, is_last=base == max(there)))
        return out

    def _sealed(self) -> Iterable[Sealed]:
        try:
            found = manifest.load(self.data / self.folder)
        except CorruptData as error:
            self.problems.append(str(error))
            return ()
        return found.segments if found else ()

    def _missing(self, base: int, end: int, known: Sealed | None) -> list[Segment]:
        start = max(self.saved.start_offset if self.saved else 0, self.pending.trim)
        if end <= start or end <= base:
            return []  # trimmed, or nothing was ever in it
        if is_running(self.data) and not self._is_named_still(base):
            raise _Moved
        if known:
            return [_of_manifest(known, missing=True)]
        return [Segment(base, end, 0, -1, -1, sealed=False, missing=True)]

    def _is_named_still(self, base: int) -> bool:
        return any(each.base_offset == base for each in self._sealed())

    def _active(self, base: int, *, is_last: bool) -> Segment:
        """One that no manifest knows: as far as its batches are whole."""
        window = self.home.open(f"{self.folder}/{base:020}.log")
        if window is None:
            raise _Moved
        saved, known = self.saved, -1
        with window:
            walk = Walk(window, base, b"", b"")
            if saved and saved.recovery_segment == base and saved.recovery_position <= window.size:
                walk.start_at(saved.recovery_position, saved.recovery_point, saved.max_timestamp)
                known = saved.first_timestamp if saved.recovery_position else -1
            walk.to_damage()
            return Segment(
                base,
                walk.next_offset,
                walk.position,
                walk.first_timestamp if known < 0 else known,
                walk.max_timestamp,
                sealed=not is_last,
            )

    # -- the cursor

    def _cursor(self, start: int, end: int) -> bytes | None:
        cursor = self._decoded(start)
        if cursor == ffi.NULL:
            return None
        try:
            stat = ffi.new("om_cursor_stat *")
            lib.om_cursor_stat_get(cursor, stat)
            if end > stat.end:
                # Gaps among them hold no record: whether those count as settled shows nowhere.
                lib.om_cursor_appended(cursor, stat.end, end - stat.end, 0)
            for ops in self.pending.cursor:
                if not ops:
                    lib.om_cursor_return_all(cursor, 0)  # a life began
                elif lib.om_cursor_replay(cursor, ops, len(ops)) != lib.OM_OK:
                    self.problems.append("a cursor record of the WAL can't be applied")
            if start > 0:
                lib.om_cursor_settle(cursor, 0, start - 1, -1)
            size = lib.om_cursor_encode(cursor, ffi.NULL, 0)
            out = bytearray(size)
            lib.om_cursor_encode(cursor, ffi.from_buffer("uint8_t[]", out), size)
            return bytes(out)
        finally:
            lib.om_cursor_free(cursor)

    def _decoded(self, start: int) -> Any:
        raw = self.saved.cursor if self.saved else b""
        if not raw:
            return lib.om_cursor_new(start)
        out = ffi.new("om_cursor **")
        if lib.om_cursor_decode(out, raw, len(raw)) != lib.OM_OK:
            self.problems.append("the checkpoint's cursor can't be read")
            return ffi.NULL
        return out[0]


def _of_manifest(known: Sealed, missing: bool = False) -> Segment:
    return Segment(
        known.base_offset,
        known.next_offset,
        known.size,
        known.first_timestamp,
        known.max_timestamp,
        sealed=True,
        missing=missing,
    )


def _behind(batches: Iterable[Batch], end: int) -> Iterable[Batch]:
    """Those that no segment has, in order. Their places may have been given again after a fence."""
    for batch in sorted(batches, key=lambda each: each.base_offset):
        if batch.base_offset >= end:
            yield batch
            end = batch.next_offset
