"""A connection from its greeting to its goodbye: connection.start, tune, open, close.

    client                      broker                     state when the client's word comes
    protocol header        →
                           ←    start
    start-ok               →    (login)                    STARTING
                           ←    secure                     … a mechanism of several rounds
    secure-ok              →                               SECURING
                           ←    tune
    tune-ok                →                               TUNING
    open                   →                               OPENING
                           ←    open-ok
    …                                                      RUNNING
    close                  →
                           ←    close-ok

A method in any state but its own is an error. A connection that we close (CLOSING) accepts
nothing but the client's close-ok, or its close when the two crossed.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

from pamqp.base import Frame
from pamqp.commands import Connection as Methods

from ottermq import __version__, eventlog
from ottermq.amqp.channel import Channel
from ottermq.amqp.context import AmqpContext
from ottermq.amqp.deferred_replies import Answer
from ottermq.amqp.frames import encode_method
from ottermq.amqp.replies import Refused
from ottermq.auth import Access, Kind, User
from ottermq.auth.scram import HASHES as SCRAM
from ottermq.auth.scram_login import ScramLogin
from ottermq.engine.types import ConnFlags
from ottermq.errors import LoginRefused
from ottermq.net import close_reasons

INTERNAL = "internal"  # the listener of connections that the broker makes itself
FRAME_MIN = 4096
CHANNEL_MIN = 1

# As RabbitMQ's: clients switch their own behaviour by these names.
CAPABILITIES = dict.fromkeys(
    (
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    ),
    True,
)
SERVER_PROPERTIES: dict[str, Any] = {
    "capabilities": CAPABILITIES,
    "product": "OtterMQ",
    "version": __version__,
    "cluster_name": "ottermq",
    "platform": "Python and C",
    "copyright": "",
    "information": "Licensed under the Apache License 2.0",
}


class State(StrEnum):
    STARTING = "starting"
    SECURING = "securing"
    TUNING = "tuning"
    OPENING = "opening"
    RUNNING = "running"
    CLOSING = "closing"


def _now() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True, eq=False)
class Connection:
    id: int
    peer: str
    context: AmqpContext
    certificate: str | None = None  # the name in the client's, when TLS verified one
    state: State = State.STARTING
    login: ScramLogin | None = None  # SECURING: what the client's next word is for
    user: User | None = None
    vhost: str = ""
    vhost_number: int = 0
    channel_max: int = 0
    frame_max: int = 0
    heartbeat: int = 0  # seconds
    mechanism: str = ""  # of the login
    connected_at: int = field(default_factory=_now)
    properties: dict[str, Any] = field(default_factory=dict)
    channels: dict[int, Channel] = field(default_factory=dict)
    counted: bool = False  # in the limits
    listener: str = "amqp"  # amqp, amqps or INTERNAL
    log_level: int = logging.INFO  # of the lines about its end
    ending: str = ""  # why it ends, once one side has said connection.close

    @property
    def user_name(self) -> str:
        return self.user.name if self.user else "-"

    @property
    def host(self) -> str:
        return self.peer.rpartition(":")[0].strip("[]")

    def is_there(self) -> bool:
        return self.state is not State.CLOSING

    def announced(self, capability: str) -> bool:
        """Did the client say that it understands this?"""
        capabilities = self.properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(capability) is True

    def whose(self) -> User:
        """The user; only once the connection is logged in."""
        assert self.user is not None
        return self.user

    def check(self, access: Access, kind: Kind, name: str) -> None:
        """AccessRefused: this user may not configure, write or read that."""
        self.context.auth.permissions.check(self.whose(), self.vhost, access, kind, name)

    def check_any(self, kind: Kind, name: str) -> None:
        """For passive declarations: any permission on a name is enough to learn that it exists."""
        allows = self.context.auth.permissions.allows
        user = self.whose()
        if not (
            allows(user, self.vhost, "read", kind, name)
            or allows(user, self.vhost, "write", kind, name)
        ):
            self.check("configure", kind, name)


def start(conn: Connection) -> bytes:
    """The first word, once the protocol header is right."""
    return _start(conn.context.auth.users.mechanisms(conn.certificate))


@cache
def _start(mechanisms: str) -> bytes:
    return encode_method(0, Methods.Start, 0, 9, SERVER_PROPERTIES, mechanisms.encode(), b"en_US")


async def start_ok(conn: Connection, method: Methods.StartOk) -> bytes | None:
    conn.properties = dict(method.client_properties)
    conn.mechanism = method.mechanism
    response: Any = method.response  # bytes, as frames.py reads long strings
    users = conn.context.auth.users
    if method.mechanism in SCRAM:
        conn.login = users.challenge(method.mechanism, response)
        return _secure(conn, conn.login.challenge)
    try:
        conn.user = await users.authenticate(
            method.mechanism, response, conn.host, conn.certificate, conn.is_there
        )
    except LoginRefused as refusal:
        _not_let_in(conn, refusal)
        return None
    return _tune(conn)


async def secure_ok(conn: Connection, method: Methods.SecureOk) -> bytes | None:
    """The client's proof; or, once it has ours and believes it, an empty word."""
    if conn.login is None:
        return _tune(conn)
    response: Any = method.response
    try:
        conn.user, proof = await conn.context.auth.users.finish(conn.login, response, conn.host)
    except LoginRefused as refusal:
        _not_let_in(conn, refusal)
        return None
    conn.login = None
    return _secure(conn, proof)


def _not_let_in(conn: Connection, refusal: LoginRefused) -> None:
    conn.log_level = logging.DEBUG  # auth has written the line, or counted it
    if conn.announced("authentication_failure_close"):
        raise refusal
    cut_off(conn, close_reasons.LOGIN_FAILED)  # it would take a close for a protocol error


def cut_off(conn: Connection, reason: str, **details: object) -> None:
    """Without connection.close: it is too early for that, or something is broken."""
    if conn.ending:
        return
    conn.ending = close_reasons.BY_BROKER
    eventlog.log(
        conn.log_level,
        "connection closing",
        listener=conn.listener,
        peer=conn.peer,
        user=conn.user_name,
        reason=reason,
        **details,
    )
    conn.context.engine.hang_up(conn.id)


def _secure(conn: Connection, challenge: bytes) -> bytes:
    conn.state = State.SECURING
    return encode_method(0, Methods.Secure, challenge)


def _tune(conn: Connection) -> bytes:
    conn.state = State.TUNING
    offer = conn.context.settings
    heartbeat = int(offer.heartbeat.total_seconds())
    return encode_method(0, Methods.Tune, offer.channel_max, offer.frame_max, heartbeat)


def tune_ok(conn: Connection, method: Methods.TuneOk) -> bytes:
    offer = conn.context.settings
    _check_tuned("frame_max", method.frame_max, FRAME_MIN, offer.frame_max)
    _check_tuned("channel_max", method.channel_max, CHANNEL_MIN, offer.channel_max)
    conn.channel_max = method.channel_max
    conn.frame_max, conn.heartbeat = method.frame_max, method.heartbeat
    conn.context.engine.tune(conn.id, method.frame_max, method.channel_max, method.heartbeat)
    conn.state = State.OPENING
    return b""


def _check_tuned(what: str, wanted: int, least: int, most: int) -> None:
    """0 asks for no limit, which is more than any limit we have."""
    if 0 < wanted < least:
        raise Refused(
            530,
            f"negotiated {what} = {wanted} is lower than the minimum allowed value ({least})",
        )
    if wanted == 0 or wanted > most:
        detail = " (no limit)" if what == "channel_max" and wanted == 0 else ""
        raise Refused(
            530,
            f"negotiated {what} = {wanted}{detail} is higher than the maximum allowed value"
            f" ({most})",
        )


def open(conn: Connection, method: Methods.Open) -> bytes:
    context, user, vhost = conn.context, conn.whose(), method.virtual_host
    context.auth.permissions.check_vhost(user, vhost, exists=vhost in context.topology.vhosts)
    context.auth.limits.connection_opened(user, vhost)
    conn.vhost, conn.counted = vhost, True
    conn.vhost_number = context.queues.vhost_number(vhost)
    flags = ConnFlags(0)
    for capability, flag in (
        ("connection.blocked", ConnFlags.BLOCKED_CAPABLE),
        ("consumer_cancel_notify", ConnFlags.CANCEL_CAPABLE),
    ):
        if conn.announced(capability):
            flags |= flag
    if "impersonator" in user.tags:
        flags |= ConnFlags.MAY_IMPERSONATE
    context.engine.open(conn.id, conn.vhost_number, user.name, flags)
    conn.state = State.RUNNING
    eventlog.info(
        "connection opened",
        listener=conn.listener,
        peer=conn.peer,
        user=user.name,
        vhost=vhost,
        name=conn.properties.get("connection_name", ""),
    )
    return encode_method(0, Methods.OpenOk, "")


def close(conn: Connection, method: Methods.Close) -> None:
    """All that the connection held is free before the client reads our answer."""
    conn.ending = close_reasons.BY_CLIENT
    conn.context.engine.closing(conn.id, b"")
    leave(conn)
    conn.context.engine.hang_up(conn.id, encode_method(0, Methods.CloseOk))


def close_crossed(conn: Connection, method: Methods.Close | Methods.CloseOk) -> None:
    """We have closed it already; the client agrees, or came to the same at the same time."""
    crossed = isinstance(method, Methods.Close)
    conn.context.engine.hang_up(conn.id, encode_method(0, Methods.CloseOk) if crossed else b"")


def update_secret(conn: Connection, method: Methods.UpdateSecret) -> bytes:
    """Passwords don't expire here: there is nothing a new one would prolong."""
    return encode_method(0, Methods.UpdateSecretOk)


def leave(conn: Connection) -> None:
    """Release all that is the connection's; called once it can't do anything any more."""
    conn.state = State.CLOSING
    context = conn.context
    for channel in list(conn.channels.values()):
        channel.forget()
    context.queues.remove_unasked(context.topology.owned_by(conn.id))
    if conn.counted:
        conn.counted = False
        context.auth.limits.connection_closed(conn.whose(), conn.vhost)


# Method → the state it belongs to and what it does.
class Rule(NamedTuple):
    state: State
    handler: Callable[[Connection, Any], Answer]


HANDLERS: dict[type[Frame], Rule] = {
    Methods.StartOk: Rule(State.STARTING, start_ok),
    Methods.SecureOk: Rule(State.SECURING, secure_ok),
    Methods.TuneOk: Rule(State.TUNING, tune_ok),
    Methods.Open: Rule(State.OPENING, open),
    Methods.Close: Rule(State.RUNNING, close),
    Methods.UpdateSecret: Rule(State.RUNNING, update_secret),
}


def handle(conn: Connection, method: Frame) -> Answer:
    """On channel 0."""
    if conn.state is State.CLOSING:
        if isinstance(method, Methods.CloseOk | Methods.Close):
            close_crossed(conn, method)
            return None
        return b""
    rule = HANDLERS.get(type(method))
    if rule is None or conn.state is not rule.state:
        raise Refused(504, f"unexpected method in connection state {conn.state}")
    return rule.handler(conn, method)
