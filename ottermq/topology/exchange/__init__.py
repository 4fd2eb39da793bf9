"""Exchanges: how each type routes by its bindings. One type per file.

A type is a `Router`: it gets each binding that comes and goes, and returns the destinations of a
message. `TYPES` maps the names clients use to them. Walking from exchange to exchange, the
alternate ones included, is topology.py's.
"""

from collections.abc import Callable

from ottermq.errors import PreconditionFailed
from ottermq.topology.exchange.binding import Binding, Destination
from ottermq.topology.exchange.consistent_hash import ConsistentHash
from ottermq.topology.exchange.delayed import DELAYED_TYPE, inner_type
from ottermq.topology.exchange.direct import Direct
from ottermq.topology.exchange.exchange import Exchange
from ottermq.topology.exchange.fanout import Fanout
from ottermq.topology.exchange.headers import Headers
from ottermq.topology.exchange.local_random import LocalRandom
from ottermq.topology.exchange.modulus_hash import ModulusHash
from ottermq.topology.exchange.random import Random
from ottermq.topology.exchange.router import Message, Router
from ottermq.topology.exchange.topic import Topic
from ottermq.topology.values import Table

TYPES: dict[str, Callable[[Table], Router]] = {
    "direct": Direct,
    "fanout": Fanout,
    "headers": Headers,
    "topic": Topic,
    "x-consistent-hash": ConsistentHash,
    "x-local-random": LocalRandom,
    "x-modulus-hash": ModulusHash,
    "x-random": Random,
}

# Name and type of those that every vhost has. The first is the default exchange.
BUILT_IN = (
    ("", "direct"),
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
    ("amq.rabbitmq.trace", "topic"),
    ("amq.topic", "topic"),
)


def router_for(type: str, arguments: Table) -> Router:
    """PreconditionFailed: no such type, or not with these arguments."""
    routes_as = inner_type(arguments) if type == DELAYED_TYPE else type
    if routes_as not in TYPES:
        raise PreconditionFailed(f"unknown exchange type '{routes_as}'")
    return TYPES[routes_as](arguments)


__all__ = [
    "BUILT_IN",
    "DELAYED_TYPE",
    "TYPES",
    "Binding",
    "Destination",
    "Exchange",
    "Message",
    "Router",
    "router_for",
]
