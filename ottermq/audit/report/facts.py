"""The head of a report: what was audited, where, by whom, when, and by which rules."""

import os
import pwd
import socket
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ottermq import __version__
from ottermq.audit.report.formatting import moment
from ottermq.config.units import format_time
from ottermq.storage import version_file as versionfile
from ottermq.wal.verify import is_running

MOST_KEYS = 20  # named in the head; summary.json has all of them
VARIABLES = "OTTERMQ_"
LABELS = {
    "keys": "keys", "headers": "headers", "prices": "prices", "currency": "currency",
    "what_if_file": "other policy",
}  # fmt: skip


def facts(
    data: Path,
    policy: Path | None,
    options: Mapping[str, Any],
    master: str,
    began: datetime,
    seconds: float,
) -> dict[str, str]:
    return {
        "host": socket.gethostname(),
        "data directory": str(data.absolute()),
        "broker": _broker(data),
        "policy file": _policy(policy),
        **{LABELS.get(name) or f"--{name}": text for name, text in _asked(options)},
        "run by": _who(),
        "run at": f"{moment(began)} UTC, {seconds:.1f} s on {master}",
        "audited with": f"ottermq {__version__}",
    }


def _broker(data: Path) -> str:
    known = versionfile.read(data)
    version = known or "of an unknown version (it left no file `version`)"
    return f"ottermq {version}, {'running' if is_running(data) else 'not running'}"


def _policy(policy: Path | None) -> str:
    text = str(policy.absolute()) if policy else "none: the defaults of config.yaml"
    set_here = sorted(name for name in os.environ if name.startswith(VARIABLES))
    return f"{text}; and the variables {', '.join(set_here)}" if set_here else text


def _asked(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The job's own options, as far as they fit a line."""
    found = []
    for name, value in options.items():
        if isinstance(value, timedelta):
            found.append((name, format_time(value)))
        elif isinstance(value, list | tuple) and value:
            listed = ", ".join(map(str, value[:MOST_KEYS]))
            more = len(value) - MOST_KEYS
            found.append((name, f"{listed} and {more:,} more" if more > 0 else listed))
        elif isinstance(value, dict) and value:
            found.append((name, ", ".join(f"{key}={each}" for key, each in value.items())))
        elif isinstance(value, Path):
            found.append((name, str(value.absolute())))
        elif isinstance(value, str | int | float):
            found.append((name, str(value)))
    return found


def _who() -> str:
    """By the system's own account, not by a variable that anybody can set."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = "a user without a name"
    return f"{name} (uid {uid})"
