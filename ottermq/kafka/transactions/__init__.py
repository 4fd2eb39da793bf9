"""Transactions over many partitions: who has which producer id, what it wrote to, how it ended.

    settings.py      limits
    transaction.py   one transactional id: its states and the rules between them; no I/O
    producer_ids.py  numbers that are never given twice
    coordinator.py   all of them, on disk; markers, time-outs, what a crash left half done
    producer_requests.py  InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit,
                     EndTxn
    admin.py         DescribeTransactions, ListTransactions, DescribeProducers

What a log knows of producers (sequences, open transactions, the last stable offset) is C's part:
csrc/store/producer.h.
"""

from ottermq.kafka.transactions.coordinator import Transactions
from ottermq.kafka.transactions.settings import TransactionSettings, transaction_settings

__all__ = ["TransactionSettings", "Transactions", "transaction_settings"]
