"""The content of a definitions file, in our words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottermq.errors import InvalidRequest
from ottermq.topology.policy import Policy
from ottermq.topology.values import Table
from ottermq.topology.vhost import VHostOptions

MOST_SHOWN = 5


class DefinitionsError(InvalidRequest):
    """`lines`: all that is wrong, one line each, with its place in the file."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)

    def shown(self) -> str:
        """In one line, which the first few mistakes fit in."""
        more = len(self.lines) - MOST_SHOWN
        told = [*self.lines[:MOST_SHOWN], *([f"and {more} more"] if more > 0 else [])]
        return "; ".join(" ".join(line.split()) for line in told)


@dataclass(frozen=True, slots=True)
class UserRecord:
    name: str
    tags: tuple[str, ...]
    password: str | None
    password_hash: str | None
    hashing_algorithm: str | None
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class VHostRecord:
    name: str
    options: VHostOptions
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PermissionRecord:
    user: str
    vhost: str
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class TopicPermissionRecord:
    user: str
    vhost: str
    exchange: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class ParameterRecord:
    vhost: str
    component: str
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class GlobalParameterRecord:
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class ExchangeRecord:
    vhost: str
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Table


@dataclass(frozen=True, slots=True)
class QueueRecord:
    vhost: str
    name: str
    durable: bool
    auto_delete: bool
    arguments: Table


@dataclass(frozen=True, slots=True)
class BindingRecord:
    vhost: str
    source: str
    destination: str
    to_exchange: bool
    key: str
    arguments: Table


@dataclass(frozen=True, slots=True)
class Definitions:
    users: tuple[UserRecord, ...] = ()
    vhosts: tuple[VHostRecord, ...] = ()
    permissions: tuple[PermissionRecord, ...] = ()
    topic_permissions: tuple[TopicPermissionRecord, ...] = ()
    parameters: tuple[ParameterRecord, ...] = ()
    global_parameters: tuple[GlobalParameterRecord, ...] = ()
    policies: tuple[Policy, ...] = ()  # operator policies too
    exchanges: tuple[ExchangeRecord, ...] = ()
    queues: tuple[QueueRecord, ...] = ()
    bindings: tuple[BindingRecord, ...] = ()
    sections: frozenset[str] = frozenset()  # that the file has, empty ones too
