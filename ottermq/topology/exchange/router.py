"""What an exchange type is."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottermq.topology.values import Table

if TYPE_CHECKING:
    from ottermq.topology.exchange.exchange import Binding, Destination


@dataclass(frozen=True, slots=True)
class Message:
    """What routing may look at."""

    keys: tuple[str, ...]  # the routing key, then those of CC and BCC
    headers: Table
    properties: Table  # by name: message_id, correlation_id, timestamp, ...


class Router(ABC):
    """Told of every binding that comes and goes; asked where a message goes.

    A destination may be bound more than once: it is gone when its last binding is. Which of the
    destinations found come twice doesn't matter, nor their order.
    """

    by_key: bool  # the routing key alone decides, so the answer may be remembered

    @abstractmethod
    def __init__(self, arguments: Table) -> None:
        """PreconditionFailed: such an exchange can't be."""

    def check(self, destination: "Destination", key: str, arguments: Table) -> None:
        """PreconditionFailed: such a binding can't be. Most types take any."""
        return None

    @abstractmethod
    def add(self, binding: "Binding") -> None: ...

    @abstractmethod
    def remove(self, binding: "Binding") -> None: ...

    @abstractmethod
    def match(self, message: Message) -> Iterable["Destination"]: ...
