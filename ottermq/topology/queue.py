"""A queue as it was declared. Its messages are the engine's; its settings are settings.py's.

A definition never changes: arguments are fixed at declaration, and policies come on top.
"""

from dataclasses import dataclass
from enum import StrEnum

from ottermq.errors import PreconditionFailed, ResourceLocked
from ottermq.topology.arguments import assert_equivalent, refuse_inequivalent
from ottermq.topology.names import label
from ottermq.topology.values import Table


class QueueType(StrEnum):
    CLASSIC = "classic"
    QUORUM = "quorum"
    STREAM = "stream"


@dataclass(frozen=True, slots=True, eq=False)
class Queue:
    """Compared by identity: one deleted and declared again is another."""

    id: int  # never given twice in a process, and shared with no exchange
    vhost: str
    name: str
    type: QueueType
    durable: bool
    owner: int | None  # the connection it is exclusive to
    auto_delete: bool
    arguments: Table

    @property
    def label(self) -> str:
        return label("queue", self.name, self.vhost)

    @property
    def exclusive(self) -> bool:
        return self.owner is not None

    def check_access(self, connection: int | None) -> None:
        """For any use of it: an exclusive queue is its own connection's only."""
        if self.owner is not None and self.owner != connection:
            raise self._locked()

    def check_equivalent(
        self, *, durable: bool, owner: int | None, auto_delete: bool, arguments: Table
    ) -> None:
        """For a second declaration."""
        if self.owner != owner:
            raise self._locked()
        refuse_inequivalent("durable", self.durable, durable, self.label)
        refuse_inequivalent("auto_delete", self.auto_delete, auto_delete, self.label)
        assert_equivalent(self.type, self.arguments, arguments, self.label)

    def _locked(self) -> ResourceLocked:
        return ResourceLocked(
            f"cannot obtain exclusive access to locked {self.label}. It could be originally "
            "declared on another connection or the exclusive property value does not "
            "match that of the original declaration."
        )


def check_properties(
    type: QueueType, label: str, *, durable: bool, exclusive: bool, auto_delete: bool
) -> None:
    """Quorum queues and streams are there to stay."""
    if type is QueueType.CLASSIC:
        return
    for wrong, name in (
        (auto_delete, "auto-delete"),
        (exclusive, "exclusive-owner"),
        (not durable, "non-durable"),
    ):
        if wrong:
            raise PreconditionFailed(f"invalid property '{name}' for {label}")
