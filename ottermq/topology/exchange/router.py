"""The interface of an exchange type."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field

from ottermq.errors import PreconditionFailed
from ottermq.topology.exchange.binding import Binding, Destination
from ottermq.topology.values import Table

STEPS = 20_000  # of a route: some 15 ms, in which no other client's declaration is heard


@dataclass(slots=True)
class Budget:
    """The budget for one message's route, over all exchanges and keys."""

    steps: int = STEPS

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise PreconditionFailed(
                f"its keys or headers take over {STEPS} steps to compare with all bindings"
            )


@dataclass(frozen=True, slots=True)
class Message:
    """The parts of a message that routing may look at."""

    keys: tuple[str, ...]  # the routing key, then those of CC and BCC
    headers: Table
    properties: Table  # by name: message_id, correlation_id, timestamp, ...
    budget: Budget = field(default_factory=Budget)


class Router(ABC):
    """Gets every binding that comes and goes; returns the destinations of a message.

    A destination may be bound more than once: it is gone when its last binding is. Which of the
    destinations found come twice doesn't matter, nor their order.
    """

    by_key: bool  # the routing key alone decides, so the answer may be remembered

    @abstractmethod
    def __init__(self, arguments: Table) -> None:
        """PreconditionFailed: such an exchange can't be."""

    def check(self, destination: Destination, key: str, arguments: Table) -> None:
        """PreconditionFailed: such a binding can't be. Most types take any."""
        return None

    @abstractmethod
    def add(self, binding: Binding) -> None: ...

    @abstractmethod
    def remove(self, binding: Binding) -> None: ...

    @abstractmethod
    def match(self, message: Message) -> Iterable[Destination]: ...
