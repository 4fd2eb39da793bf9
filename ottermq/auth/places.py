"""Places in front of the threads that hash: addresses take turns, and no queue is long.

A hash takes 50 ms. A client that sends a thousand logins at once waits behind its own: the places
go round by address, so that somebody from elsewhere waits for one hash and not for a thousand. A
wait longer than a handshake may take is useless: beyond a few dozen waiting logins an address is
refused at once. Logins of clients that have left meanwhile are passed over.
"""

from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

MOST_WAITING = 50  # of one address
MOST_OF_ALL = 500
OURSELVES = ""  # an operator's act: never refused


class NoPlace(Exception):
    """Too many wait already, or the client that waited has left."""


def there() -> bool:
    """For callers that can't leave."""
    return True


@dataclass(eq=False)
class _Waiter:
    is_there: Callable[[], bool]
    called: trio.Event = field(default_factory=trio.Event)
    has_place: bool = False


class Places:
    def __init__(self, count: int) -> None:
        self.total = count
        self._free = count
        # By address; the first is next, and goes to the end when it was served.
        self._waiting: OrderedDict[str, deque[_Waiter]] = OrderedDict()
        self._count = 0

    @asynccontextmanager
    async def place(
        self, address: str, is_there: Callable[[], bool] = there
    ) -> AsyncIterator[None]:
        """NoPlace: none in time. is_there: asked before a place is given."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(address, is_there)
        try:
            yield
        finally:
            self._free += 1
            self._call()

    async def _wait(self, address: str, is_there: Callable[[], bool]) -> None:
        queue = self._waiting.get(address, deque())
        if address != OURSELVES and (len(queue) >= MOST_WAITING or self._count >= MOST_OF_ALL):
            self._forget_absent()
            queue = self._waiting.get(address, deque())
            if len(queue) >= MOST_WAITING or self._count >= MOST_OF_ALL:
                raise NoPlace("too many logins wait already")
        waiter = _Waiter(is_there)
        self._waiting.setdefault(address, deque()).append(waiter)
        self._count += 1
        try:
            await waiter.called.wait()
        except trio.Cancelled:
            if waiter.has_place:
                self._free += 1
                self._call()
            else:
                waiter.is_there = lambda: False
            raise
        if not waiter.has_place:
            raise NoPlace("the client has left")

    def _call(self) -> None:
        """Serve the next ones, until the places are taken."""
        while self._free and self._waiting:
            address, queue = self._waiting.popitem(last=False)
            waiter = queue.popleft()
            self._count -= 1
            if queue:
                self._waiting[address] = queue
            if waiter.is_there():
                self._free -= 1
                waiter.has_place = True
            waiter.called.set()

    def _forget_absent(self) -> None:
        for address, queue in list(self._waiting.items()):
            kept = deque(waiter for waiter in queue if waiter.is_there())
            for waiter in queue:
                if waiter not in kept:
                    waiter.called.set()
            self._count -= len(queue) - len(kept)
            if kept:
                self._waiting[address] = kept
            else:
                del self._waiting[address]
