"""Lines of the log that anybody can cause: a few per address, then the rest is counted.

After a few lines at once, an address has one per second; each says how many were left out before
it. The table of addresses is bounded.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import trio

from ottermq.auth.login_throttle import network

FREE = 10  # lines
INTERVAL = 1.0  # seconds for one more
MOST_ADDRESSES = 1_000


@dataclass
class _Told:
    lines: float  # that may still be written
    at: float
    left_out: int = 0


class LineLimit:
    def __init__(self, clock: Callable[[], float] = trio.current_time) -> None:
        self._clock = clock
        self._addresses: OrderedDict[str, _Told] = OrderedDict()

    def __len__(self) -> int:
        return len(self._addresses)

    def take(self, host: str) -> dict[str, int] | None:
        """The line's field `left_out`, if it is due; None: leave this line out, too."""
        key, now = network(host), self._clock()
        told = self._addresses.setdefault(key, _Told(FREE, now))
        self._addresses.move_to_end(key)
        if len(self._addresses) > MOST_ADDRESSES:
            self._addresses.popitem(last=False)
        told.lines = min(FREE, told.lines + (now - told.at) / INTERVAL)
        told.at = now
        if told.lines < 1:
            told.left_out += 1
            return None
        told.lines -= 1
        more = {"left_out": told.left_out} if told.left_out else {}
        told.left_out = 0
        return more
