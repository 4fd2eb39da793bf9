"""Routes of messages that C can't route: the first of its kind, or one that needs a look each time.

C remembers each answer: that a connection may write to an exchange, and the queues behind an
exchange and a key. A route that depends on more than that (headers, chance, CC and BCC) is asked
for with each message.
"""

from typing import Any

from pamqp.commands import Basic

from ottermq import eventlog
from ottermq.amqp.connection import Connection
from ottermq.amqp.context import AmqpContext
from ottermq.amqp.frames import headers_of
from ottermq.amqp.tables import Table
from ottermq.engine.events import DeadRouteWanted, RouteWanted
from ottermq.engine.types import RouteFlags
from ottermq.errors import PreconditionFailed
from ottermq.topology import Exchange, Route
from ottermq.topology.values import kind_of

METHOD = Basic.Publish.index
COPIES = ("CC", "BCC")
MOST_COPIES = 128  # keys in both


def route(conn: Connection, event: RouteWanted) -> None:
    """Publish to these queues. Raises what closes the channel instead."""
    context, name, key = conn.context, _text(event.exchange), _text(event.key)
    conn.check("write", "exchange", name)
    exchange = context.topology.publishable(conn.vhost, name)
    headers = headers_of(event.properties)
    copies = _copies(headers)
    salt = _check_topics(conn, exchange, (key, *copies))
    context.engine.may_publish(conn.id, event.exchange, salt, by_event=not exchange.router.by_key)
    done = False
    while not done:
        generation = context.engine.route_generation
        found = _route(context, exchange, key, headers, event.properties, copies)
        queues, flags = _where(exchange, found)
        if copies:
            flags &= ~RouteFlags.CACHE
        done = context.engine.publish_route(conn.id, event.channel, queues, flags, generation)


def dead_route(context: AmqpContext, event: DeadRouteWanted) -> None:
    """The route of messages that die in a queue, or whose delay is over."""
    source = context.queues.by_id(event.queue)
    delayed = context.queues.delayed(event.queue)
    thing = source or delayed
    if thing is None:
        return  # gone meanwhile, and its messages with it
    name, key = _text(event.exchange), _text(event.key)
    headers = headers_of(event.properties)
    # A key of the queue's own takes the place of all the message had.
    keeps_copies = source is None or context.topology.effective(source).dlrk is None
    copies = _copies(headers, strict=False) if keeps_copies else ()
    done = False
    while not done:
        generation = context.engine.route_generation
        queues: list[int] = []
        flags = RouteFlags.NONE
        exchange = context.topology.find_exchange(thing.vhost, name)
        if exchange is not None:
            try:
                found = _route(context, exchange, key, headers, event.properties, copies)
            except PreconditionFailed as error:  # its publisher is long gone
                eventlog.warning(
                    "dead letter not routed", vhost=thing.vhost, exchange=name, error=error
                )
            else:
                queues, flags = _where(exchange, found)
            if copies:
                flags &= ~RouteFlags.CACHE
        done = context.engine.dead_route(event.queue, queues, flags, generation)


def _route(
    context: AmqpContext,
    exchange: Exchange,
    key: str,
    headers: Table,
    properties: bytes,
    copies: tuple[str, ...],
) -> Route:
    known = {} if exchange.router.by_key else _properties(properties)
    context.queues.routed(exchange)
    return context.topology.route(exchange.vhost, exchange.name, key, headers, known, also=copies)


def _where(exchange: Exchange, found: Route) -> tuple[list[int], RouteFlags]:
    """The queues; before them the place where a delayed exchange's messages wait, and C sees by
    their x-delay whether they have to."""
    queues = [queue.id for queue in found.queues]
    flags = RouteFlags.CACHE if found.cacheable and not exchange.is_default else RouteFlags.NONE
    if found.delayed:
        return [exchange.id, *queues], flags | RouteFlags.DELAY
    return queues, flags


def _check_topics(conn: Connection, exchange: Exchange, keys: tuple[str, ...]) -> int:
    """The salt of what C may remember: 0, or the user's number when each key must be asked for."""
    permissions, user = conn.context.auth.permissions, conn.whose()
    if exchange.type != "topic":
        return 0
    if not permissions.has_topic_permissions(user, conn.vhost, exchange.name):
        return 0
    for key in keys:
        permissions.check_topic(user, conn.vhost, exchange.name, "write", key)
    return conn.context.user_number(user.name)


def _copies(headers: Table, strict: bool = True) -> tuple[str, ...]:
    """The keys in the CC and BCC headers, which must be lists; what is no text there is no key.

    strict: for a publisher, which gets an error; else only the good ones count."""
    found: list[str] = []
    for name in COPIES:
        keys = headers.get(name)
        if isinstance(keys, list):
            found += [key for key in keys if isinstance(key, str)]
        elif name in headers and strict:
            raise PreconditionFailed(
                f'invalid message: {{unacceptable_type_in_header,"{name}",{kind_of(keys)}}}'
            )
    if len(found) > MOST_COPIES and strict:
        raise PreconditionFailed(
            f"invalid message: CC and BCC hold {len(found)} keys, of {MOST_COPIES} at most"
        )
    return tuple(found[:MOST_COPIES])


def _properties(raw: bytes) -> dict[str, Any]:
    properties = Basic.Properties()
    try:
        properties.unmarshal(int.from_bytes(raw[:2], "big"), raw[2:])
    except (ValueError, IndexError, OverflowError, OSError, RecursionError):
        return {}
    return {name: value for name, value in properties if value is not None}


def _text(raw: bytes) -> str:
    """Keys are bytes to AMQP; what isn't UTF-8 is carried through all the same."""
    return raw.decode(errors="surrogateescape")
