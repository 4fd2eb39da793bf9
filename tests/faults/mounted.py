"""A small file system of a test's own, to be filled to its last block."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

MIB = 1 << 20


@contextlib.contextmanager
def memory_disk(place: Path, megabytes: int) -> Iterator[Path]:
    """A tmpfs. Skips the test where it may not be mounted."""
    place.mkdir(parents=True, exist_ok=True)
    with _mounted([f"mount -t tmpfs -o size={megabytes}m tmpfs {place}"], place):
        yield place


@contextlib.contextmanager
def any_disk(tmp_path: Path, megabytes: int) -> Iterator[Path]:
    """ext4 in a file, or memory where that can't be had."""
    place, image = tmp_path / "disk", tmp_path / "image"
    place.mkdir()
    image.touch()
    os.truncate(image, megabytes * MIB)
    ext4 = [f"mkfs.ext4 -q -m 0 {image}", f"mount -o loop {image} {place}"]
    with _mounted(ext4, place, [f"mount -t tmpfs -o size={megabytes}m tmpfs {place}"]):
        yield place


@contextlib.contextmanager
def _mounted(steps: list[str], place: Path, *others: list[str]) -> Iterator[None]:
    why = []
    for way in (steps, *others):
        try:
            for step in way:
                subprocess.run(step.split(), check=True, capture_output=True, text=True)
            break
        except FileNotFoundError as error:
            why.append(str(error))
        except subprocess.CalledProcessError as error:
            why.append(error.stderr.strip())
    else:
        pytest.skip(f"no file system can be mounted here: {'; '.join(why)}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def free(place: Path) -> int:
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize


class Filler:
    """Somebody else's file, which takes what is left and gives it back."""

    def __init__(self, place: Path) -> None:
        self._file = place / "filler"

    def take(self, left: int = 0) -> None:
        """All but so many bytes."""
        with self._file.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while (room := free(self._file.parent) - left) > 0:
                file.write(bytes(min(room, MIB)))

    def give_back(self) -> None:
        self._file.unlink(missing_ok=True)
