"""data/version: the OtterMQ that used the directory last, for reports and for people who find it in
a backup. Nothing depends on it: a disk that is full doesn't keep a broker from starting."""

import os
from pathlib import Path

from ottermq import __version__, eventlog

NAME = "version"
MOST = 64  # bytes of it that are looked at


def note(data: Path) -> None:
    partial = data / f"{NAME}.tmp"
    try:
        if read(data) != __version__:
            partial.write_text(f"{__version__}\n")
            os.replace(partial, data / NAME)
    except OSError as error:
        eventlog.warning("version file not written", path=data / NAME, error=error)


def read(data: Path) -> str | None:
    """None: an earlier version, which left none."""
    try:
        with open(data / NAME, "rb") as file:
            text = file.read(MOST).decode("ascii", "replace").strip()
    except OSError:
        return None
    return text if text.isprintable() and text else None
