"""A group under clients that join, sync, fall silent and leave in any order.

Whatever happens: a request is answered once; a generation has one leader, one protocol, and tells
its leader of all its members; and when everybody falls silent, every request has its answer and
nothing is left behind.
"""

from dataclasses import dataclass, field

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottermq.kafka.errors import Error
from ottermq.kafka.groups.group import State
from ottermq.kafka.groups.member import Joined, MemberIdentity, Protocols, Synced
from ottermq.kafka.groups.settings import GroupSettings
from tests.examples import examples
from tests.kafka.group_harness import GroupHarness, Ticket

TASTES: list[Protocols] = [
    (("range", b"a"), ("sticky", b"a")),
    (("sticky", b"b"), ("range", b"b")),
    (("range", b"c"),),
    (("sticky", b"d"),),
]
clients = st.integers(0, 5)


@dataclass
class Client:
    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    joining: Ticket[Joined] | None = None
    syncing: Ticket[Synced] | None = None
    seen: list[Joined] = field(default_factory=list)


class Groups(RuleBasedStateMachine):
    @initialize(
        delay=st.sampled_from([0.0, 2.0]),
        instant=st.booleans(),
        most=st.sampled_from([3, 100]),
    )
    def begin(self, delay: float, instant: bool, most: int) -> None:
        self.gathers = delay > 0
        settings = GroupSettings(initial_rebalance_delay=delay, max_size=most)
        self.harness = GroupHarness(settings, instant_disk=instant)
        # Two of them are doubles: the same instance, which can't be in the group twice.
        self.clients = [Client(i) for i in (None, None, None, "x", "x", "y")]
        self.joins: list[Ticket[Joined]] = []
        self.syncs: list[Ticket[Synced]] = []

    def _take_answers(self) -> None:
        for client in self.clients:
            if client.joining is not None and client.joining.answered:
                answer = client.joining.answer
                client.joining = None
                if answer.error in (Error.NONE, Error.MEMBER_ID_REQUIRED):
                    client.member_id, client.generation = answer.member_id, answer.generation
                elif answer.error is not Error.REBALANCE_IN_PROGRESS:
                    client.member_id = ""
                client.seen.append(answer)

    @rule(n=clients, taste=st.sampled_from(TASTES), old=st.booleans(), keep=st.booleans())
    def join(self, n: int, taste: Protocols, old: bool, keep: bool) -> None:
        client = self.clients[n]
        client.joining = self.harness.join(
            client.member_id if keep else "",
            instance_id=client.instance_id,
            protocols=taste,
            needs_id=not old,
            may_skip=not old,
            session_timeout=10.0,
            rebalance_timeout=15.0,
        )
        self.joins.append(client.joining)

    @rule(n=clients)
    def sync(self, n: int) -> None:
        client = self.clients[n]
        everybody = {member.id: member.id.encode() for member in self.harness.group.roster}
        client.syncing = self.harness.sync(
            client.member_id,
            everybody,
            generation=client.generation,
            instance_id=client.instance_id,
        )
        self.syncs.append(client.syncing)

    @rule(n=clients)
    def heartbeat(self, n: int) -> None:
        client = self.clients[n]
        error = self.harness.heartbeat(client.member_id, client.generation, client.instance_id)
        if error is Error.NONE:
            assert client.member_id in self.harness.group.roster
            assert client.generation == self.harness.group.generation

    @rule(some=st.sets(clients, max_size=3))
    def leave(self, some: set[int]) -> None:
        who = [
            MemberIdentity(self.clients[n].member_id, -1, self.clients[n].instance_id) for n in some
        ]
        errors = self.harness.group.leave(who)
        assert len(errors) == len(who)
        for each, error in zip(who, errors, strict=True):
            if error is Error.NONE:
                assert each.member_id not in self.harness.group.roster or not each.member_id

    @rule(seconds=st.sampled_from([0.5, 3.0, 9.0, 16.0]))
    def wait(self, seconds: float) -> None:
        self.harness.wait(seconds)

    @precondition(lambda self: self.harness.saving)
    @rule(ok=st.booleans())
    def disk(self, ok: bool) -> None:
        self.harness.finish_save(ok)

    @invariant()
    def members_agree(self) -> None:
        if not hasattr(self, "harness"):
            return
        self._take_answers()
        group = self.harness.group
        members = list(group.roster)
        if group.state is State.EMPTY:
            assert not members
        if group.state in (State.COMPLETING, State.STABLE):
            assert group.roster.leader is not None and group.roster.leader in group.roster
            assert all(group.protocol in dict(m.protocols) for m in members)
            assert not any(member.join for member in members)
        if group.state is State.PREPARING and not self.gathers:
            assert group.is_waiting or not all(member.join for member in members)
        if group.state is not State.COMPLETING:
            assert not any(member.sync for member in members)
        instances = [member.instance_id for member in members if member.instance_id]
        assert len(instances) == len(set(instances))
        assert all(member.session is not None for member in members)

    @invariant()
    def generations_have_one_leader(self) -> None:
        if not hasattr(self, "harness"):
            return
        rounds: dict[int, list[Joined]] = {}
        for ticket in self.joins:
            if ticket.answered and ticket.answer.error is Error.NONE:
                rounds.setdefault(ticket.answer.generation, []).append(ticket.answer)
        for answers in rounds.values():
            assert len({answer.protocol for answer in answers}) == 1
            assigning = [a for a in answers if a.members and not a.skip_assignment]
            # A leader whose answer got lost asks again; a static one may have come back since.
            assert len({answer.member_id for answer in assigning}) <= 1
            for answer in assigning:
                assert answer.leader == answer.member_id
                told = {id for id, _, _ in answer.members}
                assert answer.member_id in told

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        for _ in range(400):
            while self.harness.saving:
                self.harness.finish_save()
            self.harness.wait(2)
        assert all(ticket.answered for ticket in self.joins)
        assert all(ticket.answered for ticket in self.syncs)
        assert self.harness.group.state is State.EMPTY
        assert not self.harness.saving and len(self.harness.wheel) == 0


TestGroups = Groups.TestCase
TestGroups.settings = hypothesis_settings(
    max_examples=examples(120), stateful_step_count=40, deadline=None
)
