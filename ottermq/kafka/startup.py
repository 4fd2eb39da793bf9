"""The Kafka half of a broker: its start and its background tasks."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import trio

from ottermq.auth import Auth
from ottermq.config import Config
from ottermq.engine.engine import Engine
from ottermq.kafka.cluster import open_cluster
from ottermq.kafka.compaction import Compactor
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.engine_topics import EngineTopics
from ottermq.kafka.groups import Groups, group_settings
from ottermq.kafka.metrics import metrics
from ottermq.kafka.quotas import Quotas
from ottermq.kafka.request import Connection
from ottermq.kafka.topic_config_store import TopicConfigStore
from ottermq.kafka.topics import Topics
from ottermq.kafka.transactions import Transactions, transaction_settings
from ottermq.metrics import Metric
from ottermq.queue_runtime import Queues
from ottermq.storage.store import told_in_one_line
from ottermq.topology import MetaDb, Topology
from ottermq.wal import Store


class Kafka(NamedTuple):
    context: KafkaContext
    compactor: Compactor

    async def run(
        self,
        connections: Mapping[int, Connection],
        task_status: Any = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """The background tasks: until cancelled."""
        kafka = self.context
        async with trio.open_nursery() as nursery:
            interval = kafka.settings.compaction_interval.total_seconds()
            nursery.start_soon(self.compactor.keep, interval)
            nursery.start_soon(kafka.quotas.keep, connections)
            await nursery.start(kafka.groups.run)
            await nursery.start(kafka.transactions.run)
            task_status.started()

    def metrics(self, with_names: bool) -> Iterable[Metric]:
        return metrics(self.context.groups, self.context.transactions, with_names)


async def open_kafka(
    config: Config,
    db: MetaDb,
    store: Store,
    engine: Engine,
    topology: Topology,
    auth: Auth,
    queues: Queues,
) -> Kafka:
    """Every topic, config, quota, group and transaction as they were left."""
    with told_in_one_line(config, db):
        cluster, table = open_cluster(db), EngineTopics(engine)
        topics = Topics(topology, queues, cluster, vhost=config.kafka.vhost, table=table)
        configs = TopicConfigStore(db, store, topology, topics, config.for_queue, queues.holds)
        configs.start()
        compactor = Compactor(db, store, configs)
        quotas = Quotas(db, engine)
        quotas.start()
    groups = await Groups.open(store, group_settings(config.kafka.groups))
    groups.follow(topics)
    transactions = await Transactions.open(
        store, topics, groups, transaction_settings(config.kafka.transactions)
    )
    context = KafkaContext(
        engine, store, topology, auth, queues, config.kafka, cluster, topics, configs, groups,
        transactions, quotas,
    )  # fmt: skip
    return Kafka(context, compactor)
