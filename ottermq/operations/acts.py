"""Administrative acts of clients, for the audit log (ottermq/auditlog.py).

Each declaration, deletion, binding and purge of a durable object is one line, once it is on disk.
Objects that go with their connection are no administration, and clients make thousands of them. A
refused act has a line of its own: `channel closed`, with the user and the method, or the management
API's `api.refuse`.
"""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from ottermq import auditlog
from ottermq.operations.caller import Caller, State
from ottermq.topology import Change
from ottermq.wal import LogError


class Act:
    def __init__(self, name: str, what: str, **details: object) -> None:
        self.name, self.what, self.details = name, what, details

    def record(self, caller: Caller, result: str = auditlog.OK) -> None:
        auditlog.record(
            self.name,
            user=caller.whose().name,
            peer=caller.peer,
            what=self.what,
            result=result,
            vhost=caller.vhost,
            **self.details,
        )

    @contextmanager
    def around(self, caller: Caller, change: Change) -> Iterator[None]:
        """Around the wait for the disk to take the change."""
        lasts = bool(change.statements)
        try:
            yield
        except LogError as error:
            if lasts:
                self.record(caller, str(error))
            raise
        if lasts:
            self.record(caller)


async def saved(state: State, caller: Caller, change: Change, act: Act) -> None:
    """What was made is on disk when it returns."""
    with act.around(caller, change):
        await state.queues.save(change)


async def removed(state: State, caller: Caller, change: Change, act: Act) -> None:
    """The deletion is on disk when it returns."""
    removing: Coroutine[Any, Any, None] | None = state.queues.remove(change)
    if removing is not None:
        with act.around(caller, change):
            await removing
