"""What the Kafka door's handlers act on; the fields are filled by broker.py."""

from dataclasses import dataclass
from typing import Any

from ottermq.auth import Auth
from ottermq.config.schema import KafkaSettings
from ottermq.engine import Engine
from ottermq.queues import Queues
from ottermq.topology import Topology
from ottermq.wal import Store


@dataclass(eq=False)
class Room:
    engine: Engine
    store: Store
    topology: Topology
    auth: Auth
    queues: Queues
    settings: KafkaSettings
    cluster_id: str
    node_id: int = 1
    topics: Any = None
    configs: Any = None
    quotas: Any = None
    groups: Any = None
    transactions: Any = None
