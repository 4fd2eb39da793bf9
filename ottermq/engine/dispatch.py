"""The engine's events, each to the server of its connection's protocol.

    engine ── protocol, event ──▶ dispatch ── event ──▶ amqp/server.py, kafka/server.py

One loop serves both, as there is one queue of events. Compressed batches that a reader needs are
decompressed here (decompress.py). An event without a connection (a queue that lost its last
consumer, an alarm) goes to the AMQP server: these are AMQP's matters.
"""

from collections.abc import Mapping
from typing import Protocol

import trio

from ottermq import eventlog
from ottermq.contained import is_failure
from ottermq.engine.decompress import Opener
from ottermq.engine.engine import Engine
from ottermq.engine.events import DecompressWanted, Event

SLICE = 64  # events before other tasks get their turn


class Server(Protocol):
    def take(self, event: Event) -> None: ...

    def peer_of(self, id: int) -> str:
        """host:port of that connection; "-": it isn't there."""

    def break_off(self, id: int) -> None:
        """A defect, which the log has: the connection ends."""


async def dispatch(engine: Engine, servers: Mapping[int, Server]) -> None:
    """Until cancelled. An event that fails affects no other connection."""
    async with trio.open_nursery() as nursery:
        opener = Opener(engine, nursery)
        while True:
            await trio.lowlevel.wait_readable(engine.event_fd)
            for number, (protocol, event) in enumerate(engine.events(), 1):
                try:
                    if isinstance(event, DecompressWanted):
                        opener.take(event)
                    else:
                        servers[protocol].take(event)
                except BaseException as error:
                    if not is_failure(error):
                        raise
                    conn = getattr(event, "conn", 0)
                    peer = getattr(event, "peer", "") or servers[protocol].peer_of(conn)
                    kind = type(event).__name__
                    eventlog.failure("engine event failed", error, kind=kind, peer=peer)
                    if conn:
                        servers[protocol].break_off(conn)
                if number % SLICE == 0:
                    await trio.lowlevel.checkpoint()
