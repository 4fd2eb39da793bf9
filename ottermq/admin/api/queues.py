"""Queues and streams: seen, declared, deleted, purged."""

import time
from collections.abc import Iterable

from ottermq.admin.api import stats
from ottermq.admin.api.call import CREATED, DONE, Call, Json, not_found
from ottermq.admin.api.connections import name_of
from ottermq.admin.api.consumers import of_queue
from ottermq.admin.api.listing import listing, shaped
from ottermq.admin.api.nodes import node_name
from ottermq.admin.api.router import Route
from ottermq.admin.api.vhosts import entered
from ottermq.admin.messages import Answer
from ottermq.operations import queues
from ottermq.operations.acts import Act, removed, saved
from ottermq.topology import Queue, QueueType
from ottermq.topology.names import stripped
from ottermq.topology.policy import merged
from ottermq.topology.topology import QUEUE_TYPE


def row(call: Call, queue: Queue) -> Json:
    context = call.context
    stat = context.engine.queue_stat(queue.id)
    policy = operator = None
    if queue.vhost in context.topology.vhosts:  # it may have gone while the list was made
        policy = context.topology.policy_of(queue)
        operator = context.topology.policy_of(queue, operator=True)
    messages, size = stat.ready + stat.unacked, stat.ready_bytes + stat.unacked_bytes
    idle_since = stats.iso(time.time() - stat.idle_ms / 1000)
    found = {
        "name": queue.name,
        "vhost": queue.vhost,
        "type": queue.type.value,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.exclusive,
        "arguments": dict(queue.arguments),
        "node": node_name(),
        "state": "running",
        "policy": policy.name if policy else None,
        "operator_policy": operator.name if operator else None,
        "effective_policy_definition": dict(merged(policy, operator)),
        "consumers": stat.consumers,
        "consumer_capacity": 0,
        "consumer_utilisation": 0,
        "idle_since": idle_since,
        "head_message_timestamp": None if stat.head_timestamp < 0 else stat.head_timestamp // 1000,
        **stats.with_rates(
            messages=messages,
            messages_ready=stat.ready,
            messages_unacknowledged=stat.unacked,
            reductions=0,
        ),
        "messages_persistent": messages if queue.durable else 0,
        "messages_ram": 0,
        "messages_ready_ram": 0,
        "messages_unacknowledged_ram": 0,
        "messages_paged_out": 0,
        "message_bytes": size,
        "message_bytes_ready": stat.ready_bytes,
        "message_bytes_unacknowledged": stat.unacked_bytes,
        "message_bytes_persistent": size if queue.durable else 0,
        "message_bytes_ram": 0,
        "message_bytes_paged_out": 0,
        "message_stats": stats.of_queues([stat]),
        "memory": 0,
        "garbage_collection": {"minor_gcs": 0},
        "exclusive_consumer_tag": None,
        "single_active_consumer_tag": None,
        "recoverable_slaves": None,
    }
    if queue.type is not QueueType.CLASSIC:
        found |= {"leader": node_name(), "members": [node_name()], "online": [node_name()]}
    if queue.owner is not None:
        found["owner_pid_details"] = _owner(call, queue.owner)
    return found


def _owner(call: Call, owner: int) -> Json:
    conn = call.context.amqp.connections.get(owner)
    if conn is None:  # it has just gone
        return {}
    host, _, port = conn.peer.rpartition(":")
    return {
        "name": name_of(call.context, conn),
        "peer_host": host.strip("[]"),
        "peer_port": int(port),
    }


def _whole(call: Call, queue: Queue) -> Json:
    """With what a list leaves out."""
    consumers = of_queue(call.context, queue)
    alone = [each.tag for each in consumers if each.consumer.exclusive]
    single = call.context.topology.effective(queue).single_active
    active = [each.tag for each in consumers if single and each.consumer.active]
    return row(call, queue) | {
        "consumer_details": [each.row(call.context) for each in consumers],
        "exclusive_consumer_tag": alone[0] if alone else None,
        "single_active_consumer_tag": active[0] if active else None,
        "deliveries": [],
        "incoming": [],
        "backing_queue_status": {},
    }


async def _listed(call: Call, vhosts: Iterable[str]) -> Answer:
    hosts = call.context.topology.vhosts
    found = [hosts[vhost].queues[name] for vhost in vhosts for name in sorted(hosts[vhost].queues)]
    return await listing(call, found, lambda queue: row(call, queue), lambda queue: queue.name)


async def all_of_them(call: Call) -> Answer:
    return await _listed(call, entered(call))


async def of_vhost(call: Call) -> Answer:
    return await _listed(call, [call.vhost])


def find(call: Call) -> Queue:
    """Some tools write a space as a plus."""
    known, name = call.context.topology.vhosts[call.vhost].queues, call.path["name"]
    found = known.get(name) or known.get(name.replace("+", " "))
    if found is None:
        raise not_found()
    return found


def one(call: Call) -> Json:
    return shaped(call, _whole(call, find(call)))


async def put(call: Call) -> Answer:
    body, name = call.body(), stripped(call.path["name"])
    arguments = body.table("arguments")
    if kind := body.maybe_text("type"):
        arguments = {QUEUE_TYPE: kind, **arguments}
    change = queues.declare(
        call.context,
        call,
        name,
        durable=body.flag("durable", False),
        exclusive=False,
        auto_delete=body.flag("auto_delete", False),
        arguments=arguments,
    )
    assert change.queue is not None
    await saved(call.context, call, change, queues.declaration(change.queue))
    return CREATED if change.created else DONE


async def delete(call: Call) -> Answer:
    queue = find(call)
    change, messages = queues.delete(
        call.context,
        call,
        queue.name,
        if_unused=call.flag("if-unused"),
        if_empty=call.flag("if-empty"),
    )
    await removed(call.context, call, change, Act("queue.delete", queue.name, messages=messages))
    return DONE


async def purge(call: Call) -> Answer:
    queue = queues.purgeable(call.context, call, find(call).name)
    await queues.purge(call.context, call, queue)
    return DONE


ROUTES = (
    Route("queues", get=all_of_them),
    Route("queues/detailed", get=all_of_them),
    Route("queues/{vhost}", get=of_vhost),
    Route("queues/{vhost}/{name}", get=one, put=put, delete=delete),
    Route("queues/{vhost}/{name}/contents", delete=purge),
)
