"""A definitions file from its path: at the start, and again on SIGHUP."""

from pathlib import Path

import trio

from ottermq import eventlog
from ottermq.auth import Auth
from ottermq.definitions.apply import Running, apply
from ottermq.definitions.parse import parse
from ottermq.definitions.records import DefinitionsError
from ottermq.errors import ConfigError
from ottermq.topology.topology import Topology


async def load(path: Path, topology: Topology, auth: Auth, queues: Running | None = None) -> None:
    """queues: those of a broker that serves already. ConfigError: one line that tells what is wrong
    with the file; nothing of its topology is in force then."""
    try:
        text = await trio.Path(path).read_text(encoding="utf-8")
        await apply(parse(text), topology, auth, queues, origin=f"definitions:{path}")
    except UnicodeDecodeError as error:
        raise _refusal(path, f"not UTF-8 at byte {error.start}") from None
    except OSError as error:
        raise _refusal(path, error.strerror or "can't be read") from None
    except DefinitionsError as error:
        raise _refusal(path, error.shown()) from None
    eventlog.info("definitions loaded", path=path)


def _refusal(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"definitions = {path}: {reason}")
