"""Cuts damage out of a data directory's segments, while no broker holds it.

    00000000000000000000.log   | good | bad | good |    before
    00000000000000000000.log.corrupt-1                  the file as it was, kept
    00000000000000000000.log   | good |                 after: a segment for each whole
    00000000000000000042.log   | good |                 stretch, named by its first offset

Only the part that a checkpoint vouches for is looked at: the next start mends the tail behind it
from the write-ahead log. Manifest and checkpoint are brought up to date, index files are made anew
when they are needed. A crash on the way is finished by repairing again.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import xxhash

from ottermq._core import ffi, lib
from ottermq.wal import checkpoint, manifest
from ottermq.wal.checkpoint import Saved
from ottermq.wal.errors import CorruptData, StorageFailure
from ottermq.wal.manifest import Manifest, Sealed
from ottermq.wal.segmentfile import base_offset_of, replaced

NO_LIMIT = (1 << 63) - 1
ALL_OF_IT = (1 << 64) - 1
COPY = 1 << 20
RECOVERY = struct.Struct("<qQqq")  # of a checkpoint's entry: segment, position, its timestamps
RECOVERY_AT = 40


@dataclass(frozen=True, slots=True)
class Cut:
    """A stretch that goes: bytes [position, end), which held these offsets."""

    path: Path
    position: int
    end: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Repair:
    """One segment's."""

    path: Path
    cuts: tuple[Cut, ...]
    kept: Path | None  # the file as it was; None: a dry run


@dataclass(frozen=True, slots=True)
class _Survey:
    cuts: tuple[Cut, ...]
    size: int
    next_offset: int
    first_timestamp: int
    max_timestamp: int


def repair(data: Path, *, dry_run: bool = False) -> Iterator[Repair]:
    """Segment by segment. CorruptData: the checkpoint itself can't be read."""
    found = checkpoint.load(data)
    for folder in sorted(data.glob("vhosts/*/queues/*")):
        digits = folder.name.rpartition(".")[2]
        saved = found.logs.get(int(digits)) if found and digits.isdigit() else None
        yield from _Log(data, folder, saved).repair(dry_run)


def _survey(path: Path, base: int, end: int = ALL_OF_IT, limit: int = NO_LIMIT) -> _Survey:
    out = ffi.new("om_survey *")
    if lib.om_survey_file(os.fsencode(path), base, end, limit, out) != lib.OM_OK:
        raise StorageFailure(f"{path}: can't be read")
    cuts = [out.items[i] for i in range(out.count)]
    result = _Survey(
        tuple(Cut(path, each.position, each.end, each.first, each.last) for each in cuts),
        out.size,
        out.next_offset,
        out.first_timestamp,
        out.max_timestamp,
    )
    lib.om_survey_free(out)
    return result


class _Log:
    def __init__(self, data: Path, folder: Path, saved: Saved | None) -> None:
        self.data = data
        self.folder = folder
        self.saved = saved
        try:
            self.manifest: Manifest | None = manifest.load(folder)
        except CorruptData:
            self.manifest = None  # the next start makes it anew
        self.sealed = {each.base_offset: each for each in self._named()}

    def _named(self) -> tuple[Sealed, ...]:
        return self.manifest.segments if self.manifest else ()

    def repair(self, dry_run: bool) -> Iterator[Repair]:
        gone = replaced(path.name for path in self.folder.iterdir())  # the next start removes them
        bases = sorted(
            base
            for path in self.folder.glob("*.log")
            if (base := base_offset_of(path)) is not None and not any(base in each for each in gone)
        )
        for base, after in zip(bases, [*bases[1:], None], strict=True):
            path = self.folder / f"{base:020}.log"
            trusted = self._trusted(base, path, after)
            if trusted is None:
                continue
            survey = _survey(path, base, *trusted)
            if survey.cuts:
                kept = None if dry_run else self._cut(path, base, survey, trusted[0])
                yield Repair(path.relative_to(self.data), survey.cuts, kept)
            elif not dry_run:
                path.with_suffix(".log.damaged").unlink(missing_ok=True)

    def _trusted(self, base: int, path: Path, after: int | None) -> tuple[int, int] | None:
        """Up to where the file must be right, and below which offset; None: the next start's."""
        saved, sealed = self.saved, self.sealed.get(base)
        if saved and base < saved.first_segment:
            return None
        if saved and base == saved.recovery_segment:
            return saved.recovery_position, saved.recovery_point
        if sealed:
            return sealed.size, sealed.next_offset
        if saved is None or base > saved.recovery_segment:
            return None
        return path.stat().st_size, after if after is not None else NO_LIMIT

    def _cut(self, path: Path, base: int, survey: _Survey, end: int) -> Path:
        is_recovery = bool(self.saved and base == self.saved.recovery_segment)
        pieces = list(_pieces(survey, survey.size if is_recovery else min(end, survey.size)))
        written = [self._write(path, start, stop) for start, stop in pieces]
        kept = _aside(path)
        path.rename(kept)
        for suffix in (".index", ".timeindex", ".log.damaged"):
            path.with_suffix(suffix).unlink(missing_ok=True)
        for piece in written:
            piece.rename(piece.with_suffix(""))
        _sync_folder(self.folder)
        places = {
            _first_offset(piece.with_suffix("")): start
            for piece, (start, _) in zip(written, pieces, strict=True)
        }
        if is_recovery:
            places = {first: start for first, start in places.items() if start < end}
        self.sealed.pop(base, None)
        for first in places:
            self.sealed[first] = _sealed(self.folder, first)
        if is_recovery:
            self._move_recovery_point(places, end)
        if self.manifest:
            self._write_manifest()
        return kept

    def _write(self, path: Path, start: int, stop: int) -> Path:
        """That stretch under a name that a start would remove."""
        with path.open("rb") as source:
            source.seek(start)
            base = int.from_bytes(source.read(8), "big")
            source.seek(start)
            piece = self.folder / f"{base:020}.log.rewrite"
            with piece.open("wb") as target:
                left = stop - start
                while left and (data := source.read(min(left, COPY))):
                    target.write(data)
                    left -= len(data)
                target.flush()
                os.fsync(target.fileno())
        return piece

    def _write_manifest(self) -> None:
        path = self.folder / manifest.NAME
        lines = path.read_bytes().splitlines(keepends=True)
        body = b"".join(line for line in lines if not line.startswith((b"segment ", b"xxh3 ")))
        recovery = self.saved.recovery_segment if self.saved else -1
        for each in sorted(self.sealed.values(), key=lambda each: each.base_offset):
            if each.base_offset == recovery and not self._was_sealed(each.base_offset):
                continue  # it goes on
            numbers = (each.base_offset, each.next_offset, each.size)
            times = (each.first_timestamp, each.max_timestamp)
            body += b"segment %d %d %d %d %d\n" % (*numbers, *times)
        digest = xxhash.xxh3_64_hexdigest(body).encode()
        _replace(path, body + b"xxh3 " + digest + b"\n")

    def _was_sealed(self, base: int) -> bool:
        return any(each.base_offset == base for each in self._named())

    def _move_recovery_point(self, places: dict[int, int], position: int) -> None:
        """Into the last stretch that is left before it."""
        assert self.saved
        raw = bytearray((self.data / checkpoint.NAME).read_bytes())
        at = _entry_at(raw, self.saved.log_id)
        base = max(places, default=-1)
        where = (base, 0, -1, -1)
        if places:
            piece = self.sealed[base]
            inside = position - places[base]
            times = (piece.first_timestamp, piece.max_timestamp)
            where = (base, min(inside, piece.size), *times)
        RECOVERY.pack_into(raw, at + RECOVERY_AT, *where)
        body = len(raw) - checkpoint.TRAILER.size
        checkpoint.TRAILER.pack_into(raw, body, xxhash.xxh3_64_intdigest(bytes(raw[:body])))
        _replace(self.data / checkpoint.NAME, bytes(raw))
        found = checkpoint.parse(bytes(raw))
        self.saved = found.logs[self.saved.log_id]


def _pieces(survey: _Survey, size: int) -> Iterator[tuple[int, int]]:
    """[start, stop) of what stays."""
    at = 0
    for cut in survey.cuts:
        if cut.position > at:
            yield at, cut.position
        at = cut.end
    if size - at >= lib.OM_BATCH_OVERHEAD:
        yield at, size


def _sealed(folder: Path, base: int) -> Sealed:
    path = folder / f"{base:020}.log"
    found = _survey(path, base)
    return Sealed(base, found.next_offset, found.size, found.first_timestamp, found.max_timestamp)


def _first_offset(path: Path) -> int:
    base = base_offset_of(path)
    assert base is not None
    return base


def _entry_at(raw: bytes | bytearray, log_id: int) -> int:
    at = checkpoint.HEADER.size
    while True:
        id, *_, cursor, producers, _ = checkpoint.ENTRY.unpack_from(raw, at)
        if id == log_id:
            return at
        at += checkpoint.ENTRY.size + sum((size + 7) // 8 * 8 for size in (cursor, producers))


def _aside(path: Path) -> Path:
    number = 1
    while (kept := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    return kept


def _replace(path: Path, raw: bytes) -> None:
    beside = path.with_name(f"{path.name}.repair")
    with beside.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
