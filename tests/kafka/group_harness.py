"""A group with a clock and a disk that are moved by hand."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ottermq.kafka.errors import Error
from ottermq.kafka.groups.group import Assignments, Group
from ottermq.kafka.groups.member import Joined, Joining, MemberIdentity, Protocols, Synced
from ottermq.kafka.groups.settings import GroupSettings
from ottermq.kafka.wheel import TICK, Wheel

T = TypeVar("T")
RANGE: Protocols = (("range", b"topics"),)
AT_ONCE = GroupSettings(initial_rebalance_delay=0)


@dataclass
class Ticket(Generic[T]):
    """A request that may be answered later, and only once."""

    answers: list[T] = field(default_factory=list)

    def __call__(self, answer: T) -> None:
        assert not self.answers, f"answered twice: {self.answers[0]}, then {answer}"
        self.answers.append(answer)

    @property
    def answered(self) -> bool:
        return bool(self.answers)

    @property
    def answer(self) -> T:
        assert self.answers, "no answer yet"
        return self.answers[0]


class GroupHarness:
    def __init__(self, settings: GroupSettings = AT_ONCE, instant_disk: bool = True) -> None:
        self.now = 0.0
        self.wheel = Wheel(lambda: self.now)
        self.instant_disk = instant_disk
        self.saving: list[Callable[[bool], None]] = []
        self.saved: list[tuple[int, dict[str, bytes]]] = []
        self.group = Group("g", self.wheel, self._save, settings)

    def _save(self, group: Group, assignments: Assignments, then: Callable[[bool], None]) -> None:
        self.saved.append((group.generation, dict(assignments)))
        if self.instant_disk:
            then(True)
        else:
            self.saving.append(then)

    def finish_save(self, ok: bool = True) -> None:
        self.saving.pop(0)(ok)

    def wait(self, seconds: float) -> None:
        """Everything that is due meanwhile happens at its own time."""
        end = self.now + seconds
        while (due := self.wheel.next_due()) is not None and due < end:
            self.now = due + TICK / 100
            self.wheel.advance()
        self.now = end
        self.wheel.advance()

    def join(self, member_id: str = "", **changes: Any) -> Ticket[Joined]:
        wanted: dict[str, Any] = {
            "instance_id": None, "client_id": "c", "client_host": "h", "session_timeout": 10.0,
            "rebalance_timeout": 60.0, "protocol_type": "consumer", "protocols": RANGE,
            "needs_id": False, **changes,
        }  # fmt: skip
        ticket: Ticket[Joined] = Ticket()
        self.group.join(Joining(member_id, **wanted), ticket)
        return ticket

    def sync(
        self, member_id: str, assignments: dict[str, bytes] | None = None, **changes: Any
    ) -> Ticket[Synced]:
        ticket: Ticket[Synced] = Ticket()
        generation = changes.pop("generation", self.group.generation)
        who = MemberIdentity(member_id, generation, changes.pop("instance_id", None))
        asked = {"protocol_type": None, "protocol": None, **changes}
        self.group.sync(who, asked["protocol_type"], asked["protocol"], assignments or {}, ticket)
        return ticket

    def heartbeat(
        self, member_id: str, generation: int | None = None, instance_id: str | None = None
    ) -> Error:
        if generation is None:
            generation = self.group.generation
        return self.group.heartbeat(MemberIdentity(member_id, generation, instance_id))

    def stable(self, count: int = 1, **changes: Any) -> list[str]:
        """So many members in a stable group: their ids, the leader's first."""
        tickets = [self.join(**changes)]
        ids = [tickets[0].answer.member_id]
        for _ in range(count - 1):
            tickets = [self.join(**changes), *(self.join(id, **changes) for id in ids)]
            ids.append(tickets[0].answer.member_id)
        for id in ids:
            synced = self.sync(id, {each: each.encode() for each in ids} if id == ids[0] else {})
            assert synced.answer.error is Error.NONE
        return ids
