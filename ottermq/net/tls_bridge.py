"""A TLS connection, from its handshake to its end: bytes between trio's SSLStream and an EngineEnd.

The engine speaks AMQP and knows no TLS. What we decrypt is fed to it as if it came from a
socket, and what it wants to send is drained and encrypted. It holds us back by taking less than
we feed; the client holds it back by not reading, as our drain stops then.

    client ══ SSLStream ── receive_some → feed ─→ engine
                        ←─ send_all ← drain ←──
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import trio

from ottermq.config import Address, Config
from ottermq.net import close_reasons
from ottermq.net.listeners import Service
from ottermq.net.tls import Contexts, name_of

CHUNK = 128 * 1024  # bytes drained at a time: a few TLS records in one write
LINGER = 1.0  # seconds in which our final bytes may arrive and a client may still send


class EngineEnd(Protocol):
    """The engine's end of one connection."""

    def feed(self, data: bytes) -> int:
        """What the client sent; returns how many bytes of it were taken."""

    async def wait_room(self) -> None:
        """Until feed may take something again, or the engine has closed it."""

    def drain(self, most: int) -> bytes:
        """What the client is to get, up to that many bytes; empty: nothing for now."""

    async def wait_output(self) -> None:
        """Until drain has something again, or the engine has closed it."""

    def hang_up(self) -> None:
        """The client is gone. The engine closes it when it has settled what that means."""

    @property
    def closed(self) -> bool:
        """The engine is done with it: no output comes on top of what can be drained."""

    async def wait_closed(self) -> None: ...


@dataclass(frozen=True)
class Peer:
    host: str
    port: int
    certificate: str | None  # the name in it, for EXTERNAL
    protocol: str  # TLSv1.3
    cipher: str
    local: str = ""  # the address of ours that it came to, host:port


@dataclass(frozen=True)
class TlsBridge:
    """Serves connections of a TLS port; `serve` fits a Service."""

    contexts: Contexts
    login_from: str
    handshake_timeout: float
    open_virtual: Callable[[Peer], EngineEnd]

    async def serve(self, stream: trio.SocketStream) -> str | None:
        """Returns why there was no TLS connection, for the log; None: there was one, and the
        protocol's own line says how it ended."""
        # Most clients just close: as AMQP says where it ends, a missing goodbye hides nothing.
        secure = trio.SSLStream(
            stream, self.contexts.current, server_side=True, https_compatible=True
        )
        with trio.move_on_after(self.handshake_timeout) as patience:
            try:
                await secure.do_handshake()
            except trio.BrokenResourceError as error:
                return f"{close_reasons.TLS_FAILED}: {_reason(error)}"
        if patience.cancelled_caught:
            return close_reasons.TLS_TIMEOUT
        end = self.open_virtual(_peer(secure, self.login_from))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_take, secure, end)
                nursery.start_soon(_hurry, end, nursery.cancel_scope)
                await _give(secure, end)
                nursery.cancel_scope.cancel()
        finally:
            end.hang_up()
        await _part(secure)
        return None


def services(
    contexts: Contexts, config: Config, most: int, ports: Mapping[str, Callable[[Peer], EngineEnd]]
) -> list[Service]:
    """One for each TLS port that is wanted. most: connections at a time."""
    patience = config.amqp.handshake_timeout.total_seconds()
    return [
        Service(
            name, TlsBridge(contexts, config.tls.login_from, patience, open_virtual).serve, most
        )
        for name, open_virtual in ports.items()
        if getattr(config.listen, name) is not None
    ]


async def _take(secure: "trio.SSLStream[trio.SocketStream]", end: EngineEnd) -> None:
    """From the client to the engine, until the client ends. What comes too late is dropped."""
    try:
        while data := await secure.receive_some():
            rest = bytes(data)
            while rest and not end.closed:
                rest = rest[end.feed(rest) :]
                if rest:
                    await end.wait_room()
    except trio.BrokenResourceError:
        pass
    end.hang_up()


async def _give(secure: "trio.SSLStream[trio.SocketStream]", end: EngineEnd) -> None:
    """From the engine to the client, until the engine ends and nothing is left."""
    try:
        while True:
            last = end.closed  # asked first: what was put out before it closed is in this drain
            if data := end.drain(CHUNK):
                await secure.send_all(data)
            elif last:
                return
            else:
                await end.wait_output()
    except trio.BrokenResourceError:
        end.hang_up()


async def _hurry(end: EngineEnd, scope: trio.CancelScope) -> None:
    """A client that doesn't read is not waited for once the engine is done with it."""
    await end.wait_closed()
    scope.deadline = trio.current_time() + LINGER


async def _part(secure: "trio.SSLStream[trio.SocketStream]") -> None:
    """Say goodbye so that our final bytes arrive: closing a socket with bytes unread resets it."""
    stream = secure.transport_stream
    with trio.move_on_after(LINGER):
        try:
            await secure.unwrap()
            while await stream.receive_some(65536):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
    await trio.aclose_forcefully(stream)


def _peer(secure: "trio.SSLStream[trio.SocketStream]", login_from: str) -> Peer:
    socket = secure.transport_stream.socket
    try:
        host, port, *_ = socket.getpeername()
    except OSError:  # it left before we looked
        host, port = "", 0
    cipher = secure.cipher()
    return Peer(
        host,
        port,
        name_of(secure.getpeercert(), login_from),
        secure.version() or "",
        cipher[0] if cipher else "",
        str(Address(*socket.getsockname()[:2])),
    )


def _reason(error: BaseException) -> str:
    cause = error.__cause__
    if isinstance(cause, ssl.SSLError) and cause.reason:
        return cause.reason.replace("_", " ").lower()
    return "client closed TCP connection"
