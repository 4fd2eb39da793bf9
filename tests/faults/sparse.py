"""A file's bytes in memory: chunks that are there when something was written to them."""

import os
from pathlib import Path

CHUNK = 65536
_ZEROS = bytes(CHUNK)


class Sparse:
    """Bytes with a size. A fork shares its chunks until it writes to them."""

    __slots__ = ("_chunks", "_shared", "size")

    def __init__(self) -> None:
        self._chunks: dict[int, bytearray] = {}
        self._shared: set[int] = set()
        self.size = 0

    def fork(self) -> "Sparse":
        """A copy to change; this one must not change while the fork is in use."""
        copy = Sparse()
        copy._chunks = dict(self._chunks)
        copy._shared = set(self._chunks)
        copy.size = self.size
        return copy

    def write(self, offset: int, data: memoryview | bytes) -> None:
        done = 0
        while done < len(data):
            number, start = divmod(offset + done, CHUNK)
            part = data[done : done + CHUNK - start]
            self._own(number)[start : start + len(part)] = part
            done += len(part)
        self.size = max(self.size, offset + len(data))

    def zero(self, offset: int, length: int) -> None:
        end = offset + length
        at = offset
        while at < end:
            number, start = divmod(at, CHUNK)
            stop = min(CHUNK, start + end - at)
            if number in self._chunks:
                self._own(number)[start:stop] = _ZEROS[: stop - start]
            at += stop - start
        self.size = max(self.size, end)

    def resize(self, size: int) -> None:
        """As truncate does: what was cut reads as zeros should the file grow again."""
        if size < self.size:
            number, start = divmod(size, CHUNK)
            for beyond in [n for n in self._chunks if n > number]:
                del self._chunks[beyond]
                self._shared.discard(beyond)
            if number in self._chunks:
                self._own(number)[start:] = _ZEROS[start:]
        self.size = size

    def read(self) -> bytes:
        whole = bytearray(self.size)
        for number, chunk in self._chunks.items():
            start = number * CHUNK
            whole[start : start + CHUNK] = chunk[: max(0, self.size - start)]
        return bytes(whole)

    def save(self, path: Path) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            for number, chunk in self._chunks.items():
                if chunk != _ZEROS:
                    start = number * CHUNK
                    os.pwrite(fd, memoryview(chunk)[: max(0, self.size - start)], start)
            os.ftruncate(fd, self.size)
        finally:
            os.close(fd)

    def _own(self, number: int) -> bytearray:
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = bytearray(CHUNK)
        elif number in self._shared:
            chunk = self._chunks[number] = bytearray(chunk)
            self._shared.discard(number)
        return chunk
