"""x-random: to one of its destinations, by lot. The keys don't matter."""

import random
from typing import TYPE_CHECKING

from ottermq.topology.exchange.one_of import OneOf
from ottermq.topology.exchange.router import Message

if TYPE_CHECKING:
    from ottermq.topology.exchange.exchange import Destination


class Random(OneOf):
    by_key = False

    def pick(self, choices: "list[Destination]", message: Message) -> "Destination":
        return random.choice(choices)
