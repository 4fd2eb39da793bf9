"""The system's time as a test sets it, for a program that runs with this preloaded.

clock = Clock(tmp_path)
with Broker(data, env=clock.environment()):
    clock.set(timedelta(hours=-1))
"""

import os
import struct
from datetime import timedelta
from pathlib import Path

from tests.faults.shim import HERE, build


class Clock:
    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock-shift"
        self._file.write_bytes(bytes(8))
        self._library = build("clock", [HERE / "clock.c"])

    def environment(self) -> dict[str, str]:
        """A preload already there (a sanitizer's, which must come first) stays in front."""
        before = os.environ.get("LD_PRELOAD")
        preload = " ".join(filter(None, (before, str(self._library))))
        return {"LD_PRELOAD": preload, "CLOCK_SHIFT_FILE": str(self._file)}

    def set(self, shift: timedelta) -> None:
        """So far from the true time, from now on."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", shift // timedelta(milliseconds=1)))
