"""confirm.select: from now on each publish on the channel is answered, in C."""

from pamqp.commands import Confirm

from ottermq.amqp.channel import Channel, Mode
from ottermq.errors import PreconditionFailed


def select(channel: Channel, method: Confirm.Select) -> bytes:
    if channel.mode is Mode.TX:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    channel.mode = Mode.CONFIRM
    channel.context.engine.channel_confirm(channel.conn.id, channel.number)
    return b"" if method.nowait else channel.reply(Confirm.SelectOk)
