"""Small parts of logs share a task: a task costs Spark some 25 ms, whatever it reads, and a broker
may have a hundred thousand queues with a few messages each."""

from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition

from ottermq.audit.source.plan import LogPart

TASKS = 16  # so that every core has some; more only where they'd be larger than this
LARGEST = 16 << 20  # bytes


class Bundle(InputPartition):
    """What one task reads, in order."""

    def __init__(self, parts: Sequence[LogPart]) -> None:
        self.parts = parts

    def __repr__(self) -> str:
        return f"Bundle({', '.join(map(repr, self.parts))})"


def bundled(parts: Sequence[LogPart]) -> list[InputPartition]:
    """Neighbours in the same order, at most so large together; one that is larger is alone."""
    most = min(sum(map(_size, parts)) // TASKS, LARGEST)
    out: list[InputPartition] = []
    some: list[LogPart] = []
    size = 0
    for each in parts:
        if some and size + _size(each) > most:
            out.append(Bundle(some))
            some, size = [], 0
        some.append(each)
        size += _size(each)
    return [*out, Bundle(some)] if some else out


def _size(part: LogPart) -> int:
    return part.span.stop - part.span.start
