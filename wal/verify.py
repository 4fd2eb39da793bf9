"""Checks the files of a data directory, or of one log's folder. They are read and never changed.

    checkpoint   its checksum, each log's cursor
    WAL          the chain of records after the checkpoint, as recovery would read it
    manifest     its checksum; every segment it names is there and as long as it says
    segments     every batch's checksum, offsets that grow, from file to file too
    indexes      every entry points at the batch it means

A *problem* is something that recovery could only report as lost, or that somebody changed behind
our back. A *note* is something that a crash leaves behind and the next start mends by itself (a
torn tail after the recovery point, files that were about to go). A broker may be at work meanwhile:
files that come and go under a running one are no problem either.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottermq._core import ffi, lib
from ottermq.wal import catalog, checkpoint, manifest
from ottermq.wal.checkpoint import Checkpoint, Saved
from ottermq.wal.errors import CorruptData, LogError
from ottermq.wal.file_window import Window
from ottermq.wal.manifest import Manifest, Sealed
from ottermq.wal.segmentcheck import SegmentCheck, Trusted, trusted_part
from ottermq.wal.segmentfile import base_offset_of, replaced

TRIES = 3  # against a broker that moves on while we read


class NothingToVerify(LogError):
    """Neither a data directory nor a log's folder."""


@dataclass(frozen=True, slots=True)
class Finding:
    path: Path  # below the directory that was asked for
    what: str
    position: int | None = None
    is_problem: bool = True


@dataclass(slots=True)
class LogResult:
    folder: Path
    name: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    size: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def problems(self) -> int:
        return sum(finding.is_problem for finding in self.findings)


@dataclass(slots=True)
class WalResult:
    records: int
    bytes: int
    first_seq: int
    last_seq: int


@dataclass(slots=True)
class Result:
    logs: list[LogResult]
    wal: WalResult | None
    others: list[Finding]  # of no log: the checkpoint, the WAL

    @property
    def findings(self) -> Iterator[Finding]:
        yield from self.others
        for log in self.logs:
            yield from log.findings

    @property
    def problems(self) -> int:
        return sum(finding.is_problem for finding in self.findings)


def verify(directory: Path, looked_at: Callable[[int], None] = lambda size: None) -> Result:
    """looked_at: called with the number of bytes read, as they are."""
    if not directory.is_dir():
        raise NothingToVerify(f"{directory}: not a folder")
    data = _data_directory(directory)
    if data == directory:
        return _Directory(directory, looked_at).verify()
    if any(directory.glob("*.log")) or (directory / manifest.NAME).exists():
        return _one_log(directory, data, looked_at)
    raise NothingToVerify(f"{directory}: neither a data directory nor a log's folder")


def size_of(directory: Path) -> int:
    """Of the segments there: what `looked_at` adds up to, about."""
    total = 0
    for path in directory.rglob("*.log"):
        with suppress(FileNotFoundError):  # a running broker has let it go
            total += path.stat().st_size
    return total


def _data_directory(directory: Path) -> Path | None:
    """It, or the one it lies in."""
    for place in (directory, *directory.absolute().parents[:4]):
        if (place / "meta.db").exists() or (place / "wal").is_dir():
            return place
    return None


def is_running(data: Path) -> bool:
    """Does a broker hold the data directory now?"""
    try:
        lock = os.open(data / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


# -- a data directory


class _Directory:
    def __init__(self, data: Path, looked_at: Callable[[int], None]) -> None:
        self.data = data
        self.looked_at = looked_at
        self.others: list[Finding] = []

    def verify(self) -> Result:
        saved = self._checkpoint()
        wal = self._wal(saved)
        logs = self._logs(saved)
        tasks = [task for log in logs for task in log.tasks()]
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            for _ in threads.map(lambda task: task(), tasks):
                pass
        return Result([log.finish() for log in logs], wal, self.others)

    def _checkpoint(self) -> Checkpoint | None:
        try:
            return checkpoint.load(self.data)
        except CorruptData as error:
            self.others.append(Finding(Path(checkpoint.NAME), str(error)))
            return None

    def _wal(self, saved: Checkpoint | None) -> WalResult | None:
        folder = self.data / "wal"
        if not folder.is_dir():
            return None
        out = ffi.new("om_wal_summary *")
        for _ in range(TRIES):
            after = saved.wal_seq if saved else 0
            if lib.om_wal_survey(os.fsencode(folder), after, out) == lib.OM_OK:
                break
            if not is_running(self.data):
                self.others.append(Finding(Path("wal"), _text(out.error)))
                break
            saved = self._checkpoint()  # files were recycled while we read
        else:
            what = f"can't be read while the broker runs: {_text(out.error)}"
            self.others.append(Finding(Path("wal"), what, is_problem=False))
        return WalResult(out.records, out.bytes, out.first_seq, out.last_seq)

    def _logs(self, saved: Checkpoint | None) -> list["_Log"]:
        names = self._names()
        logs = []
        for folder in sorted({*self.data.glob("vhosts/*/queues/*"), *self._missing(names, saved)}):
            relative = folder.relative_to(self.data)
            if names is not None and str(relative) not in names:
                self.others.append(self._about_unknown(relative))
                continue
            name = names[str(relative)] if names else folder.name
            known = saved.logs.get(_id_of(folder)) if saved else None
            logs.append(_Log(folder, self.data, self.data, name, known, self.looked_at))
        return logs

    def _about_unknown(self, folder: Path) -> Finding:
        if str(folder) in catalog.peek_deleted(self.data) or not any(
            (self.data / folder).glob("*.log*")
        ):
            what = "no log's folder: it goes at the next start"
            return Finding(folder, what, is_problem=False)
        what = "a log that meta.db doesn't know: its row is lost, or was never written"
        # A queue that is being declared has its row in a moment.
        return Finding(folder, what, is_problem=not is_running(self.data))

    def _missing(self, names: dict[str, str] | None, saved: Checkpoint | None) -> Iterator[Path]:
        """Folders of logs that had segments by the checkpoint, and aren't there."""
        for name in names or ():
            known = saved.logs.get(_id_of(Path(name))) if saved else None
            if known and known.recovery_segment >= 0 and known.recovery_point > known.start_offset:
                yield self.data / name

    def _names(self) -> dict[str, str] | None:
        """Folder → name, by the catalogue."""
        try:
            return {entry.folder: entry.name for entry in catalog.peek(self.data)}
        except sqlite3.Error as error:
            self.others.append(Finding(Path("meta.db"), str(error)))
            return None


def _one_log(folder: Path, data: Path | None, looked_at: Callable[[int], None]) -> Result:
    others: list[Finding] = []
    saved = None
    try:
        found = checkpoint.load(data) if data else None
        saved = found.logs.get(_id_of(folder)) if found else None
    except CorruptData as error:
        others.append(Finding(Path(checkpoint.NAME), str(error)))
    log = _Log(folder, folder, data, folder.name, saved, looked_at)
    for task in log.tasks():
        task()
    return Result([log.finish()], None, others)


def _id_of(folder: Path) -> int:
    digits = folder.name.rpartition(".")[2]
    return int(digits) if digits.isdigit() else 0


def _text(chars: Any) -> str:
    text: bytes = ffi.string(chars)
    return text.decode(errors="replace")


# -- a log


class _Log:
    """Tasks that may run side by side, one per segment, then the checks over all of them."""

    def __init__(
        self,
        folder: Path,
        root: Path,
        data: Path | None,
        name: str,
        saved: Saved | None,
        looked_at: Callable[[int], None],
    ) -> None:
        self.folder = folder
        self.root = root
        self.data = data
        self.saved = saved
        self.looked_at = looked_at
        self.result = LogResult(folder.relative_to(root), name)
        self.manifest = self._manifest()
        self.segments: list[_Segment] = []

    def add(
        self, path: Path, what: str, position: int | None = None, is_problem: bool = True
    ) -> None:
        relative = path.relative_to(self.root)
        self.result.findings.append(Finding(relative, what, position, is_problem))

    def _manifest(self) -> Manifest | None:
        try:
            return manifest.load(self.folder)
        except CorruptData as error:
            self.add(self.folder / manifest.NAME, str(error))
            return None

    def tasks(self) -> Iterable[Callable[[], None]]:
        sealed = (
            {each.base_offset: each for each in self.manifest.segments} if self.manifest else {}
        )
        files = self._files()
        gone = replaced(path.name for path in files)
        for path in files:
            base = base_offset_of(path)
            if ".log.corrupt-" in path.name:
                self.add(path, "set aside by an earlier recovery", is_problem=False)
            elif path.suffix != ".log" or base is None:
                continue
            elif self.saved and base < self.saved.first_segment:
                self.add(path, "trimmed: about to go", is_problem=False)
            elif any(base in each for each in gone):
                self.add(path, "merged into the one before: about to go", is_problem=False)
            else:
                trusted = trusted_part(base, sealed.get(base), self.saved)
                self.segments.append(_Segment(path, base, sealed.get(base), trusted))
        self._note_missing({segment.base for segment in self.segments}, sealed)
        return [self._task(segment) for segment in self.segments]

    def _files(self) -> list[Path]:
        try:
            return sorted(self.folder.iterdir())
        except FileNotFoundError:
            return []  # deleted meanwhile

    def _task(self, segment: "_Segment") -> Callable[[], None]:
        def run() -> None:
            segment.verify()
            self.looked_at(segment.check.size)

        return run

    def _note_missing(self, there: set[int], sealed: dict[int, Sealed]) -> None:
        start = self.saved.start_offset if self.saved else 0
        wanted = {base: each.next_offset for base, each in sealed.items()}
        saved = self.saved
        if saved and saved.recovery_segment >= 0:
            wanted.setdefault(saved.recovery_segment, saved.recovery_point)
        for base, end in wanted.items():
            path = self.folder / f"{base:020}.log"
            if base not in there and end > start and self._is_named_still(base):
                self.add(path, f"missing: offsets {base} to {end - 1} are gone")

    def _is_named_still(self, base: int) -> bool:
        """A running broker may have let it go since we read the files that name it."""
        if not self.data or not is_running(self.data):
            return True
        if not self.folder.exists():
            return False
        fresh = manifest.load(self.folder)
        found = checkpoint.load(self.data)
        saved = found.logs.get(_id_of(self.folder)) if found else None
        return bool(
            (fresh and any(each.base_offset == base for each in fresh.segments))
            or (saved and saved.recovery_segment == base and saved.recovery_point > base)
        )

    def finish(self) -> LogResult:
        self._check_cursor()
        end = 0
        for segment in self.segments:
            if segment.vanished:
                continue
            self.result.findings += [
                Finding(each.path.relative_to(self.root), each.what, each.position, each.is_problem)
                for each in segment.findings
            ]
            if segment.base < end:
                self.add(
                    segment.path, f"begins at {segment.base}, the one before ends at {end - 1}"
                )
            end = max(end, segment.check.next_offset)
            self.result.segments += 1
            self.result.batches += segment.check.batches
            self.result.records += segment.check.records
            self.result.size += segment.check.size
        return self.result

    def _check_cursor(self) -> None:
        saved = self.saved
        if saved is None or not saved.cursor:
            return
        try:
            cursor = checkpoint.decode_cursor(saved.cursor)
        except CorruptData as error:
            self.add(self.folder, f"checkpoint: {error}")
            return
        if cursor.end > saved.next_offset:
            what = f"checkpoint: the cursor knows offset {cursor.end - 1}, the log ends before it"
            self.add(self.folder, what)


# -- a segment


class _Segment:
    def __init__(
        self, path: Path, base: int, sealed: Sealed | None, trusted: Trusted | None
    ) -> None:
        self.path = path
        self.base = base
        self.check = SegmentCheck(base, sealed, trusted)
        self.vanished = False

    @property
    def findings(self) -> Iterator[Finding]:
        for flaw in self.check.flaws:
            path = self.path.with_suffix(flaw.suffix)
            yield Finding(path, flaw.what, flaw.position, flaw.is_problem)

    def verify(self) -> None:
        # The indexes first: an entry is written after its batch, never before.
        offsets, times = self._read(".index"), self._read(".timeindex")
        try:
            with Window(self.path) as window:
                self.check.run(window, offsets, times)
        except FileNotFoundError:
            self.vanished = True  # trimmed meanwhile
        except OSError as error:
            self.check.add(f"can't be read: {error.strerror}")

    def _read(self, suffix: str) -> bytes:
        try:
            return self.path.with_suffix(suffix).read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            self.check.add(f"can't be read: {error.strerror}", suffix=suffix)
            return b""
