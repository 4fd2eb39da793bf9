"""The tasks of a read: one part of a segment per task, large segments split at index entries.

A task costs Spark about 25 ms, whatever it reads. So a large directory gets large pieces; those of
a small one are small, so that every core has some.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from ottermq.audit.byte_source import ByteSource
from ottermq.audit.catalogue import INTERNAL
from ottermq.audit.snapshot import Log, Segment, Snapshot
from ottermq.audit.source import transactions
from ottermq.audit.source.decode import LEAST, MOST, Span, Wanted
from ottermq.wal.log import Aborted
from ottermq.wal.segmentfile import base_offset_at, offset_entries

PIECE = 16 << 20  # bytes of a segment per task, at least, about
LARGE_PIECE = 64 << 20
ENOUGH = 16  # tasks: where there are more, they are larger
WAL_PIECE = 4 << 20  # bytes that only the WAL has go with the task itself


@dataclass(frozen=True, slots=True)
class Limits:
    """The query, as far as it can be known before a record is read. None: all."""

    vhosts: frozenset[str] | None = None
    queues: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offsets: tuple[int, int] = (0, MOST)
    times: tuple[int, int] = (LEAST, MOST)

    def take(self, log: Log) -> bool:
        return (
            log.kind != INTERNAL
            and (self.vhosts is None or log.vhost in self.vhosts)
            and (self.queues is None or log.queue in self.queues)
            and (self.partitions is None or log.partition in self.partitions)
        )


class LogPart(InputPartition):
    """Some batches of one log, for one task: in a segment, or (`held`) in the WAL alone."""

    def __init__(
        self, home: ByteSource, log: Log, span: Span, wanted: Wanted, place: Segment | bytes
    ) -> None:
        self.home = home
        self.vhost, self.queue, self.partition = log.vhost, log.queue, log.partition
        self.span = span
        self.wanted = wanted
        self.segment = place.base_offset if isinstance(place, Segment) else None
        self.file = f"{log.folder}/{place.file}" if isinstance(place, Segment) else None
        self.held = place if isinstance(place, bytes) else b""

    def __repr__(self) -> str:
        return f"LogPart({self.vhost} {self.queue}/{self.partition}, {self.segment}, {self.span})"


def log_parts(snapshot: Snapshot, limits: Limits, *, marks: bool) -> list[LogPart]:
    """marks: whether a transaction was aborted is asked for."""
    logs = [log for log in snapshot.logs if limits.take(log)]
    piece = piece_of(sum(segment.size for log in logs for segment in log.segments))
    out: list[LogPart] = []
    for log in logs:
        out += of_log(snapshot.home, log, limits, piece, marks=marks)
    return out


def piece_of(size: int) -> int:
    """How large the pieces are when so many bytes are read."""
    return min(max(size // ENOUGH, PIECE), LARGE_PIECE)


def of_log(
    home: ByteSource, log: Log, limits: Limits, piece: int, *, marks: bool
) -> Iterator[LogPart]:
    aborted = transactions.of_log(home, log) if marks else ()
    first, end = max(limits.offsets[0], log.start_offset), limits.offsets[1]
    wanted = Wanted((first, end), limits.times)
    for segment in log.segments:
        if segment.next_offset <= first or segment.base_offset >= end:
            continue
        if 0 <= segment.max_timestamp < limits.times[0] and not segment.missing:
            continue
        places = [(0, segment.base_offset), *_places(home, log, segment, piece)]
        ends = [*places[1:], (segment.size, segment.next_offset)]
        for (start, least), (stop, behind) in zip(places, ends, strict=True):
            if first < behind and least < end:
                span = Span(start, stop, least, log.cursor, _reaching(aborted, least))
                yield LogPart(home, log, span, wanted, segment)
    for held in _held(log, first, end):
        span = Span(0, len(held), 0, log.cursor, aborted)
        yield LogPart(home, log, span, wanted, held)


def _reaching(aborted: tuple[Aborted, ...], offset: int) -> tuple[Aborted, ...]:
    return tuple(each for each in aborted if each.last_offset >= offset)


def _places(home: ByteSource, log: Log, segment: Segment, piece: int) -> Iterator[tuple[int, int]]:
    """Where to split it, and the offset there. Indexes are hints: a batch must be there."""
    if segment.size <= piece * 3 // 2:
        return
    batches = home.open(f"{log.folder}/{segment.file}")
    index = home.open(f"{log.folder}/{segment.base_offset:020}.index")
    if batches is None or index is None:
        return
    with batches, index:
        next_split = piece
        for last, position in offset_entries(index.read(0, index.size), segment.base_offset):
            if next_split <= position <= segment.size - piece // 2:
                base = base_offset_at(batches, position, last)
                if base is not None:
                    yield position, base
                    next_split = position + piece


def _held(log: Log, first: int, end: int) -> Iterator[bytes]:
    """What only the WAL has, in pieces."""
    piece: list[bytes] = []
    size = 0
    for batch in log.wal:
        if batch.next_offset <= first or batch.base_offset >= end:
            continue
        piece.append(batch.data)
        size += len(batch.data)
        if size >= WAL_PIECE:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)
