"""Administrative acts of AMQP clients, for the audit log (ottermq/auditlog.py).

Declarations, deletions, bindings and purges of what is durable: a line each, once it is on disk.
What goes with its connection anyway is no administration, and clients make thousands of it. An act
that is refused has a line already: `channel closed`, with the user and the method.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ottermq import auditlog
from ottermq.amqp.channel import Channel
from ottermq.topology import Change
from ottermq.wal import LogError


class Act:
    def __init__(self, name: str, what: str, **details: object) -> None:
        self.name, self.what, self.details = name, what, details

    def record(self, channel: Channel, result: str = auditlog.OK) -> None:
        conn = channel.conn
        auditlog.record(
            self.name,
            user=conn.whose().name,
            peer=conn.peer,
            what=self.what,
            result=result,
            vhost=conn.vhost,
            **self.details,
        )

    @contextmanager
    def around(self, channel: Channel, change: Change) -> Iterator[None]:
        """What waits for the disk to take the change."""
        lasts = bool(change.statements)
        try:
            yield
        except LogError as error:
            if lasts:
                self.record(channel, str(error))
            raise
        if lasts:
            self.record(channel)
