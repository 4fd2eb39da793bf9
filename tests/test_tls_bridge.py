"""A TLS connection from its handshake to its end, over real sockets."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import trio
import trio.testing
import trustme

from ottermq.net.tls import Contexts
from ottermq.net.tls_bridge import Peer, TlsBridge
from tests.memory_connection import MemoryConnection
from tests.test_tls import client, written

PATIENCE = 20.0


@dataclass
class Place:
    """A TLS port with a bridge behind it, and what happened there."""

    ca: trustme.CA
    port: int = 0
    connections: list[MemoryConnection] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)
    endings: list[str | None] = field(default_factory=list)
    changed: trio.Event = field(default_factory=trio.Event)

    async def connection(self) -> MemoryConnection:
        """Of the last connection."""
        await self.until(lambda: bool(self.connections))
        return self.connections[-1]

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():
            await self.changed.wait()

    def note(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def connect(
        self, identity: trustme.LeafCert | None = None
    ) -> "trio.SSLStream[trio.SocketStream]":
        raw = await trio.open_tcp_stream("127.0.0.1", self.port)
        stream = trio.SSLStream(
            raw, client(self.ca, identity), server_hostname="localhost", https_compatible=True
        )
        await stream.do_handshake()
        return stream


@asynccontextmanager
async def serving(
    folder: Path, room: int = 1 << 30, handshake_timeout: float = PATIENCE, **settings: object
) -> AsyncIterator[Place]:
    place = Place(trustme.CA())

    def open_virtual(peer: Peer) -> MemoryConnection:
        place.peers.append(peer)
        place.connections.append(MemoryConnection(room))
        place.note()
        return place.connections[-1]

    contexts = Contexts(written(folder, place.ca, **settings))  # type: ignore[arg-type]
    bridge = TlsBridge(contexts, "common_name", handshake_timeout, open_virtual)

    async def serve(stream: trio.SocketStream) -> None:
        place.endings.append(await bridge.serve(stream))
        place.note()

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            place.port = listeners[0].socket.getsockname()[1]
            nursery.start_soon(trio.serve_listeners, serve, listeners)
            yield place
            nursery.cancel_scope.cancel()


async def read(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    data = b""
    with suppress(trio.BrokenResourceError):  # the end, too
        while len(data) < size and (more := await stream.receive_some()):
            data += more
    return data


async def test_bytes_go_both_ways(tmp_path: Path) -> None:
    async with serving(tmp_path) as place:
        stream = await place.connect()
        connection = await place.connection()
        await stream.send_all(b"AMQP\0\0\x09\x01")
        assert await connection.wait_taken(8) == b"AMQP\0\0\x09\x01"
        connection.put_out(b"start")
        assert await read(stream, 5) == b"start"


async def test_much_goes_both_ways_at_once_unchanged(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    async with serving(tmp_path) as place:
        stream = await place.connect()
        connection = await place.connection()
        connection.put_out(data)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, data)
            assert await read(stream, len(data)) == data
        assert await connection.wait_taken(len(data)) == data


async def test_an_engine_without_room_holds_the_client_back_and_loses_nothing(
    tmp_path: Path,
) -> None:
    data = os.urandom(200_000)
    async with serving(tmp_path, room=1000) as place:
        stream = await place.connect()
        connection = await place.connection()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, data)
            assert await connection.wait_taken(1000) == data[:1000]
            while len(connection.taken) < len(data):
                await trio.testing.wait_all_tasks_blocked()
                assert connection.room == 0
                held = len(connection.taken)
                connection.make_room(7919)
                await connection.wait_taken(min(held + 7919, len(data)))
        assert bytes(connection.taken) == data


async def test_a_client_that_leaves_is_told_to_the_engine(tmp_path: Path) -> None:
    async with serving(tmp_path) as place:
        for goodbye in (True, False):
            stream = await place.connect()
            await place.until(lambda: len(place.connections) > len(place.endings))
            await (stream.aclose() if goodbye else stream.transport_stream.aclose())
            await place.connections[-1].hung_up.wait()
            await place.until(lambda: len(place.connections) == len(place.endings))
        assert place.endings == [None, None]


async def test_a_client_that_still_sends_hears_our_last_words_too(tmp_path: Path) -> None:
    async with serving(tmp_path, room=100) as place:
        stream = await place.connect()
        connection = await place.connection()
        with suppress(trio.BrokenResourceError):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_for_ever, stream)
                await connection.wait_taken(100)
                connection.put_out(b"close")
                connection.close()
                assert await read(stream, 5) == b"close"
                nursery.cancel_scope.cancel()


async def send_for_ever(stream: trio.abc.SendStream) -> None:
    with suppress(trio.BrokenResourceError):
        while True:
            await stream.send_all(bytes(1000))


async def test_the_engines_last_words_arrive_before_the_end(tmp_path: Path) -> None:
    words = os.urandom(500_000)
    async with serving(tmp_path) as place:
        stream = await place.connect()
        connection = await place.connection()
        connection.closes_when_hung_up = False
        connection.put_out(words)
        connection.close()
        assert await read(stream, len(words) + 1) == words


async def test_a_client_that_never_reads_does_not_outlive_its_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as place:
        await place.connect()
        connection = await place.connection()
        connection.put_out(bytes(50_000_000))  # more than the kernel takes
        connection.close()
        await place.until(lambda: bool(place.endings))


async def test_the_name_in_a_clients_certificate_is_told_to_the_engine(tmp_path: Path) -> None:
    async with serving(tmp_path, verify="required") as place:
        identity = place.ca.issue_cert("client.example", common_name="otter")
        await place.connect(identity)
        await place.connection()
        peer = place.peers[0]
        assert (peer.host, peer.certificate, peer.protocol) == ("127.0.0.1", "otter", "TLSv1.3")
        assert peer.port > 0 and peer.cipher


async def test_who_does_not_speak_tls_is_turned_away(tmp_path: Path) -> None:
    async with serving(tmp_path) as place:
        raw = await trio.open_tcp_stream("127.0.0.1", place.port)
        await raw.send_all(b"AMQP\0\0\x09\x01")
        await place.until(lambda: bool(place.endings))
        assert (place.endings[0] or "").startswith("TLS handshake failed: ")
        assert place.connections == []


async def test_a_handshake_that_takes_for_ever_is_ended(tmp_path: Path) -> None:
    async with serving(tmp_path, handshake_timeout=0.05) as place:
        async with await trio.open_tcp_stream("127.0.0.1", place.port):
            await place.until(lambda: bool(place.endings))
        assert place.endings == ["TLS handshake timeout"]


async def test_a_certificate_that_is_required_and_missing_ends_the_handshake(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, verify="required") as place:
        # TLS 1.3: the client's side of the handshake is done before the server has refused it.
        stream = await place.connect()
        assert await read(stream, 1) == b""
        await place.until(lambda: bool(place.endings))
        assert place.endings == ["TLS handshake failed: peer did not return a certificate"]
        assert place.connections == []
