"""Bytes that end where readable memory ends: a read past them kills the test run at once."""

import ctypes
import mmap
from typing import Any

from tests.internals import ffi


class Guard:
    """Memory followed by a page that may not be touched."""

    def __init__(self, size: int) -> None:
        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self._pages = mmap.mmap(-1, self.size + mmap.PAGESIZE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        libc = ctypes.CDLL(None, use_errno=True)
        fence = ctypes.c_void_p(self._address + self.size)
        if libc.mprotect(fence, ctypes.c_size_t(mmap.PAGESIZE), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

    def place(self, data: bytes) -> Any:
        """Copy data so that its last byte is the last that can be read; a uint8_t pointer."""
        start = self.size - len(data)
        assert start >= 0, "the guard is too small"
        self._pages[start : self.size] = data
        return ffi.cast("uint8_t *", self._address + start)
