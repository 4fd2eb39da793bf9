"""Transactions over many partitions: their producer ids, their partitions, their outcomes.

    settings.py      limits
    transaction.py   one transactional id: its states and the rules between them; no I/O
    producer_ids.py  numbers that are never given twice
    coordinator.py   all of them, on disk; markers, time-outs, ends that a crash interrupted
    producer_requests.py  InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit,
                     EndTxn
    admin.py         DescribeTransactions, ListTransactions, DescribeProducers

The state of producers in a log (sequences, open transactions, the last stable offset) is C's:
csrc/store/producer.h.
"""

from ottermq.kafka.transactions.coordinator import Transactions
from ottermq.kafka.transactions.settings import TransactionSettings, transaction_settings

__all__ = ["TransactionSettings", "Transactions", "transaction_settings"]
