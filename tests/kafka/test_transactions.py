"""The transaction coordinator over real logs: fencing, markers, time-outs, and every crash."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import trio

from ottermq.kafka.errors import Error, KafkaError
from ottermq.kafka.groups.records import Place
from ottermq.kafka.statelog import StateLog
from ottermq.kafka.topics import Partition, Topic
from ottermq.kafka.transactions.coordinator import LOG, Transactions
from ottermq.kafka.transactions.settings import TransactionSettings
from ottermq.kafka.transactions.transaction import Producer, State
from ottermq.wal import Log, LogFlags, Record, Store
from ottermq.wal.errors import Full, Refused
from tests.wal.producing import INVALID_EPOCH, batch
from tests.wal.stores import SMALL

TWO = [Place("t", 0), Place("t", 1)]
MINUTE = 60_000


class Died(Exception):
    """The process, at this line."""


@dataclass
class CrashPoint:
    """Lets a process live for so many steps."""

    steps: int = -1

    def step(self) -> None:
        if self.steps == 0:
            raise Died
        self.steps -= 1


@dataclass
class Groups:
    crash_point: CrashPoint
    ended: dict[int, list[bool]] = field(default_factory=dict)

    async def end_transaction(self, producer_id: int, commit: bool) -> None:
        self.crash_point.step()
        self.ended.setdefault(producer_id, []).append(commit)
        self.crash_point.step()


@dataclass
class Topics:
    topics: dict[str, Topic] = field(default_factory=dict)

    def find(self, name: str) -> Topic | None:
        return self.topics.get(name)


class CrashingLog:
    """A log whose markers may be the last thing its process does."""

    def __init__(self, log: Log, crash_point: CrashPoint) -> None:
        self._log, self._crash_point = log, crash_point

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def mark(self, producer_id: int, epoch: int, *, commit: bool) -> Any:
        self._crash_point.step()
        done = self._log.mark(producer_id, epoch, commit=commit)
        self._crash_point.step()
        return done


class CrashingStateLog(StateLog):
    crash_point: CrashPoint

    async def put(self, *args: Any, **kwargs: Any) -> int:
        self.crash_point.step()
        offset = await super().put(*args, **kwargs)
        self.crash_point.step()
        return offset


@dataclass
class TransactionHarness:
    store: Store
    crash_point: CrashPoint = field(default_factory=CrashPoint)
    topics: Topics = field(default_factory=Topics)
    now: int = 1_000_000

    def __post_init__(self) -> None:
        self.groups = Groups(self.crash_point)
        self.settings = TransactionSettings()

    def topic(self, name: str, partitions: int, *, is_stream: bool = True) -> list[Log]:
        flags = LogFlags.NO_CURSOR if is_stream else LogFlags(0)
        logs = [self.store.create(f"{name}-{i}", flags=flags) for i in range(partitions)]
        crashing: list[Any] = [CrashingLog(log, self.crash_point) for log in logs]
        parts = tuple(Partition(log.id, 0, each) for log, each in zip(logs, crashing, strict=True))
        self.topics.topics[name] = Topic(name, uuid4(), parts, is_stream)
        return logs

    async def coordinator(self) -> Transactions:
        """A new life, with all that is on disk."""
        self.crash_point.steps = -1
        state = await trio.to_thread.run_sync(CrashingStateLog.open, self.store, LOG)
        state.crash_point = self.crash_point
        return Transactions(
            self.store, self.topics, self.groups, state, self.settings, lambda: self.now
        )


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[TransactionHarness]:
    async with open_harness(tmp_path / "data") as harness:
        yield harness


@asynccontextmanager
async def open_harness(data: Path) -> AsyncIterator[TransactionHarness]:
    with Store.open(data, SMALL) as store:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.waiting.run, print)
            yield TransactionHarness(store)
            nursery.cancel_scope.cancel()


def write(log: Log, producer: Producer, sequence: int = 0) -> None:
    log.append_raw(batch(producer.id, sequence, epoch=producer.epoch, transactional=True))


async def refusal(step: Awaitable[object]) -> Error:
    with pytest.raises(KafkaError) as caught:
        await step
    return caught.value.error


# -- producers


async def test_ids_are_never_given_twice(harness: TransactionHarness) -> None:
    first = await harness.coordinator()
    ids = [(await first.idempotent()).id for _ in range(3)]
    second = await harness.coordinator()
    ids += [(await second.idempotent()).id for _ in range(1500)]
    ids.append((await second.begin("tx", MINUTE)).id)
    assert len(set(ids)) == len(ids)


async def test_each_beginning_has_the_next_epoch(harness: TransactionHarness) -> None:
    transactions = await harness.coordinator()
    first = await transactions.begin("tx", MINUTE)
    assert first.epoch == 0
    assert await transactions.begin("tx", MINUTE) == Producer(first.id, 1)
    again = await harness.coordinator()
    assert await again.begin("tx", MINUTE) == Producer(first.id, 2)
    assert (await again.begin("other", MINUTE)).id != first.id


async def test_a_producer_that_goes_on_after_an_error_is_known(harness: TransactionHarness) -> None:
    transactions = await harness.coordinator()
    first = await transactions.begin("tx", MINUTE)
    second = await transactions.begin("tx", MINUTE, expected=first)
    assert second == Producer(first.id, 1)
    # Its answer was lost, so it asks again.
    assert await transactions.begin("tx", MINUTE, expected=first) == second
    await transactions.begin("tx", MINUTE)
    assert await refusal(transactions.begin("tx", MINUTE, expected=second)) is Error.PRODUCER_FENCED


async def test_after_the_last_epoch_comes_another_id(harness: TransactionHarness) -> None:
    transactions = await harness.coordinator()
    first = await transactions.begin("tx", MINUTE)
    entry = transactions._entries["tx"]
    last = Producer(first.id, 32766)
    await transactions._put(entry, entry.now.renewed(last, -1, MINUTE, harness.now))
    after = await transactions.begin("tx", MINUTE)
    assert after.id != first.id
    assert after.epoch == 0


@pytest.mark.parametrize("limit", [0, -1, 15 * MINUTE + 1])
async def test_a_time_out_has_its_limits(harness: TransactionHarness, limit: int) -> None:
    transactions = await harness.coordinator()
    assert await refusal(transactions.begin("tx", limit)) is Error.INVALID_TRANSACTION_TIMEOUT
    assert transactions.find("tx") is None


# -- a transaction


@pytest.mark.parametrize("commit", [True, False])
async def test_it_ends_in_every_partition_and_group(
    harness: TransactionHarness, commit: bool
) -> None:
    logs = harness.topic("t", 2)
    transactions = await harness.coordinator()
    producer = await transactions.begin("tx", MINUTE)
    await transactions.join("tx", producer, TWO, ["g"])
    for log in logs:
        write(log, producer)
        assert log.stat().last_stable == 0
    await transactions.end("tx", producer, commit)
    for log in logs:
        assert log.stat().last_stable == 2
        assert len(log.aborted(0, 10)) == (not commit)
    assert harness.groups.ended == {producer.id: [commit]}
    now = transactions.find("tx")
    assert now is not None
    assert now.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)


async def test_a_partition_must_be_part_of_it_before_it_is_written_to(
    harness: TransactionHarness,
) -> None:
    [log] = harness.topic("t", 1)
    transactions = await harness.coordinator()
    producer = await transactions.begin("tx", MINUTE)
    with pytest.raises(Refused):
        write(log, producer)
    await transactions.join("tx", producer, TWO[:1])
    write(log, producer)


async def test_a_second_producer_ends_the_firsts_transaction(harness: TransactionHarness) -> None:
    [log] = harness.topic("t", 1)
    transactions = await harness.coordinator()
    first = await transactions.begin("tx", MINUTE)
    await transactions.join("tx", first, TWO[:1])
    write(log, first)
    second = await transactions.begin("tx", MINUTE)
    assert second == Producer(first.id, 2)
    assert len(log.aborted(0, 10)) == 1
    with pytest.raises(Refused) as caught:
        write(log, first, 1)
    assert caught.value.code == INVALID_EPOCH
    assert await refusal(transactions.end("tx", first, True)) is Error.PRODUCER_FENCED
    assert await refusal(transactions.join("tx", first, TWO[:1])) is Error.PRODUCER_FENCED
    await transactions.join("tx", second, TWO[:1])
    write(log, second)
    await transactions.end("tx", second, True)
    assert log.stat().last_stable == log.stat().next_offset


async def test_nobody_knows_an_id_that_did_not_begin(harness: TransactionHarness) -> None:
    transactions = await harness.coordinator()
    stranger = Producer(1, 0)
    unknown = Error.INVALID_PRODUCER_ID_MAPPING
    assert await refusal(transactions.join("tx", stranger, TWO)) is unknown
    assert await refusal(transactions.end("tx", stranger, True)) is unknown


async def test_offsets_are_committed_only_by_the_transaction_that_has_their_group(
    harness: TransactionHarness,
) -> None:
    transactions = await harness.coordinator()
    producer = await transactions.begin("tx", MINUTE)
    await transactions.join("tx", producer, groups=["g"])
    with transactions.committing("tx", producer, "g"):
        assert await refusal(transactions.end("tx", producer, True)) is (
            Error.CONCURRENT_TRANSACTIONS
        )
    with pytest.raises(KafkaError), transactions.committing("tx", producer, "other"):
        pass
    await transactions.end("tx", producer, True)
    with pytest.raises(KafkaError), transactions.committing("tx", producer, "g"):
        pass


async def test_a_marker_that_finds_no_room_waits_until_the_disk_gets_on(
    harness: TransactionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = harness.topic("t", 2)
    transactions = await harness.coordinator()
    producer = await transactions.begin("tx", MINUTE)
    await transactions.join("tx", producer, TWO[:1])
    write(log, producer)
    full, tries = True, 0
    mark = CrashingLog.mark

    def refuse(self: CrashingLog, *who: int, commit: bool) -> Any:
        nonlocal tries
        tries += 1
        if full:
            raise Full("no room")
        return mark(self, *who, commit=commit)

    monkeypatch.setattr(CrashingLog, "mark", refuse)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(transactions.end, "tx", producer, commit=True))
            await trio.sleep(0.2)  # time for all that was put before to be told
            tried = tries
            await trio.sleep(0.2)
            assert tries == tried > 0  # not by the clock
            full = False
            other.append([Record(b"on disk in a moment")])
    assert log.stat().last_stable == 2


async def test_a_topic_that_was_deleted_meanwhile_is_in_nobodys_way(
    harness: TransactionHarness,
) -> None:
    harness.topic("t", 2)
    transactions = await harness.coordinator()
    producer = await transactions.begin("tx", MINUTE)
    await transactions.join("tx", producer, TWO)
    del harness.topics.topics["t"]
    await transactions.end("tx", producer, True)
    now = transactions.find("tx")
    assert now is not None
    assert now.state is State.COMPLETE_COMMIT


# -- time


async def test_one_that_takes_too_long_is_given_up_and_its_producer_fenced(
    harness: TransactionHarness,
) -> None:
    [log] = harness.topic("t", 1)
    transactions = await harness.coordinator()
    producer = await transactions.begin("tx", 10 * MINUTE)
    await transactions.join("tx", producer, TWO[:1])
    write(log, producer)
    harness.now += 10 * MINUTE
    await transactions.look()
    assert log.stat().last_stable == 0
    harness.now += 1
    await transactions.look()
    assert log.stat().last_stable == 2
    assert len(log.aborted(0, 10)) == 1
    assert await refusal(transactions.end("tx", producer, True)) is Error.PRODUCER_FENCED


async def test_a_work_queue_waits_for_a_minute_at_most(harness: TransactionHarness) -> None:
    [log] = harness.topic("t", 1, is_stream=False)
    transactions = await harness.coordinator()
    producer = await transactions.begin("tx", 10 * MINUTE)
    await transactions.join("tx", producer, TWO[:1])
    write(log, producer)
    log.append_raw(batch(-1, -1, epoch=-1))
    harness.now += MINUTE + 1
    await transactions.look()
    assert log.stat().last_stable == 3


async def test_ids_that_nobody_used_for_a_week_are_forgotten(harness: TransactionHarness) -> None:
    transactions = await harness.coordinator()
    await transactions.begin("old", MINUTE)
    harness.now += 8 * 24 * 60 * MINUTE
    await transactions.begin("new", MINUTE)
    await transactions.look()
    assert [each.id for each in transactions.all()] == ["new"]
    assert [each.id for each in (await harness.coordinator()).all()] == ["new"]


# -- crashes


async def test_a_restart_goes_on_with_what_is_open(harness: TransactionHarness) -> None:
    logs = harness.topic("t", 2)
    before = await harness.coordinator()
    producer = await before.begin("tx", MINUTE)
    await before.join("tx", producer, TWO)
    write(logs[0], producer)
    after = await harness.coordinator()
    write(logs[1], producer)
    await after.end("tx", producer, True)
    assert [log.stat().last_stable for log in logs] == [2, 2]


async def lives(harness: TransactionHarness, steps: int, life: Awaitable[object]) -> bool:
    """Did it get to the end within so many steps?"""
    harness.crash_point.steps = steps
    try:
        await life
    except Died:
        return False
    finally:
        harness.crash_point.steps = -1
    return True


@pytest.mark.parametrize("commit", [True, False])
async def test_wherever_it_dies_an_end_is_an_end_everywhere_or_not_yet(
    tmp_path: Path, commit: bool
) -> None:
    finished = False
    for steps in range(40):
        async with open_harness(tmp_path / str(steps)) as harness:
            logs = harness.topic("t", 2)
            transactions = await harness.coordinator()
            producer = await transactions.begin("tx", MINUTE)
            await transactions.join("tx", producer, TWO, ["g"])
            for log in logs:
                write(log, producer)
            finished = await lives(harness, steps, transactions.end("tx", producer, commit))
            again = await harness.coordinator()
            await again.look()
            now = again.find("tx")
            assert now is not None
            if now.state is State.ONGOING:
                assert steps == 0  # nothing was decided
                assert [log.stat().last_stable for log in logs] == [0, 0]
                await again.end("tx", producer, commit)
            for log in logs:
                stat = log.stat()
                assert stat.last_stable == stat.next_offset
                assert bool(log.aborted(0, 100)) != commit
            assert set(harness.groups.ended[producer.id]) == {commit}
        if finished:
            break
    assert finished
    assert steps > 5


async def test_wherever_it_dies_a_new_producer_fences_the_old_one(tmp_path: Path) -> None:
    finished = False
    for steps in range(40):
        async with open_harness(tmp_path / str(steps)) as harness:
            logs = harness.topic("t", 2)
            transactions = await harness.coordinator()
            old = await transactions.begin("tx", MINUTE)
            await transactions.join("tx", old, TWO)
            for log in logs:
                write(log, old)
            finished = await lives(harness, steps, transactions.begin("tx", MINUTE))
            again = await harness.coordinator()
            await again.look()
            new = await again.begin("tx", MINUTE)
            assert new.epoch > old.epoch
            for log in logs:
                stat = log.stat()
                assert stat.last_stable == stat.next_offset
                assert len(log.aborted(0, 100)) == 1
                with pytest.raises(Refused):
                    write(log, old, 1)
        if finished:
            break
    assert finished
