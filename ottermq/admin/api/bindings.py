"""Bindings, each with the properties key that names it among those of the same two ends.

~              no routing key, no arguments
a+b            quote_plus(routing key)
a+b~7Hq0…      and a hash of the arguments
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Literal, NamedTuple
from urllib.parse import quote, quote_plus

from ottermq.admin.api import exchanges, queues
from ottermq.admin.api.call import DONE, Call, Json, not_found
from ottermq.admin.api.listing import listing, shaped
from ottermq.admin.api.router import Route
from ottermq.admin.api.vhosts import entered
from ottermq.admin.context import AdminContext
from ottermq.admin.messages import Answer
from ottermq.operations.acts import removed, saved
from ottermq.operations.bindings import Ends, change_binding
from ottermq.topology import Binding, Queue
from ottermq.topology.values import Table, dump

Kind = Literal["queue", "exchange"]
KINDS: dict[str, Kind] = {"q": "queue", "e": "exchange"}


class Bound(NamedTuple):
    """Every queue is bound to the default exchange, too, and nobody wrote that down."""

    vhost: str
    source: str
    kind: Kind
    destination: str
    key: str
    arguments: Table

    @property
    def properties_key(self) -> str:
        return properties_key(self.key, self.arguments)

    def row(self) -> Json:
        return {
            "source": self.source,
            "vhost": self.vhost,
            "destination": self.destination,
            "destination_type": self.kind,
            "routing_key": self.key,
            "arguments": dict(self.arguments),
            "properties_key": self.properties_key,
        }


def properties_key(key: str, arguments: Table) -> str:
    if not arguments:
        return quote_plus(key).replace("~", "%7E") if key else "~"
    digest = hashlib.sha256(dump(arguments).encode()).digest()[:9]
    return f"{quote_plus(key).replace('~', '%7E')}~{base64.urlsafe_b64encode(digest).decode()}"


def _of(binding: Binding) -> Bound:
    kind: Kind = "queue" if isinstance(binding.destination, Queue) else "exchange"
    source = binding.source
    return Bound(
        source.vhost, source.name, kind, binding.destination.name, binding.key, binding.arguments
    )


def _by_default(queue: Queue) -> Bound:
    return Bound(queue.vhost, "", "queue", queue.name, queue.name, {})


def _of_vhosts(context: AdminContext, vhosts: Iterable[str]) -> Iterator[Bound]:
    for name in vhosts:
        host = context.topology.vhosts[name]
        yield from (_by_default(queue) for queue in host.queues.values())
        for exchange in host.exchanges.values():
            yield from (_of(binding) for binding in exchange.bindings.values())


async def _listed(call: Call, found: Iterable[Bound]) -> Answer:
    ordered = sorted(found, key=lambda each: each[:5])
    return await listing(call, ordered, Bound.row, lambda each: each.source)


async def all_of_them(call: Call) -> Answer:
    return await _listed(call, _of_vhosts(call.context, entered(call)))


async def of_vhost(call: Call) -> Answer:
    return await _listed(call, _of_vhosts(call.context, [call.vhost]))


async def of_queue(call: Call) -> Answer:
    queue = queues.find(call)
    found = [_of(binding) for binding in call.context.topology.bindings_to(queue)]
    return await _listed(call, [_by_default(queue), *found])


async def from_exchange(call: Call) -> Answer:
    exchange = exchanges.find(call)
    if exchange.is_default:
        known = call.context.topology.vhosts[call.vhost].queues.values()
        return await _listed(call, [_by_default(queue) for queue in known])
    return await _listed(call, [_of(binding) for binding in exchange.bindings.values()])


async def to_exchange(call: Call) -> Answer:
    found = call.context.topology.bindings_to(exchanges.find(call))
    return await _listed(call, [_of(binding) for binding in found])


def _between(call: Call) -> list[Bound]:
    """Those of the source and the destination that the path names, which have to be there."""
    host = call.context.topology.vhosts[call.vhost]
    source, name = exchanges.name_in(call.path["source"]), call.path["destination"]
    kind = KINDS.get(call.path["kind"])
    destination = host.queues.get(name) if kind == "queue" else host.exchanges.get(name)
    exchange = host.exchanges.get(source)
    if kind is None or exchange is None or destination is None:
        raise not_found()
    if exchange.is_default:
        return [_by_default(destination)] if isinstance(destination, Queue) else []
    bound = call.context.topology.bindings_to(destination)
    return [_of(binding) for binding in bound if binding.source is exchange]


async def between(call: Call) -> Answer:
    return await _listed(call, _between(call))


def _find(call: Call) -> Bound:
    for bound in _between(call):
        if bound.properties_key == call.path["properties"]:
            return bound
    raise not_found()


def one(call: Call) -> Json:
    return shaped(call, _find(call).row())


async def post(call: Call) -> Answer:
    """Location ends with the properties key: Terraform and others take it from there."""
    kind = KINDS.get(call.path["kind"])
    if kind is None:
        raise not_found()
    body = call.body()
    source, destination = exchanges.name_in(call.path["source"]), call.path["destination"]
    key, arguments = body.get("routing_key", str, ""), body.table("arguments")
    ends = Ends(source, kind, destination, key, arguments)
    change = change_binding(call.context, call, ends)
    act = ends.act("queue.bind") if kind == "queue" else ends.act("exchange.bind")
    await saved(call.context, call, change, act)
    place = f"{quote(destination, safe='')}/{quote(properties_key(key, arguments), safe='~')}"
    return Answer(HTTPStatus.CREATED, headers={"Location": place})


async def delete(call: Call) -> Answer:
    bound = _find(call)
    ends = Ends(bound.source, bound.kind, bound.destination, bound.key, bound.arguments)
    change = change_binding(call.context, call, ends, unbind=True)
    act = ends.act("queue.unbind") if bound.kind == "queue" else ends.act("exchange.unbind")
    await removed(call.context, call, change, act)
    return DONE


ENDS = "bindings/{vhost}/e/{source}/{kind}/{destination}"
ROUTES = (
    Route("bindings", get=all_of_them),
    Route("bindings/{vhost}", get=of_vhost),
    Route(ENDS, get=between, post=post),
    Route(ENDS + "/{properties}", get=one, delete=delete),
    Route("queues/{vhost}/{name}/bindings", get=of_queue),
    Route("exchanges/{vhost}/{name}/bindings/source", get=from_exchange),
    Route("exchanges/{vhost}/{name}/bindings/destination", get=to_exchange),
)
