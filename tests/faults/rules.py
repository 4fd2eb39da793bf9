"""The control page: faults switched on and off while the traced program runs.

`Faults` maps the page that shim.h draws. The parent and the child may both hold one; what either
sets holds for every process under the shim, from its next call on. Sync id 0 belongs to the
snapshot, so the shim counts from 1.
"""

import ctypes
import enum
import errno
import mmap
import os
from pathlib import Path

MAGIC = 0x6D697368
RULES = 31


class Op(enum.IntFlag):
    """What a rule is about. A write with O_DSYNC is both WRITE and FDATASYNC; an open that makes
    a new file is both OPEN and CREATE; a rename is matched by its new name."""

    OPEN = enum.auto()
    CREATE = enum.auto()
    WRITE = enum.auto()
    TRUNCATE = enum.auto()
    ALLOCATE = enum.auto()
    FSYNC = enum.auto()
    FDATASYNC = enum.auto()
    SYNCFS = enum.auto()
    SYNC_RANGE = enum.auto()
    RENAME = enum.auto()
    UNLINK = enum.auto()
    MKDIR = enum.auto()
    LINK = enum.auto()
    SYNC = FSYNC | FDATASYNC | SYNCFS


class _Action(enum.IntEnum):
    FAIL = 1
    SHORTEN = 2
    DELAY = 3
    KILL = 4


class _Slot(ctypes.Structure):
    _fields_ = [
        ("armed", ctypes.c_uint32),
        ("ops", ctypes.c_uint32),
        ("action", ctypes.c_uint32),
        ("error", ctypes.c_int32),
        ("carried_out", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("skip", ctypes.c_uint64),
        ("times", ctypes.c_int64),
        ("amount", ctypes.c_uint64),
        ("matched", ctypes.c_uint64),
        ("fired", ctypes.c_uint64),
        ("glob", ctypes.c_char * 192),
    ]


class _Page(ctypes.Structure):
    _fields_ = [
        ("magic", ctypes.c_uint32),
        ("lock_state", ctypes.c_uint32),
        ("lock", ctypes.c_char * 64),
        ("trace_end", ctypes.c_uint64),
        ("next_sync", ctypes.c_uint64),
        ("budget", ctypes.c_int64),
        ("free_bytes", ctypes.c_int64),
        ("skip_sync", ctypes.c_uint32),
        ("dying", ctypes.c_uint32),
        ("pad", ctypes.c_char * 144),
        ("rules", _Slot * RULES),
    ]


assert ctypes.sizeof(_Page) == 8192


class Rule:
    """One fault that was asked for."""

    def __init__(self, slot: _Slot) -> None:
        self._slot = slot

    @property
    def fired(self) -> int:
        return int(self._slot.fired)

    def clear(self) -> None:
        self._slot.armed = 0


class Faults:
    """Make calls fail. Paths are fnmatch globs, relative to the root; `*` also matches `/`.

    skip: let that many matching calls pass first. times: fire that often, None for ever.
    carried_out: the call does its work and only its answer is a lie (or the last thing the
    process sees): the write is in the file although it "failed".
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._page = _Page.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(_Page)))
        if self._page.magic != MAGIC:
            raise ValueError(f"{path} is no control page of the shim")

    @classmethod
    def create(cls, path: Path, trace_end: int, real_sync: bool) -> "Faults":
        page = _Page(magic=MAGIC, trace_end=trace_end, next_sync=1, budget=-1, free_bytes=-1)
        page.skip_sync = not real_sync
        path.write_bytes(bytes(page))
        return cls(path)

    @classmethod
    def from_environment(cls) -> "Faults":
        """In the child: the page its parent made."""
        return cls(Path(os.environ["OTTERMQ_SHIM_FAULTS"]))

    @property
    def trace_end(self) -> int:
        return int(self._page.trace_end)

    def fail(
        self,
        ops: Op,
        path: str = "*",
        *,
        error: int = errno.EIO,
        skip: int = 0,
        times: int | None = None,
        carried_out: bool = False,
    ) -> Rule:
        return self._set(ops, path, _Action.FAIL, skip, times, error=error, carried_out=carried_out)

    def shorten(self, path: str = "*", *, to: int, skip: int = 0, times: int | None = 1) -> Rule:
        """A write takes only the first `to` bytes (of a direct one: whole 512-byte blocks)."""
        return self._set(Op.WRITE, path, _Action.SHORTEN, skip, times, amount=to)

    def delay(
        self, ops: Op, path: str = "*", *, seconds: float, skip: int = 0, times: int | None = None
    ) -> Rule:
        """Late, for widening a race. A sync is held between its start and its end."""
        return self._set(ops, path, _Action.DELAY, skip, times, amount=round(seconds * 1e6))

    def kill(self, ops: Op, path: str = "*", *, skip: int = 0, carried_out: bool = False) -> Rule:
        """SIGKILL, just before the call (carried_out: just after it)."""
        return self._set(ops, path, _Action.KILL, skip, 1, carried_out=carried_out)

    def disk_full_after(self, size: int) -> None:
        """Files may grow by `size` more bytes, in 4 KiB blocks; then ENOSPC until lifted. What
        is written over blocks a file already owns goes on working, as on a real full disk."""
        self._page.budget = size

    def disk_has_room(self) -> None:
        self._page.budget = -1

    def report_free_space(self, size: int | None) -> None:
        """What statvfs tells at most; None: the truth (or what disk_full_after left)."""
        self._page.free_bytes = -1 if size is None else size

    def clear(self) -> None:
        for slot in self._page.rules:
            slot.armed = 0
        self.disk_has_room()
        self.report_free_space(None)

    def _set(
        self,
        ops: Op,
        path: str,
        action: _Action,
        skip: int,
        times: int | None,
        *,
        error: int = 0,
        amount: int = 0,
        carried_out: bool = False,
    ) -> Rule:
        glob = os.fsencode(path)
        if len(glob) >= 192:
            raise ValueError(f"the pattern {path!r} is too long")
        slot = next((slot for slot in self._page.rules if not slot.armed), None)
        if slot is None:
            raise ValueError(f"all {RULES} rules are in use")
        slot.ops, slot.action, slot.error, slot.carried_out = ops, action, error, carried_out
        slot.skip, slot.times, slot.amount = skip, -1 if times is None else times, amount
        slot.matched, slot.fired, slot.glob = 0, 0, glob
        slot.armed = 1
        return Rule(slot)
