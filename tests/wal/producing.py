"""Batches as an idempotent or transactional Kafka producer sends them, for the tests of the log."""

from ottermq.wal.records import TRANSACTIONAL
from tests.csrc.batches import Record, encode

OUT_OF_ORDER = 45
INVALID_EPOCH = 47
INVALID_STATE = 48
COORDINATOR_FENCED = 52
INVALID_RECORD = 87


def batch(
    producer: int,
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    transactional: bool = False,
    value: bytes = b"v",
) -> bytes:
    return encode(
        [Record(value=value)] * count,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL if transactional else 0,
    )
