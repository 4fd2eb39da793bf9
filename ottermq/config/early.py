"""The log's format before the configuration is read, and when it can't be.

A mistake in the configuration is a line of the log, too: a collector of JSON must be able to read
that line above all. So this looks at the variable and at the file's bare text. There is no flag
for the format.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from ottermq.config.schema import LogSettings

VARIABLE = "OTTERMQ_LOG__FORMAT"
# No other section has a key of that name.
IN_A_FILE = re.compile(rb"""^[^#\n]*\bformat["']?\s*:\s*["']?(json|text)\b""", re.M | re.I)


def log_format(environ: Mapping[str, str], file: Path | None = None) -> str:
    said = environ.get(VARIABLE, "").lower()
    if said in ("text", "json"):
        return said
    try:
        found = IN_A_FILE.search(file.read_bytes()) if file is not None else None
    except OSError:
        found = None
    return found[1].decode().lower() if found else LogSettings().format
