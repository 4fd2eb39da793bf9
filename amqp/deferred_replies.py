"""Answers that wait for the disk, and those that needn't."""

from collections.abc import Coroutine
from typing import Any, TypeAlias

from ottermq.amqp.channel import Channel
from ottermq.operations.acts import Act
from ottermq.topology import Change

# Frames to send before reading goes on; the same, later, when a disk or a thread must be waited
# for; None when the handler has seen to both itself.
Answer: TypeAlias = bytes | Coroutine[Any, Any, bytes | None] | None


def saved(channel: Channel, change: Change, ok: bytes, act: Act) -> Answer:
    """`ok` when what was made, or found, is on disk: at once, if nothing of it belongs there."""
    if not change.statements and not change.maker:
        return ok
    return _on_disk(channel, change, channel.context.queues.save(change), ok, act)


def removed(channel: Channel, change: Change, ok: bytes, act: Act) -> Answer:
    """`ok` when the deletion is on disk, too. Behind it follow the cancels of the channel's own
    consumers, in RabbitMQ's order: amqplib's users close the channel at the cancel. If the
    disk refuses, the channel is closed, and its consumers with it."""
    channel.behind = b""
    try:
        removing = channel.context.queues.remove(change)
        ok += channel.behind
    finally:
        channel.behind = None
    return ok if removing is None else _on_disk(channel, change, removing, ok, act)


async def _on_disk(
    channel: Channel, change: Change, saving: Coroutine[Any, Any, None], ok: bytes, act: Act
) -> bytes:
    with act.around(channel.conn, change):
        await saving
    return ok
