"""Batches as an idempotent or transactional Kafka producer sends them, for the tests of the log."""

from ottermq._core import ffi, lib
from ottermq.wal import Record
from ottermq.wal.records import TRANSACTIONAL, RecordArray

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
    array = RecordArray([Record(value, timestamp=1_700_000_000_000) for _ in range(count)])
    info = ffi.new(
        "om_batch_info *",
        {
            "producer_id": producer,
            "producer_epoch": epoch,
            "base_sequence": sequence,
            "attributes": TRANSACTIONAL if transactional else 0,
        },
    )
    out = ffi.new("uint8_t[]", lib.om_batch_size_bound(array.array, count))
    size = lib.om_batch_encode(info, array.array, count, out, len(out))
    assert size > 0
    return bytes(ffi.buffer(out, size))
