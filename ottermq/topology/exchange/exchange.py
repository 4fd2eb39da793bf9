"""An exchange."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from ottermq.topology.arguments import assert_same_arguments, refuse_inequivalent
from ottermq.topology.exchange.binding import Binding
from ottermq.topology.exchange.delayed import DELAYED_TYPE
from ottermq.topology.exchange.router import Router
from ottermq.topology.names import label
from ottermq.topology.values import Table

ALTERNATE = "alternate-exchange"


@dataclass(slots=True, eq=False)
class Exchange:
    """Compared by identity: one deleted and declared again is another."""

    id: int  # never given twice in a process, and shared with no queue
    vhost: str
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Table
    router: Router
    alternate: str | None = None  # by argument or policy; it need not exist
    bindings: dict[Hashable, Binding] = field(default_factory=dict)  # those that leave from here

    @property
    def label(self) -> str:
        return label("exchange", self.name, self.vhost)

    @property
    def delayed(self) -> bool:
        return self.type == DELAYED_TYPE

    @property
    def is_default(self) -> bool:
        return self.name == ""

    @property
    def built_in(self) -> bool:
        return self.is_default or self.name.startswith("amq.")

    def check_equivalent(
        self, *, type: str, durable: bool, auto_delete: bool, internal: bool, arguments: Table
    ) -> None:
        """For a second declaration. Of the arguments only the alternate exchange counts."""
        refuse_inequivalent("type", self.type, type, self.label)
        refuse_inequivalent("durable", self.durable, durable, self.label)
        refuse_inequivalent("auto_delete", self.auto_delete, auto_delete, self.label)
        refuse_inequivalent("internal", self.internal, internal, self.label)
        assert_same_arguments((ALTERNATE,), self.arguments, arguments, self.label)
