"""A store for each test."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottermq.wal import Store
from tests.wal.stores import SMALL

SHARED_MEMORY = Path("/dev/shm")


def in_memory() -> Path | None:
    """A file system in memory, where there is one: what kill -9 leaves behind is the page cache,
    and that is the same there, without waiting for a disk."""
    has_room = SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > 1 << 30
    return SHARED_MEMORY if has_room else None


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """Like tmp_path, in memory."""
    place = Path(tempfile.mkdtemp(prefix="ottermq-", dir=in_memory()))
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def data(memory_path: Path) -> Path:
    """A data directory that isn't there yet."""
    return memory_path / "data"


@pytest.fixture
def store(data: Path) -> Iterator[Store]:
    with Store.open(data, SMALL) as opened:
        yield opened
