"""Vhosts: seen by those who may enter them, made and deleted by administrators."""

from ottermq.admin.api import stats
from ottermq.admin.api.call import CREATED, DONE, Call, Json, existing
from ottermq.admin.api.listing import listing, shaped
from ottermq.admin.api.nodes import node_name
from ottermq.admin.api.router import Route, Rule
from ottermq.admin.messages import Answer
from ottermq.auth import Permission
from ottermq.definitions.fields import Item
from ottermq.definitions.parse import vhost_of
from ottermq.engine.types import QueueStat
from ottermq.topology import VHost


def entered(call: Call) -> list[str]:
    """The vhosts whose objects the user sees: all, or those that it may enter."""
    names = sorted(call.context.topology.vhosts)
    return names if call.is_administrator else [each for each in names if call.may_enter(each)]


def row(host: VHost, seen: list[QueueStat]) -> Json:
    """seen: of its queues."""
    options = host.options
    default = options.default_queue_type or "classic"
    ready, unacked = sum(each.ready for each in seen), sum(each.unacked for each in seen)
    return {
        "name": host.name,
        "description": options.description,
        "tags": list(options.tags),
        "default_queue_type": default,
        "metadata": {
            "description": options.description,
            "tags": list(options.tags),
            "default_queue_type": default,
        },
        "protected_from_deletion": False,
        "tracing": False,
        "cluster_state": {node_name(): "running"},
        **stats.with_rates(
            messages=ready + unacked,
            messages_ready=ready,
            messages_unacknowledged=unacked,
            recv_oct=0,
            send_oct=0,
        ),
        "message_stats": stats.of_queues(seen)
        | stats.with_rates(confirm=0, return_unroutable=0, drop_unroutable=0),
    }


async def all_of_them(call: Call) -> Answer:
    hosts = call.context.topology.vhosts
    seen = [hosts[name] for name in sorted(hosts) if call.sees_all or call.may_enter(name)]
    stat = {host.name: await _stats(call, host) for host in seen}
    return await listing(
        call, seen, lambda host: row(host, stat[host.name]), lambda host: host.name
    )


async def _stats(call: Call, host: VHost) -> list[QueueStat]:
    return await stats.stats_of(call.context.engine, host.queues.values())


async def one(call: Call) -> Json:
    host = existing(call.context.topology.vhosts.get(call.path["name"]))
    return shaped(call, row(host, await _stats(call, host)))


async def put(call: Call) -> Answer:
    """Who makes one may do everything in it."""
    name, topology = call.path["name"], call.context.topology
    record = vhost_of(Item({**call.body().fields, "name": name}))
    change = topology.create_vhost(name, record.options)
    await topology.pending.save(change)
    if not change.created:
        call.audit("vhost.update", name)
        return DONE
    call.audit("vhost.create", name)
    await call.context.auth.permissions.set(Permission(call.user.name, name, ".*", ".*", ".*"))
    return CREATED


async def delete(call: Call) -> Answer:
    name = call.path["name"]
    existing(call.context.topology.vhosts.get(name))
    await call.context.queues.delete_vhost(name)
    await call.context.auth.delete_vhost(name)
    call.audit("vhost.delete", name)
    return DONE


ROUTES = (
    Route("vhosts", get=all_of_them),
    Route("vhosts/{name}", Rule.ADMINISTRATOR, get=one, put=put, delete=delete),
)
