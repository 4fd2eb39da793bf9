"""A consumer group: the rules of Kafka's classic protocol. Time and disk are outside.

            join                    all have joined, or time is up        the leader's assignment
    EMPTY ────────► PREPARING ─────────────────────────► COMPLETING ──────────────────────► STABLE
      ▲               ▲  │ nobody left                       │ join, leave, time-out           │
      └───────────────┼──┘                                   ▼                                 │
                      └────────────────────────────────────────────────────────────────────────┘

A round of joins makes a generation. Each join waits until all known members have joined, or until
the longest of their rebalance time-outs is over: a member that hasn't joined by then is removed.
Then all are answered at once, one of them as the leader. The leader works out the assignment; the
broker doesn't look into it. The other members wait in SyncGroup until the assignment is on disk.

A member that joins, leaves or falls silent starts the next round. A static member (one that names
its instance) may come back under a new id and finds its assignment, without a round; its old self
is fenced off. Closing a connection is not leaving: only the session's time-out counts.

Every request is answered once: immediately, by the end of a round, or when its member is removed.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Protocol
from uuid import uuid4

from ottermq import eventlog
from ottermq.kafka.errors import Error
from ottermq.kafka.groups.member import (
    Joined,
    Joining,
    JoinReply,
    Member,
    MemberIdentity,
    Synced,
    SyncReply,
)
from ottermq.kafka.groups.roster import MemberBytes, Roster
from ottermq.kafka.groups.settings import GroupSettings
from ottermq.kafka.wheel import Timer


class State(Enum):
    """By the names that tools know."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Timers(Protocol):
    def after(self, seconds: float, action: Callable[[], object]) -> Timer: ...


Assignments = Mapping[str, bytes]
# Puts the group with these assignments on disk, then reports success or failure.
Save = Callable[["Group", Assignments, Callable[[bool], None]], None]


class Group:
    def __init__(
        self, id: str, timers: Timers, save: Save, settings: GroupSettings,
        memory: MemberBytes | None = None,
    ) -> None:  # fmt: skip
        self.id = id
        self.state = State.EMPTY
        self.generation = 0
        self.protocol: str | None = None
        self.roster = Roster(memory)
        self._timers = timers
        self._save = save
        self._settings = settings
        self._pending: dict[str, Timer] = {}  # ids given to members that haven't joined with them
        self._unjoined: set[Member] = set()  # those a round waits for
        self._unsynced: set[str] = set()
        self._timer: Timer | None = None  # of the round
        # The first round of an empty group waits for more members: seconds that it still may.
        self._gathering: float | None = None
        self._grew = False

    def restore(
        self, members: Iterable[Member], generation: int, protocol_type: str | None,
        protocol: str | None, leader: str | None,
    ) -> None:  # fmt: skip
        """As it was saved; its members have a session's time to show up."""
        self.generation = generation
        self.roster.protocol_type = protocol_type
        for member in members:
            self.roster.add(member, protocol_type or "")
            self._watch(member, member.session_timeout)
        if len(self.roster):
            self.state = State.STABLE
            self.protocol = protocol
            if leader is not None and leader in self.roster:
                self.roster.leader = leader

    @property
    def rebalance_timeout(self) -> float:
        return max((member.rebalance_timeout for member in self.roster), default=0.0)

    @property
    def is_waiting(self) -> bool:
        """Empty, but somebody has asked for an id."""
        return bool(self._pending)

    def die(self) -> None:
        """Deleted, or forgotten: only for an empty group."""
        self.state = State.DEAD
        self._cancel_round()
        for timer in self._pending.values():
            timer.cancel()
        self._pending.clear()

    # -- JoinGroup

    def join(self, wanted: Joining, reply: JoinReply) -> None:
        error = self._refusal(wanted)
        if error is not Error.NONE:
            self._forget_pending(wanted.member_id)
            reply(Joined(error, wanted.member_id))
        elif wanted.member_id:
            self._rejoin(wanted, reply)
        else:
            self._come(wanted, reply)
        self._complete_if_all_joined()

    def _refusal(self, wanted: Joining) -> Error:
        if self.state is State.DEAD:
            return Error.COORDINATOR_NOT_AVAILABLE
        if not self._has_room(wanted.member_id):
            return Error.GROUP_MAX_SIZE_REACHED
        if not self.roster.supports(wanted.protocol_type, wanted.protocols):
            return Error.INCONSISTENT_GROUP_PROTOCOL
        return Error.NONE

    def _has_room(self, member_id: str) -> bool:
        most = self._settings.max_size
        if not member_id and len(self._pending) >= most:
            return False
        if len(self.roster) < most:
            return True
        if self.state is State.PREPARING:  # members that haven't rejoined may be out soon
            member = self.roster.get(member_id)
            waiting = len(self.roster) - len(self._unjoined)
            return (member is not None and member.join is not None) or waiting < most
        return member_id in self.roster

    def _come(self, wanted: Joining, reply: JoinReply) -> None:
        """Somebody without an id."""
        known = self.roster.instance(wanted.instance_id) if wanted.instance_id is not None else None
        id = f"{wanted.instance_id or wanted.client_id}-{uuid4()}"
        if known is not None:
            self._replace(known, id, wanted, reply)
        elif wanted.instance_id is None and wanted.needs_id:
            expire = partial(self._pending_expired, id)
            self._pending[id] = self._timers.after(wanted.session_timeout, expire)
            reply(Joined(Error.MEMBER_ID_REQUIRED, id))
        else:
            self._add(id, wanted, reply)

    def _rejoin(self, wanted: Joining, reply: JoinReply) -> None:
        if wanted.member_id in self._pending and wanted.instance_id is None:
            self._forget_pending(wanted.member_id)
            self._add(wanted.member_id, wanted, reply)
            return
        error = self.roster.check(wanted.member_id, wanted.instance_id)
        member = self.roster.get(wanted.member_id)
        if error is not Error.NONE or member is None:
            reply(Joined(error, wanted.member_id))
        elif self._changes_something(member, wanted):
            self._update(member, wanted)
            self._await_join(member, reply)
        else:
            reply(self._current(member))

    def _changes_something(self, member: Member, wanted: Joining) -> bool:
        """Does its join start a round? Else its answer got lost, and is sent again."""
        if self.state is State.PREPARING or member.protocols != wanted.protocols:
            return True
        # A leader asks for a round when something changed that only it knows, like a topic.
        return self.state is State.STABLE and member.id == self.roster.leader

    def _add(self, id: str, wanted: Joining, reply: JoinReply) -> None:
        member = Member(
            id, wanted.instance_id, wanted.client_id, wanted.client_host,
            wanted.session_timeout, wanted.rebalance_timeout, wanted.protocols,
            is_new=True, join=reply,
        )  # fmt: skip
        self.roster.add(member, wanted.protocol_type)
        # It can't send heartbeats before it knows its id, and its socket may be dead.
        self._watch(member, self._settings.new_member_timeout)
        self._grew = True
        self._start_round()

    def _update(self, member: Member, wanted: Joining) -> None:
        self.roster.set_protocols(member, wanted.protocols)
        member.session_timeout = wanted.session_timeout
        member.rebalance_timeout = wanted.rebalance_timeout
        member.client_id = wanted.client_id
        member.client_host = wanted.client_host

    def _replace(self, member: Member, id: str, wanted: Joining, reply: JoinReply) -> None:
        """A static member is back: its old self is fenced off, its assignment is still good."""
        leader, old_id = self.roster.leader, member.id
        new_member = self._settings.new_member_timeout
        member.answer_join(Joined(Error.FENCED_INSTANCE_ID, old_id))
        member.answer_sync(Synced(Error.FENCED_INSTANCE_ID))
        self.roster.rename(member, id)
        if old_id in self._unsynced:
            self._unsynced.remove(old_id)
            self._unsynced.add(id)
        self._update(member, wanted)
        self._watch(member, new_member if member.is_new else member.session_timeout)
        if self.state is State.STABLE and self.roster.choose() == self.protocol:
            # Older clients have no field for "nothing to assign": the id of a former leader keeps
            # them from leading.
            answer = self._current(member, None if wanted.may_skip else leader)
            self._save(self, self.assignments(), partial(self._replaced, member, answer, reply))
        else:
            self._await_join(member, reply)

    def _replaced(self, member: Member, answer: Joined, reply: JoinReply, saved: bool) -> None:
        if self.roster.get(answer.member_id) is not member:
            reply(Joined(Error.UNKNOWN_MEMBER_ID, answer.member_id))
        elif not saved:
            reply(Joined(Error.COORDINATOR_NOT_AVAILABLE, answer.member_id))
        else:
            reply(answer)

    def _current(self, member: Member, leader: str | None = None) -> Joined:
        """The generation as it is. In a stable group nothing is to be assigned."""
        leader = leader or self.roster.leader or ""
        leads = member.id == leader
        return Joined(
            Error.NONE,
            member.id,
            self.generation,
            self.roster.protocol_type,
            self.protocol,
            leader,
            self._told_to_leader() if leads else (),
            skip_assignment=leads and self.state is State.STABLE,
        )

    def _told_to_leader(self) -> tuple[tuple[str, str | None, bytes], ...]:
        return tuple(
            (each.id, each.instance_id, each.metadata(self.protocol)) for each in self.roster
        )

    # -- a round

    def _await_join(self, member: Member, reply: JoinReply) -> None:
        member.await_join(reply)
        self._unjoined.discard(member)
        self._start_round()

    def _start_round(self) -> None:
        if self.state is State.PREPARING:
            return
        self._refuse_syncs(Error.REBALANCE_IN_PROGRESS)
        was_empty = self.state is State.EMPTY
        self.state = State.PREPARING
        self._unsynced.clear()
        self._unjoined = {member for member in self.roster if member.join is None}
        delay = self._settings.initial_rebalance_delay
        if was_empty and delay > 0:
            # The first of many: members that come soon are spared a second round.
            self._gather(max(self.rebalance_timeout, delay))
        elif was_empty:
            self._complete()
        else:
            self._set_round_timer(self.rebalance_timeout, self._complete)
            self._complete_if_all_joined()

    def _gather(self, left: float) -> None:
        wait = min(self._settings.initial_rebalance_delay, left)
        self._gathering = left - wait
        self._grew = False
        self._set_round_timer(wait, self._gathered)

    def _gathered(self) -> None:
        if self._grew and self._gathering:
            self._gather(self._gathering)
        else:
            self._gathering = None
            self._complete()

    def _complete_if_all_joined(self) -> None:
        gathers = self._gathering is not None
        if self.state is not State.PREPARING or gathers or self._pending:
            return
        if not self._unjoined:
            self._complete()

    def _complete(self) -> None:
        """All have joined, or have had their time."""
        for member in self.roster:
            if member.join is None and not member.is_static:
                self._tell_lost(member, "rebalance timeout")
                self._drop(member)
        if len(self.roster) and not self.roster.elect():
            # Only static members that are away: their sessions decide.
            self._set_round_timer(self.rebalance_timeout, self._complete)
            return
        self._cancel_round()
        self.generation += 1
        eventlog.info(
            "group rebalanced",
            group=self.id,
            generation=self.generation,
            members=len(self.roster),
        )
        if not len(self.roster):
            self.state = State.EMPTY
            self.protocol = None
            self._save(self, {}, lambda saved: None)
            return
        self.state = State.COMPLETING
        self.protocol = self.roster.choose()
        self._unsynced = {member.id for member in self.roster}
        self._set_round_timer(self.rebalance_timeout, self._syncs_late)
        for member in self.roster:
            member.is_new = False
            self.roster.assign(member, b"")
            member.answer_join(self._current(member))
            self._watch(member, member.session_timeout)

    # -- SyncGroup

    def sync(
        self, who: MemberIdentity, protocol_type: str | None, protocol: str | None,
        assignments: Assignments, reply: SyncReply,
    ) -> None:  # fmt: skip
        error = self._check(who)
        if error is Error.NONE and not (
            protocol_type in (None, self.roster.protocol_type) and protocol in (None, self.protocol)
        ):
            error = Error.INCONSISTENT_GROUP_PROTOCOL
        if error is Error.NONE and self.state is State.PREPARING:
            error = Error.REBALANCE_IN_PROGRESS
        member = self.roster.get(who.member_id)
        if error is not Error.NONE or member is None:
            reply(Synced(error))
            return
        member.await_sync(reply)
        self._unsynced.discard(member.id)
        if self.state is State.STABLE:
            self._tell_share(member)
        elif member.id == self.roster.leader:
            complete = {each.id: assignments.get(each.id, b"") for each in self.roster}
            self._save(self, complete, partial(self._assigned, self.generation, complete))
        if not self._unsynced and self.state is State.STABLE:
            self._cancel_round()

    def _assigned(self, generation: int, assignments: Assignments, saved: bool) -> None:
        if self.state is not State.COMPLETING or self.generation != generation:
            return  # somebody came or left meanwhile: those that waited have been answered
        if not saved:
            self._refuse_syncs(Error.COORDINATOR_NOT_AVAILABLE)
            self._start_round()
            return
        for member in self.roster:
            self.roster.assign(member, assignments[member.id])
            self._tell_share(member)
        self.state = State.STABLE
        if not self._unsynced:
            self._cancel_round()

    def _refuse_syncs(self, error: Error) -> None:
        for member in self.roster:
            if member.sync is not None:
                member.answer_sync(Synced(error))
                self._watch(member, member.session_timeout)

    def _tell_share(self, member: Member) -> None:
        """If it has asked."""
        if member.sync is not None:
            share = member.assignment
            member.answer_sync(Synced(Error.NONE, self.roster.protocol_type, self.protocol, share))
            self._watch(member, member.session_timeout)

    def assignments(self) -> Assignments:
        return {member.id: member.assignment for member in self.roster}

    def _syncs_late(self) -> None:
        late = [member for id in self._unsynced if (member := self.roster.get(id))]
        for member in late:
            self._tell_lost(member, "sync timeout")
        self._timer = None
        self._remove(late)

    # -- the others

    def heartbeat(self, who: MemberIdentity) -> Error:
        error = self._check(who)
        member = self.roster.get(who.member_id)
        if error is not Error.NONE or member is None:
            return error
        self._watch(member, member.session_timeout)
        return Error.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else Error.NONE

    def leave(self, leaving: Iterable[MemberIdentity]) -> list[Error]:
        """One answer each. An instance's name alone removes a member: an operator does that."""
        errors: list[Error] = []
        gone: dict[Member, None] = {}
        for who in leaving:
            member = self.roster.get(who.member_id)
            if not who.member_id and who.instance_id is not None:
                member = self.roster.instance(who.instance_id)
                error = Error.NONE if member else Error.UNKNOWN_MEMBER_ID
            elif who.member_id in self._pending and who.instance_id is None:
                self._forget_pending(who.member_id)
                error = Error.NONE
            else:
                error = self.roster.check(who.member_id, who.instance_id)
            if error is Error.NONE and member is not None:
                gone[member] = None
            errors.append(error)
        self._remove(gone)
        return errors

    def may_commit(self, who: MemberIdentity, transactional: bool = False) -> Error:
        """May offsets be committed in its name?"""
        stranger = who.generation < 0 and not who.member_id and who.instance_id is None
        if self.state is State.DEAD:
            return Error.COORDINATOR_NOT_AVAILABLE
        if stranger:  # assigns partitions to itself, or is a producer that can't tell its group
            alone = transactional or self.state is State.EMPTY
            return Error.NONE if alone else Error.UNKNOWN_MEMBER_ID
        if who.generation < 0 and self.state is State.EMPTY:
            return Error.NONE
        error = self._check(who)
        member = self.roster.get(who.member_id)
        if error is not Error.NONE or member is None:
            return error
        if self.state is State.COMPLETING and not transactional:
            return Error.REBALANCE_IN_PROGRESS
        if not transactional:
            self._watch(member, member.session_timeout)
        return Error.NONE

    def _check(self, who: MemberIdentity) -> Error:
        if self.state is State.DEAD:
            return Error.COORDINATOR_NOT_AVAILABLE
        error = self.roster.check(who.member_id, who.instance_id)
        if error is Error.NONE and who.generation != self.generation:
            return Error.ILLEGAL_GENERATION
        return error

    # -- going

    def _watch(self, member: Member, seconds: float) -> None:
        """It is alive now; it is gone when nothing is heard of it for so long."""
        member.forget_session()
        member.session = self._timers.after(seconds, partial(self._silent, member))

    def _silent(self, member: Member) -> None:
        # A member that waits for our answer sends nothing; its time begins with the answer.
        if member.is_new or not (member.join or member.sync):
            self._tell_lost(member, "session timeout")
            self._remove([member])

    def _pending_expired(self, id: str) -> None:
        self._forget_pending(id)
        self._complete_if_all_joined()

    def _forget_pending(self, id: str) -> None:
        timer = self._pending.pop(id, None)
        if timer is not None:
            timer.cancel()

    def _remove(self, members: Iterable[Member]) -> None:
        gone = [member for member in members if self.roster.get(member.id) is member]
        for member in gone:
            self._drop(member)
        if gone:
            self._start_round()
        self._complete_if_all_joined()

    def _tell_lost(self, member: Member, why: str) -> None:
        eventlog.info(
            "group member lost",
            group=self.id,
            member=member.id,
            host=member.client_host.removeprefix("/"),
            reason=why,
        )

    def _drop(self, member: Member) -> None:
        member.forget_session()
        self._unjoined.discard(member)
        self._unsynced.discard(member.id)
        self.roster.remove(member)
        member.answer_join(Joined(Error.UNKNOWN_MEMBER_ID, member.id))
        member.answer_sync(Synced(Error.UNKNOWN_MEMBER_ID))

    def _set_round_timer(self, seconds: float, action: Callable[[], object]) -> None:
        self._cancel_round()
        self._timer = self._timers.after(seconds, action)

    def _cancel_round(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
