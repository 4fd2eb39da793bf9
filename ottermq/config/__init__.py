"""The broker's configuration: `load()` gives a frozen Config or raises ConfigError.

units.py     64MiB, 1h30m
kinds.py     what a setting may hold: a size, a time, a choice …
schema.py    every setting with its kind, range and default
layers.py    defaults < file < environment < flags
yamlfile.py  a file as a layer, with line numbers
early.py     log.format, for what is wrong with the rest
messages.py  the one line that says what is wrong
"""

from collections.abc import Mapping
from pathlib import Path

from ottermq.config import layers
from ottermq.config.early import log_format
from ottermq.config.kinds import Address
from ottermq.config.layers import Layer, QueueLayer
from ottermq.config.schema import Config, Keys, QueueSettings, Retention, queue_defaults

__all__ = [
    "Address",
    "Config",
    "QueueSettings",
    "Retention",
    "load",
    "log_format",
    "queue_defaults",
]


def load(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[Keys, tuple[str, str | None]] | None = None,
) -> Config:
    """flags: the path of a key → the flag's name and what it was given, if anything."""
    from_file: Layer = {}
    queues: list[QueueLayer] = []
    if file is not None:
        from ottermq.config import yamlfile  # YAML takes its time to load

        from_file, queues = yamlfile.load(file)
    return layers.build(
        [from_file, layers.from_environment(environ or {}), layers.from_flags(flags or {})],
        queues,
    )
