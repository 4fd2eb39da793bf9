"""A little disk space kept back for a start: data/ballast.

A start writes next to nothing, but something: SQLite's shared memory next to meta.db, a pid, a
header. On a disk without a block left it would fail, and nobody could drain the messages that fill
the disk. So a start that finds the disk full gives the ballast up first. It is made again once
there is space, or at the stop from the space that SQLite gives back then.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import trio

NAME = "ballast"
SIZE = 1 << 20
LEAST = 32 << 10  # what SQLite needs
PLENTY = 16 * SIZE  # with less than this left it isn't taken from others
INTERVAL = 5.0  # seconds


def free(data: Path) -> int:
    disk = os.statvfs(data)
    return disk.f_bavail * disk.f_frsize


@contextmanager
def in_need(data: Path) -> Iterator[None]:
    """Given up if a start needs it, and taken back at the end."""
    with suppress(OSError):
        if free(data) < SIZE:
            (data / NAME).unlink()
    try:
        yield
    finally:
        take_back(data)


async def keep(data: Path) -> None:
    """Until cancelled: there is one whenever there is plenty."""
    while True:
        await trio.to_thread.run_sync(_keep, data)
        await trio.sleep(INTERVAL)


def _keep(data: Path) -> None:
    with suppress(OSError):
        if free(data) >= PLENTY and not _is_whole(data / NAME):
            take_back(data)


def take_back(data: Path) -> None:
    """As much of it as there is space for: nobody else will need it now."""
    size = SIZE
    while size >= LEAST and not _is_whole(data / NAME, size) and not _make(data / NAME, size):
        size //= 2


def _is_whole(place: Path, size: int = SIZE) -> bool:
    return place.exists() and place.stat().st_size >= size


def _make(place: Path, size: int) -> bool:
    try:
        file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError:
        return False
    try:
        os.posix_fallocate(file, 0, size)
    except OSError:
        place.unlink()
        return False
    finally:
        os.close(file)
    return True
