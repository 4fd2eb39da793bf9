"""direct: where the routing key is the binding's."""

from collections.abc import Iterable

from ottermq.topology.exchange.binding import Binding, Destination
from ottermq.topology.exchange.destination_counts import DestinationCounts
from ottermq.topology.exchange.router import Message, Router
from ottermq.topology.values import Table


class Direct(Router):
    by_key = True

    def __init__(self, arguments: Table) -> None:
        self._by_key: dict[str, DestinationCounts] = {}

    def add(self, binding: Binding) -> None:
        self._by_key.setdefault(binding.key, DestinationCounts()).add(binding.destination)

    def remove(self, binding: Binding) -> None:
        bound = self._by_key[binding.key]
        bound.remove(binding.destination)
        if not bound:
            del self._by_key[binding.key]

    def match(self, message: Message) -> Iterable[Destination]:
        return [there for key in message.keys for there in self._by_key.get(key, ())]
