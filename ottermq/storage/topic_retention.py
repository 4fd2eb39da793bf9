"""The retention that a Kafka topic's configs ask for: for the broker and for audits.

Values are texts, as clients set them and meta.db keeps them; `kafka_configs` there is written by
the Kafka server alone.
"""

from collections.abc import Mapping

from ottermq.wal.retention import Policy

LONG_MAX = (1 << 63) - 1
CLEANUP_POLICY = "cleanup.policy"
DELETE_RETENTION = "delete.retention.ms"
DELETE_RETENTION_MS = 86_400_000  # of a topic whose config says nothing
RETENTION_BYTES = "retention.bytes"
RETENTION_MS = "retention.ms"


def listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def is_compacted(values: Mapping[str, str]) -> bool:
    return "compact" in listed(values.get(CLEANUP_POLICY, ""))


def policy_of(values: Mapping[str, str], usual: Policy) -> Policy:
    """usual: the age and the size that count where the configs say nothing."""
    if "delete" not in listed(values.get(CLEANUP_POLICY, "delete")):
        return Policy()
    age, size = usual.max_age_ms, usual.max_size
    if RETENTION_MS in values:
        said = int(values[RETENTION_MS])
        age = said if 0 <= said < LONG_MAX else None
    if RETENTION_BYTES in values:
        said = int(values[RETENTION_BYTES])
        size = said if said >= 0 else None
    return Policy(max_age_ms=age, max_size=size)
