"""What a connection loses when its user's permissions change while it is open.

RabbitMQ lets consumers go on whose user may no longer read; here a right that is gone is gone.
Connections whose user may not enter the vhost any more are closed. Consumers of queues that their
user can't read any more are cancelled: by basic.cancel, or with their channel where the client
doesn't know that method. Publishes and basic.get are checked anew by themselves.
"""

from collections.abc import Iterable

from pamqp.commands import Basic

from ottermq import eventlog
from ottermq.amqp.connection import Connection
from ottermq.amqp.context import AmqpContext
from ottermq.amqp.frames import encode_method
from ottermq.amqp.replies import Reply
from ottermq.engine.types import Consumer
from ottermq.topology import Queue


def shut_out(context: AmqpContext, connections: Iterable[Connection]) -> list[Connection]:
    """Those whose user may no longer be in their vhost."""
    permissions = context.auth.permissions
    return [conn for conn in connections if not permissions.has_vhost(conn.whose(), conn.vhost)]


def cancel_consumers(context: AmqpContext, connections: Iterable[Connection]) -> None:
    """Of queues that their user may no longer read."""
    theirs = {conn.id: conn for conn in connections}
    for vhost in {conn.vhost for conn in theirs.values()}:
        queues = context.topology.vhosts[vhost].queues if vhost in context.topology.vhosts else {}
        for queue in list(queues.values()):
            if all(_may_read(conn, queue) for conn in theirs.values() if conn.vhost == vhost):
                continue
            for consumer in context.engine.consumers(queue.id):
                conn = theirs.get(consumer.conn)
                if conn is not None and not _may_read(conn, queue):
                    _cancel(conn, queue, consumer)


def _may_read(conn: Connection, queue: Queue) -> bool:
    permissions = conn.context.auth.permissions
    return permissions.allows(conn.whose(), conn.vhost, "read", "queue", queue.name)


def _cancel(conn: Connection, queue: Queue, consumer: Consumer) -> None:
    here = conn.channels.get(consumer.channel)
    if here is None or here.closing:
        return
    tag = consumer.tag.decode(errors="replace")
    eventlog.info(
        "consumer cancelled",
        peer=conn.peer,
        user=conn.whose().name,
        vhost=conn.vhost,
        queue=queue.name,
        consumer_tag=tag,
        reason="read access revoked",
    )
    if conn.announced("consumer_cancel_notify"):
        cancel = encode_method(consumer.channel, Basic.Cancel, tag, True)
        conn.context.engine.cancel_consumer(conn.id, consumer.channel, consumer.tag, cancel)
    else:
        reply = Reply(403, f"read access to {queue.label} was revoked")
        conn.context.engine.send(conn.id, here.close(reply))
