"""All groups: found by name, kept on disk, deleted when they expire.

    groups = await Groups.open(store, GroupSettings())
    await nursery.start(groups.run)

Their state lies in a StateLog. A group is saved with each assignment, before its members get it:
after a crash the same members go on in the same generation, without a round. An offset is on disk
before its commit is answered, and not visible before that.

Transactions hold offsets here until they end:

    member = MemberIdentity(…)
    await groups.hold_offsets(producer_id, "group", member, {Place("orders", 0): Committed(42)})
    await groups.end_transaction(producer_id, commit=True)      # twice does no harm
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Generic, Self, TypeVar

import trio

from ottermq import eventlog
from ottermq.contained import contained, is_failure
from ottermq.errors import Malformed
from ottermq.kafka.errors import Error, error_of
from ottermq.kafka.groups.group import Assignments, Group, State
from ottermq.kafka.groups.member import Joined, Joining, MemberIdentity, Synced
from ottermq.kafka.groups.offsets import Offsets, Writes
from ottermq.kafka.groups.records import (
    Committed,
    GroupKey,
    HeldKey,
    OffsetKey,
    Place,
    SavedGroup,
    decode_committed,
    decode_group,
    decode_key,
    encode_group,
    encode_key,
    subscribed,
)
from ottermq.kafka.groups.roster import MemberBytes, size_of
from ottermq.kafka.groups.settings import GroupSettings
from ottermq.kafka.statelog import StateLog
from ottermq.kafka.topics import Topic, Topics
from ottermq.kafka.wheel import Wheel
from ottermq.wal import LogError, Store

LOG = "kafka groups"
AT_A_TIME = 4096  # offsets in a batch
CONSUMER = "consumer"
LITTLE = 16 << 10  # bytes of a usual member's metadata and assignment, at most
MOST_HELD = 64 << 20  # bytes of all members: from there on only such ones are taken ...
MOST_OF_ALL = 256 << 20  # ... up to here

T = TypeVar("T")
Saved = Callable[[bool], None]


@dataclass(eq=False)
class Entry:
    group: Group
    offsets: Offsets
    since_ms: int  # when it became what it is: for an empty group, its age
    saves: list[tuple[bytes, Saved]] = field(default_factory=list)  # to be written, in order
    is_saving: bool = False

    @property
    def id(self) -> str:
        return self.group.id

    def subscribed(self) -> set[str] | None:
        """Topics that its members want; None: unknown."""
        group = self.group
        if group.roster.protocol_type != CONSUMER or group.protocol is None:
            return None
        return subscribed(member.metadata(group.protocol) for member in group.roster)


class Groups:
    def __init__(
        self, state: StateLog, settings: GroupSettings, clock_ms: Callable[[], int] | None = None
    ) -> None:
        """Use `open`."""
        self.settings = settings
        self._state = state
        self.now_ms = clock_ms or state.now_ms
        self._wheel = Wheel()
        self._entries: dict[str, Entry] = {}
        self._memory = MemberBytes()
        self._holders: dict[int, set[str]] = {}  # producer id → groups it holds offsets for
        self._nursery: trio.Nursery | None = None
        self._restore()

    @classmethod
    async def open(cls, store: Store, settings: GroupSettings) -> Self:
        return cls(await trio.to_thread.run_sync(StateLog.open, store, LOG), settings)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._state.keep)
            nursery.start_soon(self._wheel.run)
            task_status.started()
            while True:
                await trio.sleep(self.settings.offsets_check_interval)
                with contained("group offsets not expired"):
                    await self.expire()

    # -- what there is

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def find(self, id: str) -> Entry | None:
        return self._entries.get(id)

    def _find_or_make(self, id: str) -> Entry:
        entry = self._entries.get(id)
        if entry is None:
            group = Group(id, self._wheel, self._save, self.settings, self._memory)
            entry = self._entries[id] = Entry(group, Offsets(id), self.now_ms())
        return entry

    def _restore(self) -> None:
        for raw_key, value in self._state.items():
            try:
                key = decode_key(raw_key)
                match key:
                    case OffsetKey(id, place):
                        self._find_or_make(id).offsets.committed[place] = decode_committed(value)
                    case HeldKey(producer_id, id, place):
                        held = {place: decode_committed(value)}
                        self._find_or_make(id).offsets.hold(producer_id, held)
                        self._holders.setdefault(producer_id, set()).add(id)
                    case GroupKey(id):
                        self._restore_group(self._find_or_make(id), decode_group(value))
            except (Malformed, struct.error, UnicodeDecodeError) as error:
                eventlog.failure("group state unreadable", error, key=raw_key.hex())

    def _restore_group(self, entry: Entry, saved: SavedGroup) -> None:
        entry.since_ms = saved.time_ms
        entry.group.restore(
            saved.members, saved.generation, saved.protocol_type, saved.protocol, saved.leader
        )

    # -- members

    async def join(self, id: str, wanted: Joining) -> Joined:
        if not self._is_session_timeout(wanted.session_timeout):
            return Joined(Error.INVALID_SESSION_TIMEOUT, wanted.member_id)
        if not self._has_memory_for(size_of(wanted.protocols)):
            return Joined(Error.GROUP_MAX_SIZE_REACHED, wanted.member_id)
        entry = self._entries.get(id)
        if entry is None:
            if wanted.member_id:
                return Joined(Error.UNKNOWN_MEMBER_ID, wanted.member_id)
            entry = self._find_or_make(id)
        answer: Reply[Joined] = Reply()
        entry.group.join(wanted, answer.set)
        self._forget_unused(entry)
        return await answer.wait()

    def _has_memory_for(self, size: int, members: int = 1) -> bool:
        """Members stay for as long as their sessions, also when their clients are gone, so their
        memory together has a limit. Usual members, which need little, have a higher one: a client
        that fills the lower one with large members doesn't keep them out."""
        most = MOST_HELD if size > LITTLE * members else MOST_OF_ALL
        return self._memory.bytes + size <= most

    def _forget_unused(self, entry: Entry) -> None:
        """A join was refused, and the group is nothing but a name: it isn't kept."""
        group = entry.group
        if group.state is State.EMPTY and not (
            group.generation or group.is_waiting or entry.offsets or entry.is_saving
        ):
            group.die()
            del self._entries[entry.id]

    def _is_session_timeout(self, seconds: float) -> bool:
        return self.settings.min_session_timeout <= seconds <= self.settings.max_session_timeout

    async def sync(
        self, id: str, who: MemberIdentity, protocol_type: str | None, protocol: str | None,
        assignments: Assignments,
    ) -> Synced:  # fmt: skip
        entry = self._entries.get(id)
        if entry is None:
            return Synced(Error.UNKNOWN_MEMBER_ID)
        size = sum(len(share) for share in assignments.values())
        if size and not self._has_memory_for(size, len(entry.group.roster)):
            return Synced(Error.MESSAGE_TOO_LARGE)
        answer: Reply[Synced] = Reply()
        entry.group.sync(who, protocol_type, protocol, assignments, answer.set)
        return await answer.wait()

    def heartbeat(self, id: str, who: MemberIdentity) -> Error:
        entry = self._entries.get(id)
        return Error.UNKNOWN_MEMBER_ID if entry is None else entry.group.heartbeat(who)

    def leave(self, id: str, leaving: list[MemberIdentity]) -> list[Error]:
        entry = self._entries.get(id)
        if entry is None:
            return [Error.UNKNOWN_MEMBER_ID] * len(leaving)
        return entry.group.leave(leaving)

    def _save(self, group: Group, assignments: Assignments, then: Saved) -> None:
        """Group by group in the order they ask; `then` is called when it is on disk."""
        entry = self._entries[group.id]
        entry.since_ms = self.now_ms()
        roster = group.roster
        saved = SavedGroup(
            roster.protocol_type, group.generation, group.protocol, roster.leader, entry.since_ms,
            tuple(roster),
        )  # fmt: skip
        entry.saves.append((encode_group(saved, assignments), then))
        if not entry.is_saving:
            entry.is_saving = True
            assert self._nursery is not None
            self._nursery.start_soon(self._write_saves, entry)

    async def _write_saves(self, entry: Entry) -> None:
        while entry.saves:
            value, then = entry.saves.pop(0)
            saved = entry.group.state is not State.DEAD and await self._write_save(entry, value)
            with contained("group update failed", group=entry.id):
                then(saved)
        entry.is_saving = False

    async def _write_save(self, entry: Entry, value: bytes) -> bool:
        """Is it on disk?"""
        try:
            await self._state.put({encode_key(GroupKey(entry.id)): value})
        except LogError as error:
            eventlog.warning("group not saved", group=entry.id, error=error)
        except BaseException as error:
            if not is_failure(error):
                raise
            eventlog.failure("group not saved", error, group=entry.id)
        else:
            return True
        return False

    # -- offsets

    async def commit(
        self, id: str, who: MemberIdentity, offsets: Mapping[Place, Committed]
    ) -> Error:
        """On disk when it returns NONE."""
        entry = self._entries.get(id)
        if entry is None:
            if who.generation >= 0:
                return Error.ILLEGAL_GENERATION
            entry = self._find_or_make(id)
        error = entry.group.may_commit(who)
        if error is not Error.NONE:
            return error
        for part in _parts(offsets):
            error = await self._write(
                id,
                entry.offsets.commit(part),
                partial(entry.offsets.committed_now, part),
                partial(entry.offsets.written, part),
            )
            if error is not Error.NONE:
                break
        return error

    def committed(self, id: str) -> Mapping[Place, Committed]:
        self._state.settle()
        entry = self._entries.get(id)
        return entry.offsets.committed if entry else {}

    def is_held(self, id: str, place: Place) -> bool:
        """Will a transaction that is under way decide it?"""
        entry = self._entries.get(id)
        return entry is not None and entry.offsets.is_held(place)

    async def delete_offsets(self, id: str, places: Iterable[Place]) -> Error:
        """The caller has checked before which of them are subscribed to."""
        entry = self._entries.get(id)
        if entry is None:
            return Error.GROUP_ID_NOT_FOUND
        gone = list(places)
        forgotten = partial(entry.offsets.forgotten, gone)
        return await self._write(id, entry.offsets.forget(gone), forgotten)

    async def _write(
        self,
        id: str,
        writes: Writes,
        applied: Callable[[], None],
        failed: Callable[[], None] | None = None,
    ) -> Error:
        try:
            await self._state.put(writes, applied)
        except LogError as error:
            if failed is not None:
                failed()
            eventlog.warning("group offsets not written", group=id, error=error)
            return Error.COORDINATOR_NOT_AVAILABLE
        return Error.NONE

    # -- transactions

    async def hold_offsets(
        self, producer_id: int, id: str, who: MemberIdentity, offsets: Mapping[Place, Committed]
    ) -> Error:
        """On disk when it returns NONE, and committed when the transaction is."""
        entry = self._entries.get(id)
        if entry is None:
            if who.generation >= 0:
                return Error.ILLEGAL_GENERATION
            entry = self._find_or_make(id)
        error = entry.group.may_commit(who, transactional=True)
        if error is not Error.NONE:
            return error
        self._holders.setdefault(producer_id, set()).add(id)
        for part in _parts(offsets):
            try:
                await self._state.put(entry.offsets.hold(producer_id, part))
            except LogError as failure:
                return error_of(failure)
        return Error.NONE

    async def end_transaction(self, producer_id: int, commit: bool) -> None:
        """All that it holds is committed, or forgotten, at once; on disk when it returns."""
        ids = self._holders.get(producer_id, ())
        entries = [entry for id in ids if (entry := self._entries.get(id))]
        writes: Writes = {}
        for entry in entries:
            writes |= entry.offsets.end(producer_id, commit)

        def applied() -> None:
            self._holders.pop(producer_id, None)
            for entry in entries:
                entry.offsets.ended(producer_id, commit)

        try:
            await self._state.put(writes, applied)
        except LogError:
            for entry in entries:
                if commit:
                    entry.offsets.written(entry.offsets.held.get(producer_id, {}))
            raise

    # -- going

    async def delete(self, id: str) -> Error:
        """Only when nobody is in it."""
        entry = self._entries.get(id)
        if entry is None:
            return Error.GROUP_ID_NOT_FOUND
        if entry.group.state is not State.EMPTY or entry.group.is_waiting:
            return Error.NON_EMPTY_GROUP
        eventlog.info("group deleted", group=id, offsets=len(entry.offsets.committed))
        return await self._write(id, self._remove(entry), lambda: None)

    def _remove(self, entry: Entry) -> Writes:
        """At once; returns the items to write so that the group doesn't come back."""
        entry.group.die()
        del self._entries[entry.id]
        offsets = entry.offsets
        writes = offsets.forget({*offsets.committed, *offsets.writing})
        for producer_id in offsets.held:
            writes |= offsets.end(producer_id, commit=False)
            self._holders[producer_id].discard(entry.id)
        key = encode_key(GroupKey(entry.id))
        if key in self._state or entry.is_saving:
            writes[key] = None
        return writes

    async def expire(self) -> None:
        """Offsets that nobody has used for their time, and groups that have nothing left."""
        now = self.now_ms()
        for entry in self:
            if self._entries.get(entry.id) is not entry:
                continue
            with contained("group offsets not expired", group=entry.id):
                try:
                    await self._expire(entry, now)
                except LogError as error:
                    eventlog.warning("group offsets not expired", group=entry.id, error=error)
                    return
            await trio.lowlevel.checkpoint()

    async def _expire(self, entry: Entry, now: int) -> None:
        old = self._expired(entry, now)
        if old:
            forgotten = partial(entry.offsets.forgotten, old)
            await self._state.put(entry.offsets.forget(old), forgotten)
            eventlog.info("group offsets expired", group=entry.id, offsets=len(old))
        idle = entry.group.state is State.EMPTY and not entry.group.is_waiting
        if idle and not entry.offsets and not entry.is_saving:
            await self._state.put(self._remove(entry))
            eventlog.info("group expired", group=entry.id)

    def _expired(self, entry: Entry, now: int) -> list[Place]:
        """A group's members keep the offsets of the topics they subscribe to; without members, all
        of them begin to age. Clients that never join only commit: each commit ages by itself."""
        group, age = entry.group, self.settings.offsets_retention * 1000
        if group.roster.protocol_type is None:
            wanted: set[str] | None = set()
            since = 0
        elif group.state is State.EMPTY:
            wanted, since = set(), entry.since_ms
        else:
            wanted, since = entry.subscribed() if group.state is State.STABLE else None, 0
        if wanted is None:
            return []
        offsets = entry.offsets
        return [
            place
            for place, each in offsets.committed.items()
            if place.topic not in wanted
            and max(each.time_ms, since) + age <= now
            and place not in offsets.writing
            and not offsets.is_held(place)
        ]

    def follow(self, topics: Topics) -> None:
        """Offsets go with their topics: also with those that nobody has asked for yet."""
        for name in {place.topic for entry in self for place in entry.offsets.committed}:
            topics.find(name)
        topics.on_gone.append(self.topic_gone)

    def topic_gone(self, topic: Topic) -> None:
        """Its offsets mean nothing to one that is made later under the same name."""
        assert self._nursery is not None
        for entry in self:
            known = {*entry.offsets.committed, *entry.offsets.writing}
            gone = [place for place in known if place.topic == topic.name]
            if gone:
                self._nursery.start_soon(self._forget_topic, entry.id, gone)

    async def _forget_topic(self, id: str, gone: list[Place]) -> None:
        with contained("group offsets not removed", group=id):
            await self.delete_offsets(id, gone)


def _parts(offsets: Mapping[Place, Committed]) -> Iterator[dict[Place, Committed]]:
    """Few enough for a batch."""
    items = iter(offsets.items())
    while part := dict(islice(items, AT_A_TIME)):
        yield part


class Reply(Generic[T]):
    """An answer that comes later."""

    def __init__(self) -> None:
        self._came = trio.Event()
        self._answer: list[T] = []

    def set(self, answer: T) -> None:
        self._answer.append(answer)
        self._came.set()

    async def wait(self) -> T:
        await self._came.wait()
        return self._answer[0]
