"""Writes the first inputs for fuzz_columns: fuzz_batch's batches, behind each choice of columns.

Run from the checkout: python -m tests.fuzz.seed_columns
"""

from pathlib import Path

from tests.fuzz import seed_batch

FOLDER = Path(__file__).resolve().parent / "corpus" / "columns"
ALL, FEW = 0, 1


def seeds() -> dict[str, bytes]:
    batches = seed_batch.seeds()
    found = {name: bytes([ALL, 255]) + data for name, data in batches.items()}
    segment = b"".join(batches[name] for name in ("headers", "control", "compacted", "plain"))
    found["segment"] = bytes([ALL, 1]) + segment
    found["few-columns"] = bytes([FEW, 2]) + segment
    found["damaged-segment"] = bytes([ALL, 9]) + batches["plain"] + b"nonsense" + segment
    return found


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in seeds().items():
        (FOLDER / name).write_bytes(data)
