"""Streaming: how far each log has been read, and what came since.

An offset is a JSON object, log id → next offset to read. By id, since a queue that was deleted and
declared again is another log, which starts at 0 again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ottermq.audit import snapshot
from ottermq.audit.snapshot import Log
from ottermq.audit.source.bundles import bundled
from ottermq.audit.source.plan import PIECE, Limits, LogPart, of_log
from ottermq.audit.source.reader import rows_of

Offsets = dict[str, int]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self, path: Path, schema: StructType, limits: Limits, *, latest: bool, most: int | None
    ) -> None:
        self._path = path
        self._schema = schema
        self._limits = limits
        self._latest = latest
        self._most = most
        self._target: Offsets | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def initialOffset(self) -> Offsets:
        return self._ends() if self._latest else {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        ends = {**start, **(self._target or self._ends())}
        if not isinstance(limit, ReadMaxRows):
            return ends
        begun = {str(log.id): max(start.get(str(log.id), 0), first(log)) for log in self._logs()}
        news = [id for id, end in ends.items() if end > begun.get(id, end)]
        share = -(-limit.max_rows // max(len(news), 1))
        return {id: min(end, begun.get(id, end) + share) for id, end in ends.items()}

    def reportLatestOffset(self) -> Offsets:
        return self._ends()

    def _ends(self) -> Offsets:
        return {str(log.id): stable_end(log) for log in self._logs()}

    def _logs(self) -> list[Log]:
        self._snapshot = snapshot.take(self._path)
        return [log for log in self._snapshot.logs if self._limits.take(log)]

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        out: list[LogPart] = []
        for log in self._logs():
            first, last = start.get(str(log.id), 0), end.get(str(log.id), 0)
            if first < last:
                limits = replace(self._limits, offsets=(first, last))
                marks = "aborted" in self._schema.names
                out += of_log(self._snapshot.home, log, limits, PIECE, marks=marks)
        return bundled(out)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(partition, self._schema)


def first(log: Log) -> int:
    """The first offset that may be there."""
    bases = [each.base_offset for each in log.segments] + [each.base_offset for each in log.wal]
    return max(log.start_offset, min(bases, default=log.start_offset))


def stable_end(log: Log) -> int:
    """Below it nothing new can appear. A batch in the WAL behind a gap may have one before it that
    was never logged and isn't written yet: it waits until it is in its segment itself."""
    end = max(log.start_offset, log.saved.recovery_point if log.saved else 0)
    end = max(end, *(segment.next_offset for segment in log.segments), end)
    for batch in log.wal:
        if batch.base_offset > end:
            break
        end = max(end, batch.next_offset)
    return end
