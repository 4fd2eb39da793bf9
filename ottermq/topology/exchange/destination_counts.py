"""Destinations, each with how many bindings lead to it."""

from ottermq.topology.exchange.binding import Destination


class DestinationCounts(dict[Destination, int]):
    """In the order they were first bound."""

    __slots__ = ()

    def add(self, destination: Destination) -> None:
        self[destination] = self.get(destination, 0) + 1

    def remove(self, destination: Destination) -> None:
        left = self[destination] - 1
        if left:
            self[destination] = left
        else:
            del self[destination]
