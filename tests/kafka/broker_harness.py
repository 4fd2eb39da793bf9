"""A broker's Kafka handlers without sockets: store, engine, topology, and the topics over them."""

import inspect
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trio

from ottermq.auth import Auth, Permission, User, open_auth, passwords
from ottermq.config import Config
from ottermq.config.schema import AuthSettings, KafkaSettings
from ottermq.engine.engine import Engine
from ottermq.kafka import (
    acls,
    admin,
    codec,
    config_admin,
    logdirs,
    offsets,
    one_node,
    quotas,
    scram,
)
from ottermq.kafka.api import Api
from ottermq.kafka.cluster import Cluster, open_cluster
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.groups import Groups, GroupSettings, membership, offset_commit
from ottermq.kafka.groups import admin as group_admin
from ottermq.kafka.quotas import Quotas
from ottermq.kafka.request import Body, Connection, Handler, Request
from ottermq.kafka.schema import MESSAGES
from ottermq.kafka.topic_config_store import TopicConfigStore
from ottermq.kafka.topics import Topic, TopicOptions, Topics
from ottermq.kafka.transactions import Transactions, producer_requests
from ottermq.kafka.transactions import admin as transaction_admin
from ottermq.queue_runtime import Queues
from ottermq.storage.legal_holds import Holds
from ottermq.topology import MetaDb, Queue, Topology, restore
from ottermq.wal import Options, Store
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


HANDLERS: Mapping[Api, Handler] = {
    **admin.HANDLERS,
    **config_admin.HANDLERS,
    **logdirs.HANDLERS,
    **offsets.HANDLERS,
    **one_node.HANDLERS,
    **membership.HANDLERS,
    **offset_commit.HANDLERS,
    **group_admin.HANDLERS,
    **acls.HANDLERS,
    **quotas.HANDLERS,
    **scram.HANDLERS,
    **producer_requests.HANDLERS,
    **transaction_admin.HANDLERS,
}


@dataclass
class Harness:
    db: MetaDb
    store: Store
    engine: Engine
    topology: Topology
    queues: Queues
    auth: Auth
    cluster: Cluster
    table: Table
    topics: Topics
    configs: TopicConfigStore
    context: KafkaContext

    async def ask(
        self, api: Api, body: Body, *, user: User | None = None, version: int = -1
    ) -> Body:
        """As the server would: what comes back has been through the wire, the newest version's."""
        if version < 0:
            version = MESSAGES[api].versions[1]
        conn = Connection(1, "127.0.0.1:4711", "127.0.0.1:9092", self.context)
        conn.user = user or self.auth.users.existing("guest")
        sent = codec.encode_request(api, version, 1, "test", body)
        request: Request = codec.decode_request(conn, sent[4:])
        answer = HANDLERS[api](self.context, request)
        if inspect.isawaitable(answer):
            answer = await answer
        assert isinstance(answer, dict)
        _, told = codec.decode_response(api, version, codec.encode_response(request, answer)[4:])
        return told

    async def user(self, name: str, configure: str, write: str, read: str) -> User:
        made = await self.auth.users.put(name)
        await self.auth.permissions.set(Permission(name, "/", configure, write, read))
        return made

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
        await self.topology.pending.save(self.topology.bind("/", exchange, queue, key, arguments))


@asynccontextmanager
async def open_harness(
    data: Path, options: Options = SMALL, settings: KafkaSettings | None = None
) -> AsyncIterator[Harness]:
    # How long a hash takes is not what these tests are about.
    with (
        patch.object(passwords, "COST", 4),
        Store.open(data, options) as store,
        MetaDb(data) as db,
    ):
        topology = restore(db)
        auth = open_auth(db, AuthSettings())
        await auth.first_start()
        engine = Engine(store)
        try:
            queues = Queues(
                engine, store, topology, rules=lambda name: options.log, holds=Holds(topology)
            )
            queues.start()
            cluster, table = open_cluster(db), Table()
            topics = Topics(topology, queues, cluster, table=table)
            configs = TopicConfigStore(
                db, store, topology, topics, Config().for_queue, queues.holds
            )
            configs.start()
            usual = settings or KafkaSettings()
            groups = await Groups.open(store, GroupSettings(initial_rebalance_delay=0))
            groups.follow(topics)
            limits = Quotas(db, engine)
            limits.start()
            transactions = await Transactions.open(store, topics, groups)
            context = KafkaContext(
                engine, store, topology, auth, queues, usual, cluster, topics, configs, groups,
                transactions, limits,
            )  # fmt: skip
            harness = Harness(
                db, store, engine, topology, queues, auth, cluster, table, topics, configs, context
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(queues.run)
                nursery.start_soon(store.waiting.run, print)
                await nursery.start(groups.run)
                await nursery.start(transactions.run)
                engine.start()
                yield harness
                nursery.cancel_scope.cancel()
        finally:
            engine.close()
