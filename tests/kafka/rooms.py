"""A broker's room without its doors: a store, an engine, the topology, and the topics over them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from ottermq.engine import Engine
from ottermq.kafka.cluster import Cluster, open_cluster
from ottermq.kafka.topics import Topic, TopicOptions, Topics
from ottermq.queues import Queues
from ottermq.topology import MetaDb, Queue, Topology, restore
from ottermq.wal import LogOptions, Options, Store
from tests.wal.stores import SMALL


@dataclass
class Table:
    """What the engine was told."""

    topics: dict[str, Topic] = field(default_factory=dict)
    options: dict[str, TopicOptions] = field(default_factory=dict)

    def set_topic(self, topic: Topic, options: TopicOptions) -> None:
        self.topics[topic.name] = topic
        self.options[topic.name] = options

    def remove_topic(self, name: str) -> None:
        del self.topics[name]


@dataclass
class House:
    db: MetaDb
    store: Store
    engine: Engine
    topology: Topology
    queues: Queues
    cluster: Cluster
    table: Table
    topics: Topics

    async def queue(self, name: str, **arguments: Any) -> Queue:
        """Declared as an AMQP client would: max_priority=3 is x-max-priority: 3."""
        given = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
        change = self.topology.declare_queue("/", name, durable=True, arguments=given)
        self.queues.declared(change)
        await self.queues.save(change)
        assert change.queue is not None
        return change.queue

    async def delete_queue(self, name: str) -> None:
        waiting = self.queues.remove(self.topology.delete_queue("/", name))
        if waiting is not None:
            await waiting

    async def exchange(self, name: str, type: str = "direct", **arguments: Any) -> None:
        given = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
        change = self.topology.declare_exchange("/", name, type, durable=True, arguments=given)
        self.queues.declared(change)
        await self.queues.save(change)

    async def bind(self, exchange: str, queue: str, key: str, order: int | None = None) -> None:
        arguments = {} if order is None else {"x-stream-partition-order": order}
        await self.topology.save(self.topology.bind("/", exchange, queue, key, arguments))


@asynccontextmanager
async def open_house(data: Path, options: Options = SMALL) -> AsyncIterator[House]:
    with Store.open(data, options) as store, MetaDb(data) as db:
        topology = restore(db)
        engine = Engine(store)
        try:
            queues = Queues(engine, store, topology, rules=lambda name: LogOptions())
            queues.start()
            cluster, table = open_cluster(db), Table()
            topics = Topics(topology, queues, cluster, table=table)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(queues.run)
                nursery.start_soon(store.waiting.run, print)
                yield House(db, store, engine, topology, queues, cluster, table, topics)
                nursery.cancel_scope.cancel()
        finally:
            engine.close()
