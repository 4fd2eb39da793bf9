"""Places in a log: its start and end, the offset at a time, the end of an epoch.

Instead of a time a client may ask for a mark, by a number below zero. Marks are known at once; a
time or an epoch may have to be read from the disk and a batch decompressed, so such requests are
answered from a thread: a few partitions at a time, in turn with all others that open batches, and
no longer than the client is there. A batch that opens to more than LARGEST is answered with its
first offset.

Leader epochs only grow from the start of a log to its end, so where one ended is found by halving.
"""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import trio

from ottermq.kafka.api import Api
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error, error_of
from ottermq.kafka.pace import batched
from ottermq.kafka.request import Body, Connection, Handler, Request
from ottermq.storage.codecs import NotDecompressed, decompress_records
from ottermq.wal import Log, LogError
from ottermq.wal.log import LogStat
from ottermq.wal.records import OVERHEAD

READ_COMMITTED = 1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
MARKS = frozenset((LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED))  # known without a look
NO_EPOCH = -1
AT_A_TIME = 4  # partitions before others get their turn
LARGEST = 32 << 20  # bytes of records in a batch that is looked into
LAST_TIME = 1 << 62

Place = tuple[int, int]  # offset, timestamp
NOWHERE: Place = (-1, -1)
Found = Log | Error
Jobs = list[tuple[str, list[tuple[Found, Body]]]]  # a topic, its partitions, what is asked of each
Answer = Callable[[Found, Body], Body]


def list_offsets(kafka: KafkaContext, request: Request) -> Body | Coroutine[Any, Any, Body]:
    seen: set[tuple[str, int]] = set()
    committed = request.body["isolation_level"] == READ_COMMITTED
    answer = partial(_list_one, committed)
    jobs: Jobs = []
    waits = False
    for topic in request.body["topics"]:
        name, partitions = topic["name"], topic["partitions"]
        waits = waits or any(each["timestamp"] not in MARKS for each in partitions)
        found = [_once(kafka, request, name, each["partition_index"], seen) for each in partitions]
        jobs.append((name, list(zip(found, partitions, strict=True))))
    if waits:
        return _in_a_thread(kafka, request.conn, "name", jobs, answer)
    return _answered("name", jobs, answer)


def offset_for_leader_epoch(kafka: KafkaContext, request: Request) -> Coroutine[Any, Any, Body]:
    seen: set[tuple[str, int]] = set()
    jobs: Jobs = []
    for topic in request.body["topics"]:
        name, partitions = topic["topic"], topic["partitions"]
        found = [_once(kafka, request, name, each["partition"], seen) for each in partitions]
        jobs.append((name, list(zip(found, partitions, strict=True))))
    return _in_a_thread(kafka, request.conn, "topic", jobs, _end_of_epoch)


def _once(
    kafka: KafkaContext, request: Request, name: str, index: int, seen: set[tuple[str, int]]
) -> Found:
    """As Kafka has it: a partition that is named again is a mistake."""
    if (name, index) in seen:
        return Error.INVALID_REQUEST
    seen.add((name, index))
    return log_of(kafka, request, name, index)


async def _in_a_thread(
    kafka: KafkaContext, conn: Connection, key: str, jobs: Jobs, answer: Answer
) -> Body:
    with ExitStack() as holds:

        def hold(found: Found) -> Found:
            """A topic deleted meanwhile doesn't take the log from under us."""
            return found if isinstance(found, Error) else holds.enter_context(found.held())

        topics = []
        for name, each in jobs:
            partitions: list[Body] = []
            for some in batched([(hold(found), asked) for found, asked in each], AT_A_TIME):
                if conn.is_closed:
                    return {"topics": []}  # nobody reads it
                partitions += await trio.to_thread.run_sync(
                    partial(_all, some, answer), limiter=kafka.engine.unpacking
                )
            topics.append({key: name, "partitions": partitions})
        return {"topics": topics}


def _answered(key: str, jobs: Jobs, answer: Answer) -> Body:
    return {"topics": [{key: name, "partitions": _all(each, answer)} for name, each in jobs]}


def _all(some: Sequence[tuple[Found, Body]], answer: Answer) -> list[Body]:
    return [answer(found, asked) for found, asked in some]


def log_of(kafka: KafkaContext, request: Request, name: str, index: int) -> Found:
    """The partition's log, if this client may read it or at least know of it."""
    conn = request.conn
    if not (conn.allows_topic("read", name) or conn.allows_topic("write", name)):
        return Error.TOPIC_AUTHORIZATION_FAILED
    return partition_log(kafka, name, index)


def partition_log(kafka: KafkaContext, name: str, index: int) -> Found:
    topic = kafka.topics.find(name)
    partition = topic.partition(index) if topic is not None else None
    return Error.UNKNOWN_TOPIC_OR_PARTITION if partition is None else partition.log


def _list_one(committed: bool, found: Found, asked: Body) -> Body:
    index = asked["partition_index"]
    if isinstance(found, Error):
        return {"partition_index": index, "error_code": found}
    try:
        stat = found.stat()
        error = check_epoch(stat, asked["current_leader_epoch"])
        if error:
            return {"partition_index": index, "error_code": error}
        end = stat.last_stable if committed else stat.high_watermark
        offset, timestamp = place(found, stat, asked["timestamp"], end)
    except LogError as trouble:
        return {"partition_index": index, "error_code": error_of(trouble)}
    return {
        "partition_index": index,
        "offset": offset,
        "timestamp": timestamp,
        "leader_epoch": stat.leader_epoch if offset >= 0 else NO_EPOCH,
    }


def check_epoch(stat: LogStat, current: int) -> Error:
    """Does the client know the leader that we are?"""
    if current == NO_EPOCH or current == stat.leader_epoch:
        return Error.NONE
    older = current < stat.leader_epoch
    return Error.FENCED_LEADER_EPOCH if older else Error.UNKNOWN_LEADER_EPOCH


def place(log: Log, stat: LogStat, wanted: int, end: int) -> Place:
    """wanted: a time or a mark. end: what lies beyond isn't shown."""
    if wanted in (EARLIEST, EARLIEST_LOCAL):
        return stat.start_offset, -1
    if wanted == LATEST:
        return max(end, stat.start_offset), -1
    if wanted == LATEST_TIERED:
        return NOWHERE  # nothing is in remote storage
    if wanted == MAX_TIMESTAMP:
        found = _newest(log)
        wanted = found[1] if found else 0
    else:
        found = log.find_time(max(wanted, 0))
    if found is not None:
        found = _inside(log, found, wanted)
    return NOWHERE if found is None or found[0] >= end else found


def _inside(log: Log, found: Place, wanted: int) -> Place:
    """The log doesn't open compressed batches, and answers with the first offset of one."""
    batch = next(iter(log.read(found[0], max_bytes=1)), None)
    if batch is None or not batch.codec:
        return found
    try:
        records = decompress_records(batch.codec, batch.data[OVERHEAD:], LARGEST)
        return batch.find_time(records, found[0], wanted) or found
    except (NotDecompressed, LogError):
        return found


def _newest(log: Log) -> Place | None:
    """The first record with the highest timestamp: by halving, for looking up a time is cheap."""
    best = log.find_time(0)
    if best is None:
        return None
    low, high = best[1], LAST_TIME
    while high - low > 1:
        middle = (low + high) // 2
        found = log.find_time(middle)
        if found is None:
            high = middle
        else:
            best, low = found, max(middle, found[1])
    return best


def _end_of_epoch(found: Found, asked: Body) -> Body:
    index, epoch = asked["partition"], asked["leader_epoch"]
    if isinstance(found, Error):
        return {"partition": index, "error_code": found}
    try:
        stat = found.stat()
        error = check_epoch(stat, asked["current_leader_epoch"])
        if error:
            return {"partition": index, "error_code": error}
        if epoch < 0 or epoch > stat.leader_epoch:
            return {"partition": index, "leader_epoch": -1, "end_offset": -1}
        epoch, end = _halve(found, stat, epoch)
    except LogError as trouble:
        return {"partition": index, "error_code": error_of(trouble)}
    return {"partition": index, "leader_epoch": epoch, "end_offset": end}


def _halve(log: Log, stat: LogStat, epoch: int) -> tuple[int, int]:
    """The highest epoch up to that one of which there are records, and where the next begins."""
    if epoch == stat.leader_epoch:
        return epoch, stat.next_offset
    low, high = stat.start_offset, stat.high_watermark
    end, found = stat.next_offset, epoch
    while low < high:
        middle = (low + high) // 2
        batches = log.read(middle, end=stat.high_watermark, max_bytes=1)
        if not batches:
            high = middle
        elif batches[0].leader_epoch > epoch:
            # A read in a gap gives the batch behind it.
            end, high = batches[0].base_offset, middle
        else:
            found, low = batches[0].leader_epoch, batches[0].last_offset + 1
    return found, end


HANDLERS: dict[Api, Handler] = {
    Api.LIST_OFFSETS: list_offsets,
    Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
}
