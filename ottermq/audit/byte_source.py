"""Where the log's bytes come from: list, and read in ranges. A directory is the first home.

Names are relative, with slashes. What is gone answers None or nothing, never an exception: a broker
at work removes files at any time.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ottermq.wal.file_window import Ranges, Window


@dataclass(frozen=True, slots=True)
class Found:
    name: str
    size: int


class ByteSource(Protocol):
    """Is sent to Spark's workers: it must pickle, and mean the same there."""

    @property
    def tier(self) -> str:
        """What the source calls it."""

    def list(self, folder: str) -> list[Found]:
        """The files right below it, by name. A folder that isn't there has none."""

    def open(self, name: str) -> Ranges | None:
        """None: it isn't there. Once open it can be read to its end, even if it is removed."""


@dataclass(frozen=True, slots=True)
class Directory:
    path: Path

    @property
    def tier(self) -> str:
        return "local"

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

    def open(self, name: str) -> Window | None:
        try:
            return Window(self.path / name)
        except FileNotFoundError:
            return None
