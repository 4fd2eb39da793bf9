"""Groups by the configuration."""

from ottermq.config.schema import KafkaGroups
from ottermq.kafka.groups.settings import GroupSettings, group_settings


def test_both_have_the_same_defaults() -> None:
    assert group_settings(KafkaGroups()) == GroupSettings()
