"""One transactional id: its producer, the partitions of its transaction, the next states.

    Empty ──▶ Ongoing ──▶ PrepareCommit ──▶ CompleteCommit ─┐
                 ▲  └───▶ PrepareAbort ───▶ CompleteAbort ──┤
                 └──────────────────────────────────────────┘

A Transaction never changes: a rule gives the next one, or raises the client's error. The caller
makes it durable before anybody acts on it. In a Prepare state the decision has been made: after a
crash it is carried out, whatever else was lost.

Epochs tell producers of the same id apart. Each that begins anew gets a higher one, and requests
of an older one are refused.
"""

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, Self

from ottermq.kafka.errors import Error, KafkaError
from ottermq.kafka.groups.records import Place

NO_EPOCH = -1
LAST_EPOCH = 32766  # one is kept for fencing


class State(StrEnum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


PREPARED = {State.PREPARE_COMMIT: State.COMPLETE_COMMIT, State.PREPARE_ABORT: State.COMPLETE_ABORT}
# Kafka knows two more, which we are never in.
STATES = frozenset((*State, "Dead", "PrepareEpochFence"))


class Producer(NamedTuple):
    id: int
    epoch: int


NOBODY = Producer(-1, NO_EPOCH)


@dataclass(frozen=True, slots=True)
class Transaction:
    id: str
    producer: Producer
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[Place] = frozenset()
    groups: frozenset[str] = frozenset()  # whose offsets it commits
    started_ms: int = -1
    updated_ms: int = -1
    last_epoch: int = NO_EPOCH  # the one before, if its producer asked for this one

    @property
    def is_prepared(self) -> bool:
        return self.state in PREPARED

    @property
    def commits(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    # -- producers

    def check(self, producer: Producer) -> None:
        """Is it this one's?"""
        if producer.id != self.producer.id:
            raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING)
        if producer.epoch != self.producer.epoch:
            raise KafkaError(Error.PRODUCER_FENCED)

    def check_renewal(self, expected: Producer | None) -> None:
        """May a producer that believes to be `expected` (None: begins anew) have the next epoch?"""
        if expected is None:
            return
        known = (self.producer.epoch, self.last_epoch)
        if expected.id != self.producer.id or expected.epoch not in known:
            raise KafkaError(Error.PRODUCER_FENCED)

    def is_renewed(self, expected: Producer | None) -> bool:
        """Has it been given already? The answer was lost on its way, then."""
        return expected is not None and expected.epoch != self.producer.epoch

    def renewed(self, producer: Producer, last_epoch: int, timeout_ms: int, now: int) -> Self:
        return type(self)(
            self.id, producer, timeout_ms, State.EMPTY, updated_ms=now, last_epoch=last_epoch
        )

    def next_epoch(self) -> int | None:
        """None: there are no more, it needs a new id."""
        if self.producer is NOBODY or self.producer.epoch >= LAST_EPOCH:
            return None
        return self.producer.epoch + 1

    # -- the transaction

    def joined(self, partitions: frozenset[Place], groups: frozenset[str], now: int) -> Self:
        """The same object: there was nothing new in it."""
        if self.is_prepared:
            raise KafkaError(Error.CONCURRENT_TRANSACTIONS)
        if self.state is not State.ONGOING:
            return replace(
                self,
                state=State.ONGOING,
                partitions=partitions,
                groups=groups,
                started_ms=now,
                updated_ms=now,
            )
        if partitions <= self.partitions and groups <= self.groups:
            return self
        return replace(
            self,
            partitions=self.partitions | partitions,
            groups=self.groups | groups,
            updated_ms=now,
        )

    def ending(self, commit: bool, now: int) -> Self:
        """The decision, as its producer wants it. The same object: it was made before."""
        wanted = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
        if self.state is wanted:
            return self
        if PREPARED.get(self.state) is wanted:
            raise KafkaError(Error.CONCURRENT_TRANSACTIONS)
        if self.state is not State.ONGOING:
            raise KafkaError(Error.INVALID_TXN_STATE)
        return replace(
            self, state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT, updated_ms=now
        )

    def given_up(self, now: int) -> Self:
        """The decision against its producer, whose epoch is over."""
        fenced = Producer(self.producer.id, self.producer.epoch + 1)
        return replace(self, state=State.PREPARE_ABORT, producer=fenced, updated_ms=now)

    def ended(self, now: int) -> Self:
        """The decision was carried out."""
        return replace(
            self,
            state=PREPARED[self.state],
            partitions=frozenset(),
            groups=frozenset(),
            started_ms=-1,
            updated_ms=now,
        )

    # -- on disk

    def encode(self) -> bytes:
        return json.dumps(
            {
                "version": 1,
                "producer": self.producer,
                "timeout_ms": self.timeout_ms,
                "state": self.state,
                "partitions": sorted(self.partitions),
                "groups": sorted(self.groups),
                "started_ms": self.started_ms,
                "updated_ms": self.updated_ms,
                "last_epoch": self.last_epoch,
            }
        ).encode()

    @classmethod
    def decode(cls, id: str, data: bytes) -> Self:
        read = json.loads(data)
        return cls(
            id,
            Producer(*read["producer"]),
            read["timeout_ms"],
            State(read["state"]),
            frozenset(Place(*each) for each in read["partitions"]),
            frozenset(read["groups"]),
            read["started_ms"],
            read["updated_ms"],
            read["last_epoch"],
        )
