"""Writes the first inputs for fuzz_wal: small logs, whole and damaged. See fuzz_wal.c.

Run from the checkout: python -m tests.fuzz.seed_wal
"""

import struct
from pathlib import Path

from tests.csrc.wals import BATCH, BLOCK, CONTINUES, PART, RECORD, FileHeader, make_file

FOLDER = Path(__file__).resolve().parent / "corpus" / "wal"
FIX_HEADERS, FIX_RECORDS, WITH_FENCE, CUT_SHORT = 1, 2, 4, 8
FIX = FIX_HEADERS | FIX_RECORDS


def fold(data: bytes) -> bytes:
    """A file as the target wants it: blocks without the zeros at their ends."""
    blocks = [data[at : at + BLOCK].rstrip(b"\0") for at in range(BLOCK, len(data), BLOCK)]
    chunks = b"".join(struct.pack("<H", len(block)) + block for block in blocks)
    return data[:48] + bytes([len(blocks)]) + chunks


def unsealed(header: FileHeader, groups: list[list[tuple[int, int, bytes]]]) -> bytes:
    """A folded file of (type, flags, payload) that the target gives its CRCs."""
    folded = header.pack() + bytes([len(groups)])
    for group in groups:
        chunk = b""
        for type_, flags, payload in group:
            chunk += RECORD.pack(RECORD.size + len(payload), 0, type_, flags, 0, 0, 0, 1) + payload
            chunk += bytes(-len(chunk) % 8)
        folded += struct.pack("<H", len(chunk)) + chunk
    return folded


def seeds() -> dict[str, bytes]:
    first = FileHeader(epoch=1, number=1, prev_last_seq=0, first_seq=1, seed=7)
    second = FileHeader(epoch=1, number=2, prev_last_seq=3, first_seq=4, seed=8)
    later = FileHeader(epoch=2, number=3, prev_last_seq=3, first_seq=9, seed=9)
    one = fold(make_file(first, [[b"a", b""], [b"record"]]))
    two = fold(make_file(second, [[b"more"], [b"and more" * 20]]))
    record = (BATCH, 0, b"payload")
    parts = [(PART, 0, b"one, "), (PART, CONTINUES, b"two, "), (BATCH, CONTINUES, b"three")]
    three = unsealed(first, [[record], [record], [record]])
    return {
        "empty": b"",
        "one-file": bytes([0, 0]) + one,
        "two-files": bytes([0, 0]) + one + two,
        "after-the-first": bytes([0, 3]) + one + two,
        "beyond-the-end": bytes([0, 200]) + one,
        "new-epoch": bytes([0, 0]) + one + fold(make_file(later, [[b"x"]])),
        "hole": bytes([0, 0]) + fold(make_file(first, [[b"a"]])) + two,
        "fence": bytes([WITH_FENCE, 0]) + one,
        "cut-short": bytes([CUT_SHORT, 0]) + one[:-3],
        "blank": bytes([0, 0]) + bytes(48) + b"\0",
        "fixed": bytes([FIX, 0]) + three,
        "fixed-parts": bytes([FIX, 0]) + unsealed(first, [[record, *parts], [record]]),
        "fixed-parts-over-files": bytes([FIX, 0])
        + unsealed(first, [[parts[0]], [parts[1]], [parts[1]]])
        + unsealed(second, [[parts[2], record]]),
        "fixed-end-without-beginning": bytes([FIX, 0]) + unsealed(first, [[parts[2]]]),
        "fixed-long": bytes([FIX, 1]) + unsealed(first, [[(BATCH, 0, b"x" * 9000)], [record]]),
        "broken-before-a-group": bytes([FIX_HEADERS, 0]) + one.replace(b"record", b"damage"),
    }


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in seeds().items():
        (FOLDER / name).write_bytes(data)
