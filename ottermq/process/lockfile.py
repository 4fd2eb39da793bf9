"""The data directory belongs to one broker at a time.

`data/lock` is held by flock, so a killed broker's claim ends with it. Its text, the holder's
pid, is only for the message: a pid in a file proves nothing, the lock does.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ottermq.errors import StartupError


@contextmanager
def claim(data: Path, what: str = "data directory", by: str = "broker") -> Iterator[None]:
    """Hold the folder; it is made when only its last part is missing. what, by: for the message."""
    _make(data, what)
    try:
        lock = os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
    except OSError as error:
        raise StartupError(f"{what} {data}: can't write: {error.strerror}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
            holder = f"the {by} with pid {pid}" if pid.isdigit() else f"another {by}"
            raise StartupError(f"{what} {data}: in use by {holder}") from None
        os.ftruncate(lock, 0)
        with suppress(OSError):  # a full disk is no reason not to start
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
        os.ftruncate(lock, 0)
    finally:
        os.close(lock)


def _make(data: Path, what: str) -> None:
    try:
        data.mkdir(mode=0o750, exist_ok=True)
    except FileExistsError:
        raise StartupError(f"{what} {data}: a file, not a folder") from None
    except FileNotFoundError:
        raise StartupError(f"{what} {data}: {data.parent} doesn't exist") from None
    except OSError as error:
        raise StartupError(f"{what} {data}: can't make it: {error.strerror}") from None
    if not os.access(data, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        raise StartupError(f"{what} {data}: can't write: Permission denied")
