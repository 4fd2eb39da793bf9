"""Writes the first inputs for fuzz_index: real indexes, and ones that are a little wrong.

Run from the checkout: python -m tests.fuzz.seed_index
"""

import struct
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "corpus" / "index"
NOW = 1_700_000_000_000
MOST = 2**31 - 1


def offsets(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def times(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def packed(offset_index: bytes, time_index: bytes, size: int = 1 << 26) -> bytes:
    return struct.pack(">IH", size, len(offset_index)) + offset_index + time_index


def seeds() -> dict[str, bytes]:
    regular = offsets(*((10 * n + 9, 4100 * n) for n in range(1, 30)))
    stamps = times(*((NOW + n, 10 * n + 9) for n in range(1, 30)))
    return {
        "empty": packed(b"", b""),
        "regular": packed(regular, stamps),
        "only-offsets": packed(regular, b""),
        "only-times": packed(b"", stamps),
        "one-entry": packed(offsets((0, 4097)), times((0, 0))),
        "largest": packed(
            offsets((0, 0), (MOST, MOST)), times((0, 0), (2**63 - 1, MOST)), 2**32 - 1
        ),
        "cut": packed(regular[:-3], stamps),
        "cut-times": packed(regular, stamps[:-5]),
        "zeros": packed(bytes(80), bytes(120)),
        "zeros-behind": packed(regular + bytes(16), stamps + bytes(24)),
        "goes-back": packed(regular + regular[:8], stamps + stamps[:12]),
        "past-the-end": packed(regular, stamps, 4100 * 29),
        "negative": packed(offsets((-1, 5000), (3, -7)), times((-1, 5))),
    }


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in seeds().items():
        (FOLDER / name).write_bytes(data)
