"""queue.*: declare, bind, unbind, purge, delete. What they do is ottermq/operations's."""

from pamqp.commands import Queue as Methods

from ottermq.amqp.channel import Channel
from ottermq.amqp.deferred_replies import Answer, removed, saved
from ottermq.engine.types import Purged
from ottermq.errors import NotFound
from ottermq.operations import queues
from ottermq.operations.acts import Act
from ottermq.operations.bindings import REPLY_TO, Ends, change_binding
from ottermq.topology import Queue
from ottermq.topology.names import label, stripped


def declare(channel: Channel, method: Methods.Declare) -> Answer:
    conn, context = channel.conn, channel.context
    vhost, name = conn.vhost, stripped(method.queue)
    if name.startswith(REPLY_TO):
        return _reply_to(channel, name, method.nowait)
    if method.passive:
        conn.check_any("queue", name)
        queue = context.topology.queue(vhost, name, conn.id)
        context.engine.touch(queue.id)  # to look is a use: x-expires begins anew
        return _declared(channel, queue, method.nowait)
    change = queues.declare(
        context,
        conn,
        name,
        durable=method.durable,
        exclusive=method.exclusive,
        auto_delete=method.auto_delete,
        arguments=method.arguments,
    )
    declared = change.queue
    assert declared is not None
    ok = _declared(channel, declared, method.nowait, new=change.created)
    return saved(channel, change, ok, queues.declaration(declared))


def _declared(channel: Channel, queue: Queue, nowait: bool, new: bool = False) -> bytes:
    channel.last_queue = queue.name
    if nowait:
        return b""
    ready = consumers = 0
    if not new:
        stat = channel.context.engine.queue_stat(queue.id)
        ready, consumers = stat.ready, stat.consumers
    return channel.reply(Methods.DeclareOk, queue.name, _count(ready), consumers)


def _reply_to(channel: Channel, name: str, nowait: bool) -> bytes:
    """Direct reply-to is no queue; a declare finds it as long as its consumer is there."""
    if name != REPLY_TO and not channel.context.engine.expects_replies(name.encode()):
        raise NotFound(f"no {label('queue', name, channel.conn.vhost)}")
    channel.last_queue = name
    return b"" if nowait else channel.reply(Methods.DeclareOk, name, 0, 1)


def _count(messages: int) -> int:
    return min(messages, 0xFFFFFFFF)


def bind(channel: Channel, method: Methods.Bind) -> Answer:
    ends = _ends(channel, method)
    change = change_binding(channel.context, channel.conn, ends)
    ok = b"" if method.nowait else channel.reply(Methods.BindOk)
    return saved(channel, change, ok, ends.act("queue.bind"))


def unbind(channel: Channel, method: Methods.Unbind) -> Answer:
    ends = _ends(channel, method)
    change = change_binding(channel.context, channel.conn, ends, unbind=True)
    return removed(channel, change, channel.reply(Methods.UnbindOk), ends.act("queue.unbind"))


def _ends(channel: Channel, method: Methods.Bind | Methods.Unbind) -> Ends:
    """No queue name means the queue declared last; with no key either, its name is the key."""
    queue = channel.queue_name(method.queue)
    key = method.routing_key or ("" if method.queue else queue)
    return Ends(stripped(method.exchange), "queue", stripped(queue), key, method.arguments or {})


def purge(channel: Channel, method: Methods.Purge) -> Answer:
    conn, context = channel.conn, channel.context
    queue = queues.purgeable(context, conn, channel.queue_name(method.queue))
    purged = queues.try_purge(context, queue)
    if purged is not None and not (purged.seq and queue.durable):
        queues.record_purge(conn, queue, purged)
        return _purge_ok(channel, method, purged.messages)
    return _purge_later(channel, method, queue, purged)


async def _purge_later(
    channel: Channel, method: Methods.Purge, queue: Queue, purged: Purged | None
) -> bytes:
    messages = await queues.purge(channel.context, channel.conn, queue, purged)
    return _purge_ok(channel, method, messages)


def _purge_ok(channel: Channel, method: Methods.Purge, messages: int) -> bytes:
    return b"" if method.nowait else channel.reply(Methods.PurgeOk, _count(messages))


def delete(channel: Channel, method: Methods.Delete) -> Answer:
    name = stripped(channel.queue_name(method.queue))
    change, messages = queues.delete(
        channel.context,
        channel.conn,
        name,
        if_unused=method.if_unused,
        if_empty=method.if_empty,
    )
    ok = b"" if method.nowait else channel.reply(Methods.DeleteOk, _count(messages))
    return removed(channel, change, ok, Act("queue.delete", name, messages=messages))
