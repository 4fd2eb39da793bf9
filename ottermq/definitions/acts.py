"""The changes that definitions make, for the audit log (ottermq/auditlog.py).

    audit act=user.password user=- peer=definitions:/etc/ottermq/definitions.json what=ann result=ok

The whole topology has one line, each user and permission its own; things that were so already have
none.
"""

from collections.abc import Iterable

from ottermq import auditlog
from ottermq.auth import User
from ottermq.topology.change import Change


class Acts:
    def __init__(self, origin: str, user: str | None = None) -> None:
        """origin: the file, or the address that the user sent them from."""
        self._origin = origin
        self._user = user

    def record(self, act: str, what: str, **details: object) -> None:
        auditlog.record(
            act, user=self._user, peer=self._origin, what=what, result=auditlog.OK, **details
        )

    def of_topology(self, changes: Iterable[Change]) -> None:
        """How many objects are new; policies and parameters are written anew each time."""
        made = [change for change in changes if change.created]
        queues = sum(change.queue is not None for change in made)
        others = len(made) - queues
        if made:
            self.record("definitions.load", "topology", queues=queues, others=others)

    def of_user(self, before: User | None, after: User) -> None:
        if before is None:
            self.record("user.create", after.name, tags=",".join(after.tags))
            return
        if before.secrets != after.secrets:
            self.record("user.password", after.name)
        if before.tags != after.tags:
            self.record("user.tags", after.name, tags=",".join(after.tags))
