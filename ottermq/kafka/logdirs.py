"""Where the logs lie and how large they are, for tools that ask."""

import shutil
from collections.abc import Coroutine
from typing import Any

import trio

from ottermq.kafka.api import Api
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error
from ottermq.kafka.request import Body, Handler, Request
from ottermq.kafka.topics import Topic
from ottermq.wal import LogError


def log_dir(kafka: KafkaContext) -> str:
    """The only one there is."""
    return str(kafka.store.data.resolve())


def describe_log_dirs(kafka: KafkaContext, request: Request) -> Body | Coroutine[Any, Any, Body]:
    if not request.conn.is_administrator:
        return {"error_code": Error.CLUSTER_AUTHORIZATION_FAILED, "results": []}
    return _describe(kafka, _asked(kafka, request))


def _asked(kafka: KafkaContext, request: Request) -> list[tuple[Topic, list[int]]]:
    topics = request.body["topics"]
    if topics is None:
        return [(topic, list(range(len(topic.partitions)))) for topic in kafka.topics.all()]
    found = [(kafka.topics.find(each["topic"]), each["partitions"]) for each in topics]
    return [(topic, partitions) for topic, partitions in found if topic is not None]


async def _describe(kafka: KafkaContext, topics: list[tuple[Topic, list[int]]]) -> Body:
    described = [
        {"name": topic.name, "partitions": _partitions(topic, indexes)} for topic, indexes in topics
    ]
    usage = await trio.to_thread.run_sync(shutil.disk_usage, kafka.store.data)
    result = {
        "log_dir": log_dir(kafka),
        "topics": described,
        "total_bytes": usage.total,
        "usable_bytes": usage.free,
    }
    return {"results": [result]}


def _partitions(topic: Topic, indexes: list[int]) -> list[Body]:
    found = []
    for index in indexes:
        partition = topic.partition(index)
        if partition is None:
            continue
        try:
            size = partition.log.stat().size_bytes
        except LogError:
            continue  # deleted meanwhile
        found.append({"partition_index": index, "partition_size": size, "offset_lag": 0})
    return found


HANDLERS: dict[Api, Handler] = {Api.DESCRIBE_LOG_DIRS: describe_log_dirs}
