"""Where the log's bytes come from: list, size, range read. A directory is the first home.

Names are relative, with slashes. What is gone answers None or nothing, never an exception: a broker
at work removes files, and whoever looks at one must expect that.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Found:
    name: str
    size: int


class Home(Protocol):
    """Is sent to Spark's workers: it must pickle, and mean the same there."""

    @property
    def url(self) -> str:
        """For people."""

    def list(self, folder: str) -> list[Found]:
        """The files right below it, by name. A folder that isn't there has none."""

    def size(self, name: str) -> int | None: ...

    def read(self, name: str, start: int, size: int) -> bytes | None:
        """Fewer bytes when it ends first. None: it isn't there."""


@dataclass(frozen=True, slots=True)
class Directory:
    path: Path

    @property
    def url(self) -> str:
        return str(self.path)

    def list(self, folder: str) -> list[Found]:
        found = []
        try:
            with os.scandir(self.path / folder) as entries:
                for entry in entries:
                    try:
                        if entry.is_file(follow_symlinks=False):
                            found.append(Found(entry.name, entry.stat().st_size))
                    except FileNotFoundError:
                        continue
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(found, key=lambda each: each.name)

    def size(self, name: str) -> int | None:
        try:
            return (self.path / name).stat().st_size
        except FileNotFoundError:
            return None

    def read(self, name: str, start: int, size: int) -> bytes | None:
        try:
            with open(self.path / name, "rb", buffering=0) as file:
                return _read_all(file.fileno(), start, size)
        except FileNotFoundError:
            return None


def _read_all(fd: int, start: int, size: int) -> bytes:
    """A read may answer with less than it was asked for."""
    pieces: list[bytes] = []
    while size > 0:
        piece = os.pread(fd, size, start)
        if not piece:
            break
        pieces.append(piece)
        start, size = start + len(piece), size - len(piece)
    return b"".join(pieces) if len(pieces) != 1 else pieces[0]
