"""Counters in RabbitMQ's shape: each figure with the rate of its change beside it.

Rates are 0 as long as nobody samples the engine's counters.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from ottermq.admin.api.call import Json
from ottermq.admin.api.listing import in_slices
from ottermq.engine.engine import Engine
from ottermq.engine.types import EngineStat, QueueStat
from ottermq.topology import Queue


def with_rates(**counts: float) -> Json:
    found: Json = {}
    for name, count in counts.items():
        found[name] = count
        found[f"{name}_details"] = {"rate": 0.0}
    return found


def of_queues(stats: Iterable[QueueStat]) -> Json:
    """The engine counts deliveries of all kinds together."""
    known = list(stats)
    delivered = sum(each.delivered for each in known)
    return with_rates(
        publish=sum(each.published for each in known),
        deliver_get=delivered,
        deliver=delivered,
        deliver_no_ack=0,
        get=0,
        get_no_ack=0,
        get_empty=0,
        ack=sum(each.acked for each in known),
        redeliver=sum(each.redelivered for each in known),
    )


async def stats_of(engine: Engine, queues: Iterable[Queue]) -> list[QueueStat]:
    return [engine.queue_stat(queue.id) async for queue in in_slices(queues)]


def of_broker(stat: EngineStat) -> Json:
    return with_rates(
        publish=stat.published,
        confirm=stat.confirmed,
        return_unroutable=stat.returned,
        drop_unroutable=0,
        deliver_get=stat.delivered,
        deliver=stat.delivered,
        deliver_no_ack=0,
        get=0,
        get_no_ack=0,
        get_empty=0,
        ack=stat.acked,
        redeliver=0,
        disk_reads=0,
        disk_writes=0,
    )


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
