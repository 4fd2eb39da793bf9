"""Writes the first inputs for fuzz_batch: real batches, one a feature, and cut ones.

Run from the checkout: python -m tests.fuzz.seed_batch
"""

from pathlib import Path

from tests.csrc.batches import Record, encode, raw_batch, raw_record, varint
from tests.internals import lib

FOLDER = Path(__file__).resolve().parent / "corpus" / "batch"
NOW = 1_700_000_000_000
PLAIN = encode([Record(NOW + n, b"key", b"value %d" % n) for n in range(3)], base_offset=12)


def seeds() -> dict[str, bytes]:
    commit = Record(NOW, key=b"\0\0\0\x01", value=b"\0\0\0\0\0\0")
    transactional = lib.OM_ATTR_CONTROL | lib.OM_ATTR_TRANSACTIONAL
    headers = (("null", None), ("empty", b""), ("exchange", b"amq.topic"))
    gaps = raw_record(offset_delta=varint(1)) + raw_record(offset_delta=varint(4))
    return {
        "plain": PLAIN,
        "empty": encode([], last_offset_delta=4, max_timestamp=NOW),
        "headers": encode([Record(NOW - 5, b"k", None), Record(NOW, None, b"body", headers)]),
        "control": encode([commit], attributes=transactional, producer_id=7, producer_epoch=1),
        "log-append-time": encode(
            [Record(NOW)] * 2, attributes=lib.OM_ATTR_LOG_APPEND_TIME, max_timestamp=NOW + 9
        ),
        "delete-horizon": encode(
            [Record(NOW)], attributes=lib.OM_ATTR_DELETE_HORIZON, base_timestamp=NOW + 86_400_000
        ),
        "compacted": raw_batch(gaps, 2, last_offset_delta=6),
        "codec-bits": raw_batch(b"\x28\xb5\x2f\xfd not really zstd", 3, attributes=4),
        "long-value": encode([Record(NOW, None, b"x" * 9000)]),
        "truncated-header": PLAIN[:40],
        "truncated-record": PLAIN[:-5],
        "two-batches": PLAIN + PLAIN,
        "zeros": bytes(128),
    }


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in seeds().items():
        (FOLDER / name).write_bytes(data)
