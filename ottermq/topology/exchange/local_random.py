"""x-local-random: to one of its classic queues, at random. On one node all of them are local."""

from ottermq.errors import PreconditionFailed
from ottermq.topology.exchange.binding import Destination
from ottermq.topology.exchange.random import Random
from ottermq.topology.queue import Queue, QueueType
from ottermq.topology.values import Table


class LocalRandom(Random):
    def check(self, destination: Destination, key: str, arguments: Table) -> None:
        if key:
            raise PreconditionFailed(f"Non empty binding '{key}' key not permitted")
        if not isinstance(destination, Queue):
            raise PreconditionFailed("Destination not found")
        if destination.type is not QueueType.CLASSIC:
            raise PreconditionFailed(
                f"Queue type rabbit_{destination.type}_queue not valid for this exchange type"
            )
