"""The Kafka server: the engine's events to the handlers that answer them.

    engine ── event ──▶ KafkaServer ── Request ──▶ metadata.py, admin.py, groups/, transactions/, …
                             │                        │
                             ◀─────── response ───────┘   om_kafka_answer: sent, and reading goes on

The engine answers Produce and Fetch itself, once it knows what a connection may do with the topics
they name (KafkaRightsWanted). Everything else comes here, one request of a connection at a time;
the next one is read when this one is answered. An answer that waits (for the disk, for the other
members of a group) is a task.

A client that doesn't log in is taken for an anonymous one with its first request that is about
neither versions nor a login; or when it has asked for versions and nothing more for a while, as
librdkafka does on connections that it may need later.
"""

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import trio

from ottermq import eventlog
from ottermq.auth import Change
from ottermq.auth.before_hello import BeforeHello
from ottermq.config import Address
from ottermq.contained import contained, is_failure
from ottermq.engine.events import (
    ConnectionClosed,
    ConnectionHello,
    ConnectionRefused,
    Event,
    InputWanted,
    KafkaRepackWanted,
    KafkaRequest,
    KafkaRightsWanted,
    OutputReady,
    WrongProtocol,
)
from ottermq.engine.types import KafkaRights, Protocol
from ottermq.errors import Malformed, NotAllowed, OtterError
from ottermq.kafka import (
    acls,
    admin,
    codec,
    config_admin,
    ids,
    logdirs,
    metadata,
    offsets,
    one_node,
    quotas,
    sasl,
    scram,
    versions,
)
from ottermq.kafka.api import Api
from ottermq.kafka.codec import UnknownVersion
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error, KafkaError, LoginFailed, error_of
from ottermq.kafka.groups import admin as groups
from ottermq.kafka.groups import membership, offset_commit
from ottermq.kafka.repacking import Repacker
from ottermq.kafka.request import Body, Connection, Handler, Request
from ottermq.kafka.transactions import admin as transactions
from ottermq.kafka.transactions import producer_requests
from ottermq.net import close_reasons
from ottermq.net.protocol_sniff import protocol_of
from ottermq.net.tls_bridge import Peer
from ottermq.net.virtual_conn import VirtualConnection
from ottermq.wal import LogError

EXPECTED = (KafkaError, OtterError, LogError)  # what rules raise; all else is our own mistake
MODULES = (
    versions,
    metadata,
    sasl,
    admin,
    config_admin,
    offsets,
    logdirs,
    one_node,
    membership,
    offset_commit,
    groups,
    acls,
    quotas,
    scram,
    producer_requests,
    transactions,
)
HANDLERS: dict[Api, Handler] = {
    api: handler for module in MODULES for api, handler in module.HANDLERS.items()
}
ENGINES = frozenset({Api.PRODUCE, Api.FETCH})  # served by the engine
SILENCE = 0.4  # of the time for a login: looked at twice
BEFORE_LOGIN = frozenset({Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})


class KafkaServer:
    def __init__(self, context: KafkaContext) -> None:
        self.context = context
        self.connections: dict[int, Connection] = {}
        self.stopping = False
        self._nursery: trio.Nursery | None = None
        self._virtual: dict[int, VirtualConnection] = {}  # of TLS connections
        self._local: dict[int, str] = {}  # and where these came to
        self._unauthenticated: dict[int, Connection] = {}  # nor taken for anonymous yet
        self._before_hello = BeforeHello()
        self._repacker = Repacker(context.engine, self._end)
        context.served = frozenset(HANDLERS) | ENGINES
        context.auth.on_change(self._permissions_changed)

    async def run(self, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        """Answers that take a while, until cancelled. Events come by `take`."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await self._admit_silent_ones()

    async def _admit_silent_ones(self) -> None:
        """Well before the engine's patience with them ends; until cancelled."""
        seen: set[int] = set()
        while True:
            await trio.sleep(self.context.engine.options.handshake_timeout_ms / 1000 * SILENCE)
            silent = [self._unauthenticated.pop(id) for id in seen & self._unauthenticated.keys()]
            for conn in silent:
                with contained("client not admitted", peer=conn.peer):
                    if (
                        conn.user is None
                        and conn.login is None
                        and sasl.anonymous(self.context, conn)
                    ):
                        self._admit(conn)
            seen = set(self._unauthenticated)

    def stop(self) -> None:
        """Kafka has no word for goodbye."""
        self.stopping = True
        for conn in list(self.connections.values()):
            self._end(conn, close_reasons.STOPPED, level=logging.INFO)

    def close_for_operator(self, conn: Connection) -> None:
        self._end(conn, close_reasons.BY_OPERATOR, level=logging.INFO)

    def open_virtual(self, peer: Peer) -> VirtualConnection:
        """A TLS connection is through its handshake (ottermq/net/tls_bridge.py)."""
        conn = self.context.engine.virtual(str(Address(peer.host, peer.port)), Protocol.KAFKA)
        self._local[conn] = peer.local
        virtual = self._virtual[conn] = VirtualConnection(self.context.engine, conn)
        return virtual

    # -- events

    def take(self, event: Event) -> None:
        handler = EVENTS.get(type(event))
        if handler is None:
            eventlog.warning("engine event unknown", listener="kafka", kind=type(event).__name__)
        else:
            handler(self, event)

    def peer_of(self, id: int) -> str:
        conn = self.connections.get(id)
        return conn.peer if conn is not None else "-"

    def break_off(self, id: int) -> None:
        """A defect, which the log has: the connection ends."""
        conn = self.connections.get(id)
        if conn is not None:
            self._end(conn, close_reasons.INTERNAL_ERROR)
        else:
            self.context.engine.hang_up(id)

    def _hello(self, event: ConnectionHello) -> None:
        secure = event.conn in self._virtual
        local = self._local[event.conn] if secure else event.local
        listener = "kafkas" if secure else "kafka"
        conn = Connection(event.conn, event.peer, local, self.context, listener)
        self.connections[conn.id] = self._unauthenticated[conn.id] = conn
        if self.stopping:
            self._end(conn, close_reasons.STOPPED, level=logging.INFO)
        else:
            # Clients ask for versions, and then the first batch may come, as large as they make it.
            trusted = sasl.anonymous(self.context, conn) is not None
            self.context.engine.kafka_trust(conn.id, trusted)

    def _request(self, event: KafkaRequest) -> None:
        conn = self.connections.get(event.conn)
        if conn is None:
            return
        slot = event.slot
        if conn.login is not None and conn.login.bare:
            self._start(conn.id, self._bare_token, conn, slot, event.payload)
            return
        if event.api not in BEFORE_LOGIN and not self._admit(conn):
            return
        if event.api in ENGINES:  # it came before the engine knew the client
            self.context.engine.kafka_retry(conn.id)
            return
        try:
            request = codec.decode_request(conn, event.payload)
        except UnknownVersion as unknown:
            self._unknown(conn, slot, unknown)
        except codec.TooLarge as large:
            error = KafkaError(Error.INVALID_REQUEST, str(large))
            self._fail(large.request, slot, error)
        except Malformed as malformed:
            reason = close_reasons.MALFORMED
            self._end(conn, reason, api=event.api, version=event.version, error=malformed)
        else:
            conn.client_id = request.client_id
            self._serve(conn, slot, request)

    def _admit(self, conn: Connection) -> bool:
        """Find the connection's user. False: it has none, and the connection ends."""
        if conn.user is not None:
            return True
        user = sasl.anonymous(self.context, conn) if conn.login is None else None
        if user is None:
            self._end(conn, close_reasons.NOT_LOGGED_IN)
            return False
        try:
            sasl.enter(self.context, conn, user, sasl.ANONYMOUS)
        except NotAllowed as error:
            self._end(conn, close_reasons.NOT_ALLOWED, error=error)
            return False
        return True

    def _unknown(self, conn: Connection, slot: int, unknown: UnknownVersion) -> None:
        if unknown.api == Api.API_VERSIONS:
            self.context.engine.kafka_answer(
                conn.id, slot, versions.unsupported(unknown.correlation)
            )
        else:
            reason = close_reasons.UNKNOWN_VERSION
            self._end(conn, reason, api=unknown.api, version=unknown.version)

    def _serve(self, conn: Connection, slot: int, request: Request) -> None:
        handler = HANDLERS.get(request.api)
        if handler is None:
            reason = close_reasons.UNKNOWN_API
            self._end(conn, reason, api=request.api.name, version=request.version)
            return
        try:
            answer = handler(self.context, request)
        except BaseException as error:
            self._fail(request, slot, error)
            return
        if isinstance(answer, Coroutine):
            self._start(conn.id, self._serve_later, request, slot, answer)
        else:
            self._answer(request, slot, answer)

    async def _serve_later(
        self, request: Request, slot: int, answer: Coroutine[Any, Any, Body | bytes | None]
    ) -> None:
        try:
            body = await answer
        except BaseException as error:
            self._fail(request, slot, error)
        else:
            self._answer(request, slot, body)

    def _answer(self, request: Request, slot: int, body: Body | bytes | None) -> None:
        try:
            data = b"" if body is None else codec.encode_response(request, body)
        except BaseException as error:
            self._fail(request, slot, error)
        else:
            self.context.engine.kafka_answer(request.conn.id, slot, data)

    def _fail(self, request: Request, slot: int, error: BaseException) -> None:
        """Answered with an error code, if the response has a place for one."""
        if not is_failure(error):
            raise error
        conn, api, version = request.conn, request.api, request.version
        expected = isinstance(error, EXPECTED)
        if not expected:
            eventlog.failure(
                "request failed", error, peer=conn.peer, user=conn.user_name or "-",
                api=api.name, version=version,
            )  # fmt: skip
        if not codec.has_error_code(api, version):
            why: dict[str, Any] = {"error": error} if expected else {}
            self._end(conn, close_reasons.REQUEST_FAILED, api=api.name, **why)
            return
        code = error_of(error) if expected else Error.UNKNOWN_SERVER_ERROR
        text = error.text if isinstance(error, KafkaError) else str(error) if expected else None
        data = codec.encode_response(request, codec.error_body(api, version, code, text))
        if isinstance(error, LoginFailed):
            self._login_failed(conn, error, data)
        else:
            self.context.engine.kafka_answer(conn.id, slot, data)

    async def _bare_token(self, conn: Connection, slot: int, token: bytes) -> None:
        try:
            answer = await sasl.step(self.context, conn, token)
        except LoginFailed as error:
            self._login_failed(conn, error)
        except EXPECTED as error:
            self._end(conn, close_reasons.LOGIN_FAILED, error=error)
        else:
            data = len(answer).to_bytes(4, "big") + answer
            self.context.engine.kafka_answer(conn.id, slot, data)

    def _login_failed(self, conn: Connection, error: LoginFailed, data: bytes = b"") -> None:
        if error.is_logged:  # as `login refused`, or counted there
            conn.log_level = logging.DEBUG
            self._end(conn, close_reasons.LOGIN_FAILED, data, level=logging.DEBUG)
        else:
            self._end(conn, close_reasons.LOGIN_FAILED, data, error=error.text)

    def _start(
        self, conn: int, work: Callable[..., Coroutine[Any, Any, None]], *about: Any
    ) -> None:
        """A task for that connection: a failure in it ends the connection and nothing else."""
        assert self._nursery is not None
        self._nursery.start_soon(self._guarded, conn, partial(work, *about))

    async def _guarded(self, id: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except BaseException as error:
            if not is_failure(error):
                raise
            conn = self.connections.get(id)
            peer, user = (conn.peer, conn.user_name or "-") if conn else ("-", "-")
            eventlog.failure("request failed", error, peer=peer, user=user)
            self.break_off(id)

    def _rights(self, event: KafkaRightsWanted) -> None:
        """What may this connection do with these? Naming a topic also makes the engine know it."""
        conn = self.connections.get(event.conn)
        if conn is None:
            return
        for raw in event.topics:
            name = raw.decode(errors="replace")
            if self.context.topics.find(name) is not None:
                rights = KafkaRights.NONE
                if conn.allows_topic("read", name):
                    rights |= KafkaRights.READ
                if conn.allows_topic("write", name):
                    rights |= KafkaRights.WRITE
                self.context.engine.kafka_permit(conn.id, raw, rights)
        if event.transactional_id:
            id = event.transactional_id.decode(errors="replace")
            allowed = ids.fits(id) and conn.allows_transaction("write", id)
            self.context.engine.kafka_permit_producer(conn.id, event.transactional_id, allowed)
        self.context.engine.kafka_retry(conn.id)

    def _batches(self, event: KafkaRepackWanted) -> None:
        conn = self.connections.get(event.conn)
        if conn is not None:
            self._start(event.conn, self._repacker.repack, conn, event)

    def _closed(self, event: ConnectionClosed) -> None:
        conn = self.connections.pop(event.conn, None)
        if conn is not None:
            conn.is_closed = True
        self._unauthenticated.pop(event.conn, None)
        self._local.pop(event.conn, None)
        virtual = self._virtual.pop(event.conn, None)
        if virtual is not None:
            virtual.close()
        left = virtual is not None and virtual.client_left
        reason = close_reasons.BY_CLIENT if left else event.reason
        if conn is None:
            listener = "kafka" if virtual is None else "kafkas"
            unremarkable = reason in close_reasons.UNREMARKABLE
            self._before_hello.closed(listener, event.peer, reason, unremarkable=unremarkable)
            return
        user = conn.user_name or "-"
        sasl.leave(self.context, conn)
        eventlog.log(
            conn.log_level,
            "connection closed",
            listener=conn.listener,
            peer=conn.peer,
            user=user,
            reason=reason,
        )

    def _output(self, event: OutputReady) -> None:
        if event.conn in self._virtual:
            self._virtual[event.conn].has_output()

    def _input(self, event: InputWanted) -> None:
        if event.conn in self._virtual:
            self._virtual[event.conn].has_room()

    def _wrong_protocol(self, event: WrongProtocol) -> None:
        what = protocol_of(event.received)
        eventlog.warning(
            "connection rejected",
            listener="kafka",
            peer=event.peer,
            reason=close_reasons.WRONG_PROTOCOL,
            received=what,
        )

    def _refused_connection(self, event: ConnectionRefused) -> None:
        eventlog.warning(
            "connection rejected",
            listener="kafka",
            peer=event.peer,
            reason=close_reasons.TOO_MANY,
            limit=self.context.engine.options.max_connections,
        )

    # -- ends

    def _end(
        self,
        conn: Connection,
        reason: str,
        data: bytes = b"",
        *,
        level: int = logging.WARNING,
        **details: Any,
    ) -> None:
        """data: the last response. Its reason is logged once, and before it is gone."""
        if conn.is_ending:
            return
        conn.is_ending = True
        eventlog.log(
            level,
            "connection closing",
            listener=conn.listener,
            peer=conn.peer,
            user=conn.user_name or "-",
            reason=reason,
            **details,
        )
        self.context.engine.hang_up(conn.id, data)

    def _permissions_changed(self, change: Change) -> None:
        """The engine forgets by the AMQP server's word, and asks again."""
        self.context.permissions_version += 1
        for conn in list(self.connections.values()):
            if change.closing and conn.user is not None and conn.user.name == change.user:
                self._end(
                    conn, close_reasons.USER_CHANGED, level=logging.INFO, change=change.closing
                )


EVENTS: dict[type[Event], Callable[[KafkaServer, Any], None]] = {
    ConnectionHello: KafkaServer._hello,
    KafkaRequest: KafkaServer._request,
    KafkaRightsWanted: KafkaServer._rights,
    KafkaRepackWanted: KafkaServer._batches,
    ConnectionClosed: KafkaServer._closed,
    OutputReady: KafkaServer._output,
    InputWanted: KafkaServer._input,
    WrongProtocol: KafkaServer._wrong_protocol,
    ConnectionRefused: KafkaServer._refused_connection,
}
