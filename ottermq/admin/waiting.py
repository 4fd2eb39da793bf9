"""Connections that wait for their client: when there are too many, the one that waits longest goes.

Silent connections give way to later ones, so a probe that sends its request is always answered.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class Waiting:
    def __init__(self, most: int) -> None:
        self._most = most
        self._scopes: dict[trio.CancelScope, None] = {}  # in the order they came

    @contextmanager
    def for_client(self) -> Iterator[trio.CancelScope]:
        """The scope that is cancelled when others need the place."""
        with trio.CancelScope() as scope:
            if len(self._scopes) >= self._most:
                longest = next(iter(self._scopes))
                del self._scopes[longest]
                longest.cancel()
            self._scopes[scope] = None
            try:
                yield scope
            finally:
                self._scopes.pop(scope, None)
