"""Guessing passwords is slow: each failed login makes its address wait longer for the next.

The first few failures are free, for people mistype. From then on logins from that address take
turns, each some time after the one before; opening many connections at once gains nothing. The
time doubles with every failure up to a limit, and failures are forgotten by halves. Right
passwords wait their turn too: an answer that comes faster when it is right would be a guide.

An IPv6 client owns a whole /64, so that is what counts as its address. The table is bounded: the
address that failed longest ago goes first.
"""

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import trio

FREE = 5
FIRST = 0.1  # seconds
LONGEST = 4.0
QUEUE = 8.0  # whoever would wait longer is refused at once: the handshake would time out anyway
HALF_LIFE = 30.0
MOST_ADDRESSES = 10_000


@dataclass
class _Failures:
    count: float
    at: float  # when count was true
    turn: float  # when the next login may be looked at


class Delays:
    def __init__(self, clock: Callable[[], float] = trio.current_time) -> None:
        self._clock = clock
        self._addresses: OrderedDict[str, _Failures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._addresses)

    def turn(self, host: str) -> float | None:
        """The seconds a login from there has to wait; None: too many wait already."""
        key = network(host)
        entry = self._addresses.get(key)
        if entry is None:
            return 0.0
        now = self._clock()
        self._decay(entry, now)
        if entry.count < FREE:
            if entry.count < 0.5:
                del self._addresses[key]
            return 0.0
        delay = min(LONGEST, FIRST * 2 ** min(entry.count - FREE, 32.0))
        turn = max(now, entry.turn) + delay
        if turn - now > QUEUE:
            return None
        entry.turn = turn
        return turn - now

    def failed(self, host: str) -> None:
        key, now = network(host), self._clock()
        entry = self._addresses.setdefault(key, _Failures(0.0, now, now))
        self._decay(entry, now)
        entry.count += 1
        self._addresses.move_to_end(key)
        if len(self._addresses) > MOST_ADDRESSES:
            self._addresses.popitem(last=False)

    def _decay(self, entry: _Failures, now: float) -> None:
        entry.count *= 0.5 ** ((now - entry.at) / HALF_LIFE)
        entry.at = now


def network(host: str) -> str:
    address = parse(host)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((address, 64), strict=False))
    return str(address or host)


def is_loopback(host: str) -> bool:
    address = parse(host)
    return address is not None and address.is_loopback


def parse(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """None for what is no address, such as a Unix socket's peer."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    # An IPv4 client of a socket that takes both appears as ::ffff:127.0.0.1.
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address
