"""x-modulus-hash: the same routing key always to the same destination, while these stay the same.

The binding's key doesn't matter, nor the order in which they were bound. Keys land elsewhere than
in RabbitMQ, which hashes Erlang terms; the promise is the same.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import xxhash

from ottermq.topology.exchange.router import Message, Router
from ottermq.topology.exchange.tally import Tally
from ottermq.topology.values import Table

if TYPE_CHECKING:
    from ottermq.topology.exchange.exchange import Binding, Destination


class ModulusHash(Router):
    by_key = True

    def __init__(self, arguments: Table) -> None:
        self._bound = Tally()
        self._sorted: list[Destination] | None = None

    def add(self, binding: "Binding") -> None:
        self._bound.add(binding.destination)
        self._sorted = None

    def remove(self, binding: "Binding") -> None:
        self._bound.remove(binding.destination)
        self._sorted = None

    def match(self, message: Message) -> Iterable["Destination"]:
        if self._sorted is None:
            self._sorted = sorted(self._bound, key=lambda each: (type(each).__name__, each.name))
        if not self._sorted:
            return ()
        keys = "\0".join(message.keys).encode("utf-8", "surrogatepass")
        return (self._sorted[xxhash.xxh3_64_intdigest(keys) % len(self._sorted)],)
