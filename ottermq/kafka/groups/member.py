"""Members of a group as the broker knows them, their requests and the answers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from ottermq.kafka.errors import Error
from ottermq.kafka.wheel import Timer

Protocols: TypeAlias = tuple[
    tuple[str, bytes], ...
]  # (name, metadata), the one it likes best first


@dataclass(frozen=True, slots=True)
class Joining:
    """A JoinGroup request. Times are seconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: Protocols
    needs_id: bool = True  # from version 4 on: a member gets its id first, then joins with it
    may_skip: bool = True  # from version 9 on: an answer can tell a leader not to assign anything


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to it. Only a leader gets the members: (id, instance id, metadata)."""

    error: Error
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """The sender of a request: a member, and the generation it believes to be in."""

    member_id: str
    generation: int = -1
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Synced:
    """The answer to a SyncGroup."""

    error: Error
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


JoinReply: TypeAlias = Callable[[Joined], object]
SyncReply: TypeAlias = Callable[[Synced], object]


@dataclass(slots=True, eq=False)
class Member:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: Protocols
    assignment: bytes = b""
    # Hasn't got an answer to its first join: it may be gone, and can't send heartbeats yet.
    is_new: bool = field(default=False, kw_only=True)
    join: JoinReply | None = field(default=None, kw_only=True)  # waits for this answer
    sync: SyncReply | None = field(default=None, kw_only=True)
    session: Timer | None = field(default=None, kw_only=True)

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def metadata(self, protocol: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")

    # Each request gets one answer. One that comes again while the first still waits is a client's
    # second try: the first is answered "try again", which nobody will read.

    def await_join(self, reply: JoinReply) -> None:
        self.answer_join(Joined(Error.REBALANCE_IN_PROGRESS, self.id))
        self.join = reply

    def await_sync(self, reply: SyncReply) -> None:
        self.answer_sync(Synced(Error.REBALANCE_IN_PROGRESS))
        self.sync = reply

    def answer_join(self, joined: Joined) -> None:
        reply, self.join = self.join, None
        if reply is not None:
            reply(joined)

    def answer_sync(self, synced: Synced) -> None:
        reply, self.sync = self.sync, None
        if reply is not None:
            reply(synced)

    def forget_session(self) -> None:
        if self.session is not None:
            self.session.cancel()
            self.session = None
