"""The AMQP server: the engine's events to the rules that answer them.

    engine ── event ──▶ AmqpServer ── method ──▶ connection.py, channel.py, queue.py, …
                            │                       │
                            ◀─────── frames ────────┘   om_conn_resume: sent, and reading goes on

A connection's input stands still from its event until it is answered, so each connection has one
method under way at most. Answers that wait for the disk or a login are tasks; the others are given
at once. A rule that is broken raises; which code closes the channel and which the connection is
replies.py's.
"""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import trio
from pamqp import commands
from pamqp.base import Frame

from ottermq import eventlog
from ottermq.amqp import basic, channel, confirm, connection, exchange, publish, queue, revoked, tx
from ottermq.amqp.connection import Connection, State
from ottermq.amqp.context import AmqpContext
from ottermq.amqp.deferred_replies import Answer
from ottermq.amqp.frames import Malformed, decode_method, encode_method, name_of
from ottermq.amqp.replies import Refused, Reply, our_mistake, reply_of_engine, reply_to
from ottermq.auth import Change
from ottermq.auth.before_hello import BeforeHello
from ottermq.config import Address
from ottermq.contained import contained, is_failure
from ottermq.engine import alarms
from ottermq.engine.events import (
    AlarmChanged,
    ConnectionClosed,
    ConnectionHello,
    ConnectionRefused,
    ConsumerActive,
    ConsumerTimedOut,
    DeadRouteWanted,
    Event,
    InputWanted,
    MethodArrived,
    OutputReady,
    QueueIdle,
    RouteWanted,
    RuleBroken,
    WrongProtocol,
)
from ottermq.engine.types import Consumer
from ottermq.errors import OtterError
from ottermq.net import close_reasons
from ottermq.net.protocol_sniff import protocol_of
from ottermq.net.tls_bridge import Peer
from ottermq.net.virtual_conn import VirtualConnection
from ottermq.topology import Queue
from ottermq.wal import LogError

GOODBYE = 3.0  # seconds in which clients may answer our close when the broker stops
LAST_WORD = 10.0  # seconds in which a client may answer our close otherwise
LOOK = 1.0  # seconds between two looks for those that don't
EXPECTED = (OtterError, LogError, Refused)  # what rules raise; all else is our own mistake

METHODS: dict[type[Frame], Any] = {
    commands.Channel.Open: channel.reopen,
    commands.Channel.Close: channel.close,
    commands.Channel.Flow: channel.flow,
    commands.Exchange.Declare: exchange.declare,
    commands.Exchange.Delete: exchange.delete,
    commands.Exchange.Bind: exchange.bind,
    commands.Exchange.Unbind: exchange.unbind,
    commands.Queue.Declare: queue.declare,
    commands.Queue.Bind: queue.bind,
    commands.Queue.Unbind: queue.unbind,
    commands.Queue.Purge: queue.purge,
    commands.Queue.Delete: queue.delete,
    commands.Basic.Qos: basic.qos,
    commands.Basic.Consume: basic.consume,
    commands.Basic.Cancel: basic.cancel,
    commands.Basic.CancelOk: basic.cancel_ok,
    commands.Basic.Get: basic.get,
    commands.Basic.Recover: basic.recover,
    commands.Basic.RecoverAsync: basic.recover_async,
    commands.Confirm.Select: confirm.select,
    commands.Tx.Select: tx.select,
    commands.Tx.Commit: tx.commit,
    commands.Tx.Rollback: tx.rollback,
}
ACCESS_REQUEST = 30 << 16 | 10  # of AMQP 0-8; some clients still ask
ACCESS_REQUEST_OK = b"\x00\x1e\x00\x0b\x00\x01"


class AmqpServer:
    def __init__(self, context: AmqpContext) -> None:
        self.context = context
        self.connections: dict[int, Connection] = {}
        self.stopping = False
        self._nursery: trio.Nursery | None = None
        self._emptied = trio.Event()
        self._closing: dict[int, float] = {}  # until when they may answer our close
        # Of TLS connections, which have no socket of the engine's.
        self._certificates: dict[int, str] = {}
        self._virtual: dict[int, VirtualConnection] = {}
        self._internal: set[VirtualConnection] = set()
        self.alarm_reason = ""  # of the alarm that is set, as the log has it
        self._before_hello = BeforeHello()
        context.queues.on_gone.append(self._tell_consumers)
        context.queues.on_vhost_gone.append(self._vhost_gone)
        context.auth.on_change(self._permissions_changed)

    async def run(self, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        """Answers that take a while, until cancelled; `stop` first is politer. Events come by
        `take` (ottermq/engine/dispatch.py)."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._cut_off)
            task_status.started()

    async def stop(self) -> None:
        """Close all connections, and give their clients a moment to answer."""
        self.stopping = True
        self.context.engine.stop_listening()
        self.close_all(
            self.connections.values(),
            "broker forced connection closure with reason 'shutdown'",
            close_reasons.STOPPED,
        )
        with trio.move_on_after(GOODBYE):
            while self.connections:
                self._emptied = trio.Event()
                await self._emptied.wait()

    def close_all(
        self, connections: Iterable[Connection], text: str, reason: str, **details: object
    ) -> None:
        """320 CONNECTION_FORCED: an operator's doing, not the client's fault. reason, details: for
        the log, of those that can't be told yet."""
        for conn in list(connections):
            if conn.state is State.RUNNING:
                self._close(conn, Reply(320, text))
            elif conn.state is not State.CLOSING:
                connection.cut_off(conn, reason, **details)

    def close_for_operator(self, conn: Connection, reason: str) -> None:
        """reason: for the client."""
        self.close_all([conn], reason, close_reasons.BY_OPERATOR)

    def open_virtual(self, peer: Peer) -> VirtualConnection:
        """A TLS connection is through its handshake (ottermq/net/tls_bridge.py)."""
        conn = self.context.engine.virtual(str(Address(peer.host, peer.port)))
        if peer.certificate is not None:
            self._certificates[conn] = peer.certificate
        virtual = self._virtual[conn] = VirtualConnection(self.context.engine, conn)
        return virtual

    def open_internal(self, user: str, host: str) -> VirtualConnection:
        """For a client of our own, in the name of a user who has logged in from that host: EXTERNAL
        lets it in."""
        virtual = self.open_virtual(Peer(host, 0, user, "", ""))
        self._internal.add(virtual)
        return virtual

    # -- events

    def take(self, event: Event) -> None:
        handler = EVENTS.get(type(event))
        if handler is None:
            eventlog.warning("engine event unknown", listener="amqp", kind=type(event).__name__)
        else:
            handler(self, event)

    def peer_of(self, id: int) -> str:
        conn = self.connections.get(id)
        return conn.peer if conn is not None else "-"

    def break_off(self, id: int) -> None:
        """A defect, which the log has: the connection ends."""
        conn = self.connections.get(id)
        if conn is not None:
            connection.cut_off(conn, close_reasons.INTERNAL_ERROR)
        self.context.engine.hang_up(id)

    def _hello(self, event: ConnectionHello) -> None:
        certificate = self._certificates.get(event.conn)
        conn = Connection(event.conn, event.peer, self.context, certificate)
        virtual = self._virtual.get(event.conn)
        if virtual is not None:
            conn.listener = connection.INTERNAL if virtual in self._internal else "amqps"
        self.connections[conn.id] = conn
        if self.stopping:
            connection.cut_off(conn, close_reasons.STOPPED)
        else:
            self.context.engine.resume(conn.id, connection.start(conn))

    def _method(self, event: MethodArrived) -> None:
        conn = self.connections.get(event.conn)
        if conn is None:
            return
        index = int.from_bytes(event.payload[:4], "big")
        try:
            answer = self._answer(conn, event, index)
        except EXPECTED as error:
            self._refuse(conn, event.channel, reply_to(error, index))
        except BaseException as error:
            self._fail(conn, index, error)
        else:
            self._give(conn, event.channel, index, answer)

    def _answer(self, conn: Connection, event: MethodArrived, index: int) -> Answer:
        try:
            method = decode_method(event.payload)
        except Malformed as error:
            raise Refused(501, str(error)) from None
        if method is None:
            if index == ACCESS_REQUEST and event.channel in conn.channels:
                return _access_granted(event.channel)
            raise Refused(503, "unimplemented method")
        if event.channel == 0:
            return connection.handle(conn, method)
        if conn.state is not State.RUNNING:
            if conn.state is State.CLOSING:
                return b""
            raise Refused(504, f"unexpected method in connection state {conn.state}")
        here = conn.channels.get(event.channel)
        if here is None:
            return channel.open_channel(conn, event.channel, method)
        if here.closing:
            return channel.handle_closing(here, method)
        handler = METHODS.get(type(method))
        if handler is None:
            raise Refused(503, "unimplemented method")
        answer: Answer = handler(here, method)
        return answer

    def _give(self, conn: Connection, number: int, index: int, answer: Answer) -> None:
        if isinstance(answer, bytes):
            self.context.engine.resume(conn.id, answer)
        elif answer is not None:
            assert self._nursery is not None
            self._nursery.start_soon(self._give_later, conn, number, index, answer)

    async def _give_later(
        self, conn: Connection, number: int, index: int, answer: Coroutine[Any, Any, bytes | None]
    ) -> None:
        with contained("method failed", peer=conn.peer, user=conn.user_name, method=name_of(index)):
            await self._give_when_there(conn, number, index, answer)

    async def _give_when_there(
        self, conn: Connection, number: int, index: int, answer: Coroutine[Any, Any, bytes | None]
    ) -> None:
        try:
            frames = await answer
        except EXPECTED as error:
            self._refuse(conn, number, reply_to(error, index))
        except BaseException as error:
            self._fail(conn, index, error)
        else:
            if frames is not None and conn.state is not State.CLOSING:
                self.context.engine.resume(conn.id, frames)
            if conn.id not in self.connections:
                # It left while the disk was busy: what it made for itself goes after it.
                self.context.queues.remove_unasked(self.context.topology.owned_by(conn.id))

    def _route(self, event: RouteWanted) -> None:
        conn = self.connections.get(event.conn)
        if conn is None:
            return
        try:
            publish.route(conn, event)
        except EXPECTED as error:
            self._refuse(conn, event.channel, reply_to(error, publish.METHOD))
        except BaseException as error:
            self._fail(conn, publish.METHOD, error)

    def _dead_route(self, event: DeadRouteWanted) -> None:
        publish.dead_route(self.context, event)

    def _rule_broken(self, event: RuleBroken) -> None:
        conn = self.connections.get(event.conn)
        if conn is not None:
            self._refuse(conn, event.channel, reply_of_engine(event.code, event.text, event.method))

    def _closed(self, event: ConnectionClosed) -> None:
        conn = self.connections.pop(event.conn, None)
        self._closing.pop(event.conn, None)
        self._certificates.pop(event.conn, None)
        virtual = self._virtual.pop(event.conn, None)
        if virtual is not None:
            self._internal.discard(virtual)
            virtual.close()
        left = close_reasons.CLIENT_LEFT if virtual is not None and virtual.client_left else ""
        if conn is None:
            listener, reason = "amqp" if virtual is None else "amqps", left or event.reason
            unremarkable = reason in close_reasons.UNREMARKABLE
            self._before_hello.closed(listener, event.peer, reason, unremarkable=unremarkable)
            return
        connection.leave(conn)
        eventlog.log(
            conn.log_level,
            "connection closed",
            listener=conn.listener,
            peer=conn.peer,
            user=conn.user_name,
            vhost=conn.vhost or "-",
            reason=conn.ending or left or event.reason,
        )
        if not self.connections:
            self._emptied.set()

    def _output(self, event: OutputReady) -> None:
        if event.conn in self._virtual:
            self._virtual[event.conn].has_output()

    def _input(self, event: InputWanted) -> None:
        if event.conn in self._virtual:
            self._virtual[event.conn].has_room()

    def _queue_idle(self, event: QueueIdle) -> None:
        if not self.stopping:  # we show the consumers out ourselves: their queue is for later
            self.context.queues.lost_last_consumer(event.queue)

    def _consumer_timed_out(self, event: ConsumerTimedOut) -> None:
        conn = self.connections.get(event.conn)
        here = conn.channels.get(event.channel) if conn else None
        if conn is None or here is None or here.closing:
            return
        text = (
            f"delivery acknowledgement on channel {event.channel} timed out."
            f" Timeout value used: {event.timeout_ms} ms. This timeout value can be configured,"
            " see consumers doc guide to learn more"
        )
        self._log_channel_closed(conn, event.channel, Reply(406, text))
        self.context.engine.send(conn.id, here.close(Reply(406, text)))

    def _alarm(self, event: AlarmChanged) -> None:
        before, self.alarm_reason = self.alarm_reason, event.reason
        alarms.tell_change(self.context.engine, before, event.reason)

    def _wrong_protocol(self, event: WrongProtocol) -> None:
        what = protocol_of(event.received)
        eventlog.warning(
            "connection rejected",
            listener="amqp",
            peer=event.peer,
            reason=close_reasons.WRONG_PROTOCOL,
            received=what,
        )

    def _refused_connection(self, event: ConnectionRefused) -> None:
        eventlog.warning(
            "connection rejected",
            listener="amqp",
            peer=event.peer,
            reason=close_reasons.TOO_MANY,
            limit=self.context.engine.options.max_connections,
        )

    def _active(self, event: ConsumerActive) -> None:
        queue, conn = self.context.queues.by_id(event.queue), self.connections.get(event.conn)
        if queue is not None and conn is not None:
            eventlog.debug(
                "consumer active",
                peer=conn.peer,
                user=conn.user_name,
                vhost=queue.vhost,
                queue=queue.name,
                consumer_tag=event.tag.decode(errors="replace"),
            )

    # -- ends

    def _refuse(self, conn: Connection, number: int, reply: Reply) -> None:
        """Close the channel, or all of it, whichever the code says. The event is answered by it."""
        here = conn.channels.get(number)
        if reply.ends_channel and here is not None and conn.state is State.RUNNING:
            self._log_channel_closed(conn, number, reply)
            self.context.engine.resume(conn.id, b"" if here.closing else here.close(reply))
        else:
            self._close(conn, reply)

    def _close(self, conn: Connection, reply: Reply) -> None:
        if conn.state is State.CLOSING or conn.ending:
            return
        eventlog.log(conn.log_level, "connection closing", **_about(conn, reply))
        conn.ending = close_reasons.BY_BROKER
        self.context.engine.closing(conn.id, reply.close_connection())
        connection.leave(conn)
        self._closing[conn.id] = trio.current_time() + LAST_WORD

    def _fail(self, conn: Connection, index: int, error: BaseException) -> None:
        """Our own mistake: it ends this connection and no other."""
        if not is_failure(error):
            raise error
        eventlog.failure(
            "method failed", error, peer=conn.peer, user=conn.user_name, method=name_of(index)
        )
        self._close(conn, our_mistake(index))

    async def _cut_off(self) -> None:
        """Hang up connections that don't answer our close in time, until cancelled."""
        while True:
            await trio.sleep(LOOK)
            now = trio.current_time()
            for id in [id for id, limit in self._closing.items() if limit <= now]:
                del self._closing[id]
                with contained("connection not closed", peer=self.peer_of(id)):
                    self.context.engine.hang_up(id)

    def _log_channel_closed(self, conn: Connection, number: int, reply: Reply) -> None:
        eventlog.log(conn.log_level, "channel closed", channel=number, **_about(conn, reply))

    # -- events of other connections

    def _tell_consumers(self, queue: Queue, consumers: list[Consumer]) -> None:
        """Their queue is gone: basic.cancel, to those who said that they understand it."""
        for consumer in consumers:
            conn = self.connections.get(consumer.conn)
            if conn is not None and conn.announced("consumer_cancel_notify"):
                cancel = encode_method(
                    consumer.channel,
                    commands.Basic.Cancel,
                    consumer.tag.decode(errors="replace"),
                    True,
                )
                here = conn.channels.get(consumer.channel)
                if here is not None and here.behind is not None:
                    here.behind += cancel
                else:
                    self.context.engine.send(conn.id, cancel)

    def _vhost_gone(self, vhost: str) -> None:
        theirs = [conn for conn in self.connections.values() if conn.vhost == vhost]
        self.close_all(theirs, f"vhost '{vhost}' is deleted", close_reasons.NOT_ALLOWED)

    def _permissions_changed(self, change: Change) -> None:
        self.context.engine.forget_permissions()
        theirs = [
            conn
            for conn in self.connections.values()
            if conn.user is not None and change.user in (None, conn.user.name)
        ]
        if change.closing:
            self.close_all(
                theirs, change.closing, close_reasons.USER_CHANGED, change=change.closing
            )
            return
        running = [conn for conn in theirs if conn.state is State.RUNNING]
        self.close_all(
            revoked.shut_out(self.context, running),
            "access to the vhost was revoked",
            close_reasons.NOT_ALLOWED,
        )
        revoked.cancel_consumers(
            self.context, [conn for conn in running if conn.state is State.RUNNING]
        )


EVENTS: dict[type[Event], Callable[[AmqpServer, Any], None]] = {
    ConnectionHello: AmqpServer._hello,
    MethodArrived: AmqpServer._method,
    RouteWanted: AmqpServer._route,
    DeadRouteWanted: AmqpServer._dead_route,
    RuleBroken: AmqpServer._rule_broken,
    ConnectionClosed: AmqpServer._closed,
    OutputReady: AmqpServer._output,
    InputWanted: AmqpServer._input,
    QueueIdle: AmqpServer._queue_idle,
    ConsumerTimedOut: AmqpServer._consumer_timed_out,
    AlarmChanged: AmqpServer._alarm,
    WrongProtocol: AmqpServer._wrong_protocol,
    ConnectionRefused: AmqpServer._refused_connection,
    ConsumerActive: AmqpServer._active,
}


def _about(conn: Connection, reply: Reply) -> dict[str, object]:
    """Whose connection or channel is closed, and the text for the client."""
    return {
        "peer": conn.peer,
        "user": conn.user_name,
        "vhost": conn.vhost or "-",
        "method": name_of(reply.method),
        "reason": f"{reply.code} {reply.full_text}",
    }


def _access_granted(number: int) -> bytes:
    payload = ACCESS_REQUEST_OK
    return b"\x01" + number.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"
