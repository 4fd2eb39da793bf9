"""x-modulus-hash: the same routing key always to the same destination, while these stay the same.

The binding's key doesn't matter, nor the order in which they were bound. Keys land elsewhere than
in RabbitMQ, which hashes Erlang terms; the promise is the same.
"""

import xxhash

from ottermq.topology.exchange.binding import Destination
from ottermq.topology.exchange.one_of import OneOf
from ottermq.topology.exchange.router import Message


class ModulusHash(OneOf):
    by_key = True

    def pick(self, choices: "list[Destination]", message: Message) -> Destination:
        keys = "\0".join(message.keys).encode("utf-8", "surrogatepass")
        return choices[xxhash.xxh3_64_intdigest(keys) % len(choices)]
