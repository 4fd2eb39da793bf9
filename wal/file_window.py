"""A file in pieces, for tools that read a file while a broker may be writing it.

Read, never mapped: a mapped file that is cut under us is a signal, a read one is just shorter.
"""

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ottermq._core import ffi

PIECE = 1 << 20


class Ranges:
    """Bytes that are read in ranges, `size` of them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._start = 0
        self._have = 0
        self._grow(min(self.size, PIECE))

    def read_into(self, room: memoryview, position: int) -> int:
        """How many bytes came; 0: there are none any more."""
        raise NotImplementedError

    def _grow(self, size: int) -> None:
        self._bytes = bytearray(max(size, 1))
        self._pointer = ffi.from_buffer("uint8_t[]", self._bytes)

    def at(self, position: int, need: int) -> tuple[Any, int]:
        """A pointer to the byte there, valid until the next call, and how many follow: `need`
        at least, unless the file ends first."""
        end = self._start + self._have
        if not (self._start <= position and position + need <= end):
            self._fill(position, min(need, max(self.size - position, 0)))
        skip = position - self._start
        return self._pointer + skip, self._have - skip

    def _fill(self, position: int, need: int) -> None:
        if need > len(self._bytes):
            self._grow(need + PIECE)
        self._start, self._have = position, 0
        while self._have < need:
            most = self.size - position - self._have
            room = memoryview(self._bytes)[self._have :][:most]
            got = self.read_into(room, position + self._have)
            if got == 0:
                self.size = position + self._have  # cut meanwhile
                return
            self._have += got

    def read(self, position: int, size: int) -> bytes:
        """Fewer when the file ends first."""
        pointer, have = self.at(position, size)
        return bytes(ffi.buffer(pointer, min(size, have)))

    def is_zero(self, position: int) -> bool:
        """Nothing but zeros up to the end."""
        while position < self.size:
            piece = self.read(position, PIECE)
            if piece.strip(b"\0"):
                return False
            position += max(len(piece), 1)
        return True

    def close(self) -> None:
        """Nothing can be read after that."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()


class Window(Ranges):
    """`size` is the file's when it was opened: what grows after that isn't looked at."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        super().__init__(os.fstat(self._fd).st_size)

    def read_into(self, room: memoryview, position: int) -> int:
        return os.preadv(self._fd, [room], position)

    def close(self) -> None:
        os.close(self._fd)


class MemoryRanges(Ranges):
    """Bytes that are in memory already."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        super().__init__(len(data))

    def read_into(self, room: memoryview, position: int) -> int:
        piece = self._data[position : position + len(room)]
        room[: len(piece)] = piece
        return len(piece)
