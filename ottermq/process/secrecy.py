"""Passwords and messages in our files and our memory are not for other users of the machine.

A core dump would hold both, and so may the memory that a debugger of the same user looks into. To
allow both, allow core dumps: `ulimit -c unlimited` before the start, or LimitCORE in the unit.
"""

import os
import resource
from pathlib import Path

from ottermq import eventlog
from ottermq._core import lib

OURS_ONLY = 0o027  # umask: for the owner, and its group to read


def keep_to_ourselves() -> None:
    """Files that are made from now on, and the memory."""
    os.umask(OURS_ONLY)
    dumps_wanted, _ = resource.getrlimit(resource.RLIMIT_CORE)
    if dumps_wanted == 0 and lib.om_forbid_dumps():
        eventlog.warning("core dumps not disabled")


def look_who_reads(data: Path) -> None:
    """A folder that was there before we came, such as a volume, is taken as it is."""
    mode = data.stat().st_mode
    if mode & 0o007:
        eventlog.warning(
            "data directory open to others",
            data=data,
            mode=f"{mode & 0o777:04o}",
            do=f"chmod o= {data}",
        )
