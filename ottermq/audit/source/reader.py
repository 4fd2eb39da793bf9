"""Reading: a snapshot of the directory becomes tasks, a task's part becomes Arrow batches."""

import gc
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ottermq.audit import snapshot
from ottermq.audit.source import filters
from ottermq.audit.source.bundles import Bundle, bundled
from ottermq.audit.source.decode import ROWS, Columns, Reading
from ottermq.audit.source.plan import Limits, LogPart, log_parts
from ottermq.wal.file_window import MemoryRanges

WAL, GONE = "wal", "gone"


class Reader(DataSourceReader):
    def __init__(self, path: Path, schema: StructType, limits: Limits) -> None:
        self._path = path
        self._schema = schema
        self._limits = limits

    def pushFilters(self, given: list[Filter]) -> Iterable[Filter]:
        """They narrow down what is read; Spark looks at each row all the same."""
        self._limits = filters.narrowed(self._limits, given)
        return given

    def partitions(self) -> Sequence[InputPartition]:
        marks = "aborted" in self._schema.names
        return bundled(log_parts(snapshot.take(self._path), self._limits, marks=marks))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(partition, self._schema)


def rows_of(partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    # Of no part at all Spark makes a partition that is none of ours.
    for part in partition.parts if isinstance(partition, Bundle) else ():
        yield from rows(part, schema)


@cache
def _settle_in() -> None:
    """Once in each of Spark's workers. After every task they collect garbage, and would look each
    time at all that was ever imported: tens of milliseconds, while the next task waits."""
    gc.freeze()


def rows(part: LogPart, schema: StructType) -> Iterator[pa.RecordBatch]:
    _settle_in()
    arrow = to_arrow_schema(schema, timezone="UTC")
    window = part.home.open(part.file) if part.file else MemoryRanges(part.held)
    if window is None:
        yield _gone(part, arrow)
        return
    tier = part.home.tier if part.file else WAL
    constants = _constants(part, tier)
    with window:
        for columns in Reading(window, part.span, part.wanted).batches(arrow.names):
            yield _batch(columns, constants, arrow, is_held=not part.file)


def _constants(part: LogPart, tier: str) -> dict[str, pa.Array]:
    """Made once: a batch takes as many of them as it has rows."""
    return {
        "vhost": pa.repeat(part.vhost, ROWS),
        "queue": pa.repeat(part.queue, ROWS),
        "partition": pa.repeat(pa.scalar(part.partition, pa.int32()), ROWS),
        "segment": pa.repeat(pa.scalar(part.segment, pa.int64()), ROWS),
        "tier": pa.repeat(tier, ROWS),
    }


def _batch(
    columns: Columns, constants: dict[str, pa.Array], schema: pa.Schema, *, is_held: bool
) -> pa.RecordBatch:
    count = columns.rows
    arrays = []
    for field in schema:
        if field.name in constants:
            arrays.append(_repeated(constants[field.name], count))
        elif field.name == "position" and is_held:
            arrays.append(pa.nulls(count, field.type))
        else:
            arrays.append(columns.array(field.name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _repeated(constant: pa.Array, count: int) -> pa.Array:
    if count <= len(constant):
        return constant.slice(0, count)
    return pa.repeat(constant[0], count)  # the last batch of a piece may be a long one


def _gone(part: LogPart, schema: pa.Schema) -> pa.RecordBatch:
    """The file went since the snapshot was taken: a row that says so, neither right nor wrong."""
    known = {
        "vhost": part.vhost,
        "queue": part.queue,
        "partition": part.partition,
        "segment": part.segment,
        "position": part.span.start,
        "offset": part.span.first_offset,
        "size": min(part.span.stop - part.span.start, 2**31 - 1),
        "tier": GONE,
    }
    arrays = [pa.array([known.get(field.name)], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
