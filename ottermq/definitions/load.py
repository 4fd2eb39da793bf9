"""A definitions file from its path: at the start, and again on SIGHUP."""

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ottermq import eventlog
from ottermq.auth import Auth
from ottermq.errors import ConfigError
from ottermq.topology.topology import Topology

if TYPE_CHECKING:
    from ottermq.definitions.apply import Running


async def load(
    path: Path | None, topology: Topology, auth: Auth, queues: "Running | None" = None
) -> None:
    """path: None, there is no such file. queues: those of a broker that serves already.
    ConfigError: one line that says what is wrong with the file; nothing of its topology is in
    force then."""
    if path is None:
        return
    # Here and not above: most brokers have no such file, and start quicker for it.
    from ottermq.definitions.acts import Acts
    from ottermq.definitions.apply import apply
    from ottermq.definitions.parse import parse
    from ottermq.definitions.records import DefinitionsError

    try:
        text = await trio.Path(path).read_text(encoding="utf-8")
        await apply(parse(text), topology, auth, queues, Acts(f"definitions:{path}"))
    except UnicodeDecodeError as error:
        raise _refusal(path, f"not UTF-8 at byte {error.start}") from None
    except OSError as error:
        raise _refusal(path, error.strerror or "can't be read") from None
    except DefinitionsError as error:
        raise _refusal(path, error.shown()) from None
    eventlog.info("definitions loaded", path=path)


def _refusal(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"definitions = {path}: {reason}")
