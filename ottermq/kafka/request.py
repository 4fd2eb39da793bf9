"""The arguments of a handler: a request, decoded, and the connection it came by.

    def heartbeat(kafka: KafkaContext, request: Request) -> Body: ...

    HANDLERS: dict[Api, Handler] = {Api.HEARTBEAT: heartbeat}

A handler returns the response's body at once or as a coroutine; bytes: a body that is encoded
already; None: no answer is due. A KafkaError that it raises answers the whole request.
"""

import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottermq import auditlog
from ottermq.auth import Access, User
from ottermq.config import Address
from ottermq.kafka.api import Api
from ottermq.kafka.errors import error_of

if TYPE_CHECKING:
    from ottermq.kafka.context import KafkaContext

Body = dict[str, Any]
# Kafka's operations that stand for a permission of ours.
GROUP_OPERATIONS: dict[Access, tuple[str, ...]] = {
    "configure": ("DELETE",),
    "write": (),
    "read": ("READ",),
}
TRANSACTION_OPERATIONS: dict[Access, tuple[str, ...]] = {
    "configure": (),
    "write": ("WRITE",),
    "read": ("DESCRIBE",),
}
Answer = Body | bytes | None | Coroutine[Any, Any, Body | bytes | None]
Handler = Callable[["KafkaContext", "Request"], Answer]


def _now() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True, eq=False)
class Connection:
    id: int
    peer: str  # host:port
    local: str  # the address of ours that it connected to, host:port
    context: "KafkaContext"
    listener: str = "kafka"  # kafka or kafkas
    user: User | None = None  # None: not logged in yet
    login: Any = None  # a SASL exchange under way (sasl.py)
    client_id: str | None = None
    software: str = ""  # name and version, if it sent them
    is_anonymous: bool = False  # acts in a user's name without a login
    is_ending: bool = False  # we close it, and the log has the reason
    is_closed: bool = False  # what it asked for may go on for a while
    log_level: int = logging.INFO  # of the line that it is closed
    connected_at: int = field(default_factory=_now)

    @property
    def host(self) -> str:
        return self.peer.rpartition(":")[0].strip("[]")

    @property
    def user_name(self) -> str | None:
        return None if self.user is None else self.user.name

    def is_there(self) -> bool:
        return not self.is_closed

    def whose(self) -> User:
        """The user; only once the connection is logged in."""
        assert self.user is not None
        return self.user

    def allows_topic(self, access: Access, name: str) -> bool:
        """May this user configure, write or read it? For a super stream also each stream that isn't
        its own by name, or a topic would open streams that its user may not touch."""
        if not self._permits(access, name):
            return False
        topic = self.context.topics.find(name)
        return topic is None or all(self._permits(access, each) for each in topic.foreign)

    def allows_group(self, access: Access, id: str) -> bool:
        return self._permits(access, id) or self._is_granted("GROUP", id, GROUP_OPERATIONS[access])

    def allows_transaction(self, access: Access, id: str) -> bool:
        operations = TRANSACTION_OPERATIONS[access]
        return self._permits(access, id) or self._is_granted("TRANSACTIONAL_ID", id, operations)

    def _permits(self, access: Access, name: str) -> bool:
        context = self.context
        return self.user is not None and context.auth.permissions.allows(
            self.user, context.settings.vhost, access, "queue", name
        )

    def _is_granted(self, resource: str, name: str, operations: tuple[str, ...]) -> bool:
        context = self.context
        return self.user is not None and context.auth.grants.allows(
            self.user.name, context.settings.vhost, resource, name, operations
        )

    @property
    def advertised(self) -> Address:
        """The address that this client gets for us."""
        settings = self.context.settings
        wanted = settings.advertised if self.listener == "kafka" else settings.advertised_tls
        if wanted is not None:
            return wanted
        host, _, port = self.local.rpartition(":")
        return Address(host.strip("[]"), int(port))

    @property
    def is_administrator(self) -> bool:
        """May change what belongs to the whole broker."""
        return self.user is not None and "administrator" in self.user.tags


@dataclass(frozen=True)
class Request:
    conn: Connection
    api: Api
    version: int
    correlation: int
    client_id: str | None
    body: Body

    def audit(
        self, act: str, what: str, trouble: Exception | None = None, **details: object
    ) -> None:
        """One line in the log: who did what, and the reason if it failed."""
        auditlog.record(
            act,
            user=self.conn.user_name,
            peer=self.conn.peer,
            what=what,
            result=auditlog.OK if trouble is None else error_of(trouble).name,
            listener=self.conn.listener,
            **details,
        )
