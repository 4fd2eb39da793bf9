"""The data plane's options, from the configuration."""

import resource
from datetime import timedelta

from ottermq.config import Config
from ottermq.engine.types import EngineOptions
from ottermq.storage.store import store_options

MILLISECOND = timedelta(milliseconds=1)
OTHER_FILES = 512  # descriptors for what is neither a connection nor a segment


def engine_options(config: Config) -> EngineOptions:
    zero_copy = config.wal.zero_copy
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    segments = store_options(config).open_files
    return EngineOptions(
        frame_max=config.amqp.frame_max,
        handshake_timeout_ms=config.amqp.handshake_timeout // MILLISECOND,
        max_message_size=config.amqp.max_message_size,
        memory_limit=config.memory.high_watermark,
        zero_copy_min=zero_copy.min_message_size if zero_copy.enabled else 0,
        kafka_max_request=config.kafka.max_request_size,
        consumers_per_channel=config.amqp.consumer_max_per_channel,
        nacks_count=config.amqp.nacks_count,
        unauthenticated_per_address=config.auth.unauthenticated_per_address,
        max_connections=max(files - segments - OTHER_FILES, 64),
    )
