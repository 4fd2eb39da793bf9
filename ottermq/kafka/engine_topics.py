"""The engine's table of topics, filled by topics.py."""

from dataclasses import dataclass

from ottermq.engine.engine import Engine
from ottermq.engine.types import KafkaTopicFlags, KafkaTopicOptions
from ottermq.kafka.topics import Topic, TopicOptions


@dataclass(frozen=True)
class EngineTopics:
    engine: Engine

    def set_topic(self, topic: Topic, options: TopicOptions) -> None:
        flags = KafkaTopicFlags.NONE
        for wanted, flag in (
            (options.compacted, KafkaTopicFlags.COMPACTED),
            (options.log_append_time, KafkaTopicFlags.LOG_APPEND_TIME),
            (options.unsynced, KafkaTopicFlags.ASYNC),
        ):
            if wanted:
                flags |= flag
        self.engine.set_kafka_topic(
            topic.name.encode(),
            topic.id.bytes,
            [(partition.queue, partition.lane) for partition in topic.partitions],
            KafkaTopicOptions(
                flags,
                options.max_message_bytes,
                options.codec,
                options.level,
                _limit(options.timestamp_before_max_ms),
                _limit(options.timestamp_after_max_ms),
            ),
        )

        if topic.foreign:  # rights may date from before these streams were a part of it
            self.engine.forget_permissions()

    def remove_topic(self, name: str) -> None:
        self.engine.remove_kafka_topic(name.encode())


def _limit(milliseconds: int) -> int | None:
    return None if milliseconds < 0 else milliseconds
