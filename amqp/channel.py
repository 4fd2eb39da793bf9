"""A channel: opened by the client, closed by either side.

After our channel.close (CLOSING) everything on the channel is dropped until the client's close-ok:
the client sent it before it knew. From then on the number may be used again.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from pamqp.base import Frame
from pamqp.commands import Channel as Methods

from ottermq.amqp.frames import encode_method
from ottermq.amqp.replies import Refused, Reply

if TYPE_CHECKING:
    from ottermq.amqp.connection import Connection
    from ottermq.amqp.context import AmqpContext


class Mode(Enum):
    PLAIN = "plain"
    CONFIRM = "confirm"
    TX = "tx"


@dataclass(slots=True, eq=False)
class Channel:
    conn: "Connection"
    number: int
    closing: bool = False
    mode: Mode = Mode.PLAIN
    prefetch: int = 0  # of consumers to come; 0: no limit
    limit: int = 0  # of the whole channel (global qos)
    last_queue: str = ""  # the one declared last: an empty name means it
    behind: bytes | None = None  # while a method of its own is answered: what follows the answer

    @property
    def context(self) -> "AmqpContext":
        return self.conn.context

    def reply(self, method: type[Frame], *values: Any) -> bytes:
        return encode_method(self.number, method, *values)

    def queue_name(self, name: str) -> str:
        """An empty name stands for the queue declared last."""
        if name:
            return name
        if not self.last_queue:
            raise Refused(404, "no previously declared queue")
        return self.last_queue

    def close(self, reply: Reply) -> bytes:
        """We end it. The engine first, so that nothing follows our word."""
        self.context.engine.channel_close(self.conn.id, self.number, closing=True)
        self.closing = True
        return reply.close_channel(self.number)

    def forget(self) -> None:
        self.conn.channels.pop(self.number, None)
        self.context.auth.limits.channel_closed(self.conn.whose())


def open_channel(conn: "Connection", number: int, method: Frame) -> bytes:
    """The first method on a channel number must be channel.open."""
    if not isinstance(method, Methods.Open):
        raise Refused(504, "expected 'channel.open'")
    conn.context.auth.limits.channel_opened(conn.whose(), len(conn.channels), conn.channel_max)
    conn.channels[number] = Channel(conn, number)
    conn.context.engine.channel_open(conn.id, number)
    return encode_method(number, Methods.OpenOk, b"")


def handle_closing(channel: Channel, method: Frame) -> bytes:
    """Methods that still come after we closed the channel."""
    if isinstance(method, Methods.CloseOk):
        channel.context.engine.channel_close(channel.conn.id, channel.number, closing=False)
        channel.forget()
    elif isinstance(method, Methods.Close):
        return channel.reply(Methods.CloseOk)
    return b""


def reopen(channel: Channel, method: Methods.Open) -> bytes:
    raise Refused(504, "second 'channel.open' seen")


def close(channel: Channel, method: Methods.Close) -> bytes:
    channel.context.engine.channel_close(channel.conn.id, channel.number, closing=False)
    channel.forget()
    return channel.reply(Methods.CloseOk)


def flow(channel: Channel, method: Methods.Flow) -> bytes:
    """As RabbitMQ: consumers hold back with prefetch, not with flow."""
    if not method.active:
        raise Refused(540, "active=false")
    return channel.reply(Methods.FlowOk, True)
