"""exchange.*: declare, delete, bind and unbind exchange to exchange."""

from pamqp.commands import Exchange as Methods

from ottermq.amqp.channel import Channel
from ottermq.amqp.deferred_replies import Answer, removed, saved
from ottermq.operations import exchanges
from ottermq.operations.acts import Act
from ottermq.operations.bindings import Ends, change_binding
from ottermq.topology.names import stripped


def declare(channel: Channel, method: Methods.Declare) -> Answer:
    conn, context = channel.conn, channel.context
    name = stripped(method.exchange)
    ok = b"" if method.nowait else channel.reply(Methods.DeclareOk)
    if method.passive:
        if name:
            conn.check_any("exchange", name)
        context.topology.passive_exchange(conn.vhost, name)
        return ok
    change = exchanges.declare(
        context,
        conn,
        name,
        method.exchange_type,
        durable=method.durable,
        auto_delete=method.auto_delete,
        internal=method.internal,
        arguments=method.arguments,
    )
    return saved(channel, change, ok, Act("exchange.declare", name, type=method.exchange_type))


def delete(channel: Channel, method: Methods.Delete) -> Answer:
    name = stripped(method.exchange)
    change = exchanges.delete(channel.context, channel.conn, name, if_unused=method.if_unused)
    ok = b"" if method.nowait else channel.reply(Methods.DeleteOk)
    return removed(channel, change, ok, Act("exchange.delete", name))


def bind(channel: Channel, method: Methods.Bind) -> Answer:
    ends = _ends(method)
    change = change_binding(channel.context, channel.conn, ends)
    ok = b"" if method.nowait else channel.reply(Methods.BindOk)
    return saved(channel, change, ok, ends.act("exchange.bind"))


def unbind(channel: Channel, method: Methods.Unbind) -> Answer:
    ends = _ends(method)
    change = change_binding(channel.context, channel.conn, ends, unbind=True)
    ok = b"" if method.nowait else channel.reply(Methods.UnbindOk)
    return removed(channel, change, ok, ends.act("exchange.unbind"))


def _ends(method: Methods.Bind | Methods.Unbind) -> Ends:
    return Ends(
        stripped(method.source),
        "exchange",
        stripped(method.destination),
        method.routing_key,
        method.arguments or {},
    )
