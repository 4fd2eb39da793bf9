"""Exchanges: seen, declared, deleted. In a path, amq.default is the one without a name."""

from collections.abc import Iterable

from ottermq.admin.api import stats
from ottermq.admin.api.call import CREATED, DONE, Call, Json, existing
from ottermq.admin.api.listing import listing, shaped
from ottermq.admin.api.router import Route
from ottermq.admin.api.vhosts import entered
from ottermq.admin.messages import Answer
from ottermq.operations import exchanges
from ottermq.operations.acts import Act, removed, saved
from ottermq.topology import Exchange
from ottermq.topology.names import stripped

DEFAULT = "amq.default"
INTERNAL_USER = "rmq-internal"


def name_in(text: str) -> str:
    return "" if text == DEFAULT else text


def row(call: Call, exchange: Exchange) -> Json:
    policy, topology = None, call.context.topology
    if exchange.vhost in topology.vhosts:  # it may have gone while the list was made
        policy = topology.policy_of(exchange)
    return {
        "name": exchange.name,
        "vhost": exchange.vhost,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": dict(exchange.arguments),
        "policy": policy.name if policy else None,
        "user_who_performed_action": INTERNAL_USER,
        "message_stats": stats.with_rates(publish_in=0, publish_out=0),
    }


async def _listed(call: Call, vhosts: Iterable[str]) -> Answer:
    hosts = call.context.topology.vhosts
    found = [
        hosts[vhost].exchanges[name] for vhost in vhosts for name in sorted(hosts[vhost].exchanges)
    ]
    return await listing(
        call, found, lambda exchange: row(call, exchange), lambda exchange: exchange.name
    )


async def all_of_them(call: Call) -> Answer:
    return await _listed(call, entered(call))


async def of_vhost(call: Call) -> Answer:
    return await _listed(call, [call.vhost])


def find(call: Call) -> Exchange:
    known = call.context.topology.vhosts[call.vhost].exchanges
    return existing(known.get(name_in(call.path["name"])))


def one(call: Call) -> Json:
    return shaped(call, row(call, find(call)) | {"incoming": [], "outgoing": []})


async def put(call: Call) -> Answer:
    body, name = call.body(), stripped(name_in(call.path["name"]))
    kind = body.get("type", str, "direct")
    change = exchanges.declare(
        call.context,
        call,
        name,
        kind,
        durable=body.flag("durable", False),
        auto_delete=body.flag("auto_delete", False),
        internal=body.flag("internal", False),
        arguments=body.table("arguments"),
    )
    await saved(call.context, call, change, Act("exchange.declare", name, type=kind))
    return CREATED if change.created else DONE


async def delete(call: Call) -> Answer:
    name = find(call).name
    change = exchanges.delete(call.context, call, name, if_unused=call.flag("if-unused"))
    await removed(call.context, call, change, Act("exchange.delete", name))
    return DONE


ROUTES = (
    Route("exchanges", get=all_of_them),
    Route("exchanges/{vhost}", get=of_vhost),
    Route("exchanges/{vhost}/{name}", get=one, put=put, delete=delete),
)
