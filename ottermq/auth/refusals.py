"""Refused logins in the log: a line each, until an address fills the log with them.

After a few lines the rest is counted, and the next line, a second later, says how many it stands
for. The table of addresses is bounded.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import trio

from ottermq import eventlog
from ottermq.auth.login_throttle import network
from ottermq.errors import LoginRefused

FREE = 10  # lines
INTERVAL = 1.0  # seconds for one more
MOST_ADDRESSES = 1_000
LONGEST = 300  # characters of a reason


@dataclass
class _Told:
    lines: float  # that may still be written
    at: float
    left_out: int = 0


class Refusals:
    def __init__(self, clock: Callable[[], float] = trio.current_time) -> None:
        self._clock = clock
        self._addresses: OrderedDict[str, _Told] = OrderedDict()

    def __len__(self) -> int:
        return len(self._addresses)

    def tell(self, mechanism: str, peer: str, refusal: LoginRefused) -> None:
        key, now = network(peer), self._clock()
        told = self._addresses.setdefault(key, _Told(FREE, now))
        self._addresses.move_to_end(key)
        if len(self._addresses) > MOST_ADDRESSES:
            self._addresses.popitem(last=False)
        told.lines = min(FREE, told.lines + (now - told.at) / INTERVAL)
        told.at = now
        if told.lines < 1:
            told.left_out += 1
            return
        told.lines -= 1
        more = {"left_out": told.left_out} if told.left_out else {}
        told.left_out = 0
        eventlog.warning(
            "login refused",
            peer=peer,
            mechanism=mechanism,
            reason=refusal.reason[:LONGEST],
            **more,
        )
