"""A log's folder that the catalogue doesn't name: the segments it still holds.

Its manifest is taken as it is; a file that the manifest doesn't name is walked, batch by batch.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from ottermq.wal import manifest
from ottermq.wal.errors import CorruptData
from ottermq.wal.file_window import Window
from ottermq.wal.manifest import Sealed
from ottermq.wal.segmentfile import Damage, base_offset_of, batches


def identity(folder: str) -> tuple[int, str]:
    """vhosts/%2F/queues/orders.17 → 17, "orders"; the name is cut when it is very long."""
    name, _, id = PurePosixPath(folder).name.rpartition(".")
    return (int(id) if id.isascii() and id.isdigit() else 0), unquote(name)


def segments(folder: Path) -> Iterator[Sealed]:
    """The store is at work already: it records its own removals itself."""
    named = {segment.base_offset: segment for segment in _manifest(folder)}
    for path in _files(folder):
        base = base_offset_of(path)
        if base is not None and (found := named.get(base) or _walked(path, base)):
            yield found


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("*.log"))
    except FileNotFoundError:
        return []


def _manifest(folder: Path) -> tuple[Sealed, ...]:
    try:
        found = manifest.load(folder)
    except CorruptData:
        return ()
    return found.segments if found else ()


def _walked(path: Path, base: int) -> Sealed | None:
    end, first, newest = base, -1, -1
    try:
        opened = Window(path)
    except FileNotFoundError:
        return None
    with opened as window:
        for batch in batches(window):
            if isinstance(batch, Damage):
                continue
            end = batch.last_offset + 1
            first = batch.base_timestamp if first < 0 else first
            newest = max(newest, batch.max_timestamp)
        return Sealed(base, end, window.size, first, newest)
