"""All transactions: kept on disk, ended everywhere or nowhere.

    transactions = await Transactions.open(store, topics, groups)
    await nursery.start(transactions.run)

How one ends, and why a crash at any line does no harm:

    1  the decision is put into the StateLog, on disk     before: it goes on, or times out
    2  the groups commit or forget its offsets, on disk   from here on: done again at the start,
    3  each partition gets its marker, on disk            by whoever finds the decision; twice does
    4  "complete" is put into the StateLog                no harm

A request for an id that has another request under way is answered with CONCURRENT_TRANSACTIONS:
the client tries again.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol, Self

import trio

from ottermq import eventlog
from ottermq.contained import contained
from ottermq.kafka.errors import Error, KafkaError
from ottermq.kafka.groups.records import Place
from ottermq.kafka.statelog import StateLog
from ottermq.kafka.topics import Partition, Topic
from ottermq.kafka.transactions.producer_ids import ProducerIds
from ottermq.kafka.transactions.settings import TransactionSettings
from ottermq.kafka.transactions.transaction import (
    NO_EPOCH,
    NOBODY,
    Producer,
    State,
    Transaction,
)
from ottermq.wal import LogError, Store
from ottermq.wal.errors import Deleted, Full, Refused, StaleEpoch

LOG = "kafka transactions"
PREFIX = b"transaction "
LOOK = 1.0  # seconds between two looks at what is overdue
AT_A_TIME = 64  # markers, before others get their turn
MOST_LOOKS = 1000  # at partitions, to find those that somebody waits for


class Topics(Protocol):
    def find(self, name: str) -> Topic | None: ...


class Groups(Protocol):
    async def end_transaction(self, producer_id: int, commit: bool) -> None: ...


@dataclass(eq=False, slots=True)
class Entry:
    now: Transaction
    busy: bool = False


class BlockedPartition(NamedTuple):
    """A partition, and the transaction its last stable offset waits for."""

    by: Transaction
    place: Place
    is_stream: bool
    age_ms: int


class Transactions:
    def __init__(
        self,
        store: Store,
        topics: Topics,
        groups: Groups,
        state: StateLog,
        settings: TransactionSettings | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """Use `open`."""
        self.settings = settings or TransactionSettings()
        self._store = store
        self._topics = topics
        self._groups = groups
        self._state = state
        self._clock = clock or store.now_ms
        self._ids = ProducerIds(state)
        self._entries: dict[str, Entry] = {}
        self._open: dict[str, Entry] = {}  # ongoing, or decided and not yet carried out
        self._load()

    @classmethod
    async def open(
        cls,
        store: Store,
        topics: Topics,
        groups: Groups,
        settings: TransactionSettings | None = None,
    ) -> Self:
        state = await trio.to_thread.run_sync(StateLog.open, store, LOG)
        return cls(store, topics, groups, state, settings)

    def _load(self) -> None:
        for key, value in self._state.items():
            if not key.startswith(PREFIX):
                continue
            entry = Entry(Transaction.decode(key[len(PREFIX) :].decode(), value))
            self._entries[entry.now.id] = entry
            if entry.now.is_prepared:
                self._open[entry.now.id] = entry
            elif entry.now.state is State.ONGOING:
                self._open[entry.now.id] = entry
                with suppress(KafkaError):  # fenced: then it can only end
                    self._enlist(entry.now, entry.now.partitions)

    async def run(self, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled: ends that a crash interrupted, time-outs, ids nobody uses any more."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._state.keep)
            task_status.started()
            while True:
                with contained("transaction timeouts not checked"):
                    await self.look()
                await trio.sleep(LOOK)

    # -- what there is

    def find(self, id: str) -> Transaction | None:
        entry = self._entries.get(id)
        return entry.now if entry else None

    def all(self) -> Iterator[Transaction]:
        return (entry.now for entry in self._entries.values())

    def holding(self, older_than_ms: int) -> Iterator[BlockedPartition]:
        """Partitions whose readers wait for a transaction to end, and for which: those that began
        so long ago, the oldest first. With thousands of partitions, not all are looked at."""
        now = self._clock()
        begun = [entry.now for entry in self._open.values()]
        old = [each for each in begun if now - each.started_ms >= older_than_ms]
        old.sort(key=lambda each: each.started_ms)
        places = ((each, place) for each in old for place in each.partitions)
        for by, place in islice(places, MOST_LOOKS):
            topic = self._topics.find(place.topic)
            partition = topic.partition(place.partition) if topic else None
            if topic and partition and _holds(by, partition):
                yield BlockedPartition(by, place, topic.is_stream, now - by.started_ms)

    # -- producers

    async def idempotent(self) -> Producer:
        """One without transactions."""
        return Producer(await self._ids.next(), 0)

    async def begin(self, id: str, timeout_ms: int, expected: Producer | None = None) -> Producer:
        """A producer with that transactional id; all earlier ones are fenced, and their
        transaction is over. expected: its present id and epoch, if it goes on after an error."""
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            raise KafkaError(Error.INVALID_TRANSACTION_TIMEOUT)
        entry = self._entries.get(id)
        if entry is None:
            entry = self._entries[id] = Entry(Transaction(id, NOBODY, timeout_ms))
        with self._alone(entry):
            try:
                return await self._begin(entry, timeout_ms, expected)
            except LogError as error:
                raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, str(error)) from error
            finally:
                if entry.now.producer is NOBODY:
                    del self._entries[id]

    async def _begin(self, entry: Entry, timeout_ms: int, expected: Producer | None) -> Producer:
        if entry.now.producer is not NOBODY:
            entry.now.check_renewal(expected)
            if entry.now.is_prepared:
                raise KafkaError(Error.CONCURRENT_TRANSACTIONS)
            if entry.now.state is State.ONGOING:
                await self._put(entry, entry.now.given_up(self._clock()))
                await self._carry_out(entry)
            elif entry.now.is_renewed(expected):
                return entry.now.producer
        epoch = entry.now.next_epoch()
        if epoch is None:
            producer, last_epoch = Producer(await self._ids.next(), 0), NO_EPOCH
        else:
            producer = Producer(entry.now.producer.id, epoch)
            last_epoch = expected.epoch if expected else NO_EPOCH
        await self._put(entry, entry.now.renewed(producer, last_epoch, timeout_ms, self._clock()))
        return producer

    # -- a transaction

    async def join(
        self,
        id: str,
        producer: Producer,
        partitions: Iterable[Place] = (),
        groups: Iterable[str] = (),
    ) -> None:
        """These partitions, and these groups' offsets, are part of it now."""
        entry = self._of(id, producer)
        with self._alone(entry):
            before = entry.now
            after = before.joined(frozenset(partitions), frozenset(groups), self._clock())
            if after is not before:
                await self._put(entry, after)
            self._enlist(after, frozenset(partitions))

    @contextmanager
    def committing(self, id: str, producer: Producer, group: str) -> Iterator[None]:
        """It commits this group's offsets, and doesn't end meanwhile."""
        entry = self._of(id, producer)
        with self._alone(entry):
            if entry.now.is_prepared:
                raise KafkaError(Error.CONCURRENT_TRANSACTIONS)
            if entry.now.state is not State.ONGOING or group not in entry.now.groups:
                raise KafkaError(Error.INVALID_TXN_STATE)
            yield

    async def end(self, id: str, producer: Producer, commit: bool) -> None:
        """Decided when it returns, and mostly carried out."""
        entry = self._of(id, producer)
        with self._alone(entry):
            after = entry.now.ending(commit, self._clock())
            if after is entry.now:
                return
            await self._put(entry, after)
            try:
                await self._carry_out(entry)
            except (KafkaError, LogError) as error:
                # The decision stands: `look` tries again.
                eventlog.warning("transaction markers pending", transactional_id=id, error=error)

    def _of(self, id: str, producer: Producer) -> Entry:
        entry = self._entries.get(id)
        if entry is None:
            raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING)
        entry.now.check(producer)
        return entry

    @contextmanager
    def _alone(self, entry: Entry) -> Iterator[None]:
        if entry.busy:
            raise KafkaError(Error.CONCURRENT_TRANSACTIONS)
        entry.busy = True
        try:
            yield
        finally:
            entry.busy = False

    async def _put(self, entry: Entry, after: Transaction) -> None:
        """On disk, then true. It may be on disk though this failed: the caller doesn't know the
        outcome, as after a crash."""
        try:
            await self._state.put({PREFIX + after.id.encode(): after.encode()})
        except LogError as error:
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        entry.now = after
        if after.state is State.ONGOING or after.is_prepared:
            self._open[after.id] = entry
        else:
            self._open.pop(after.id, None)

    # -- in the logs

    def _partition(self, place: Place) -> Partition | None:
        topic = self._topics.find(place.topic)
        return topic.partition(place.partition) if topic is not None else None

    def _enlist(self, now: Transaction, places: Iterable[Place]) -> None:
        for place in places:
            partition = self._partition(place)
            if partition is None:
                continue
            try:
                partition.log.enlist(*now.producer)
            except StaleEpoch:
                raise KafkaError(Error.PRODUCER_FENCED) from None
            except Deleted:
                continue

    async def _carry_out(self, entry: Entry) -> None:
        """What was decided. LogError: not all of it is on disk yet."""
        now = entry.now
        await self._groups.end_transaction(now.producer.id, now.commits)
        seq = 0
        for count, place in enumerate(sorted(now.partitions), 1):
            seq = max(seq, await self._mark(now, place))
            if count % AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()
        await self._store.wait_durable(seq)
        await self._put(entry, now.ended(self._clock()))

    async def _mark(self, now: Transaction, place: Place) -> int:
        while (partition := self._partition(place)) is not None:
            try:
                return partition.log.mark(*now.producer, commit=now.commits).seq
            except Full:
                await self._store.waiting.wait_moved()
            except Deleted:
                break
            except Refused as error:  # a later producer was there: it has been ended before
                eventlog.warning(
                    "transaction marker refused",
                    transactional_id=now.id,
                    topic=place.topic,
                    partition=place.partition,
                    error=error,
                )
                break
        return 0

    # -- time

    async def look(self) -> None:
        """At what is overdue."""
        now = self._clock()
        for entry in list(self._open.values()):
            if not entry.busy:
                with contained("transaction not ended", transactional_id=entry.now.id):
                    await self._look_at(entry, now)
        for entry in list(self._entries.values()):
            is_old = now - entry.now.updated_ms > self.settings.id_expiration_ms
            if is_old and not entry.busy and entry.now.id not in self._open:
                with contained("transactional id not expired", transactional_id=entry.now.id):
                    await self._forget(entry)

    async def _look_at(self, entry: Entry, now: int) -> None:
        try:
            with self._alone(entry):
                if entry.now.state is State.ONGOING:
                    limit = self._limit(entry.now)
                    if now - entry.now.started_ms <= limit:
                        return
                    eventlog.warning(
                        "transaction timed out",
                        transactional_id=entry.now.id,
                        limit_ms=limit,
                        topics=",".join(sorted({each.topic for each in entry.now.partitions})),
                    )
                    await self._put(entry, entry.now.given_up(now))
                await self._carry_out(entry)
        except (KafkaError, LogError) as error:
            eventlog.warning("transaction not ended", transactional_id=entry.now.id, error=error)

    def _limit(self, now: Transaction) -> int:
        for place in now.partitions:
            topic = self._topics.find(place.topic)
            if topic is not None and not topic.is_stream:
                return min(now.timeout_ms, self.settings.queue_timeout_ms)
        return now.timeout_ms

    async def _forget(self, entry: Entry) -> None:
        with self._alone(entry):
            try:
                await self._state.put({PREFIX + entry.now.id.encode(): None})
            except LogError:
                return  # the next look comes
            self._entries.pop(entry.now.id, None)


def _holds(transaction: Transaction, partition: Partition) -> bool:
    try:
        return partition.log.stat().oldest_open == transaction.producer.id
    except Deleted:
        return False
