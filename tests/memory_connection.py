"""An engine's end of a connection that a test holds in its hands."""

from collections.abc import Callable

import trio


class MemoryConnection:
    """Takes what it is fed up to `room` bytes, and gives what the test says."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.taken = bytearray()
        self.hung_up = trio.Event()
        self.closes_when_hung_up = True
        self._out = bytearray()
        self._ended = trio.Event()
        self._wakeups = trio.lowlevel.ParkingLot()

    # -- what the TLS bridge sees

    def feed(self, data: bytes) -> int:
        count = min(self.room, len(data))
        self.taken += data[:count]
        self.room -= count
        self._wakeups.unpark_all()
        return count

    async def wait_room(self) -> None:
        await self._until(lambda: self.room > 0 or self.closed)

    def drain(self, most: int) -> bytes:
        data = bytes(self._out[:most])
        del self._out[:most]
        return data

    async def wait_output(self) -> None:
        await self._until(lambda: bool(self._out) or self.closed)

    def hang_up(self) -> None:
        self.hung_up.set()
        if self.closes_when_hung_up:
            self.close()

    @property
    def closed(self) -> bool:
        return self._ended.is_set()

    async def wait_closed(self) -> None:
        await self._ended.wait()

    # -- what the test does

    def put_out(self, data: bytes) -> None:
        self._out += data
        self._wakeups.unpark_all()

    def make_room(self, size: int) -> None:
        self.room += size
        self._wakeups.unpark_all()

    def close(self) -> None:
        self._ended.set()
        self._wakeups.unpark_all()

    async def wait_taken(self, size: int) -> bytes:
        await self._until(lambda: len(self.taken) >= size)
        return bytes(self.taken)

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            await self._wakeups.park()
