"""Data directories of earlier versions: tests/data/make_old_data.py made them."""

import json
import tarfile
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
COMMIT = "bc3a773"
ENDS = ("clean", "killed")  # how that broker was stopped
LENGTH = 600


def body_of(label: str) -> bytes:
    """A message that can be told from all others, of a length that makes segments."""
    text = f"{label}|".encode()
    return (text * (LENGTH // len(text) + 1))[:LENGTH]


def unpack(end: str, folder: Path) -> Path:
    """The data directory that it left."""
    with tarfile.open(DATA / f"{COMMIT}-{end}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "data"


def expected(end: str) -> dict[str, Any]:
    known: dict[str, dict[str, Any]] = json.loads((DATA / f"{COMMIT}.json").read_text())
    return known[end]
