"""To one of its destinations, whatever the bindings' keys."""

from abc import abstractmethod
from collections.abc import Iterable

from ottermq.topology.exchange.binding import Binding, Destination
from ottermq.topology.exchange.destination_counts import DestinationCounts
from ottermq.topology.exchange.router import Message, Router
from ottermq.topology.values import Table


class OneOf(Router):
    def __init__(self, arguments: Table) -> None:
        self._bound = DestinationCounts()
        self._choices: list[Destination] | None = None

    def add(self, binding: Binding) -> None:
        self._bound.add(binding.destination)
        self._choices = None

    def remove(self, binding: Binding) -> None:
        self._bound.remove(binding.destination)
        self._choices = None

    def match(self, message: Message) -> Iterable[Destination]:
        if self._choices is None:
            # In an order of its own, so that a restart makes no difference.
            self._choices = sorted(self._bound, key=lambda each: (type(each).__name__, each.name))
        return (self.pick(self._choices, message),) if self._choices else ()

    @abstractmethod
    def pick(self, choices: "list[Destination]", message: Message) -> Destination: ...
