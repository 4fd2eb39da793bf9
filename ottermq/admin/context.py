"""The objects that the admin port shows and changes: all of a running broker."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ottermq.amqp.server import AmqpServer
from ottermq.auth import Auth
from ottermq.config import Config
from ottermq.config.schema import AmqpSettings
from ottermq.engine.engine import Engine
from ottermq.kafka.server import KafkaServer
from ottermq.metrics import Metric
from ottermq.net.listeners import Bound
from ottermq.queue_runtime import Queues
from ottermq.topology import Topology
from ottermq.wal import Store


@dataclass(frozen=True, eq=False)
class AdminContext:
    store: Store
    amqp: AmqpServer
    kafka: KafkaServer
    bound: Mapping[str, Bound]
    config: Callable[[], Config]  # as it runs
    kafka_metrics: Callable[[bool], Iterable[Metric]]
    started: float = field(default_factory=time.time)

    @property
    def engine(self) -> Engine:
        return self.amqp.context.engine

    @property
    def topology(self) -> Topology:
        return self.amqp.context.topology

    @property
    def auth(self) -> Auth:
        return self.amqp.context.auth

    @property
    def queues(self) -> Queues:
        return self.amqp.context.queues

    @property
    def settings(self) -> AmqpSettings:
        return self.amqp.context.settings
