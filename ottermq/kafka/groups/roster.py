"""The members of a group, its leader, and the protocol that suits them all. No time, no states."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ottermq.kafka.errors import Error
from ottermq.kafka.groups.member import Member, Protocols


def size_of(protocols: Protocols) -> int:
    return sum(len(metadata) for _, metadata in protocols)


@dataclass(slots=True)
class MemberBytes:
    """The memory for members: their metadata and their assignments."""

    bytes: int = 0


class Roster:
    def __init__(self, memory: MemberBytes | None = None) -> None:
        """memory: of this and other groups together."""
        self.leader: str | None = None
        self.protocol_type: str | None = None
        self._members: dict[str, Member] = {}  # in the order they came
        self._static: dict[str, str] = {}  # instance id → member id
        self._supported: Counter[str] = Counter()  # by how many members
        self._memory = memory or MemberBytes()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def __contains__(self, id: str) -> bool:
        return id in self._members

    def get(self, id: str) -> Member | None:
        return self._members.get(id)

    def instance(self, instance_id: str) -> Member | None:
        return self._members.get(self._static.get(instance_id, ""))

    def check(self, member_id: str, instance_id: str | None) -> Error:
        """Is there such a member? A static one that was replaced is fenced off."""
        if instance_id is not None:
            current = self._static.get(instance_id)
            if current is None:
                return Error.UNKNOWN_MEMBER_ID
            if current != member_id:
                return Error.FENCED_INSTANCE_ID
        return Error.NONE if member_id in self._members else Error.UNKNOWN_MEMBER_ID

    # -- coming and going

    def add(self, member: Member, protocol_type: str) -> None:
        if not self._members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.id
        self._members[member.id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.id
        self._count(member.protocols, 1)
        self._memory.bytes += len(member.assignment)

    def remove(self, member: Member) -> None:
        del self._members[member.id]
        self._count(member.protocols, -1)
        self._memory.bytes -= len(member.assignment)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member.id:
            self.leader = next(iter(self._members), None)

    def rename(self, member: Member, id: str) -> None:
        """A static member came back: the same place under another id."""
        assert member.instance_id is not None
        del self._members[member.id]
        if self.leader == member.id:
            self.leader = id
        member.id = id
        self._members[id] = member
        self._static[member.instance_id] = id

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def assign(self, member: Member, share: bytes) -> None:
        self._memory.bytes += len(share) - len(member.assignment)
        member.assignment = share

    def _count(self, protocols: Protocols, step: int) -> None:
        self._memory.bytes += step * size_of(protocols)
        for name in {name for name, _ in protocols}:
            self._supported[name] += step
            if not self._supported[name]:
                del self._supported[name]

    # -- what suits all

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """May a member join that speaks these?"""
        if not self._members:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        return any(self._supported[name] == len(self._members) for name, _ in protocols)

    def choose(self) -> str:
        """Each votes for what it likes best of what all can speak; the first of equals wins."""
        all_speak = {name for name, count in self._supported.items() if count == len(self)}
        votes: Counter[str] = Counter()
        for member in self._members.values():
            votes[next(name for name, _ in member.protocols if name in all_speak)] += 1
        return votes.most_common(1)[0][0]

    def elect(self) -> bool:
        """Only a member that waits for this rebalance can lead it: is there a leader now?"""
        leader = self._members.get(self.leader or "")
        if leader is None or leader.join is None:
            waiting = (member.id for member in self._members.values() if member.join)
            self.leader = next(waiting, self.leader)
            leader = self._members.get(self.leader or "")
        return leader is not None and leader.join is not None
