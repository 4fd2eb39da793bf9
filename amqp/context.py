"""The objects that the AMQP rules act on: engine, topology, permissions, queues."""

from dataclasses import dataclass, field

from ottermq.auth import Auth
from ottermq.config.schema import AmqpSettings
from ottermq.engine.engine import Engine
from ottermq.queue_runtime import Queues
from ottermq.topology import Topology


@dataclass(eq=False)
class AmqpContext:
    engine: Engine
    topology: Topology
    auth: Auth
    queues: Queues
    settings: AmqpSettings  # replaced by a reload
    _numbers: dict[str, int] = field(default_factory=dict)

    def user_number(self, name: str) -> int:
        """The user's number in C, where permissions are remembered; never 0."""
        return self._numbers.setdefault(name, len(self._numbers) + 1)
