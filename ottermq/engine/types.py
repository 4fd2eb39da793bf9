"""The parameters and results of the engine's calls: options, flags, figures."""

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import NamedTuple

from ottermq._core import lib


class Protocol(IntEnum):
    """Which protocol a listener speaks."""

    AMQP = lib.OM_PROTOCOL_AMQP
    KAFKA = lib.OM_PROTOCOL_KAFKA


class ConnFlags(IntFlag):
    BLOCKED_CAPABLE = lib.OM_CONN_BLOCKED_CAPABLE
    CANCEL_CAPABLE = lib.OM_CONN_CANCEL_CAPABLE
    MAY_IMPERSONATE = lib.OM_CONN_MAY_IMPERSONATE


class QueueFlags(IntFlag):
    STREAM = lib.OM_QUEUE_STREAM
    QUORUM = lib.OM_QUEUE_QUORUM
    SINGLE_ACTIVE = lib.OM_QUEUE_SINGLE_ACTIVE
    REJECT_PUBLISH = lib.OM_QUEUE_REJECT_PUBLISH
    REJECT_DLX = lib.OM_QUEUE_REJECT_DLX
    DURABLE = lib.OM_QUEUE_DURABLE
    DELAY = lib.OM_QUEUE_DELAY
    AT_LEAST_ONCE = lib.OM_QUEUE_AT_LEAST_ONCE


class RouteFlags(IntFlag):
    NONE = 0
    CACHE = lib.OM_ROUTE_CACHE
    DELAY = lib.OM_ROUTE_DELAY


class KafkaRights(IntFlag):
    NONE = 0
    READ = lib.OM_KAFKA_READ
    WRITE = lib.OM_KAFKA_WRITE


class KafkaTopicFlags(IntFlag):
    NONE = 0
    COMPACTED = lib.OM_KAFKA_COMPACTED
    LOG_APPEND_TIME = lib.OM_KAFKA_LOG_APPEND_TIME
    ASYNC = lib.OM_KAFKA_ASYNC
    INTERNAL = lib.OM_KAFKA_INTERNAL


class StreamStart(IntEnum):
    NEXT = lib.OM_STREAM_NEXT
    FIRST = lib.OM_STREAM_FIRST
    LAST = lib.OM_STREAM_LAST
    OFFSET = lib.OM_STREAM_OFFSET
    TIME = lib.OM_STREAM_TIME


@dataclass(frozen=True)
class EngineOptions:
    frame_max: int = 131072
    handshake_timeout_ms: int = 10_000
    max_message_size: int = 128 << 20
    memory_limit: int = 512 << 20
    zero_copy_min: int = 64 << 10
    route_cache: int = 65536
    max_connections: int = 100_000
    consumers_per_channel: int = 10_000
    nacks_count: bool = False
    unauthenticated_per_address: int = 1000
    kafka_max_request: int = 100 << 20
    kafka_patience_ms: int = 30_000
    kafka_idle_ms: int = 600_000


@dataclass(frozen=True)
class QueueOptions:
    """The settings of a queue in C; None: no such limit."""

    flags: QueueFlags = QueueFlags(0)
    message_ttl_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    delivery_limit: int | None = None
    consumer_timeout_ms: int | None = None
    dead_letter_exchange: bytes | None = None
    dead_letter_key: bytes | None = None


@dataclass(frozen=True)
class KafkaTopicOptions:
    """The settings of a topic's produces in C; None: any time will do."""

    flags: KafkaTopicFlags = KafkaTopicFlags.NONE
    max_message_bytes: int = 1_048_588
    codec: int | None = None  # that batches are kept in; None: their producer's
    level: int = 0  # of the codec
    timestamp_before_max_ms: int | None = None
    timestamp_after_max_ms: int | None = None


class Repacked(NamedTuple):
    """The result for a batch that C couldn't take as it was."""

    place: int
    error: int = 0  # Kafka's code
    data: bytes | None = None  # None: as it was sent
    times: tuple[int, int] = (-1, -1)  # of its first and last record


@dataclass(frozen=True)
class Consume:
    queue: int
    tag: bytes
    no_ack: bool = False
    exclusive: bool = False
    prefetch: int = 0
    priority: int = 0
    start: StreamStart = StreamStart.NEXT
    start_value: int = 0
    filters: tuple[bytes, ...] = ()
    match_unfiltered: bool = False
    timeout_ms: int = 0  # the queue's


class Purged(NamedTuple):
    messages: int  # that went
    seq: int  # what makes it durable


class Consumer(NamedTuple):
    conn: int
    channel: int
    tag: bytes
    no_ack: bool
    exclusive: bool
    prefetch: int
    priority: int
    unacked: int
    active: bool


class QueueStat(NamedTuple):
    ready: int = 0
    unacked: int = 0
    ready_bytes: int = 0
    unacked_bytes: int = 0
    consumers: int = 0
    active_consumers: int = 0
    published: int = 0
    delivered: int = 0
    acked: int = 0
    redelivered: int = 0
    expired: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    first_offset: int = 0
    next_offset: int = 0
    head_timestamp: int = -1
    idle_ms: int = 0


class ConnStat(NamedTuple):
    received_bytes: int
    sent_bytes: int
    published: int
    delivered: int
    acked: int
    output_bytes: int
    channels: int
    consumers: int
    unacked: int
    state: int
    blocked: int
    produced_bytes: int
    fetched_bytes: int


class EngineStat(NamedTuple):
    connections: int
    channels: int
    consumers: int
    queues: int
    routes: int
    ticks: int
    published: int
    confirmed: int
    delivered: int
    acked: int
    returned: int
    route_misses: int
    received_bytes: int
    sent_bytes: int
    output_bytes: int
    message_bytes: int
    blocked: int


class Added(IntEnum):
    """The result for a consumer."""

    OK = lib.OM_OK
    TAG_IN_USE = lib.OM_E_EXISTS
    EXCLUSIVE_USE = lib.OM_E_LOCKED
    TOO_MANY = lib.OM_E_LIMIT
    GONE = lib.OM_E_GONE
