"""Key compaction: of a log's sealed segments, the last record of each key stays.

    dirty_from            end
    | cleaned | sealed, new | active |
    1 learn     where does each key of the new part stand last?      (csrc/format/compact.c)
    2 filter    every segment up to there is written again without what that makes obsolete, into a
                file of its own which then takes the old one's name   (csrc/store/segment_swap.c)

Neighbours that fit into one segment become one: else those that lose all their records would stay
as files, and as descriptors, for ever.

Offsets stay as they are. A batch that loses all its records goes, unless it is its segment's
last: then its header stays, so that the segment still ends where it did. Records of aborted
transactions go, markers stay. A batch that can't be decompressed stays as it is. So does a
segment with a damaged place; the keys of the other segments are learned, and they
are filtered, all the same.

C handles the records, one call per batch; this module blocks, and belongs in a thread.
"""

import os
import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from ottermq._core import ffi, lib
from ottermq.wal.errors import Full, Gone, OutOfRange, Unreadable, check
from ottermq.wal.log import Aborted, Log, SegmentStat
from ottermq.wal.records import (
    CODECS,
    CONTROL,
    OVERHEAD,
    TRANSACTIONAL,
    Batch,
    sealed,
    with_records,
)

MOST_KEYS = 4 << 20  # at a time: 24 to 48 bytes each
HORIZON = int(lib.OM_ATTR_DELETE_HORIZON)
GROWTH = 11  # bytes a record may grow by when its batch gets a horizon
REACH = (1 << 31) - 1  # of an index, in offsets and in bytes


@dataclass(frozen=True)
class Codecs:
    """How records are decompressed and compressed; `open` answers None for what it can't."""

    open: Callable[[int, bytes], bytes | None]
    close: Callable[[int, bytes], bytes]


class Outcome(NamedTuple):
    cleaned_to: int  # no key is there twice below this
    dropped: int  # records
    bytes_before: int
    bytes_after: int


class Compaction:
    def __init__(
        self,
        log: Log,
        *,
        now_ms: int,
        delete_retention_ms: int,
        codecs: Codecs,
        most_keys: int = MOST_KEYS,
        breathe: Callable[[], None] = lambda: None,
    ) -> None:
        """breathe: called now and then; it may sleep, or raise to end it."""
        self._log = log
        self._codecs = codecs
        self._breathe = breathe
        self._keys = ffi.gc(lib.om_cleaner_new(most_keys), lib.om_cleaner_free)
        if self._keys == ffi.NULL:
            raise MemoryError("no memory for the keys")
        self._stats = ffi.new("om_cleaner_stats *")
        self._stats.now_ms = now_ms
        self._stats.delete_retention_ms = delete_retention_ms
        self._aborted: list[Aborted] = []
        self._dropped = 0

    def run(self, dirty_from: int, end: int) -> Outcome:
        """end: no segment that reaches beyond it is touched."""
        stat = self._log.stat()
        end = min(end, stat.last_stable, stat.recovery_point)
        segments = self._sealed(lambda each: each.next_offset <= end)
        if not segments or segments[-1].next_offset <= dirty_from:
            return Outcome(dirty_from, 0, 0, 0)
        start = max(segments[0].base_offset, stat.start_offset)
        self._aborted = self._log.aborted(start, end)
        before = sum(each.size for each in segments)
        cleaned_to = self._learn(max(dirty_from, start), segments[-1].next_offset)
        # Once more: some may have turned out to be damaged.
        segments = self._sealed(lambda each: each.base_offset < cleaned_to)
        saved = 0
        for is_whole, some in groupby(segments, lambda each: not each.fenced):
            if is_whole:
                saved += self._rewrite(deque(some), min(stat.segment_size, REACH))
        return Outcome(cleaned_to, self._dropped, before, before - saved)

    def _sealed(self, are: Callable[[SegmentStat], bool]) -> list[SegmentStat]:
        return [each for each in self._log.segments() if each.sealed and each.size and are(each)]

    # -- learning

    def _learn(self, first: int, end: int) -> int:
        """How far the table had room."""
        for batch in self._batches(first, end, passes_bad=True):
            data = self._plain(batch)
            if data is None or batch.attributes & CONTROL or self._is_aborted(batch):
                continue
            try:
                check(
                    lib.om_cleaner_learn(self._keys, ffi.from_buffer(data), len(data)), "learn keys"
                )
            except Full:
                return batch.base_offset
        return end

    def _batches(self, first: int, end: int, *, passes_bad: bool = False) -> Iterator[Batch]:
        while first < end:
            self._breathe()
            try:
                found = self._log.read(first, end=end)
            except Unreadable as error:
                if not passes_bad:
                    raise
                first = error.next_offset
                continue
            if not found:
                return
            for batch in found:
                if batch.base_offset >= end:
                    return
                yield batch
                first = batch.last_offset + 1

    def _plain(self, batch: Batch) -> bytes | None:
        if not batch.codec:
            return batch.data
        records = self._codecs.open(batch.codec, batch.data[OVERHEAD:])
        if records is None:
            return None
        plain = with_records(batch.data, batch.attributes & ~CODECS, records)
        # Compressed records were not looked at yet: they may differ from the batch's head.
        info = ffi.new("om_batch_info *")
        fits = lib.om_batch_validate(ffi.from_buffer(plain), len(plain), 1, info) == lib.OM_OK
        return plain if fits else None

    def _is_aborted(self, batch: Batch) -> bool:
        return bool(batch.attributes & TRANSACTIONAL) and any(
            each.producer_id == batch.producer_id
            and each.first_offset <= batch.base_offset < each.last_offset
            for each in self._aborted
        )

    # -- filtering

    def _rewrite(self, segments: deque[SegmentStat], most: int) -> int:
        """How many bytes that saved."""
        saved = 0
        while segments:
            new = _New(self._log, most)
            try:
                while segments and new.has_room_for(segments[0]):
                    self._filter(segments.popleft(), new)
                if new.is_open:
                    self._breathe()  # the last moment to end it
                saved += new.commit()
            except (Gone, OutOfRange, Unreadable):
                pass  # trimmed meanwhile, not yet before the recovery point, or damaged
            finally:
                new.abort()
        return saved

    def _filter(self, segment: SegmentStat, new: "_New") -> None:
        """Nothing is written as long as nothing would change."""
        first = max(segment.base_offset, self._log.stat().start_offset)
        new.join(segment)
        if new.is_merged:
            self._open(new, segment.base_offset)
        for batch in self._batches(first, segment.next_offset):
            left = self._left(batch, batch.last_offset + 1 == segment.next_offset)
            if left is not batch.data:
                self._open(new, batch.base_offset)
            new.add(left)

    def _open(self, new: "_New", end: int) -> None:
        """With all that was the same so far."""
        if not new.is_open:
            new.open()
            first = max(new.base, self._log.stat().start_offset)
            for same in self._batches(first, end):
                new.add(same.data)

    def _left(self, batch: Batch, is_last: bool) -> bytes:
        """The very same bytes when all of it stays; none when nothing does."""
        if batch.attributes & CONTROL:
            return batch.data
        if not batch.record_count:
            return batch.data if is_last else b""
        if self._is_aborted(batch):
            self._dropped += batch.record_count
            return _emptied(batch) if is_last else b""
        plain = self._plain(batch)
        if plain is None:
            return batch.data
        room = ffi.new("uint8_t[]", len(plain) + GROWTH * batch.record_count)
        size = check(
            lib.om_cleaner_filter(
                self._keys, ffi.from_buffer(plain), len(plain), self._stats, room, len(room)
            ),
            "filter a batch",
        )
        if not size:
            return batch.data
        self._dropped += self._stats.dropped
        if not self._stats.kept:
            return bytes(ffi.buffer(room, size)) if is_last else b""
        left = bytes(ffi.buffer(room, size))
        if not batch.codec:
            return left
        attributes = int.from_bytes(left[21:23], "big") | batch.codec
        return with_records(left, attributes, self._codecs.close(batch.codec, left[OVERHEAD:]))


class _New:
    """The replacement of one segment, or of several that follow each other."""

    def __init__(self, log: Log, most: int) -> None:
        self._log = log
        self._most = most
        self._old: list[SegmentStat] = []
        self._file: _File | None = None
        self._size = 0
        self._end = b""  # a batch without records: it stays when nothing comes behind it

    @property
    def base(self) -> int:
        return self._old[0].base_offset

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def is_merged(self) -> bool:
        return len(self._old) > 1

    def has_room_for(self, segment: SegmentStat) -> bool:
        return not self._old or (
            self._size + segment.size <= self._most and segment.next_offset - self.base <= REACH
        )

    def join(self, segment: SegmentStat) -> None:
        self._old.append(segment)

    def open(self) -> None:
        self._file = _File(self._log, self.base)
        self._size = 0
        self._end = b""

    def add(self, data: bytes) -> None:
        if not data:
            return
        attributes, records = int.from_bytes(data[21:23], "big"), int.from_bytes(data[57:61], "big")
        if not records and not attributes & CONTROL:
            self._end = data
            return
        self._end = b""
        self._size += len(data)
        if self._file is not None:
            self._file.write(data)

    def commit(self) -> int:
        """How many bytes that saved."""
        if self._file is None:
            return 0
        if self._end:
            self._file.write(self._end)
        self._file.commit(self._old[-1].next_offset)
        return sum(each.size for each in self._old) - self._file.size

    def abort(self) -> None:
        """Nothing, if it was committed."""
        if self._file is not None:
            self._file.abort()


class _File:
    """The file that is to take a segment's name."""

    def __init__(self, log: Log, base: int) -> None:
        self._log = log
        self._base = base
        self.size = 0
        self._first_timestamp = self._max_timestamp = -1
        fd = ffi.new("int *")
        result = lib.om_log_rewrite_begin(log._log, self._base, fd)
        self._fd: int | None = None
        check(result, f"rewrite a segment of {log.name}")
        self._fd = fd[0]

    def write(self, data: bytes) -> None:
        assert self._fd is not None
        attributes, base_timestamp, max_timestamp = struct.unpack_from(">h4xqq", data, 21)
        if not self.size:
            self._first_timestamp = max_timestamp if attributes & HORIZON else base_timestamp
        self._max_timestamp = max(self._max_timestamp, max_timestamp)
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        self.size += len(data)

    def commit(self, next_offset: int) -> None:
        fd, self._fd = self._fd, None
        rewritten: Any = ffi.new("om_rewritten *")
        rewritten.size = self.size
        rewritten.first_timestamp = self._first_timestamp
        rewritten.max_timestamp = self._max_timestamp
        rewritten.next_offset = next_offset
        result = lib.om_log_rewrite_commit(self._log._log, self._base, fd, rewritten)
        check(result, f"rewrite a segment of {self._log.name}")

    def abort(self) -> None:
        """Nothing, if it was committed."""
        fd, self._fd = self._fd, None
        if fd is not None:
            lib.om_log_rewrite_abort(self._log._log, self._base, fd)


def _emptied(batch: Batch) -> bytes:
    data = bytearray(batch.data[:OVERHEAD])
    struct.pack_into(">i", data, 8, OVERHEAD - 12)
    struct.pack_into(">h", data, 21, batch.attributes & ~(CODECS | HORIZON))
    struct.pack_into(">qq", data, 27, -1, -1)
    struct.pack_into(">i", data, 57, 0)
    return sealed(data)
