"""SaslHandshake and SaslAuthenticate: PLAIN, SCRAM-SHA-256 and -512, for the users of AMQP.

    SaslHandshake v1       the client names a mechanism
    SaslAuthenticate …     a token there and one back, until the exchange is complete
    SaslHandshake v0       as v1, but the tokens that follow are bare: a size and the token

A login that fails is answered, and then the connection ends: there is no second try on it.
"""

from dataclasses import dataclass
from typing import Protocol

from ottermq import eventlog
from ottermq.auth import User, scram
from ottermq.auth.scram_login import ScramLogin
from ottermq.errors import LoginRefused, Malformed, NotAllowed
from ottermq.kafka.anonymous import user_of
from ottermq.kafka.api import Api
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error, KafkaError, LoginFailed
from ottermq.kafka.request import Body, Connection, Handler, Request

REFUSED = "Authentication failed: invalid credentials"
ANONYMOUS = "anonymous"  # beside a mechanism's name: there was no login


class Login(Protocol):
    """An exchange under way. `bare`: its tokens come without a request around them."""

    bare: bool

    @property
    def mechanism(self) -> str: ...

    async def take(self, conn: Connection, token: bytes) -> tuple[bytes, User | None]:
        """Our token, and the user once that is settled."""


@dataclass
class Plain:
    bare: bool
    mechanism: str = "PLAIN"

    async def take(self, conn: Connection, token: bytes) -> tuple[bytes, User | None]:
        users = conn.context.auth.users
        return b"", await users.authenticate("PLAIN", token, conn.host, is_there=conn.is_there)


@dataclass
class Scram:
    mechanism: str
    bare: bool
    login: ScramLogin | None = None

    async def take(self, conn: Connection, token: bytes) -> tuple[bytes, User | None]:
        users = conn.context.auth.users
        if self.login is None:
            self.login = users.challenge(self.mechanism, token)
            return self.login.challenge, None
        user, proof = await users.finish(self.login, token, conn.host)
        return proof, user


MECHANISMS = ("PLAIN", *scram.HASHES)


def sasl_handshake(kafka: KafkaContext, request: Request) -> Body:
    conn, mechanism = request.conn, request.body["mechanism"]
    if conn.user is not None or conn.login is not None:
        return {"error_code": Error.ILLEGAL_SASL_STATE, "mechanisms": MECHANISMS}
    if mechanism not in MECHANISMS:
        return {"error_code": Error.UNSUPPORTED_SASL_MECHANISM, "mechanisms": MECHANISMS}
    bare = request.version == 0
    if mechanism == "PLAIN":
        conn.login = Plain(bare)
    else:
        conn.login = Scram(mechanism, bare)
    return {"mechanisms": MECHANISMS}


async def sasl_authenticate(kafka: KafkaContext, request: Request) -> Body:
    if request.conn.login is None:
        raise KafkaError(Error.ILLEGAL_SASL_STATE, "SaslHandshake comes first")
    return {"auth_bytes": await step(kafka, request.conn, request.body["auth_bytes"])}


async def step(kafka: KafkaContext, conn: Connection, token: bytes) -> bytes:
    """Our token. LoginFailed: it is over."""
    login: Login = conn.login
    try:
        answer, user = await login.take(conn, token)
        if user is not None:
            enter(kafka, conn, user, login.mechanism)
    except LoginRefused:
        raise LoginFailed(REFUSED, is_logged=True) from None
    except (Malformed, NotAllowed) as error:
        raise LoginFailed(str(error)) from None
    return answer


def enter(kafka: KafkaContext, conn: Connection, user: User, login: str) -> None:
    """The client may be served, in this user's name. NotAllowed: the vhost isn't this user's, or
    too many are in already. login: how it was known."""
    if conn.is_closed:
        return  # it left meanwhile, and would be counted for ever
    vhost = kafka.settings.vhost
    kafka.auth.permissions.check_vhost(user, vhost, exists=vhost in kafka.topology.vhosts)
    kafka.auth.limits.connection_opened(user, vhost)
    conn.user, conn.login = user, None
    conn.is_anonymous = login == ANONYMOUS
    kafka.engine.kafka_open(conn.id, user.name)
    eventlog.info(
        "connection opened", listener=conn.listener, peer=conn.peer, user=user.name, login=login,
        software=conn.software,
    )  # fmt: skip


def leave(kafka: KafkaContext, conn: Connection) -> None:
    if conn.user is not None:
        kafka.auth.limits.connection_closed(conn.user, kafka.settings.vhost)
        conn.user = None


def anonymous(kafka: KafkaContext, conn: Connection) -> User | None:
    """The user of a client that doesn't log in; None: it has to."""
    return user_of(kafka.auth, kafka.settings, conn.host)


HANDLERS: dict[Api, Handler] = {
    Api.SASL_HANDSHAKE: sasl_handshake,
    Api.SASL_AUTHENTICATE: sasl_authenticate,
}
