"""exchange.*: declare, delete, bind and unbind exchange to exchange."""

from pamqp.commands import Exchange as Methods

from ottermq.amqp.acts import Act
from ottermq.amqp.bindings import Ends, change_binding
from ottermq.amqp.channel import Channel
from ottermq.amqp.deferred_replies import Answer, removed, saved
from ottermq.topology.exchange.exchange import ALTERNATE
from ottermq.topology.names import stripped


def declare(channel: Channel, method: Methods.Declare) -> Answer:
    conn, context = channel.conn, channel.context
    vhost, name = conn.vhost, stripped(method.exchange)
    ok = b"" if method.nowait else channel.reply(Methods.DeclareOk)
    if method.passive:
        if name:
            conn.check_any("exchange", name)
        context.topology.passive_exchange(vhost, name)
        return ok
    if name:  # the default exchange is refused by the topology, in any case
        conn.check("configure", "exchange", name)
    alternate = method.arguments.get(ALTERNATE)
    if isinstance(alternate, str) and context.topology.find_exchange(vhost, name) is None:
        conn.check("read", "exchange", name)
        conn.check("write", "exchange", alternate)
    change = context.topology.declare_exchange(
        vhost,
        name,
        method.exchange_type,
        durable=method.durable,
        auto_delete=method.auto_delete,
        internal=method.internal,
        arguments=method.arguments,
    )
    context.queues.declared(change)
    return saved(channel, change, ok, Act("exchange.declare", name, type=method.exchange_type))


def delete(channel: Channel, method: Methods.Delete) -> Answer:
    conn = channel.conn
    name = stripped(method.exchange)
    if name and not name.startswith("amq."):  # those are refused by the topology, in any case
        conn.check("configure", "exchange", name)
    change = channel.context.topology.delete_exchange(conn.vhost, name, if_unused=method.if_unused)
    ok = b"" if method.nowait else channel.reply(Methods.DeleteOk)
    return removed(channel, change, ok, Act("exchange.delete", name))


def bind(channel: Channel, method: Methods.Bind) -> Answer:
    ends = _ends(method)
    change = change_binding(channel, ends)
    ok = b"" if method.nowait else channel.reply(Methods.BindOk)
    return saved(channel, change, ok, ends.act("exchange.bind"))


def unbind(channel: Channel, method: Methods.Unbind) -> Answer:
    ends = _ends(method)
    change = change_binding(channel, ends, unbind=True)
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
