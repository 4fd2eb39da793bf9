"""The layers of the configuration: defaults < file < environment < flags.

Each layer becomes a flat table, path → the value and where it was said. The tables are laid
over each other and the sections built from the result. Each layer is checked by itself: a bad
line in a file is reported even when a flag would have covered it.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from ottermq.config import messages, schema
from ottermq.config.kinds import Kind
from ottermq.config.schema import Config, Keys, QueueRule, QueueSettings
from ottermq.config.units import format_size
from ottermq.errors import ConfigError

PREFIX = "OTTERMQ_"
# Variables that carry our name and are no settings: a command's password, the project's own tests,
# and what Kubernetes puts into each pod beside a service called "ottermq".
NOT_SETTINGS = re.compile(
    r"OTTERMQ_(PASSWORD|SANITIZE|SOAK|SHIM(_.*)?|SERVICE_(HOST|PORT)(_.*)?|PORT(_.*)?)"
)


@dataclass(frozen=True)
class Said:
    value: object
    text: str
    origin: str  # config.yaml:12, OTTERMQ_DATA, --data


Layer = dict[Keys, Said]


@dataclass(frozen=True)
class QueueLayer:
    """One entry of `queues`: its pattern, and the settings it changes."""

    match: str
    changes: Layer


def read(kind: Kind[object], path: Keys, text: str, origin: str) -> Said:
    try:
        return Said(kind.parse(text), text, origin)
    except ValueError:
        raise ConfigError(messages.bad_value(origin, path, text, kind.expected)) from None


def from_environment(environ: Mapping[str, str]) -> Layer:
    known = dict(schema.keys(Config))
    layer: Layer = {}
    for name, text in sorted(environ.items()):
        if not name.startswith(PREFIX) or NOT_SETTINGS.fullmatch(name):
            continue
        path = tuple(name.removeprefix(PREFIX).lower().split("__"))
        if path == ("queues",):
            expected = "no variable: rules for queues go into a file"
            raise ConfigError(messages.bad_value(name, path, text, expected))
        if path not in known:
            raise ConfigError(messages.unknown_key(name, path, text, schema.hints(Config)))
        layer[path] = read(known[path], path, text, name)
    return layer


def from_flags(flags: Mapping[Keys, tuple[str, str | None]]) -> Layer:
    """path → the flag's name and what it was given, if anything."""
    known = dict(schema.keys(Config))
    return {
        path: read(known[path], path, text, flag)
        for path, (flag, text) in flags.items()
        if text is not None
    }


def build(layers: list[Layer], queues: list[QueueLayer]) -> Config:
    merged: Layer = {}
    for layer in layers:
        merged |= layer
    config: Config = _apply(Config(), merged)
    _check_together(config, merged)
    base = schema.queue_defaults(config.wal)
    rules = []
    for entry in queues:
        settings: QueueSettings = _apply(base, entry.changes)
        rules.append(QueueRule(entry.match, settings))
    return dataclasses.replace(config, queues=tuple(rules))


def _apply(base: Any, layer: Layer, prefix: Keys = ()) -> Any:
    changes = {}
    for field in dataclasses.fields(base):
        path = (*prefix, field.name)
        if path in layer:
            changes[field.name] = layer[path].value
        elif "section" in field.metadata:
            changes[field.name] = _apply(getattr(base, field.name), layer, path)
    return dataclasses.replace(base, **changes)


def _check_together(config: Config, merged: Layer) -> None:
    """Settings that are fine alone and don't go with each other."""

    def refuse(path: Keys, value: str, other: Keys, expected: str) -> NoReturn:
        said = merged.get(path) or merged[other]  # the defaults go together: one was said
        raise ConfigError(messages.bad_value(said.origin, path, value, expected))

    wal, file_size = config.wal, ("wal", "file_size")
    if wal.max_size < 3 * wal.file_size:
        least = format_size(3 * wal.file_size)
        expected = f"at least three times wal.file_size, which is {least}"
        refuse(("wal", "max_size"), format_size(wal.max_size), file_size, expected)
    if wal.batch_max_size > wal.file_size // 2:
        most = format_size(wal.file_size // 2)
        expected = f"at most half of wal.file_size, which is {most}"
        refuse(("wal", "batch_max_size"), format_size(wal.batch_max_size), file_size, expected)
    tls, verify = config.tls, ("tls", "verify")
    for listener in ("amqps", "kafkas"):
        for file in ("cert", "key"):
            if getattr(config.listen, listener) and not getattr(tls, file):
                expected = f"the path of a file, as listen.{listener} is set"
                refuse(("tls", file), "null", ("listen", listener), expected)
    if tls.verify != "none" and not tls.ca:
        refuse(("tls", "ca"), "null", verify, f"the path of a file, as tls.verify is {tls.verify}")
