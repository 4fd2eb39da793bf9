"""What queue.bind, exchange.bind and their opposites have in common: who may tie what to what."""

from dataclasses import dataclass
from typing import Literal

from ottermq.amqp.channel import Channel
from ottermq.errors import AccessRefused
from ottermq.topology import Change
from ottermq.topology.values import Table

REPLY_TO = "amq.rabbitmq.reply-to"


@dataclass(frozen=True)
class Ends:
    source: str
    kind: Literal["queue", "exchange"]
    destination: str
    key: str
    arguments: Table


def change_binding(channel: Channel, ends: Ends, *, unbind: bool = False) -> Change:
    """Write access to where messages go, read access to where they come from."""
    conn, topology = channel.conn, channel.room.topology
    if ends.kind == "queue" and ends.destination.startswith(REPLY_TO):
        raise AccessRefused("cannot bind or unbind to a volatile (direct reply-to) queue")
    conn.check("write", ends.kind, ends.destination)
    if ends.source:  # the default exchange is refused by the topology, whoever asks
        conn.check("read", "exchange", ends.source)
    exchange = topology.find_exchange(conn.vhost, ends.source)
    if exchange is not None and exchange.type == "topic":
        channel.room.auth.permissions.check_topic(
            conn.whose(), conn.vhost, ends.source, "read", ends.key
        )
    act = topology.unbind if unbind else topology.bind
    return act(
        conn.vhost,
        ends.source,
        ends.destination,
        ends.key,
        ends.arguments,
        kind=ends.kind,
        connection=conn.id,
    )
