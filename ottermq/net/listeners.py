"""The listening sockets: bound early, opened late, each connection a task with an end.

A port in use is reported at once (bind), but nobody is let in before the log has recovered
(listen): until then a client is refused, which it understands better than silence.
"""

import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from ipaddress import IPv6Address

import trio

from ottermq import eventlog
from ottermq.config import Address
from ottermq.config.schema import ListenSettings
from ottermq.errors import StartupError
from ottermq.net import close_reasons

BACKLOG = 1024
LINGER = 1.0  # seconds in which a client may still send what we won't read


@dataclass(frozen=True)
class Service:
    """A server of one kind of connections; `serve` returns why one ended, for the log. None: the
    server that took the connection over has logged it."""

    name: str
    serve: Callable[[trio.SocketStream], Awaitable[str | None]]
    most: int  # connections at a time; more are rejected
    log_level: int = logging.INFO


@dataclass(frozen=True)
class Bound:
    address: Address  # with the port the system picked, if it was asked to
    sockets: tuple[socket.socket, ...]

    @property
    def hosts(self) -> list[str]:
        return [sock.getsockname()[0] for sock in self.sockets]

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()


@contextmanager
def bind_all(settings: ListenSettings) -> Iterator[dict[str, Bound]]:
    """Every port that is wanted, by its name; closed at the end."""
    with ExitStack() as stack:
        bound = {}
        for field in fields(settings):
            wanted = getattr(settings, field.name)
            if wanted is not None:
                bound[field.name] = bind(field.name, wanted)
                stack.callback(bound[field.name].close)
        yield bound


def bind(name: str, wanted: Address) -> Bound:
    """Every address the host's name stands for, all on the same port."""
    try:
        found = [
            place
            for host in _hosts(wanted.host)
            for place in socket.getaddrinfo(
                host, wanted.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        ]
    except OSError as error:
        raise StartupError(f"{name}: can't listen on {wanted}: {error.strerror}") from None
    sockets: list[socket.socket] = []
    port, failure = wanted.port, None
    for family, kind, _, _, place in dict.fromkeys(found):
        sock = socket.socket(family, kind)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((place[0], port, *place[2:]))
        except OSError as error:
            sock.close()
            # localhost may name an IPv6 address on a machine that has none; others may not fail
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                for other in sockets:
                    other.close()
                raise _refusal(name, wanted, error) from None
            failure = error
        else:
            sockets.append(sock)
            port = sock.getsockname()[1]
    if failure and not sockets:
        raise _refusal(name, wanted, failure)
    return Bound(Address(wanted.host, port), tuple(sockets))


def _hosts(host: str) -> tuple[str, ...]:
    """`::` is every address, of IPv4 too, as with RabbitMQ and Kafka: by a socket of its own, so
    that nobody is seen as ::ffff:192.0.2.1."""
    try:
        is_any = IPv6Address(host).is_unspecified
    except ValueError:
        is_any = False
    return (host, "0.0.0.0") if is_any else (host,)


def _refusal(name: str, wanted: Address, error: OSError) -> StartupError:
    in_use = error.errno == errno.EADDRINUSE
    reason = "the port is in use" if in_use else error.strerror
    return StartupError(f"{name}: can't listen on {wanted}: {reason}")


def listen(name: str, bound: Bound) -> list[trio.SocketListener]:
    for sock in bound.sockets:
        try:
            sock.listen(BACKLOG)
        except OSError as error:  # two may bind a port, one may listen on it
            raise _refusal(name, bound.address, error) from None
    return [trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in bound.sockets]


async def accept(service: Service, listeners: list[trio.SocketListener]) -> None:
    """Serve every client, until cancelled."""
    places = trio.CapacityLimiter(service.most)

    async def serve(stream: trio.SocketStream) -> None:
        peer = _peer(stream)
        async with stream:
            try:
                places.acquire_nowait()
            except trio.WouldBlock:
                eventlog.warning(
                    "connection rejected",
                    listener=service.name,
                    peer=peer,
                    reason=close_reasons.TOO_MANY,
                    limit=service.most,
                )
                return
            try:
                reason = await service.serve(stream)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                reason = close_reasons.LOST
            except Exception as error:
                # One connection's accident ends no other.
                eventlog.failure("connection failed", error, listener=service.name, peer=peer)
                return
            finally:
                places.release()
        if reason is not None:
            eventlog.log(
                service.log_level,
                "connection closed",
                listener=service.name,
                peer=peer,
                reason=reason,
            )

    await trio.serve_listeners(serve, listeners)


async def part(stream: trio.abc.HalfCloseableStream) -> None:
    """Say goodbye so that our final bytes arrive: closing a socket with bytes unread resets it."""
    await stream.send_eof()
    with trio.move_on_after(LINGER):
        for _ in range(16):
            if not await stream.receive_some(4096):
                return


def _peer(stream: trio.SocketStream) -> str:
    try:
        host, port, *_ = stream.socket.getpeername()
    except OSError:  # it left before we looked
        return "?"
    return str(Address(host, port))
