"""One log: append, read, look up, settle. A thin face on csrc/store/log*.c.

Calls take the store's lock for a moment and never wait for a disk, but for `truncate` and reads
of records that aren't in memory: those belong in a thread.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottermq._core import ffi, lib
from ottermq.wal.errors import Deleted, Refused, Unreadable, check, error_for
from ottermq.wal.records import Batch, Record, RecordArray, batches
from ottermq.wal.removal_reasons import RemovalReason

if TYPE_CHECKING:
    from ottermq.wal.store import Store

ANY_EPOCH = lib.OM_ANY_EPOCH
READ_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class Appended:
    first_offset: int
    seq: int  # durable once the store's durable sequence has reached it


@dataclass(frozen=True, slots=True)
class LogStat:
    start_offset: int
    next_offset: int
    high_watermark: int
    readable_end: int
    last_stable: int
    oldest_open: int  # the producer whose transaction that waits for, -1: none
    written_offset: int
    recovery_point: int
    lease_end: int
    size_bytes: int
    segments: int
    hot_batches: int
    leader_epoch: int
    memory: int
    segment_size: int


@dataclass(frozen=True, slots=True)
class SegmentStat:
    base_offset: int
    next_offset: int
    size: int
    first_timestamp: int
    max_timestamp: int
    sealed: bool
    fenced: bool


@dataclass(frozen=True, slots=True)
class CursorStat:
    floor: int
    next: int
    end: int
    ready_count: int
    ready_bytes: int
    unacked_count: int
    unacked_bytes: int
    returned_count: int
    memory: int


@dataclass(frozen=True, slots=True)
class ProducerStat:
    producer_id: int
    epoch: int
    last_sequence: int  # -1: none
    last_timestamp: int
    coordinator_epoch: int
    first_open: int  # the open transaction's first offset, -1: none
    enlisted: bool


@dataclass(frozen=True, slots=True)
class Aborted:
    """An aborted transaction, from its first record to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable: int


@dataclass(frozen=True, slots=True)
class FileRange:
    """A stretch of a segment file for sendfile, valid inside its `with` block only."""

    fd: int
    position: int
    length: int
    first_offset: int
    next_offset: int


class Log:
    __slots__ = ("_log", "_store", "has_cursor", "id", "name", "vhost")

    def __init__(
        self, store: "Store", handle: Any, id: int, vhost: str, name: str, has_cursor: bool
    ) -> None:
        self._store = store
        self._log = handle
        self.id = id
        self.vhost = vhost
        self.name = name
        self.has_cursor = has_cursor  # a work queue; a stream's readers keep their own places

    def __getattr__(self, name: str) -> Any:
        # The handle is taken away when the log is deleted or its store closed: a later call on
        # this object gets an error, not a crash.
        if name == "_log":
            raise Deleted(f"{self.name}: the log is deleted, or its store closed")
        raise AttributeError(name)

    def now_ms(self) -> int:
        """The time that its messages go by."""
        return self._store.now_ms()

    @contextmanager
    def held(self) -> "Iterator[Log]":
        """The same log for a thread: it stays valid in there, even if it is deleted meanwhile."""
        handle = lib.om_log_hold(self._log)
        try:
            yield Log(self._store, handle, self.id, self.vhost, self.name, self.has_cursor)
        finally:
            lib.om_log_release(handle)

    def __repr__(self) -> str:
        return f"<Log {self.vhost}:{self.name} #{self.id}>"

    # -- writing

    def append(
        self, records: Sequence[Record], *, unlogged: bool = False, epoch: int = ANY_EPOCH
    ) -> Appended:
        """As one batch. Durable once the store has reached its `seq`."""
        array = RecordArray(records)
        out = ffi.new("om_appended *")
        flags = lib.OM_APPEND_UNLOGGED if unlogged else 0
        check(
            lib.om_log_append(self._log, array.array, array.count, flags, epoch, out),
            f"append to {self.name}",
        )
        return Appended(out.first_offset, out.seq)

    def append_raw(
        self, batch: bytes, *, unlogged: bool = False, epoch: int = ANY_EPOCH
    ) -> Appended:
        """A batch as its producer sent it; checked, then given its place. One that is here already
        keeps the place it has."""
        out = ffi.new("om_appended *")
        flags = lib.OM_APPEND_UNLOGGED if unlogged else 0
        data = ffi.from_buffer("uint8_t[]", batch)
        result = lib.om_log_append_raw(self._log, data, len(batch), flags, epoch, out)
        return self._appended(result, out, f"append to {self.name}")

    def _appended(self, result: int, out: Any, what: str) -> Appended:
        if out.error:
            raise Refused(f"{what}: refused with Kafka's error {out.error}", out.error)
        check(result, what)
        return Appended(out.first_offset, out.seq)

    # -- producers and their transactions

    def enlist(self, producer_id: int, epoch: int) -> None:
        """Its transaction may write here, until its marker or a restart."""
        check(lib.om_log_enlist(self._log, producer_id, epoch), f"enlist in {self.name}")

    def mark(
        self, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0
    ) -> Appended:
        """The marker that ends its transaction here."""
        out = ffi.new("om_appended *")
        result = lib.om_log_marker(self._log, producer_id, epoch, coordinator_epoch, commit, out)
        return self._appended(result, out, f"mark in {self.name}")

    def producers(self) -> list[ProducerStat]:
        count = lib.om_log_producers(self._log, ffi.NULL, 0)
        out = ffi.new("om_producer_stat[]", count + 16)
        count = min(len(out), lib.om_log_producers(self._log, out, len(out)))
        return [
            ProducerStat(*(getattr(out[i], field) for field in ProducerStat.__dataclass_fields__))
            for i in range(count)
        ]

    def aborted(self, first: int, end: int) -> list[Aborted]:
        """The aborted transactions that reach into [first, end)."""
        count = lib.om_log_aborted_in(self._log, first, end, ffi.NULL, 0)
        out = ffi.new("om_aborted[]", count + 16)
        count = min(len(out), lib.om_log_aborted_in(self._log, first, end, out, len(out)))
        return [
            Aborted(*(getattr(out[i], field) for field in Aborted.__dataclass_fields__))
            for i in range(count)
        ]

    # -- reading

    def read(
        self, offset: int, *, end: int = -1, max_bytes: int = READ_SIZE, nowait: bool = False
    ) -> list[Batch]:
        """Whole batches from the one that holds `offset` on: at least one, unless nothing is
        there yet. `end` -1: all that may be seen by a queue's consumer."""
        read = ffi.new("om_read *")
        flags = lib.OM_READ_NOWAIT if nowait else 0
        result = lib.om_log_read(self._log, offset, end, max_bytes, flags, read)
        if result == lib.OM_END:
            return []
        if result < 0:
            raise self._read_error(result, offset, read.next_offset)
        try:
            data = bytearray(read.bytes)
            copied = lib.om_read_copy(read, ffi.from_buffer("uint8_t[]", data), len(data))
            if copied < 0:
                raise self._read_error(copied, offset, read.next_offset)
            return list(batches(bytes(data[:copied])))
        finally:
            lib.om_read_free(read)

    def _read_error(self, result: int, offset: int, next_offset: int) -> Exception:
        error = error_for(result, f"read {self.name} at {offset}")
        return Unreadable(str(error), next_offset) if isinstance(error, Unreadable) else error

    def records(self, offset: int | None = None, *, end: int = -1) -> Iterator[Record]:
        """One by one from `offset` (the start) to what is readable now."""
        at = self.stat().start_offset if offset is None else offset
        first = at
        while found := self.read(at, end=end):
            for batch in found:
                yield from (r for r in batch.records() if r.offset >= first)
                at = batch.last_offset + 1

    def file_range(self, offset: int, *, end: int = -1, max_bytes: int = READ_SIZE) -> "RangeHold":
        """`with log.file_range(0) as range:` None when it isn't in a segment yet."""
        return RangeHold(self._log, offset, end, max_bytes)

    def find_time(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record that is not older."""
        offset, found = ffi.new("int64_t *"), ffi.new("int64_t *")
        result = lib.om_log_find_time(self._log, timestamp, offset, found)
        if check(result, f"find a time in {self.name}") == lib.OM_END:
            return None
        return offset[0], found[0]

    # -- shape

    def stat(self) -> LogStat:
        out = ffi.new("om_log_stat *")
        lib.om_log_stat_get(self._log, out)
        return LogStat(*(getattr(out, field) for field in LogStat.__dataclass_fields__))

    def segments(self, most: int | None = None) -> list[SegmentStat]:
        """In offset order, the last one active unless sealed; `most`: only the first few."""
        if most is None:
            most = lib.om_log_segments(self._log, ffi.NULL, 0)
        out = ffi.new("om_segment_stat[]", most)
        count = min(most, lib.om_log_segments(self._log, out, most))
        return [
            SegmentStat(*(getattr(out[i], field) for field in SegmentStat.__dataclass_fields__))
            for i in range(count)
        ]

    def trim(self, offset: int, rule: RemovalReason = RemovalReason.UNKNOWN) -> int:
        """Nothing below `offset` is needed any more. rule: why. Returns the record's sequence."""
        seq = ffi.new("uint64_t *")
        check(lib.om_log_trim(self._log, offset, rule, seq), f"trim {self.name} to {offset}")
        return int(seq[0])

    def truncate(self, offset: int) -> None:
        """Remove everything from `offset` on. Blocks: a checkpoint is part of it."""
        check(lib.om_log_truncate(self._log, offset), f"truncate {self.name} to {offset}")

    def bump_epoch(self) -> int:
        return int(lib.om_log_bump_epoch(self._log))

    # -- the queue's cursor

    def cursor(self) -> CursorStat:
        out = ffi.new("om_cursor_stat *")
        check(lib.om_log_cursor_stat(self._log, out), f"cursor of {self.name}")
        return CursorStat(*(getattr(out, field) for field in CursorStat.__dataclass_fields__))

    def acquire(self, most: int, bytes_each: int = 0) -> list[int]:
        """Give out up to `most` ready offsets."""
        offsets = ffi.new("int64_t[]", most)
        count = check(lib.om_log_acquire(self._log, offsets, most, bytes_each), "acquire")
        return [offsets[i] for i in range(count)]

    def counts(self, offset: int) -> tuple[int, int]:
        """How often it was given out, and how often a delivery of it failed."""
        acquired, delivered = ffi.new("int32_t *"), ffi.new("int32_t *")
        check(lib.om_log_counts(self._log, offset, acquired, delivered), "counts")
        return acquired[0], delivered[0]

    def settle(self, first: int, last: int | None = None, *, weight: int = -1) -> tuple[int, int]:
        """(how many became settled, the record's sequence)"""
        seq = ffi.new("uint64_t *")
        count = lib.om_log_settle(self._log, first, first if last is None else last, weight, seq)
        return check(count, f"settle in {self.name}"), seq[0]

    def give_back(self, offset: int, *, weight: int = 0, counted: bool = True) -> None:
        check(lib.om_log_return(self._log, offset, weight, counted), f"return to {self.name}")

    def purge(self) -> tuple[int, int]:
        """(how many went, the record's sequence)"""
        seq = ffi.new("uint64_t *")
        return check(lib.om_log_purge(self._log, seq), f"purge {self.name}"), seq[0]


class RangeHold:
    __slots__ = ("_log", "_range", "_what")

    def __init__(self, log: Any, offset: int, end: int, max_bytes: int) -> None:
        self._log = log
        self._what = (offset, end, max_bytes)
        self._range = ffi.new("om_range *")

    def __enter__(self) -> FileRange | None:
        held = self._range
        result = check(lib.om_log_range(self._log, *self._what, held), "file range")
        if result == lib.OM_END:
            return None
        return FileRange(held.fd, held.position, held.len, held.first_offset, held.next_offset)

    def __exit__(self, *_: object) -> None:
        lib.om_range_free(self._range)


class Transaction:
    """Appends and settles over many logs: all of them, or none."""

    __slots__ = ("_atomic", "_store")

    def __init__(self, store: "Store", handle: Any) -> None:
        self._store = store
        self._atomic = handle

    def append(self, log: Log, records: Iterable[Record]) -> None:
        array = RecordArray(list(records))
        check(lib.om_atomic_append(self._atomic, log._log, array.array, array.count), "transaction")

    def settle(self, log: Log, first: int, last: int | None = None, *, weight: int = 0) -> None:
        last = first if last is None else last
        check(lib.om_atomic_settle(self._atomic, log._log, first, last, weight), "transaction")

    def commit(self) -> int:
        """The sequence to wait for."""
        atomic, self._atomic = self._atomic, None
        seq = ffi.new("uint64_t *")
        check(lib.om_atomic_commit(atomic, seq), "commit")
        return int(seq[0])

    def rollback(self) -> None:
        if self._atomic is not None:
            lib.om_atomic_abandon(self._atomic)
            self._atomic = None
