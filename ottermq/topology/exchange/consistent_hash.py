"""x-consistent-hash: the same value always to the same destination, shared out by weight.

A binding's key is its weight: that many buckets. What is hashed is the routing key, a header
(`hash-header`) or a property (`hash-property`). A jump consistent hash (Lamping, Veach) picks the
bucket: it needs no ring in memory, and when buckets come at the end only the share that belongs
to them moves. Buckets that go are taken out of the row, as RabbitMQ does.

Values land elsewhere than in RabbitMQ, which hashes Erlang terms; the promise is the same.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

import xxhash

from ottermq.errors import PreconditionFailed
from ottermq.topology.exchange.binding import Binding, Destination
from ottermq.topology.exchange.router import Message, Router
from ottermq.topology.values import Table, binary, shown

HEADER = "hash-header"
PROPERTY = "hash-property"
PROPERTIES = ("correlation_id", "message_id", "timestamp")
MAX_WEIGHT = 10_000


class ConsistentHash(Router):
    def __init__(self, arguments: Table) -> None:
        self._header = arguments.get(HEADER)
        self._property = arguments.get(PROPERTY)
        if self._header is not None and self._property is not None:
            raise PreconditionFailed("hash-header and hash-property are mutually exclusive")
        if self._property is not None and self._property not in PROPERTIES:
            raise PreconditionFailed(f"Unsupported property: {shown(self._property)}")
        self.by_key = self._header is None and self._property is None
        self._bindings: dict[Binding, int] = {}
        self._destinations: list[Destination] = []
        self._ends: list[int] = []  # of each one's buckets

    def check(self, destination: Destination, key: str, arguments: Table) -> None:
        if not re.fullmatch(r"[+-]?[0-9]+", key):  # int() takes more than Erlang does
            raise PreconditionFailed(f"The binding key must be an integer: {binary(key)}")
        weight = int(key)
        if weight < 1:
            raise PreconditionFailed("The binding key must be greater than 0")
        if weight > MAX_WEIGHT:
            raise PreconditionFailed(f"The binding key must not exceed {MAX_WEIGHT}")

    def add(self, binding: Binding) -> None:
        self._bindings[binding] = int(binding.key)
        self._share_out()

    def remove(self, binding: Binding) -> None:
        del self._bindings[binding]
        self._share_out()

    def _share_out(self) -> None:
        """A destination's first binding counts; more of them are there and do nothing."""
        weights: dict[Destination, int] = {}
        for binding, weight in self._bindings.items():
            weights.setdefault(binding.destination, weight)
        self._destinations = list(weights)
        self._ends = list(accumulate(weights.values()))

    def match(self, message: Message) -> Iterable[Destination]:
        if not self._ends:
            return ()
        bucket = _jump(_hash(self._value(message)), self._ends[-1])
        return (self._destinations[bisect_right(self._ends, bucket)],)

    def _value(self, message: Message) -> object:
        if self._header is not None:
            return message.headers.get(self._header)
        if self._property is not None:
            return message.properties.get(self._property)
        return message.keys[0]


def _hash(value: object) -> int:
    return xxhash.xxh3_64_intdigest(shown(value).encode("utf-8", "surrogatepass"))


def _jump(key: int, buckets: int) -> int:
    bucket, jump = -1, 0
    while jump < buckets:
        bucket = jump
        key = (key * 2862933555777941757 + 1) & 0xFFFF_FFFF_FFFF_FFFF
        jump = int((bucket + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return bucket
