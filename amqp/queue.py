"""queue.*: declare, bind, unbind, purge, delete."""

from pamqp.commands import Queue as Methods

from ottermq.amqp.acts import Act
from ottermq.amqp.bindings import REPLY_TO, Ends, change_binding
from ottermq.amqp.channel import Channel
from ottermq.amqp.deferred_replies import Answer, removed, saved
from ottermq.amqp.replies import Refused
from ottermq.engine.engine import Engine
from ottermq.engine.types import Purged
from ottermq.errors import NotFound, PreconditionFailed
from ottermq.topology import Queue, QueueType
from ottermq.topology.names import label, stripped
from ottermq.topology.values import kind_of
from ottermq.wal.errors import Full

DEAD_LETTER_EXCHANGE = "x-dead-letter-exchange"


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
    if name:
        conn.check("configure", "queue", name)
    found = context.topology.find_queue(vhost, name) if name else None
    if found is None:
        _check_new(channel, method, name)
    change = context.topology.declare_queue(
        vhost,
        name,
        durable=method.durable,
        exclusive=method.exclusive,
        auto_delete=method.auto_delete,
        arguments=method.arguments,
        connection=conn.id,
    )
    declared = change.queue
    assert declared is not None
    act = Act("queue.declare", declared.name, type=declared.type.value)
    if not change.created:
        context.engine.touch(declared.id)
        return saved(channel, change, _declared(channel, declared, method.nowait), act)
    context.queues.declared(change)
    return saved(channel, change, _declared(channel, declared, method.nowait, new=True), act)


def _check_new(channel: Channel, method: Methods.Declare, name: str) -> None:
    """Checks that apply only to a queue that doesn't exist yet."""
    conn, context = channel.conn, channel.context
    if not name:
        conn.check("configure", "queue", "amq.gen-")
    if DEAD_LETTER_EXCHANGE in method.arguments:
        dead_letters = method.arguments[DEAD_LETTER_EXCHANGE]
        if not isinstance(dead_letters, str):
            raise PreconditionFailed(
                f"invalid type '{kind_of(dead_letters)}' for arg '{DEAD_LETTER_EXCHANGE}' in"
                f" {label('queue', name, conn.vhost)}"
            )
        conn.check("read", "queue", name or "amq.gen-")
        conn.check("write", "exchange", dead_letters)
    if not (method.durable or method.exclusive or context.settings.permit.transient_queues):
        raise Refused(
            541,
            "Feature `transient_nonexcl_queues` is deprecated and not permitted here.",
        )
    queues = context.topology.vhost(conn.vhost).queues
    context.auth.limits.check_queues(conn.vhost, name, len(queues))


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
    change = change_binding(channel, ends)
    ok = b"" if method.nowait else channel.reply(Methods.BindOk)
    return saved(channel, change, ok, ends.act("queue.bind"))


def unbind(channel: Channel, method: Methods.Unbind) -> Answer:
    ends = _ends(channel, method)
    change = change_binding(channel, ends, unbind=True)
    return removed(channel, change, channel.reply(Methods.UnbindOk), ends.act("queue.unbind"))


def _ends(channel: Channel, method: Methods.Bind | Methods.Unbind) -> Ends:
    """No queue name means the queue declared last; with no key either, its name is the key."""
    queue = channel.queue_name(method.queue)
    key = method.routing_key or ("" if method.queue else queue)
    return Ends(stripped(method.exchange), "queue", stripped(queue), key, method.arguments or {})


def purge(channel: Channel, method: Methods.Purge) -> Answer:
    conn, context = channel.conn, channel.context
    name = channel.queue_name(method.queue)
    conn.check("read", "queue", name)
    queue = context.topology.queue(conn.vhost, name, conn.id)
    if queue.type is QueueType.STREAM:
        raise Refused(540, f"queue.purge not supported by stream queues {queue.label}")
    context.queues.holds.refuse(queue, "purged")
    purged = _purged(context.engine, queue)
    if purged is not None and not (purged.seq and queue.durable):
        return _purge_ok(channel, method, queue, purged)
    return _purge_later(channel, method, queue, purged)


def _purge_ok(channel: Channel, method: Methods.Purge, queue: Queue, purged: Purged) -> bytes:
    if queue.durable:
        Act("queue.purge", queue.name, messages=purged.messages).record(channel)
    return b"" if method.nowait else channel.reply(Methods.PurgeOk, _count(purged.messages))


def _purged(engine: Engine, queue: Queue) -> Purged | None:
    """None: there is no room in the WAL for it now."""
    try:
        return engine.purge(queue.id)
    except Full:
        return None


async def _purge_later(
    channel: Channel, method: Methods.Purge, queue: Queue, purged: Purged | None
) -> bytes:
    """Done when there is room, answered when it is on disk."""
    context = channel.context
    while purged is None:
        await context.queues.wait_moved()
        context.topology.queue(channel.conn.vhost, queue.name, channel.conn.id)  # or gone meanwhile
        purged = _purged(context.engine, queue)
    if purged.seq and queue.durable:
        await context.queues.wait_durable(purged.seq)
    return _purge_ok(channel, method, queue, purged)


def delete(channel: Channel, method: Methods.Delete) -> Answer:
    conn, context = channel.conn, channel.context
    name = stripped(channel.queue_name(method.queue))
    conn.check("configure", "queue", name)
    queue = context.topology.find_queue(conn.vhost, name)
    messages = 0
    if queue is not None:
        queue.check_access(conn.id)
        context.queues.holds.refuse(queue, "deleted")
        messages = _deletable(context.engine, queue, method.if_unused, method.if_empty)
    change = context.topology.delete_queue(conn.vhost, name, conn.id)
    ok = b"" if method.nowait else channel.reply(Methods.DeleteOk, _count(messages))
    return removed(channel, change, ok, Act("queue.delete", name, messages=messages))


def _deletable(engine: Engine, queue: Queue, if_unused: bool, if_empty: bool) -> int:
    """How many messages the queue has. Only classic queues know conditions: quorum queues refuse
    them, and streams, which don't count, are deleted regardless."""
    if queue.type is QueueType.STREAM:
        return 0
    for flag, wanted in (("if-unused", if_unused), ("if-empty", if_empty)):
        if wanted and queue.type is QueueType.QUORUM:
            raise Refused(
                540,
                f"cannot delete {queue.label}. queue.delete operations with {flag} flag set are"
                " not supported by quorum queues",
            )
    stat = engine.queue_stat(queue.id)
    if if_empty and stat.ready:  # as RabbitMQ: what is in flight doesn't count
        raise PreconditionFailed(f"{queue.label} not empty")
    if if_unused and stat.consumers:
        raise PreconditionFailed(f"{queue.label} in use")
    return stat.ready
