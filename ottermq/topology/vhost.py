"""A virtual host: a name space of its own, and all that lives in it. Its limits are auth's."""

from dataclasses import dataclass, field
from typing import Any

from ottermq.topology.exchange import Exchange
from ottermq.topology.policy import Policy
from ottermq.topology.queue import Queue


@dataclass(frozen=True, slots=True)
class VHostOptions:
    description: str = ""
    tags: tuple[str, ...] = ()
    default_queue_type: str | None = None  # of queues declared without one


PLAIN_VHOST = VHostOptions()


@dataclass(slots=True, eq=False)
class VHost:
    name: str
    options: VHostOptions = PLAIN_VHOST
    exchanges: dict[str, Exchange] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    operator_policies: dict[str, Policy] = field(default_factory=dict)
    # Runtime parameters of plugins, kept and exported: (component, name) → value.
    parameters: dict[tuple[str, str], Any] = field(default_factory=dict)
    # Exchanges that name another as their alternate, whether that exists or not.
    alternates: dict[str, dict[Exchange, None]] = field(default_factory=dict)

    @property
    def default_exchange(self) -> Exchange:
        return self.exchanges[""]
