"""Limits of transactions. Kafka's names and defaults, where it has them."""

from dataclasses import dataclass
from datetime import timedelta

from ottermq.config.schema import KafkaTransactions

MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    max_timeout_ms: int = 15 * 60 * 1000  # transaction.max.timeout.ms
    # An open transaction keeps a work queue's consumers waiting: there it gets less.
    queue_timeout_ms: int = 60 * 1000
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000  # transactional.id.expiration.ms


def transaction_settings(wanted: KafkaTransactions) -> TransactionSettings:
    return TransactionSettings(
        wanted.max_timeout // MILLISECOND,
        wanted.queue_timeout // MILLISECOND,
        wanted.id_expiration // MILLISECOND,
    )
