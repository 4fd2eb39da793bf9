"""Who asks for an operation, and what it acts on."""

from typing import Protocol

from ottermq.auth import Access, Auth, Kind, User
from ottermq.config.schema import AmqpSettings
from ottermq.engine.engine import Engine
from ottermq.queue_runtime import Queues
from ottermq.topology import Topology


class State(Protocol):
    @property
    def engine(self) -> Engine: ...
    @property
    def topology(self) -> Topology: ...
    @property
    def auth(self) -> Auth: ...
    @property
    def queues(self) -> Queues: ...
    @property
    def settings(self) -> AmqpSettings: ...


class Caller(Protocol):
    """An AMQP connection, or a request of the management API."""

    @property
    def id(self) -> int | None:
        """Of the connection, which its exclusive queues belong to."""

    @property
    def peer(self) -> str: ...
    @property
    def vhost(self) -> str: ...
    def whose(self) -> User: ...


def check(state: State, caller: Caller, access: Access, kind: Kind, name: str) -> None:
    """AccessRefused: the caller may not configure, write or read that."""
    state.auth.permissions.check(caller.whose(), caller.vhost, access, kind, name)
