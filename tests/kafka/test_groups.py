"""All groups together: what they leave on disk, what they forget."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ottermq.kafka.errors import Error
from ottermq.kafka.groups.coordinator import LOG, Groups
from ottermq.kafka.groups.group import State
from ottermq.kafka.groups.member import Joined, Joining, Member, MemberIdentity
from ottermq.kafka.groups.records import (
    Committed,
    GroupKey,
    HeldKey,
    Key,
    OffsetKey,
    Place,
    SavedGroup,
    decode_committed,
    decode_group,
    decode_key,
    encode_committed,
    encode_group,
    encode_key,
    subscribed,
)
from ottermq.kafka.groups.settings import GroupSettings
from ottermq.kafka.statelog import StateLog
from ottermq.wal import Store
from ottermq.wal.errors import Fenced
from tests.wal.stores import SMALL, die

AT_ONCE = GroupSettings(initial_rebalance_delay=0)
ORDERS = Place("orders", 0)
STRANGER = MemberIdentity("")
DAY = 24 * 3600 * 1000


@asynccontextmanager
async def opened(
    store: Store, settings: GroupSettings = AT_ONCE, clock_ms: Callable[[], int] | None = None
) -> AsyncIterator[Groups]:
    state = await trio.to_thread.run_sync(StateLog.open, store, LOG)
    groups = Groups(state, settings, clock_ms)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.waiting.run, print)
        await nursery.start(groups.run)
        yield groups
        nursery.cancel_scope.cancel()


def live(store: Store, life: Callable[[Groups], Awaitable[Any]], rate: float = 1.0) -> Any:
    """rate: how much faster than ours the time of groups goes by."""

    async def main() -> Any:
        async with opened(store) as groups:
            return await life(groups)

    return trio.run(main, clock=trio.testing.MockClock(rate))


def joining(member_id: str = "", **changes: Any) -> Joining:
    wanted: dict[str, Any] = {
        "instance_id": None, "client_id": "c", "client_host": "/::1", "session_timeout": 60.0,
        "rebalance_timeout": 60.0, "protocol_type": "consumer",
        "protocols": (("range", subscription("orders")), ("sticky", b"x")), "needs_id": False,
    }  # fmt: skip
    return Joining(member_id, **(wanted | changes))


def subscription(*topics: str) -> bytes:
    """What consumers send as their metadata."""
    named = b"".join(len(each).to_bytes(2, "big") + each.encode() for each in topics)
    return b"\0\1" + len(topics).to_bytes(4, "big") + named + b"\xff\xff\xff\xff"


async def member_of(groups: Groups, id: str, **changes: Any) -> Joined:
    """One that has joined an empty group and got its assignment."""
    joined = await groups.join(id, joining(**changes))
    assert joined.error is Error.NONE
    who = MemberIdentity(joined.member_id, joined.generation, changes.get("instance_id"))
    synced = await groups.sync(id, who, None, None, {joined.member_id: b"all"})
    assert (synced.error, synced.assignment) == (Error.NONE, b"all")
    return joined


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():  # noqa: ASYNC110 (what no event tells)
        assert time.monotonic() < deadline, "it never came"
        await trio.sleep(0.01)


def is_empty(groups: Groups, id: str) -> bool:
    entry = groups.find(id)
    return entry is not None and entry.group.state is State.EMPTY


# -- what lies on disk


def test_members_and_generations_come_back_after_a_kill(tmp_path: Path) -> None:
    def life(store: Store) -> str:
        async def main(groups: Groups) -> str:
            return (await member_of(groups, "g", instance_id="i")).member_id

        return str(live(store, main))

    id = die(tmp_path, life)

    async def again(groups: Groups) -> None:
        entry = groups.find("g")
        assert entry is not None and entry.group.state is State.STABLE
        assert groups.heartbeat("g", MemberIdentity(id, 1, "i")) is Error.NONE
        synced = await groups.sync("g", MemberIdentity(id, 1), "consumer", "range", {})
        assert synced.assignment == b"all"
        [member] = entry.group.roster
        assert (member.client_id, member.client_host, member.session_timeout) == ("c", "/::1", 60)
        rejoined = await groups.join("g", joining(id, instance_id="i"))
        assert (rejoined.error, rejoined.generation) == (Error.NONE, 2)

    with Store.open(tmp_path, SMALL) as store:
        live(store, again)


def test_a_member_that_does_not_come_back_is_out(tmp_path: Path) -> None:
    async def first(groups: Groups) -> None:
        await member_of(groups, "g", session_timeout=60.0)

    async def then(groups: Groups) -> None:
        await until(lambda: is_empty(groups, "g"))

    with Store.open(tmp_path, SMALL) as store:
        live(store, first)
        live(store, then, rate=100)
        live(store, then)  # and stays so


def test_committed_offsets_come_back_after_a_kill(tmp_path: Path) -> None:
    def life(store: Store) -> bool:
        async def main(groups: Groups) -> bool:
            for n in range(50):
                offsets = {Place("orders", n % 3): Committed(n, n, f"meta {n}", 1000 + n)}
                assert await groups.commit("g", STRANGER, offsets) is Error.NONE
            assert await groups.delete_offsets("g", [Place("orders", 2)]) is Error.NONE
            return True

        return bool(live(store, main))

    assert die(tmp_path, life)

    async def again(groups: Groups) -> None:
        assert dict(groups.committed("g")) == {
            Place("orders", 0): Committed(48, 48, "meta 48", 1048),
            Place("orders", 1): Committed(49, 49, "meta 49", 1049),
        }

    with Store.open(tmp_path, SMALL) as store:
        live(store, again)


def test_a_deleted_group_does_not_come_back(tmp_path: Path) -> None:
    async def life(groups: Groups) -> None:
        joined = await member_of(groups, "g")
        assert (
            await groups.commit("g", MemberIdentity(joined.member_id, 1), {ORDERS: Committed(1)})
            == 0
        )
        assert await groups.hold_offsets(7, "g", STRANGER, {ORDERS: Committed(2)}) is Error.NONE
        assert await groups.delete("g") is Error.NON_EMPTY_GROUP
        assert groups.leave("g", [MemberIdentity(joined.member_id)]) == [Error.NONE]
        assert await groups.delete("g") is Error.NONE
        assert await groups.delete("g") is Error.GROUP_ID_NOT_FOUND
        await groups.end_transaction(7, commit=True)

    async def again(groups: Groups) -> None:
        assert list(groups) == []

    with Store.open(tmp_path, SMALL) as store:
        live(store, life)
        live(store, again)


def test_what_a_later_version_wrote_is_left_alone(tmp_path: Path) -> None:
    async def life(groups: Groups) -> None:
        await groups._state.put({b"\x01\x00other": b"?", b"\0\1\0\1g\0\1t\0\0\0\0": b"\0\x63"})

    async def again(groups: Groups) -> None:
        assert not groups.committed("g")
        assert len(groups._state) == 2

    with Store.open(tmp_path, SMALL) as store:
        live(store, life)
        live(store, again)


# -- members


async def test_an_unknown_group_knows_nobody(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        async with opened(store) as groups:
            assert (await groups.join("g", joining("x"))).error is Error.UNKNOWN_MEMBER_ID
            assert (
                await groups.sync("g", MemberIdentity("x"), None, None, {})
            ).error is not Error.NONE
            assert groups.heartbeat("g", MemberIdentity("x")) is Error.UNKNOWN_MEMBER_ID
            assert (
                groups.leave("g", [MemberIdentity("x"), MemberIdentity("y")])
                == [Error.UNKNOWN_MEMBER_ID] * 2
            )
            nothing = await groups.join("g", joining(protocols=()))
            assert nothing.error is Error.INCONSISTENT_GROUP_PROTOCOL
            assert list(groups) == []


async def test_session_time_outs_have_bounds(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        async with opened(store) as groups:
            for seconds in (5.0, 3600.0):
                joined = await groups.join("g", joining(session_timeout=seconds))
                assert joined.error is Error.INVALID_SESSION_TIMEOUT
            assert list(groups) == []


async def test_members_wait_for_each_other(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        settings = replace(AT_ONCE, initial_rebalance_delay=0.2)
        async with opened(store, settings) as groups:
            answers: list[Joined] = []

            async def join() -> None:
                answers.append(await groups.join("g", joining()))

            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(join)
            assert {answer.generation for answer in answers} == {1}
            [leader] = [answer for answer in answers if answer.members]
            assert len(leader.members) == 20


# -- offsets


async def test_who_may_not_commit_commits_nothing(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        async with opened(store) as groups:
            late = await groups.commit("g", MemberIdentity("x", 3), {ORDERS: Committed(1)})
            assert late is Error.ILLEGAL_GENERATION
            await member_of(groups, "g")
            stranger = await groups.commit("g", STRANGER, {ORDERS: Committed(1)})
            assert stranger is Error.UNKNOWN_MEMBER_ID
            assert not groups.committed("g")


async def test_commits_of_one_partition_at_once_end_with_the_last(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        async with opened(store) as groups:
            async with trio.open_nursery() as nursery:
                for n in range(200):
                    nursery.start_soon(groups.commit, "g", STRANGER, {ORDERS: Committed(n)})
            seen = groups.committed("g")[ORDERS]
            entry = groups.find("g")
            assert entry is not None and not entry.offsets.writing
        async with opened(store) as groups:
            assert groups.committed("g")[ORDERS] == seen


async def test_a_very_large_commit(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        async with opened(store) as groups:
            many = {Place("t", n): Committed(n) for n in range(10_000)}
            assert await groups.commit("g", STRANGER, many) is Error.NONE
            assert groups.committed("g") == many


async def test_nothing_is_seen_of_what_the_disk_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(tmp_path, SMALL) as store:
        async with opened(store) as groups:

            async def refuse(seq: int) -> None:
                raise Fenced("no")

            with monkeypatch.context() as patch:
                patch.setattr(store, "wait_durable", refuse)
                failed = await groups.commit("g", STRANGER, {ORDERS: Committed(1)})
                assert failed is Error.COORDINATOR_NOT_AVAILABLE
            assert await groups.commit("g", STRANGER, {Place("x", 1): Committed(1)}) is Error.NONE
            assert ORDERS not in groups.committed("g")
            entry = groups.find("g")
            assert entry is not None and not entry.offsets.writing


# -- transactions


async def test_offsets_of_a_transaction_count_when_it_commits(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        async with opened(store) as groups:
            await groups.commit("g", STRANGER, {ORDERS: Committed(1)})
            assert await groups.hold_offsets(7, "g", STRANGER, {ORDERS: Committed(2)}) == 0
            assert groups.is_held("g", ORDERS)
            assert groups.committed("g")[ORDERS].offset == 1
        async with opened(store) as groups:  # also if the broker stops in between
            assert groups.is_held("g", ORDERS)
            await groups.end_transaction(7, commit=True)
            await groups.end_transaction(7, commit=True)
            assert not groups.is_held("g", ORDERS)
            assert groups.committed("g")[ORDERS].offset == 2
        async with opened(store) as groups:
            assert not groups.is_held("g", ORDERS)
            assert groups.committed("g")[ORDERS].offset == 2


async def test_offsets_of_a_transaction_are_forgotten_when_it_aborts(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        async with opened(store) as groups:
            await groups.hold_offsets(7, "g", STRANGER, {ORDERS: Committed(2)})
            await groups.hold_offsets(7, "h", STRANGER, {ORDERS: Committed(3)})
            await groups.hold_offsets(8, "g", STRANGER, {Place("x", 1): Committed(4)})
            await groups.end_transaction(7, commit=False)
            assert not groups.is_held("g", ORDERS) and not groups.is_held("h", ORDERS)
            assert groups.is_held("g", Place("x", 1))
            assert not groups.committed("g") and not groups.committed("h")


async def test_a_producer_of_an_older_generation_holds_nothing(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        async with opened(store) as groups:
            held = await groups.hold_offsets(7, "g", MemberIdentity("x", 4), {ORDERS: Committed(2)})
            assert held is Error.ILLEGAL_GENERATION
            joined = await member_of(groups, "g")
            held = await groups.hold_offsets(7, "g", MemberIdentity(joined.member_id, 0), {})
            assert held is Error.ILLEGAL_GENERATION
            assert (
                await groups.hold_offsets(7, "g", MemberIdentity(joined.member_id, 1), {})
                is Error.NONE
            )


# -- forgetting


class Calendar:
    now = 1_000 * DAY

    def __call__(self) -> int:
        return self.now


async def test_offsets_expire_when_nobody_is_in_the_group(tmp_path: Path) -> None:
    clock = Calendar()
    with Store.open(tmp_path, SMALL) as store:
        async with opened(store, clock_ms=clock) as groups:
            joined = await member_of(groups, "g")
            old = Committed(1, time_ms=clock.now)
            who = MemberIdentity(joined.member_id, 1)
            await groups.commit("g", who, {ORDERS: old, Place("other", 0): old})
            clock.now += 8 * DAY
            await groups.expire()
            # Its member still reads orders; nobody reads the other.
            assert list(groups.committed("g")) == [ORDERS]
            groups.leave("g", [MemberIdentity(joined.member_id)])
            entry = groups.find("g")
            assert entry is not None
            await until(lambda: not entry.is_saving)
            await groups.expire()
            assert list(groups.committed("g")) == [ORDERS]
            clock.now += 6 * DAY
            await groups.expire()
            assert list(groups.committed("g")) == [ORDERS]
            clock.now += 2 * DAY
            await groups.expire()
            assert groups.find("g") is None
        async with opened(store, clock_ms=clock) as groups:
            assert list(groups) == []


async def test_a_commit_without_a_group_ages_by_itself(tmp_path: Path) -> None:
    clock = Calendar()
    with Store.open(tmp_path, SMALL) as store:
        async with opened(store, clock_ms=clock) as groups:
            await groups.commit("g", STRANGER, {ORDERS: Committed(1, time_ms=clock.now)})
            clock.now += 5 * DAY
            await groups.commit("g", STRANGER, {Place("x", 1): Committed(1, time_ms=clock.now)})
            clock.now += 3 * DAY
            await groups.expire()
            assert list(groups.committed("g")) == [Place("x", 1)]


async def test_what_others_than_consumers_commit_is_kept_while_they_are_there(
    tmp_path: Path,
) -> None:
    clock = Calendar()
    with Store.open(tmp_path, SMALL) as store:
        async with opened(store, clock_ms=clock) as groups:
            joined = await member_of(groups, "g", protocol_type="connect")
            await groups.commit("g", MemberIdentity(joined.member_id, 1), {ORDERS: Committed(1)})
            await groups.expire()
            assert ORDERS in groups.committed("g")


async def test_offsets_go_with_their_topic(tmp_path: Path) -> None:
    class Topic:
        name = "orders"

    with Store.open(tmp_path, SMALL) as store:
        async with opened(store) as groups:
            kept = Place("other", 0)
            await groups.commit("g", STRANGER, {ORDERS: Committed(1), kept: Committed(1)})
            groups.topic_gone(Topic())  # type: ignore[arg-type]
            await until(lambda: ORDERS not in groups.committed("g"))
            assert list(groups.committed("g")) == [kept]


# -- bytes


texts = st.text(max_size=20)
places = st.builds(Place, texts, st.integers(0, 2**31 - 1))


@given(
    st.builds(OffsetKey, texts, places)
    | st.builds(GroupKey, texts)
    | st.builds(HeldKey, st.integers(0, 2**63 - 1), texts, places)
)
def test_keys_are_read_as_they_were_written(key: Key) -> None:
    assert decode_key(encode_key(key)) == key


@given(
    st.builds(
        Committed, st.integers(-1, 2**63 - 1), st.integers(-1, 2**31 - 1), texts,
        st.integers(0, 2**60),
    )
)  # fmt: skip
def test_offsets_are_read_as_they_were_written(committed: Committed) -> None:
    assert decode_committed(encode_committed(committed)) == committed


def test_groups_are_read_as_they_were_written() -> None:
    members = (
        Member("a", None, "c", "/h", 10.0, 60.5, (("range", b"1"), ("sticky", b"2")), b"x"),
        Member("b", "i", "", "", 6.0, 0.0, (("sticky", b"3"),)),
    )
    saved = SavedGroup("consumer", 3, "sticky", "a", 77, members)
    read = decode_group(encode_group(saved, {"a": b"one", "b": b"two"}))
    assert replace(read, members=()) == replace(saved, members=())
    assert [member.metadata("sticky") for member in read.members] == [b"2", b"3"]
    assert [member.assignment for member in read.members] == [b"one", b"two"]
    assert [member.instance_id for member in read.members] == [None, "i"]
    assert [member.rebalance_timeout for member in read.members] == [60.5, 0.0]


def test_subscriptions_are_read_as_far_as_they_can_be() -> None:
    assert subscribed([subscription("a", "b"), subscription("b", "c")]) == {"a", "b", "c"}
    assert subscribed([]) == set()
    assert subscribed([b"\0\1\x7f\xff\xff\xff"]) is None
    assert subscribed([b""]) is None
