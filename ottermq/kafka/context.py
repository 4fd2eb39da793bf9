"""The objects that the Kafka handlers act on; startup.py makes them."""

from dataclasses import dataclass, field
from typing import Any

from ottermq.auth import Auth
from ottermq.config.schema import KafkaSettings
from ottermq.engine.engine import Engine
from ottermq.kafka.api import Api
from ottermq.kafka.cluster import Cluster
from ottermq.kafka.groups import Groups
from ottermq.kafka.response_cache import ResponseCache
from ottermq.kafka.topic_config_store import TopicConfigStore
from ottermq.kafka.topics import Topics
from ottermq.kafka.transactions import Transactions
from ottermq.queue_runtime import Queues
from ottermq.topology import Topology
from ottermq.wal import Store


@dataclass(eq=False)
class KafkaContext:
    engine: Engine
    store: Store
    topology: Topology
    auth: Auth
    queues: Queues
    settings: KafkaSettings
    cluster: Cluster
    topics: Topics
    configs: TopicConfigStore
    groups: Groups
    transactions: Transactions
    quotas: Any = None
    served: frozenset[Api] = frozenset()  # what the server has handlers for
    responses: ResponseCache = field(default_factory=ResponseCache)
    permissions_version: int = 0  # goes up when permissions change

    @property
    def cluster_id(self) -> str:
        return self.cluster.id

    @property
    def node_id(self) -> int:
        return self.cluster.node
