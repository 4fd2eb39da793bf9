"""Kafka's part of /metrics: consumer groups, transactions, and the partitions they hold up.

Only transactions that readers wait for are listed one by one, for readers who may see names: the
oldest few, however many there are.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from ottermq.kafka.groups import Groups
from ottermq.kafka.groups.group import State as GroupState
from ottermq.kafka.transactions import Transactions
from ottermq.kafka.transactions.transaction import State as TransactionState
from ottermq.metrics import GAUGE, Metric, gauge

HELD_AFTER_MS = 5_000  # a shorter transaction is in nobody's way
MOST_HELD = 20


def metrics(groups: Groups, transactions: Transactions, with_names: bool) -> Iterator[Metric]:
    """with_names: of topics and transactional ids, too."""
    yield from _groups(groups)
    yield from _transactions(transactions)
    if with_names:
        yield held(transactions)


def _groups(groups: Groups) -> Iterator[Metric]:
    states = Counter(entry.group.state for entry in groups)
    samples = [({"state": state.value}, states[state]) for state in GroupState]
    yield Metric("ottermq_kafka_groups", GAUGE, "Consumer groups.", samples)


def _transactions(transactions: Transactions) -> Iterator[Metric]:
    states = Counter(transaction.state for transaction in transactions.all())
    samples = [({"state": state.value}, states[state]) for state in TransactionState]
    yield Metric("ottermq_kafka_transactions", GAUGE, "Transactional ids.", samples)
    oldest = next(iter(transactions.holding(HELD_AFTER_MS)), None)
    help = "Age of the oldest transaction that readers of a partition wait for."
    yield gauge("kafka_transaction_holds_max_seconds", help, oldest.age_ms / 1000 if oldest else 0)


def held(transactions: Transactions) -> Metric:
    held = [
        (
            {
                "topic": each.place.topic,
                "partition": each.place.partition,
                "kind": "stream" if each.is_stream else "queue",
                "transactional_id": each.by.id,
                "producer_id": each.by.producer.id,
            },
            each.age_ms / 1000,
        )
        for each in islice(transactions.holding(HELD_AFTER_MS), MOST_HELD)
    ]
    help = "Age of a transaction that the readers of a partition wait for; the oldest ones."
    return Metric("ottermq_kafka_transaction_holds_seconds", GAUGE, help, held)
