"""Guessing passwords is slow: each failed login makes the next one for that user wait longer.

Failures count for a user at an address: logins as another user from the same address (a NAT, a
proxy, one host with many clients) don't wait for them. The first few are free, for people
mistype. From then on logins for that user from there take turns, each some time after the
one before; opening many connections at once gains nothing, as a login counts as failed from its
beginning until it is proved right. The time doubles with every failure up to a limit, and failures
are forgotten by halves. Right passwords wait their turn too: an answer that comes faster when it is
right would be a guide.

Many failures of all users together slow the address as a whole, against clients that try names
instead of passwords; only a password that we know already passes by.

An IPv6 client owns a whole /64, so that counts as its address. The tables are bounded: the entry
that failed longest ago goes first.
"""

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import trio

K = TypeVar("K", bound=Hashable)

FREE = 5  # of one user at one address
FREE_ADDRESS = 50  # of all users there
FIRST = 0.1  # seconds
LONGEST = 4.0
QUEUE = 8.0  # a longer wait is refused at once: the handshake would time out anyway
HALF_LIFE = 30.0
MOST = 10_000  # entries per table
LONGEST_NAME = 255  # characters of a user's name that count


@dataclass
class _Failures:
    count: float
    at: float  # when count was true
    turn: float  # when the next login may be looked at


class _Table(Generic[K]):
    """Failures by user and address."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._entries: OrderedDict[K, _Failures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def next_turn(self, key: K, now: float) -> float:
        entry = self._entries.get(key)
        if entry is None:
            return now
        self._decay(entry, now)
        if entry.count < self._free:
            if entry.count < 0.5:
                del self._entries[key]
            return now
        delay = min(LONGEST, FIRST * 2 ** min(entry.count - self._free, 32.0))
        return max(now, entry.turn) + delay

    def take_turn(self, key: K, turn: float) -> None:
        if key in self._entries:
            self._entries[key].turn = turn

    def add(self, key: K, now: float, more: int) -> None:
        """One failure more, or one less."""
        if more < 0 and key not in self._entries:
            return
        entry = self._entries.setdefault(key, _Failures(0.0, now, now))
        self._decay(entry, now)
        entry.count = max(0.0, entry.count + more)
        if more < 0 and entry.count < 0.5:
            del self._entries[key]
            return
        self._entries.move_to_end(key)
        if len(self._entries) > MOST:
            self._entries.popitem(last=False)

    def _decay(self, entry: _Failures, now: float) -> None:
        entry.count *= 0.5 ** ((now - entry.at) / HALF_LIFE)
        entry.at = now


class LoginThrottle:
    def __init__(self, clock: Callable[[], float] = trio.current_time) -> None:
        self._clock = clock
        self._users: _Table[tuple[str, str]] = _Table(FREE)
        self._addresses: _Table[str] = _Table(FREE_ADDRESS)

    def __len__(self) -> int:
        return len(self._users) + len(self._addresses)

    def turn(self, host: str, user: str, *, known: bool = False) -> float | None:
        """The seconds this login has to wait; None: too many wait already. It counts as failed
        until `right` takes that back, or `failed` says so. known: the password is right, as far as
        we remember."""
        key, now = _key(host, user), self._clock()
        turn = self._users.next_turn(key, now)
        if not known:
            turn = max(turn, self._addresses.next_turn(key[0], now))
        if turn - now > QUEUE:
            return None
        self._users.add(key, now, 1)
        if turn > now:
            self._users.take_turn(key, turn)
            self._addresses.take_turn(key[0], turn)
        return turn - now

    def right(self, host: str, user: str) -> None:
        """It was no failure: the password was right, or nobody looked at it."""
        self._users.add(_key(host, user), self._clock(), -1)

    def failed(self, host: str, user: str) -> None:
        self._addresses.add(network(host), self._clock(), 1)


def _key(host: str, user: str) -> tuple[str, str]:
    return network(host), user[:LONGEST_NAME]


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
