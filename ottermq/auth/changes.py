"""Listeners that are called when a user, a permission or a limit changed.

The engine and the servers remember permissions, so each change must reach them. They are called
after the change is in force, in the task that made it, and must not block.
"""

from collections.abc import Callable
from dataclasses import dataclass

import trio


@dataclass(frozen=True)
class Change:
    user: str | None = None  # None: any user
    vhost: str | None = None  # None: any vhost
    closing: str | None = None  # why the user's connections are to be closed, if they are
    deleted: bool = False  # the user is gone, and all that was granted to it


Listener = Callable[[Change], None]


class Changes:
    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        # Held while one is made: a permission isn't granted to a user who is being deleted.
        self.one_at_a_time = trio.Lock()

    def listen(self, callback: Listener) -> None:
        self._listeners.append(callback)

    def tell(self, change: Change) -> None:
        for callback in self._listeners:
            callback(change)
