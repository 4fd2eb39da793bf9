"""Connections that ended before they said hello: only the engine knew them.

    INFO connection closed listener=amqp peer=10.0.0.7:51234 reason="handshake timeout"

Anybody can cause such a line, and a load balancer's health check does all day. So what is
unremarkable is logged at the debug level, and the rest a few times per address (line_limit.py).
"""

from collections.abc import Callable

import trio

from ottermq import eventlog
from ottermq.auth.line_limit import LineLimit


class BeforeHello:
    def __init__(self, clock: Callable[[], float] = trio.current_time) -> None:
        self._limit = LineLimit(clock)

    def closed(self, listener: str, peer: str, reason: str, *, unremarkable: bool) -> None:
        if unremarkable:
            eventlog.debug("connection closed", listener=listener, peer=peer, reason=reason)
            return
        more = self._limit.take(peer.rpartition(":")[0].strip("[]"))
        if more is not None:
            eventlog.info("connection closed", listener=listener, peer=peer, reason=reason, **more)
