"""x-random: to one of its destinations, by lot. The keys don't matter."""

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottermq.topology.exchange.router import Message, Router
from ottermq.topology.exchange.tally import Tally
from ottermq.topology.values import Table

if TYPE_CHECKING:
    from ottermq.topology.exchange.exchange import Binding, Destination


class Random(Router):
    by_key = False

    def __init__(self, arguments: Table) -> None:
        self._bound = Tally()
        self._choices: list[Destination] | None = None

    def add(self, binding: "Binding") -> None:
        self._bound.add(binding.destination)
        self._choices = None

    def remove(self, binding: "Binding") -> None:
        self._bound.remove(binding.destination)
        self._choices = None

    def match(self, message: Message) -> Iterable["Destination"]:
        if self._choices is None:
            self._choices = list(self._bound)
        return [random.choice(self._choices)] if self._choices else ()
