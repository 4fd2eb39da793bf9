"""x-random: to one of its destinations, at random. The keys don't matter."""

import random

from ottermq.topology.exchange.binding import Destination
from ottermq.topology.exchange.one_of import OneOf
from ottermq.topology.exchange.router import Message


class Random(OneOf):
    by_key = False

    def pick(self, choices: "list[Destination]", message: Message) -> Destination:
        return random.choice(choices)
