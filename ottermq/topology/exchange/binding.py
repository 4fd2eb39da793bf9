"""A binding: from an exchange to a queue or another exchange."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, Union

from ottermq.topology.queue import Queue
from ottermq.topology.values import Table, frozen

if TYPE_CHECKING:  # it knows its bindings
    from ottermq.topology.exchange.exchange import Exchange

Destination: TypeAlias = Union[Queue, "Exchange"]


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    source: "Exchange"
    destination: Destination
    key: str
    arguments: Table

    @property
    def durable(self) -> bool:
        return self.source.durable and self.destination.durable


def identity(destination: Destination, key: str, arguments: Table) -> Hashable:
    """Its identity among the bindings of one exchange."""
    return (destination.id, key, frozen(arguments) if arguments else None)
