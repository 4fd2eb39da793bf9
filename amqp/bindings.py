"""The common part of queue.bind, exchange.bind and their opposites: the permissions they need."""

from dataclasses import dataclass
from typing import Literal

from ottermq.amqp.acts import Act
from ottermq.amqp.channel import Channel
from ottermq.errors import AccessRefused
from ottermq.topology import Change, Exchange, QueueType
from ottermq.topology.super_streams import may_join
from ottermq.topology.values import Table

REPLY_TO = "amq.rabbitmq.reply-to"


@dataclass(frozen=True)
class Ends:
    source: str
    kind: Literal["queue", "exchange"]
    destination: str
    key: str
    arguments: Table

    def act(self, name: str) -> Act:
        return Act(name, self.destination, source=self.source, key=self.key)


def _check_super_stream(channel: Channel, exchange: Exchange | None, ends: Ends) -> None:
    """A stream of a super stream is read, trimmed and deleted as a part of it by Kafka's clients,
    who ask for rights on the super stream's name: only a user who may configure the stream may
    put it there."""
    queue = channel.context.topology.find_queue(channel.conn.vhost, ends.destination)
    if ends.kind != "queue" or exchange is None or queue is None:
        return
    if queue.type is QueueType.STREAM and may_join(exchange, queue):
        channel.conn.check("configure", "queue", ends.destination)


def change_binding(channel: Channel, ends: Ends, *, unbind: bool = False) -> Change:
    """Write access to where messages go, read access to where they come from."""
    conn, topology = channel.conn, channel.context.topology
    if ends.kind == "queue" and ends.destination.startswith(REPLY_TO):
        raise AccessRefused("cannot bind or unbind to a volatile (direct reply-to) queue")
    conn.check("write", ends.kind, ends.destination)
    if ends.source:  # the default exchange is refused by the topology, in any case
        conn.check("read", "exchange", ends.source)
    exchange = topology.find_exchange(conn.vhost, ends.source)
    if exchange is not None and exchange.type == "topic":
        channel.context.auth.permissions.check_topic(
            conn.whose(), conn.vhost, ends.source, "read", ends.key
        )
    if not unbind:
        _check_super_stream(channel, exchange, ends)
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
