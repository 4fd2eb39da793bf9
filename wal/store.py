"""The store: every log of the broker over one WAL. `Store.open` recovers, `close` checkpoints.

    with Store.open(Path("data"), Options()) as store:
        orders = store.create("orders")
        done = orders.append([Record(b"hello")])
        store.wait(done.seq)            # on disk now

Threads: every call may come from any thread. In trio, `wait_durable` waits without blocking.
"""

import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from functools import cache
from itertools import compress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ottermq._core import ffi, lib
from ottermq.wal import orphans, unknown
from ottermq.wal.catalog import Catalog, Entry, Statement
from ottermq.wal.durability_wait import DurabilityWait
from ottermq.wal.errors import LogError, StorageFailure, check
from ottermq.wal.log import Appended, Log, Transaction
from ottermq.wal.records import Record, RecordArray
from ottermq.wal.removal_reasons import RemovalReason

SCRATCH_IDS = 1 << 63  # logs that no catalogue names count from here
ERROR_SIZE = 512
A_LOOK = 256  # logs


class FlushMode(IntEnum):
    BATCH = lib.OM_FLUSH_BATCH
    IMMEDIATE = lib.OM_FLUSH_IMMEDIATE
    ASYNC = lib.OM_FLUSH_ASYNC


class LogFlags(IntFlag):
    SCRATCH = lib.OM_LOG_SCRATCH
    NO_CURSOR = lib.OM_LOG_NO_CURSOR
    KEEP_SETTLED = lib.OM_LOG_KEEP_SETTLED


DURABLE = LogFlags(0)  # a durable queue with a cursor: what is meant when nothing is said


class DirectIO(IntEnum):
    OFF = 0
    ON = 1
    AUTO = 2


@dataclass(frozen=True)
class LogOptions:
    flush_mode: FlushMode = FlushMode.BATCH
    segment_size: int = 64 << 20
    segment_max_age_ms: int = 0
    pre_allocate: bool = True
    keep_settled: bool = False


@dataclass(frozen=True)
class Options:
    wal_file_size: int = 64 << 20
    wal_max_size: int = 512 << 20
    batch_max_size: int = 4 << 20
    batch_max_wait_us: int = 0
    flush_immediate: bool = False
    direct_io: DirectIO = DirectIO.AUTO
    hot_buffer_size: int = 128 << 20
    mmap_cache_size: int = 1 << 30
    open_files: int = 16384
    low_space_limit: int = 0
    checkpoint_interval_ms: int = 30_000
    recovery_threads: int = 0
    removals_file_size: int = 0
    log: LogOptions = field(default_factory=LogOptions)


class ReportKind(IntEnum):
    CORRUPT = lib.OM_REPORT_CORRUPT
    TAIL_CUT = lib.OM_REPORT_TAIL_CUT
    WAL_HOLE = lib.OM_REPORT_WAL_HOLE
    FENCED = lib.OM_REPORT_FENCED
    SEGMENT_REWRITTEN = lib.OM_REPORT_SEGMENT_REWRITTEN
    NO_SPACE = lib.OM_REPORT_NO_SPACE
    SPACE_BACK = lib.OM_REPORT_SPACE_BACK
    CHECKPOINT_FAILED = lib.OM_REPORT_CHECKPOINT_FAILED
    UNREADABLE = lib.OM_REPORT_UNREADABLE
    WRITE_FAILED = lib.OM_REPORT_WRITE_FAILED
    DELETED = lib.OM_REPORT_DELETED
    CLOCK_BEHIND = lib.OM_REPORT_CLOCK_BEHIND
    ORPHANED = lib.OM_REPORT_ORPHANED
    STALLED = lib.OM_REPORT_STALLED
    GOES_ON = lib.OM_REPORT_GOES_ON


@dataclass(frozen=True)
class Report:
    """Something that went wrong or was mended, reported once."""

    kind: ReportKind
    log_id: int
    first_offset: int
    last_offset: int
    text: str


# Records that are gone, or can't be read.
LOSSES = (ReportKind.CORRUPT, ReportKind.UNREADABLE, ReportKind.WAL_HOLE)


@dataclass
class Damage:
    """The damage found at the start or since."""

    places: int = 0  # stretches of segments, whole segments, holes in the WAL
    records: int = 0  # offsets in there, at most; a hole's aren't known
    last: str = ""  # the report of the last one

    def add(self, report: Report) -> None:
        self.places += 1
        if report.kind is not ReportKind.WAL_HOLE:
            self.records += max(0, report.last_offset - report.first_offset + 1)
        self.last = report.text

    @property
    def reason(self) -> str | None:
        """A line for an operator; None: nothing was found."""
        if not self.places:
            return None
        return (
            f"{self.records} records in {self.places} places are lost or can't be read, the last: "
            f"{self.last}. `ottermq segment verify` says more, `ottermq segment repair` cuts out "
            "what is damaged, while the broker is stopped"
        )


@dataclass(frozen=True)
class Progress:
    """Of a recovery under way."""

    done: int
    total: int
    logs_done: int
    logs_total: int
    replayed: int


@dataclass(frozen=True)
class StoreStat:
    logs: int
    hot_bytes: int
    hot_batches: int
    wal_used: int
    wal_groups: int
    wal_bytes: int
    wal_sync_ns: int
    wal_files: int
    checkpoints: int
    checkpoint_ns: int
    segments_rewritten: int
    open_files: int
    mappings: int
    mapped_bytes: int
    written_bytes: int
    skipped_bytes: int
    fenced: int
    fence_kept: int
    no_space: int
    wal_direct_io: int
    writer_stuck: int
    checkpoint_failing: int
    stalled: int


class Interrupted(Exception):
    """A start was called off."""


class Store:
    """Use `Store.open`; making one and `start` are its two halves, to watch the recovery."""

    def __init__(
        self,
        data: Path,
        options: Options,
        rules: Callable[[str], LogOptions] | None = None,
        *,
        accept_missing_metadata: bool = False,
    ) -> None:
        """rules: the options of a log of that name, from its recovery on; else `options.log`.
        MissingMetadata, here or in `start`, unless that is accepted: there are logs whose rows in
        meta.db are lost."""
        self.data = data
        self.options = options
        self._rules = rules or (lambda name: options.log)
        self._by_name: dict[tuple[str, str], Log] = {}
        self._by_id: dict[int, Log] = {}
        self._scratch_ids = SCRATCH_IDS
        self.waiting = DurabilityWait(self)
        self.damage = Damage()
        # A start that fails shuts in its own thread while others still watch it.
        self._shutting = threading.Lock()
        self._unfencing = threading.Lock()
        error = ffi.new("char[]", ERROR_SIZE)
        self._early_reports: list[Report] = []
        self._accepts_missing = accept_missing_metadata
        self._buried: list[Entry] = []  # deleted since the last look
        self._counted: deque[tuple[int, list[Entry]]] = deque()  # ... and before, by checkpoints
        _make_folder(data)
        shutil.rmtree(data / "scratch", ignore_errors=True)
        self._existing = unknown.folders(data)
        self._require_catalogue()
        self._catalog = Catalog(data)
        self._named = {entry.folder: entry for entry in self._catalog}  # at the start
        self._handle: Any = lib.om_store_open(
            str(data).encode(), _store_options(options), error, ERROR_SIZE
        )
        if self._handle == ffi.NULL:
            self._catalog.close()
            raise StorageFailure(_text(error))

    @classmethod
    def open(
        cls, data: Path, options: Options | None = None, *, accept_missing_metadata: bool = False
    ) -> Self:
        store = cls(data, options or Options(), accept_missing_metadata=accept_missing_metadata)
        store.start()
        return store

    def interrupt(self) -> None:
        """Call off a start that is under way in another thread: it raises Interrupted."""
        with self._shutting:
            if self._handle is not None:
                lib.om_store_interrupt(self._handle)

    def start(self) -> None:
        """Recover, then take work. Blocks: in trio, call it in a thread."""
        for folder, entry in self._named.items():
            self._add(entry, folder, folder in self._existing, self._rules(entry.name))
        self._step(lib.om_store_recover)
        try:
            left = self._sort_out_unknown(self._existing - self._named.keys())
        except BaseException:
            self._shut()
            raise
        self._step(lib.om_store_start)
        self._early_reports += self._take_reports()
        gone = self._forget_deleted()
        left += [f for f, each in self._named.items() if each.id in gone and f in self._existing]
        self._record_orphans(left)
        for folder in left:
            shutil.rmtree(self.data / folder, ignore_errors=True)
        self._named, self._existing = {}, set()

    def _step(self, step: Callable[..., int]) -> None:
        error = ffi.new("char[]", ERROR_SIZE)
        result = step(self._handle, error, ERROR_SIZE)
        if result != lib.OM_OK:
            self._shut()
            raise Interrupted if result == lib.OM_E_INTERRUPTED else StorageFailure(_text(error))

    # -- logs that no row names: wal/unknown.py

    def _require_catalogue(self) -> None:
        if not unknown.is_catalogue_lost(self.data, self._existing):
            return
        if not self._accepts_missing:
            names = sorted(Path(folder).name for folder in self._existing)
            raise unknown.refusal("is missing or empty", names)
        aside = unknown.set_all_aside(self.data)
        self._tell_orphaned(f"all logs were set aside in {aside}: meta.db was missing or empty")
        self._existing = set()

    @property
    def is_doubtful(self) -> bool:
        """Before `start`: meta.db may not be the right one, and should not be written to."""
        unnamed = self._existing - self._named.keys()
        return bool(unnamed.difference(entry.folder for entry in self._catalog.deleted()))

    def _sort_out_unknown(self, unnamed: set[str]) -> list[str]:
        """Folders that may go. MissingMetadata: some may not, and nobody has accepted that."""
        seen = self._unknown_logs()
        deleted = self._catalog.deleted()
        found = unknown.sort_out(self.data, unnamed, deleted, seen)
        if found.lost or found.lost_ids:
            if not self._accepts_missing:
                raise found.refusal()
            aside = unknown.set_aside(self.data, found.lost, with_wal=True)
            count = len(found.lost) + len(found.lost_ids)
            self._tell_orphaned(f"{count} logs were set aside in {aside}: meta.db didn't know them")
        if found.unfinished:
            aside = unknown.set_aside(self.data, found.unfinished, with_wal=False)
            self._tell_orphaned(
                f"{len(found.unfinished)} logs whose declaration was never finished"
                f" were set aside in {aside}"
            )
        ids = [*seen, *(orphans.identity(folder)[0] for folder in unnamed)]
        if ids:
            self._catalog.skip_ids(max(ids))
        self._forget(
            [each for each in deleted if each.id not in seen and each.folder not in unnamed]
        )
        return found.left

    def _unknown_logs(self) -> dict[int, int]:
        """Logs that only the checkpoint or the WAL mentions: id and flags."""
        count = lib.om_store_unknown_logs(self._handle, ffi.NULL, 0)
        out = ffi.new("om_unknown_log[]", max(count, 1))
        return {
            out[n].id: out[n].flags
            for n in range(lib.om_store_unknown_logs(self._handle, out, count) if count else 0)
        }

    def _tell_orphaned(self, text: str) -> None:
        self._early_reports.append(Report(ReportKind.ORPHANED, 0, 0, 0, text))

    def forget_removed(self) -> None:
        """Rows of deleted logs of which nothing is left on disk. Blocks: for a thread."""
        checkpoints = self.stat().checkpoints
        fresh, self._buried = self._buried, []
        if fresh:
            self._counted.append((checkpoints, fresh))
        # The checkpoint after the next one began when the log was gone, and knows nothing of it.
        while self._counted and self._counted[0][0] + 2 <= checkpoints:
            _, deleted = self._counted.popleft()
            # One whose files are still there is the next start's.
            self._forget([each for each in deleted if not (self.data / each.folder).exists()])

    def _forget(self, gone: Sequence[Entry]) -> None:
        if gone:
            unknown.sync_names(self.data, {entry.folder for entry in gone})
            self._catalog.forget_deleted(entry.id for entry in gone)

    def _forget_deleted(self) -> set[int]:
        """Deletions that the last stop cut short: the WAL knew, the catalogue didn't yet."""
        gone = {r.log_id for r in self._early_reports if r.kind is ReportKind.DELETED}
        if gone:
            self._catalog.remove(gone)
        for id in gone:
            log = self._by_id.pop(id)
            del self._by_name[log.vhost, log.name]
            self._let_go(log)
        return gone

    def _record_orphans(self, folders: Sequence[str]) -> None:
        """Their deletion was cut short, or no commit ever named them: said before they go."""
        removed = [
            (folder, segment)
            for folder in folders
            for segment in orphans.segments(self.data / folder)
        ]
        items = ffi.new("om_removal[]", len(removed))
        names = []  # must outlive the call
        for item, (folder, segment) in zip(items, removed, strict=True):
            id, name = orphans.identity(folder)
            names += [ffi.new("char[]", folder.encode()), ffi.new("char[]", name.encode())]
            item.log_id, item.rule = id, RemovalReason.ORPHAN
            item.folder, item.name = names[-2:]
            item.segment = item.first = segment.base_offset
            item.next, item.bytes = segment.next_offset, segment.size
            item.first_timestamp = segment.first_timestamp
            item.max_timestamp = segment.max_timestamp
        result = lib.om_store_note_removed(self._handle, items, len(removed))
        check(result, "record what a deletion left")

    def close(self) -> None:
        """Flush, checkpoint, stop. LogError: it couldn't be clean; nothing durable is lost."""
        if self._handle is not None:
            check(self._shut(), f"close {self.data}")

    def _shut(self) -> int:
        for log in self._by_id.values():
            self._let_go(log)
        self._by_id.clear()
        self._by_name.clear()
        with self._shutting:
            handle, self._handle = self._handle, None
        result: int = lib.om_store_close(handle)
        self._catalog.close()
        return result

    def _let_go(self, log: Log) -> None:
        lib.om_log_release(log._log)
        del log._log

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            self.close()
        except LogError:
            if kind is None:
                raise

    # -- logs

    def create(
        self, name: str, *, vhost: str = "/", flags: LogFlags = DURABLE,
        options: LogOptions | None = None,
    ) -> Log:  # fmt: skip
        return self.create_many([name], vhost=vhost, flags=flags, options=options)[0]

    def create_many(
        self, names: Iterable[str], *, vhost: str = "/", flags: LogFlags = DURABLE,
        options: LogOptions | None = None,
    ) -> list[Log]:  # fmt: skip
        """On disk, all in one commit, when it returns (scratch logs: in memory)."""
        if flags & LogFlags.SCRATCH:
            entries = [self._scratch_entry(vhost, name, flags) for name in names]
        else:
            entries = self._catalog.add(vhost, names, int(flags))
        logs = [
            self._add(entry, _folder(entry), False, options or self._rules(entry.name))
            for entry in entries
        ]
        self.named(logs)
        return logs

    def reserve(
        self, names: Sequence[str], *, vhost: str = "/", flags: LogFlags = DURABLE,
        options: LogOptions | None = None,
    ) -> tuple[list[Log], list[Statement]]:  # fmt: skip
        """Logs to be used at once, and the rows that make them last: the caller commits them
        together with its own, and then says that they are `named`. Without that commit the next
        start sets aside what they hold."""
        if flags & LogFlags.SCRATCH:
            return self.create_many(names, vhost=vhost, flags=flags, options=options), []
        entries, rows = self._catalog.reserve(vhost, names, int(flags))
        logs = [
            self._add(entry, _folder(entry), False, options or self._rules(entry.name))
            for entry in entries
        ]
        return logs, rows

    def named(self, logs: Sequence[Log]) -> None:
        """Their rows are on disk: a start that doesn't find them there knows that they are lost."""
        lib.om_store_named(self._handle, [log._log for log in logs], len(logs))

    def _scratch_entry(self, vhost: str, name: str, flags: LogFlags) -> Entry:
        self._scratch_ids += 1
        return Entry(self._scratch_ids, vhost, name, int(flags))

    def _add(self, entry: Entry, folder: str, has_files: bool, options: LogOptions) -> Log:
        handle = lib.om_store_add(
            self._handle, entry.id, folder.encode(), entry.name.encode(), has_files,
            _log_options(options, entry.flags),
        )  # fmt: skip
        if handle == ffi.NULL:
            raise StorageFailure(f"can't add log {entry.name}")
        has_cursor = not entry.flags & lib.OM_LOG_NO_CURSOR
        log = Log(self, handle, entry.id, entry.vhost, entry.name, has_cursor)
        self._by_name[entry.vhost, entry.name] = log
        self._by_id[entry.id] = log
        return log

    def get(self, name: str, vhost: str = "/") -> Log:
        return self._by_name[vhost, name]

    def name_of(self, log_id: int) -> str | None:
        """None: it is gone."""
        log = self._by_id.get(log_id)
        return log.name if log else None

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self._by_id.values()))

    def used(self) -> Iterator[list[Log]]:
        """The logs that have segments, or anything settled; a list each time one look was enough
        for as many. One that is deleted meanwhile may still come, and says so when it is asked."""
        every = list(self)
        for first in range(0, len(every), A_LOOK):
            some = [log for log in every[first : first + A_LOOK] if log.id in self._by_id]
            used = ffi.new("uint8_t[]", len(some))
            lib.om_store_used(self._handle, [log._log for log in some], used, len(some))
            yield list(compress(some, used))

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._by_name

    def delete(self, log: Log) -> None:
        """Gone for good when it returns; the files follow in the background."""
        seq = ffi.new("uint64_t *")
        check(lib.om_log_delete(log._log, seq), f"delete {log.name}")
        if log.id < SCRATCH_IDS:
            self.wait(seq[0])
            self._catalog.remove([log.id])
        del self._by_id[log.id]
        del self._by_name[log.vhost, log.name]
        self._bury(log)

    def discard(self, log: Log) -> tuple[int, list[Statement]]:
        """`delete` for a caller that commits rows: a sequence to wait for first, then rows."""
        seq = ffi.new("uint64_t *")
        check(lib.om_log_delete(log._log, seq), f"delete {log.name}")
        rows = [] if log.id >= SCRATCH_IDS else [self._catalog.removal(log.id)]
        del self._by_id[log.id]
        self.free_name(log)
        self._bury(log)
        return (int(seq[0]) if rows else 0), rows

    def free_name(self, log: Log) -> None:
        """Another log may be made by its name: it is to be discarded ..."""
        if self._by_name.get((log.vhost, log.name)) is log:
            del self._by_name[log.vhost, log.name]

    def take_name(self, log: Log) -> None:
        """... or not, after all."""
        self._by_name[log.vhost, log.name] = log

    def now_ms(self) -> int:
        """The time by which messages are stamped and expire: it goes neither back nor in jumps."""
        return int(lib.om_store_now_ms(self._handle))

    def _bury(self, log: Log) -> None:
        if log.id < SCRATCH_IDS:
            self._buried.append(Entry(log.id, log.vhost, log.name, 0))
        self._let_go(log)

    def set_options(self, log: Log, options: LogOptions) -> None:
        lib.om_log_set_options(log._log, _log_options(options, 0))

    def keep_settled(self, log: Log, keep: bool) -> None:
        """That option alone; the others stay as they are."""
        lib.om_log_keep_settled(log._log, keep)

    def note(self, log: Log, rule: RemovalReason) -> None:
        """HOLD or LIFTED into the record of what was removed, in its place among removals."""
        lib.om_log_note(log._log, rule)

    def fanout(
        self, logs: Sequence[Log], records: Sequence[Record], *, unlogged: bool = False
    ) -> list[Appended]:
        """The same records to many logs, written to the WAL once."""
        array = RecordArray(records)
        handles = ffi.new("om_log *[]", [log._log for log in logs])
        out = ffi.new("om_appended[]", len(logs))
        flags = lib.OM_APPEND_UNLOGGED if unlogged else 0
        check(
            lib.om_store_fanout(
                self._handle, handles, len(logs), array.array, array.count, flags, out
            ),
            "fan-out",
        )
        return [Appended(slot.first_offset, slot.seq) for slot in out]

    def transaction(self) -> Transaction:
        return Transaction(self, lib.om_atomic_new(self._handle))

    # -- durability

    @property
    def durable_seq(self) -> int:
        return int(lib.om_store_durable_seq(self._handle))

    @property
    def event_fd(self) -> int:
        """Readable when the durable sequence moved, a report came, or a read is resident."""
        return int(lib.om_store_event_fd(self._handle))

    def wait(self, seq: int, timeout: float | None = None) -> None:
        """Block until `seq` is on disk."""
        milliseconds = -1 if timeout is None else int(timeout * 1000)
        check(lib.om_store_wait(self._handle, seq, milliseconds), f"wait for sequence {seq}")

    async def wait_durable(self, seq: int) -> None:
        """The same for trio; `waiting.run` must be running."""
        await self.waiting.wait_durable(seq)

    def admits(self) -> None:
        """Full, NoSpace or Fenced when publishers should not be read now."""
        check(lib.om_store_admits(self._handle), "append")

    def unfence(self) -> None:
        """The disk is well again. StorageFailure: it isn't, or there is no fence."""
        error = ffi.new("char[]", ERROR_SIZE)
        with self._unfencing:
            if lib.om_store_unfence(self._handle, error, ERROR_SIZE) < 0:
                raise StorageFailure(_text(error))

    def checkpoint(self) -> None:
        check(lib.om_store_checkpoint(self._handle), "checkpoint")

    # -- its reports

    def progress(self) -> Progress:
        out = ffi.new("om_progress *")
        with self._shutting:
            if self._handle is not None:
                lib.om_store_progress(self._handle, out)
        return Progress(*(getattr(out, field) for field in Progress.__dataclass_fields__))

    def stat(self) -> StoreStat:
        out = ffi.new("om_store_stat *")
        lib.om_store_stat_get(self._handle, out)
        return StoreStat(*(getattr(out, field) for field in StoreStat.__dataclass_fields__))

    def reports(self) -> list[Report]:
        """The reports since the last call, oldest first; none once it is closed."""
        if self._handle is None:
            return []
        early, self._early_reports = self._early_reports, []
        return early + list(self._take_reports())

    def _take_reports(self) -> Iterator[Report]:
        out = ffi.new("om_report *")
        while lib.om_store_report(self._handle, out) == lib.OM_OK:
            report = Report(
                ReportKind(out.kind), out.log_id, out.first_offset, out.last_offset, _text(out.text)
            )
            if report.kind in LOSSES:
                self.damage.add(report)
            yield report

    def trouble(self) -> str | None:
        """Why durable appends are refused, if they are."""
        stat = self.stat()
        if stat.fenced:
            return "a sync of the write-ahead log failed: it is fenced until `ottermq unfence`"
        if stat.no_space:
            return "too little space left on the disk"
        return self.hindrance() if stat.stalled else None

    def hindrance(self) -> str | None:
        """Why accepted records can't be written: to a segment, a checkpoint, the WAL. As long as
        there is room in the WAL appends are taken all the same."""
        text = ffi.new("char[]", ERROR_SIZE)
        if lib.om_store_trouble(self._handle, text, ERROR_SIZE) == lib.OM_TROUBLE_NONE:
            return None
        return f"what was taken can't be written: {_text(text)}"


def _make_folder(data: Path) -> None:
    """Its name must be on disk before anything in it counts; also if an earlier start, which was
    killed, has made it."""
    made = [folder for folder in data.parents if not folder.exists()]
    data.mkdir(parents=True, exist_ok=True)
    for folder in (data, *made):
        # A process that may not look into the folder above can't have made this one.
        with suppress(PermissionError):
            above = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(above)
            finally:
                os.close(above)


def _store_options(options: Options) -> Any:
    out = ffi.new("om_store_options *")
    for field_name in Options.__dataclass_fields__:
        if field_name != "log":
            setattr(out, field_name, getattr(options, field_name))
    return out


def _folder(entry: Entry) -> str:
    return f"scratch/{entry.id}" if entry.flags & lib.OM_LOG_SCRATCH else entry.folder


@cache
def _log_options(options: LogOptions, flags: int) -> Any:
    out = ffi.new("om_log_options *")
    out.flags = flags | (LogFlags.KEEP_SETTLED if options.keep_settled else 0)
    out.flush_mode = options.flush_mode
    out.segment_size = options.segment_size
    out.segment_max_age_ms = options.segment_max_age_ms
    out.pre_allocate = options.pre_allocate
    return out


def _text(chars: Any) -> str:
    text: bytes = ffi.string(chars)
    return text.decode(errors="replace")
