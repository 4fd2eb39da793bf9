"""The settings of groups, in seconds and bytes; the defaults are Apache Kafka's but for the
delay and the size."""

from dataclasses import dataclass

from ottermq.config.schema import KafkaGroups


@dataclass(frozen=True, slots=True)
class GroupSettings:
    initial_rebalance_delay: float = 0.1
    min_session_timeout: float = 6.0
    max_session_timeout: float = 1800.0
    new_member_timeout: float = 300.0
    max_size: int = 1000
    offset_metadata_max: int = 4096
    offsets_retention: float = 7 * 24 * 3600.0
    offsets_check_interval: float = 600.0


def group_settings(config: KafkaGroups) -> GroupSettings:
    return GroupSettings(
        initial_rebalance_delay=config.initial_rebalance_delay.total_seconds(),
        min_session_timeout=config.min_session_timeout.total_seconds(),
        max_session_timeout=config.max_session_timeout.total_seconds(),
        max_size=config.max_size,
        offset_metadata_max=config.offset_metadata_max_size,
        offsets_retention=config.offsets_retention.total_seconds(),
        offsets_check_interval=config.offsets_check_interval.total_seconds(),
    )
