"""basic.*: qos, consume, cancel, get, recover. Work per message is C's."""

import base64
import secrets
import time
from datetime import datetime
from typing import Any

from pamqp.commands import Basic as Methods

from ottermq.amqp.channel import Channel
from ottermq.amqp.replies import Refused
from ottermq.engine.types import Added, Consume, StreamStart
from ottermq.errors import AccessRefused, PreconditionFailed, ResourceLocked
from ottermq.operations.bindings import REPLY_TO
from ottermq.topology import Queue, QueueType
from ottermq.topology.arguments import age_ms, check_consumer
from ottermq.topology.values import binary, kind_of, shown

LONGEST_FILTER = 255


def qos(channel: Channel, method: Methods.Qos) -> bytes:
    """Not global: for each consumer to come. Global: for the channel as a whole."""
    if method.prefetch_size:
        raise Refused(540, f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_ and not channel.context.settings.permit.global_qos:
        raise Refused(540, "Feature `global_qos` is deprecated and not permitted here.")
    if not method.global_:
        channel.prefetch = method.prefetch_count
    limit = method.prefetch_count if method.global_ else 0
    if limit != channel.limit:
        channel.limit = limit
        channel.context.engine.channel_limit(channel.conn.id, channel.number, limit)
    return channel.reply(Methods.QosOk)


def consume(channel: Channel, method: Methods.Consume) -> bytes:
    conn, context = channel.conn, channel.context
    name = channel.queue_name(method.queue)
    tag = method.consumer_tag or _made_up()
    ok = b"" if method.nowait else channel.reply(Methods.ConsumeOk, tag)
    if name == REPLY_TO:
        return _consume_replies(channel, tag, method.no_ack, ok)
    conn.check("read", "queue", name)
    queue = context.topology.queue(conn.vhost, name, conn.id)
    check_consumer(queue.type, method.arguments, queue.label)
    # Quorum queues and streams have no exclusive consumers: RabbitMQ ignores the flag there.
    exclusive = method.exclusive and queue.type is QueueType.CLASSIC
    if exclusive and context.topology.effective(queue).single_active:
        raise AccessRefused(f"{queue.label} in exclusive use")
    if channel.limit and queue.type is QueueType.QUORUM:
        raise _no_global_qos(queue)
    if queue.type is QueueType.STREAM:
        wanted = _of_stream(channel, queue, tag, method)
    else:
        wanted = Consume(
            queue.id,
            tag.encode(),
            no_ack=method.no_ack,
            exclusive=exclusive,
            prefetch=channel.prefetch,
            priority=_number(method.arguments.get("x-priority")),
            timeout_ms=_number(method.arguments.get("x-consumer-timeout")),
        )
    match context.engine.add_consumer(conn.id, channel.number, wanted, ok):
        case Added.TAG_IN_USE:
            raise _reused(tag)
        case Added.TOO_MANY:
            raise _too_many(channel)
        case Added.EXCLUSIVE_USE:
            raise AccessRefused(f"{queue.label} in exclusive use")
    return b""


def _consume_replies(channel: Channel, tag: str, no_ack: bool, ok: bytes) -> bytes:
    if not no_ack:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    engine, conn = channel.context.engine, channel.conn
    match engine.add_reply_consumer(conn.id, channel.number, tag.encode(), ok):
        case Added.TAG_IN_USE:
            raise _reused(tag)
        case Added.TOO_MANY:
            raise _too_many(channel)
        case Added.EXCLUSIVE_USE:
            raise PreconditionFailed("reply consumer already set")
    return b""


def _reused(tag: str) -> Refused:
    return Refused(530, f"attempt to reuse consumer tag '{tag}'")


def _too_many(channel: Channel) -> Refused:
    most = channel.context.engine.options.consumers_per_channel
    return Refused(530, f"reached maximum ({most}) of consumers per channel")


def _of_stream(channel: Channel, queue: Queue, tag: str, method: Methods.Consume) -> Consume:
    """A stream delivers only within the prefetch, so it requires one."""
    if not channel.prefetch:
        raise PreconditionFailed(f"consumer prefetch count is not set for stream {queue.label}")
    if method.no_ack:
        raise Refused(540, f"automatic acknowledgement not supported by stream {queue.label}")
    if channel.limit:
        raise _no_global_qos(queue)
    start, value = _stream_start(queue, method.arguments.get("x-stream-offset"))
    return Consume(
        queue.id,
        tag.encode(),
        prefetch=channel.prefetch,
        start=start,
        start_value=value,
        filters=_filters(queue, method.arguments.get("x-stream-filter")),
        match_unfiltered=method.arguments.get("x-stream-match-unfiltered") is True,
    )


def _no_global_qos(queue: Queue) -> Refused:
    return Refused(540, f"{queue.label} does not support global qos")


def _stream_start(queue: Queue, wanted: Any) -> tuple[StreamStart, int]:
    """x-stream-offset: a name, a number, a point in time, or an age such as `1h`."""
    match wanted:
        case None:
            return StreamStart.NEXT, 0
        case "first" | "last" | "next":
            return StreamStart[wanted.upper()], 0
        case datetime():
            return StreamStart.TIME, int(wanted.timestamp() * 1000)
        case bool():
            pass
        case int() if wanted >= 0:
            return StreamStart.OFFSET, wanted
        case str():
            age = age_ms(wanted)
            if age is not None:
                return StreamStart.TIME, time.time_ns() // 1_000_000 - age
    told = binary(wanted) if isinstance(wanted, str) else shown(wanted)
    raise PreconditionFailed(
        f"invalid arg 'x-stream-offset' for {queue.label}:"
        f" {{invalid_stream_offset_arg,{{{kind_of(wanted)},{told}}}}}"
    )


def _filters(queue: Queue, wanted: Any) -> tuple[bytes, ...]:
    """x-stream-filter: a text or a list of them; what is neither is no filter."""
    values = wanted if isinstance(wanted, list) else [wanted]
    texts = [value for value in values if isinstance(value, str | bytes)]
    raw = tuple(text if isinstance(text, bytes) else text.encode() for text in texts)
    if any(len(value) > LONGEST_FILTER for value in raw):
        # Left out, it would let everything through.
        raise PreconditionFailed(
            f"invalid arg 'x-stream-filter' for {queue.label}: longer than {LONGEST_FILTER} bytes"
        )
    return raw


def _number(wanted: Any) -> int:
    """As near to it as C can come."""
    return max(-(1 << 31), min(int(wanted or 0), (1 << 31) - 1))


def _made_up() -> str:
    return "amq.ctag-" + base64.urlsafe_b64encode(secrets.token_bytes(16))[:22].decode()


def cancel(channel: Channel, method: Methods.Cancel) -> bytes:
    """cancel-ok comes behind the last delivery; also when there was no such consumer."""
    tag = method.consumer_tag or ""
    ok = b"" if method.nowait else channel.reply(Methods.CancelOk, tag)
    known = channel.context.engine.cancel_consumer(
        channel.conn.id, channel.number, tag.encode(), ok
    )
    return b"" if known else ok


def cancel_ok(channel: Channel, method: Methods.CancelOk) -> bytes:
    """The client confirms that its consumer is gone."""
    return b""


def get(channel: Channel, method: Methods.Get) -> None:
    """Allowed once, the next one of this queue is answered without asking."""
    conn, context = channel.conn, channel.context
    name = channel.queue_name(method.queue)
    conn.check("read", "queue", name)
    queue = context.topology.queue(conn.vhost, name, conn.id)
    if queue.type is QueueType.STREAM:
        raise Refused(540, f"basic.get not supported by stream queues {queue.label}")
    if context.topology.effective(queue).single_active and queue.type is QueueType.QUORUM:
        raise ResourceLocked(
            f"cannot obtain access to locked {queue.label}. basic.get operations are not supported"
            f" by {queue.type} queues with single active consumer"
        )
    context.engine.get(conn.id, channel.number, queue.id, method.no_ack)


def recover(channel: Channel, method: Methods.Recover) -> bytes:
    _recover(channel, method.requeue)
    return channel.reply(Methods.RecoverOk)


def recover_async(channel: Channel, method: Methods.RecoverAsync) -> bytes:
    _recover(channel, method.requeue)
    return b""


def _recover(channel: Channel, requeue: bool) -> None:
    if not requeue:
        raise Refused(540, "requeue=false")
    channel.context.engine.channel_recover(channel.conn.id, channel.number)
