"""fanout: everywhere, whatever the keys."""

from collections.abc import Iterable

from ottermq.topology.exchange.binding import Binding, Destination
from ottermq.topology.exchange.destination_counts import DestinationCounts
from ottermq.topology.exchange.router import Message, Router
from ottermq.topology.values import Table


class Fanout(Router):
    by_key = True

    def __init__(self, arguments: Table) -> None:
        self._bound = DestinationCounts()

    def add(self, binding: Binding) -> None:
        self._bound.add(binding.destination)

    def remove(self, binding: Binding) -> None:
        self._bound.remove(binding.destination)

    def match(self, message: Message) -> Iterable[Destination]:
        return self._bound
