"""AMQP channels, each with the consumers on it."""

from collections.abc import Iterable

from ottermq.admin.api import stats
from ottermq.admin.api.call import Call, Json, not_found
from ottermq.admin.api.connections import amqp, find, name_of
from ottermq.admin.api.consumers import OnQueue, consumers_of
from ottermq.admin.api.listing import listing, shaped
from ottermq.admin.api.nodes import node_name
from ottermq.admin.api.router import Route
from ottermq.admin.messages import Answer
from ottermq.amqp.channel import Channel, Mode
from ottermq.amqp.connection import Connection

Held = dict[tuple[int, int], list[OnQueue]]  # consumers by connection and channel


async def _held(call: Call) -> Held:
    found: Held = {}
    for each in await consumers_of(call.context, call.context.topology.vhosts):
        found.setdefault((each.consumer.conn, each.consumer.channel), []).append(each)
    return found


def name(call: Call, channel: Channel) -> str:
    return f"{name_of(call.context, channel.conn)} ({channel.number})"


def row(call: Call, channel: Channel, held: Held) -> Json:
    conn = channel.conn
    here = held.get((conn.id, channel.number), [])
    unacked = sum(each.consumer.unacked for each in here)
    stat = call.context.engine.conn_stat(conn.id)
    if stat is not None and len(conn.channels) == 1:
        unacked = stat.unacked  # those that were got, too
    host, _, port = conn.peer.rpartition(":")
    return {
        "name": name(call, channel),
        "number": channel.number,
        "node": node_name(),
        "vhost": conn.vhost,
        "user": conn.user_name,
        "user_who_performed_action": conn.user_name,
        "state": "running",
        "confirm": channel.mode is Mode.CONFIRM,
        "transactional": channel.mode is Mode.TX,
        "prefetch_count": channel.prefetch,
        "global_prefetch_count": channel.limit,
        "consumer_count": len(here),
        "messages_unacknowledged": unacked,
        "messages_unconfirmed": 0,
        "messages_uncommitted": 0,
        "acks_uncommitted": 0,
        "pending_raft_commands": 0,
        "client_flow_blocked": False,
        "connection_details": {
            "name": name_of(call.context, conn),
            "peer_host": host.strip("[]"),
            "peer_port": int(port),
        },
        "message_stats": {},
        "garbage_collection": {},
        **stats.with_rates(reductions=0),
    }


def _channels(connections: Iterable[Connection]) -> list[Channel]:
    found = [channel for conn in connections for channel in conn.channels.values()]
    return sorted(found, key=lambda each: (each.conn.peer, each.number))


async def _listed(call: Call, connections: Iterable[Connection]) -> Answer:
    held = await _held(call)
    return await listing(
        call,
        _channels(connections),
        lambda channel: row(call, channel, held),
        lambda channel: name(call, channel),
    )


async def all_of_them(call: Call) -> Answer:
    return await _listed(call, amqp(call))


async def of_vhost(call: Call) -> Answer:
    return await _listed(call, [conn for conn in amqp(call) if conn.vhost == call.vhost])


async def of_connection(call: Call) -> Answer:
    conn = find(call)
    return await _listed(call, [conn] if isinstance(conn, Connection) else [])


async def one(call: Call) -> Json:
    held = await _held(call)
    for channel in _channels(amqp(call)):
        if name(call, channel) == call.path["name"]:
            here = held.get((channel.conn.id, channel.number), [])
            details = [each.row(call.context) for each in here]
            extra = {"consumer_details": details, "publishes": [], "deliveries": []}
            return shaped(call, row(call, channel, held) | extra)
    raise not_found()


ROUTES = (
    Route("channels", get=all_of_them),
    Route("channels/{name}", get=one),
    Route("connections/{name}/channels", get=of_connection),
    Route("vhosts/{vhost}/channels", get=of_vhost),
)
