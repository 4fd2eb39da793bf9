"""A connection without a socket: the engine's end of a TLS connection (tls_bridge.py).

The engine's events say that there is output, that it takes input again, and that it is done; the
server passes them on.
"""

import trio

from ottermq.engine.engine import Engine


class VirtualConnection:
    def __init__(self, engine: Engine, conn: int) -> None:
        self._engine = engine
        self._conn = conn
        self._room = trio.Event()
        self._output = trio.Event()
        self._closed = trio.Event()
        self.client_left = False  # before the engine closed it

    # -- calls of the TLS bridge

    def feed(self, data: bytes | memoryview) -> int:
        self._room = trio.Event()
        return max(self._engine.feed(self._conn, data), 0)

    async def wait_room(self) -> None:
        await self._room.wait()

    def drain(self, most: int) -> bytes:
        self._output = trio.Event()
        room = bytearray(most)
        count = self._engine.drain(self._conn, room)
        return bytes(room[: max(count, 0)])

    async def wait_output(self) -> None:
        await self._output.wait()

    def hang_up(self) -> None:
        if not self.closed:
            self.client_left = True
            self._engine.hang_up(self._conn)

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    # -- events of the engine

    def has_output(self) -> None:
        self._output.set()

    def has_room(self) -> None:
        self._room.set()

    def close(self) -> None:
        for event in (self._closed, self._output, self._room):
            event.set()
