"""Refused logins in the log: a line each, until an address fills the log with them
(line_limit.py)."""

from collections.abc import Callable

import trio

from ottermq import eventlog
from ottermq.auth.line_limit import LineLimit
from ottermq.errors import LoginRefused

LONGEST = 300  # characters of a reason or a name: both may be a client's


class Refusals:
    def __init__(self, clock: Callable[[], float] = trio.current_time) -> None:
        self._limit = LineLimit(clock)

    def tell(
        self, mechanism: str, peer: str, refusal: LoginRefused, user: str | None = None
    ) -> None:
        """user: the name that was given, if one was."""
        more = self._limit.take(peer)
        if more is None:
            return
        given = {} if user is None else {"user": user[:LONGEST]}
        eventlog.warning(
            "login refused",
            peer=peer,
            mechanism=mechanism,
            reason=refusal.reason[:LONGEST],
            **given,
            **more,
        )
