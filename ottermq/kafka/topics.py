"""Topics: the queues of one vhost as Kafka's clients see them.

| AMQP sees                                            | Kafka sees                               |
|------------------------------------------------------|------------------------------------------|
| a queue or stream `orders`                           | topic `orders` with one partition        |
| a priority queue `jobs`                              | topic `jobs`, one partition per priority |
| an exchange `clicks` and, bound to it, the streams   | topic `clicks` with n partitions; the    |
| `clicks-0` … `clicks-(n-1)` (a super stream)         | streams are no topics of their own       |
| an exclusive queue, a name that Kafka can't say      | nothing                                  |

An exchange that says `x-super-stream: true` may have streams of any name, in the order that
`x-stream-partition-order` gives its bindings: a stream `orders` that gets more partitions becomes
the first partition of the super stream `orders`. A stream that isn't called after the exchange
stays a topic of its own, and rights on it are asked for by its own name, too (`foreign`).

A topic's id comes from the log of its first partition, and a log's number is never given twice: a
topic that was deleted and made again is a new one.

A topic is made when somebody asks for it: a hundred thousand queues that no Kafka client ever named
cost nothing here. From then on it is kept in step with the topology, and so is the engine's table,
by which Produce and Fetch find their logs.
"""

import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID, uuid5

from ottermq.errors import InvalidRequest, NotFound, PreconditionFailed
from ottermq.kafka.cluster import Cluster
from ottermq.queue_runtime import Queues
from ottermq.topology import Change, Queue, QueueType, Statement, Topology
from ottermq.topology.super_streams import (
    ORDER,
    SUPER_STREAM,
    is_part_of,
    may_be_super,
    parts_of,
)
from ottermq.topology.topology import QUEUE_TYPE
from ottermq.wal import Log
from ottermq.wal.store import SCRATCH_IDS

LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
RESERVED = ("__consumer_offsets", "__transaction_state", "__share_group_state")
STREAM = {QUEUE_TYPE: QueueType.STREAM.value}
MOST_PARTITIONS = 10_000
ANY_TIME = (1 << 63) - 1


class Partition(NamedTuple):
    queue: int  # what the engine calls it
    lane: int  # of a priority queue: the priority; else 0
    log: Log


@dataclass(frozen=True, slots=True, eq=False)
class Topic:
    name: str
    id: UUID
    partitions: tuple[Partition, ...]
    is_stream: bool  # else a work queue, whose records go when they are settled
    # Streams that it is made of but that are called otherwise: `orders` and `orders-3` are the
    # topic `orders` under one right, these need a right on their own names.
    foreign: tuple[str, ...] = ()

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """The settings that the engine needs to take a produce."""

    compacted: bool = False
    log_append_time: bool = False
    unsynced: bool = False  # acks=all is answered from the page cache
    max_message_bytes: int = 1_048_588
    codec: int | None = None  # that batches are kept in; None: their producer's
    level: int = 0  # of the codec
    timestamp_before_max_ms: int = ANY_TIME
    timestamp_after_max_ms: int = ANY_TIME


class Table(Protocol):
    """The engine, as far as topics concern it."""

    def set_topic(self, topic: Topic, options: TopicOptions) -> None: ...

    def remove_topic(self, name: str) -> None: ...


class TopicExists(PreconditionFailed):
    """There is a topic of that name, or a queue that is a part of one."""


class IllegalName(InvalidRequest):
    """Not what a topic may be called."""


class Topics:
    def __init__(
        self,
        topology: Topology,
        queues: Queues,
        cluster: Cluster,
        *,
        vhost: str = "/",
        table: Table | None = None,
    ) -> None:
        self.vhost = vhost
        self.version = 0  # goes up when cached answers about topics may no longer be true
        # The engine's options of a topic, from its configs (configs.py).
        self.options_of: Callable[[Topic], TopicOptions] = lambda topic: TopicOptions()
        # A new topic's configs, as rows for the commit that makes it: configs.py's, too.
        self.keep_configs: Callable[[Topic, Mapping[str, str]], list[Statement]]
        self.keep_configs = lambda topic, configs: []
        # Called with a topic that is gone.
        self.on_gone: list[Callable[[Topic], None]] = []
        self._topology = topology
        self._queues = queues
        self._cluster = cluster
        self._table = table
        self._this_life = secrets.token_hex(8)  # numbers of transient logs begin anew with each
        self._known: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._supers: dict[int, tuple[str, ...]] = {}  # exchanges → names that depend on them
        self._unseen = True  # there may be topics that nobody asked for yet
        topology.on_change.append(self._exchanges_changed)
        queues.on_moved.append(self._queue_moved)

    # -- what there is

    def all(self) -> list[Topic]:
        """By name."""
        host = self._topology.vhosts.get(self.vhost)
        names: set[str] = set()
        if host is not None:
            names.update(name for name in host.queues if is_legal(name))
            names.update(e.name for e in host.exchanges.values() if e.bindings and is_legal(e.name))
        found = [topic for name in sorted(names) if (topic := self.find(name))]
        self._unseen = False
        return found

    def find(self, name: str) -> Topic | None:
        known = self._known.get(name)
        if known is None:
            known = self._make(name)
            if known is not None:
                self._keep(known)
        return known

    def find_id(self, id: UUID) -> Topic | None:
        if id not in self._by_id and self._unseen:
            self.all()  # a client may remember it from before our start
        return self._by_id.get(id)

    def hidden(self) -> list[str]:
        """Queues that Kafka's clients can't see because of how they are called."""
        host = self._topology.vhosts.get(self.vhost)
        return sorted(name for name in host.queues if not is_legal(name)) if host else []

    def queue_of(self, partition: Partition) -> Queue | None:
        return self._queues.by_id(partition.queue)

    # -- coming and going

    async def create(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """On disk when it returns, its configs with it."""
        self.check_new(name, partitions)
        changes = self._declare_super(name, partitions) if partitions > 1 else [self._stream(name)]
        topic = self.find(name)
        assert topic is not None
        if configs:
            changes[-1].statements += self.keep_configs(topic, configs)
        await self._queues.save(*changes)
        return topic

    def check_new(self, name: str, partitions: int) -> None:
        """Would `create` take it?"""
        if not is_legal(name) or name in RESERVED or name.startswith("amq."):
            raise IllegalName(f"'{name}' is no name for a topic")
        if not 1 <= partitions <= MOST_PARTITIONS:
            raise InvalidRequest(f"a topic has 1 to {MOST_PARTITIONS} partitions")
        host = self._topology.vhost(self.vhost)
        taken = [name] if partitions == 1 else [name, *_parts(name, partitions)]
        for each in taken:
            if each in host.queues or self.find(each) is not None:
                raise TopicExists(f"topic '{each}' already exists")
        if partitions > 1 and name in host.exchanges:
            raise PreconditionFailed(f"there is an exchange '{name}' already")

    async def grow(self, topic: Topic, partitions: int) -> Topic:
        """More partitions. A lone stream becomes the first of a super stream."""
        if not topic.is_stream:
            raise PreconditionFailed(f"'{topic.name}' is a work queue: it can't be divided")
        name, have = topic.name, len(topic.partitions)
        host = self._topology.vhost(self.vhost)
        new = list(_parts(name, partitions))[have:]
        taken = next((each for each in new if each in host.queues), None)
        if taken is not None:
            raise TopicExists(f"there is a queue '{taken}' already")
        exchange = host.exchanges.get(name)
        changes = []
        if exchange is None or not parts_of(exchange):
            first = self.queue_of(topic.partitions[0])
            if exchange is not None or first is None:
                raise PreconditionFailed(f"there is an exchange '{name}' already")
            changes += [self._super(name), self._bind(name, first.name, 0)]
        for index, each in enumerate(new, have):
            changes += [self._stream(each), self._bind(name, each, index)]
        await self._queues.save(*changes)
        grown = self.find(name)
        assert grown is not None
        return grown

    async def delete(self, name: str) -> None:
        """Delete all of it. NotFound: there is none. UnderLegalHold: a hold stands."""
        topic = self.find(name)
        if topic is None:
            raise NotFound(f"no topic '{name}'")
        gone = [queue for each in topic.partitions if (queue := self.queue_of(each))]
        for queue in gone:
            self._queues.holds.refuse(queue, "deleted")
        host = self._topology.vhost(self.vhost)
        exchange = host.exchanges.get(name)
        if exchange is not None and parts_of(exchange):
            self._topology.delete_exchange(self.vhost, name)  # saved with what follows
        waiting = self._queues.remove(self._topology.remove(dict.fromkeys(gone)))
        if waiting is not None:
            await waiting

    def _declare_super(self, name: str, partitions: int) -> list[Change]:
        changes = [self._super(name)]
        for index, each in enumerate(_parts(name, partitions)):
            changes += [self._stream(each), self._bind(name, each, index)]
        return changes

    def _super(self, name: str) -> Change:
        arguments = {SUPER_STREAM: True}
        return self._topology.declare_exchange(
            self.vhost, name, "direct", durable=True, arguments=arguments
        )

    def _stream(self, name: str) -> Change:
        change = self._topology.declare_queue(self.vhost, name, durable=True, arguments=STREAM)
        self._queues.declared(change)
        return change

    def _bind(self, exchange: str, queue: str, index: int) -> Change:
        return self._topology.bind(self.vhost, exchange, queue, str(index), {ORDER: index})

    # -- made from the topology

    def _make(self, name: str) -> Topic | None:
        host = self._topology.vhosts.get(self.vhost)
        if host is None or not is_legal(name):
            return None
        queue = host.queues.get(name)
        exchange = host.exchanges.get(name)
        members = parts_of(exchange) if exchange is not None else []
        if members and (queue is None or queue in members):
            return self._topic(name, members)
        if queue is None or queue.exclusive or self._is_part(queue):
            return None
        return self._topic(name, [queue])

    def _is_part(self, queue: Queue) -> bool:
        """Of a super stream, by its name. One of another name stays a topic of its own: a binding
        doesn't hide it."""
        if queue.type is not QueueType.STREAM:
            return False
        host = self._topology.vhosts[self.vhost]
        for binding in self._topology.bindings_to(queue):
            members = parts_of(binding.source)
            named_so = host.queues.get(binding.source.name)
            named_for = is_part_of(queue.name, binding.source.name)
            if named_for and queue in members and (named_so is None or named_so in members):
                return True
        return False

    def _topic(self, name: str, queues: Iterable[Queue]) -> Topic | None:
        partitions, foreign = [], []
        for queue in queues:
            if queue.name != name and not is_part_of(queue.name, name):
                foreign.append(queue.name)
            logs = self._queues.logs_of(queue)
            if not logs:
                return None  # on its way in or out
            partitions += [Partition(queue.id, lane, log) for lane, log in enumerate(logs)]
        first = partitions[0].log
        life = self._this_life if first.id >= SCRATCH_IDS else ""
        # A stream of another name is a topic, too: this one must not have its id.
        shared = f"/{name}" if partitions[0].log.name in foreign else ""
        id = uuid5(self._cluster.uuid, f"{first.id}{life}{shared}")
        is_stream = not first.has_cursor
        return Topic(name, id, tuple(partitions), is_stream, tuple(foreign))

    # -- kept in step

    def _keep(self, topic: Topic) -> None:
        self._known[topic.name] = topic
        self._by_id[topic.id] = topic
        self.tell_engine(topic)
        exchange = self._topology.vhosts[self.vhost].exchanges.get(topic.name)
        if exchange is not None and (parts := parts_of(exchange)):
            self._supers[exchange.id] = (topic.name, *(each.name for each in parts))

    def tell_engine(self, topic: Topic) -> None:
        """Its options may have changed, too."""
        if self._table is not None:
            self._table.set_topic(topic, self.options_of(topic))

    def _review(self, name: str) -> None:
        self.version += 1
        before = self._known.get(name)
        if before is None:
            self._unseen = True
            return
        after = self._make(name)
        if after is not None and after.id == before.id and after.partitions == before.partitions:
            return
        del self._known[name]
        if self._by_id.get(before.id) is before:
            del self._by_id[before.id]
        if after is not None and after.id == before.id:
            self._keep(after)  # it grew
            return
        if self._table is not None:
            self._table.remove_topic(name)
        for tell in self.on_gone:
            tell(before)
        if after is not None:
            self._keep(after)

    def _queue_moved(self, queue: Queue) -> None:
        if queue.vhost != self.vhost or queue.exclusive:
            return
        self._review(queue.name)
        if queue.type is QueueType.STREAM:
            for binding in self._topology.bindings_to(queue):
                self._review(binding.source.name)

    def _exchanges_changed(self, ids: frozenset[int]) -> None:
        for id in ids:
            names = dict.fromkeys(self._supers.pop(id, ()))
            exchange = self._topology.exchange_by_id(id)
            if exchange is not None and exchange.vhost == self.vhost and may_be_super(exchange):
                names |= dict.fromkeys((exchange.name, *(q.name for q in parts_of(exchange))))
            for name in names:
                self._review(name)


def is_legal(name: str) -> bool:
    return LEGAL.fullmatch(name) is not None and name not in (".", "..")


def _parts(name: str, partitions: int) -> Iterable[str]:
    return (f"{name}-{index}" for index in range(partitions))
