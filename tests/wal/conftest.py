"""A store for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottermq.wal import Store
from tests.wal.stores import SMALL


@pytest.fixture
def data(memory_path: Path) -> Path:
    """A data directory that isn't there yet."""
    return memory_path / "data"


@pytest.fixture
def store(data: Path) -> Iterator[Store]:
    with Store.open(data, SMALL) as opened:
        yield opened
