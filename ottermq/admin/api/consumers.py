"""AMQP consumers, by the queues that they are on."""

from collections.abc import Iterable
from dataclasses import dataclass

from ottermq.admin.api.call import Call, Json
from ottermq.admin.api.connections import name_of
from ottermq.admin.api.listing import in_slices, listing
from ottermq.admin.api.nodes import node_name
from ottermq.admin.api.router import Route
from ottermq.admin.api.vhosts import entered
from ottermq.admin.context import AdminContext
from ottermq.admin.messages import Answer
from ottermq.engine.types import Consumer
from ottermq.topology import Queue


@dataclass(frozen=True)
class OnQueue:
    queue: Queue
    consumer: Consumer

    @property
    def tag(self) -> str:
        return self.consumer.tag.decode(errors="replace")

    def row(self, context: AdminContext) -> Json:
        consumer = self.consumer
        return {
            "consumer_tag": self.tag,
            "queue": {"name": self.queue.name, "vhost": self.queue.vhost},
            "ack_required": not consumer.no_ack,
            "exclusive": consumer.exclusive,
            "prefetch_count": consumer.prefetch,
            "active": consumer.active,
            "activity_status": "single_active" if consumer.active else "waiting",
            "arguments": {"x-priority": consumer.priority} if consumer.priority else {},
            "consumer_timeout": None,
            "channel_details": _channel(context, consumer),
        }


def _channel(context: AdminContext, consumer: Consumer) -> Json:
    conn = context.amqp.connections.get(consumer.conn)
    if conn is None:  # it has just gone
        return {}
    name = name_of(context, conn)
    host, _, port = conn.peer.rpartition(":")
    return {
        "name": f"{name} ({consumer.channel})",
        "number": consumer.channel,
        "user": conn.user_name,
        "connection_name": name,
        "peer_host": host.strip("[]"),
        "peer_port": int(port),
        "node": node_name(),
    }


def of_queue(context: AdminContext, queue: Queue) -> list[OnQueue]:
    return [OnQueue(queue, each) for each in context.engine.consumers(queue.id)]


async def consumers_of(context: AdminContext, vhosts: Iterable[str]) -> list[OnQueue]:
    hosts = context.topology.vhosts
    queues = [queue for vhost in vhosts for queue in hosts[vhost].queues.values()]
    found: list[OnQueue] = []
    async for queue in in_slices(queues):
        if context.engine.queue_stat(queue.id).consumers:
            found += of_queue(context, queue)
    return found


async def _listed(call: Call, vhosts: Iterable[str]) -> Answer:
    found = await consumers_of(call.context, vhosts)
    return await listing(call, found, lambda each: each.row(call.context), lambda each: each.tag)


async def all_of_them(call: Call) -> Answer:
    return await _listed(call, entered(call))


async def of_vhost(call: Call) -> Answer:
    return await _listed(call, [call.vhost])


ROUTES = (
    Route("consumers", get=all_of_them),
    Route("consumers/{vhost}", get=of_vhost),
)
