"""Administrative acts of AMQP clients, for the audit log (ottermq/auditlog.py).

Each declaration, deletion, binding and purge of a durable object is one line, once it is on disk.
Objects that go with their connection are no administration, and clients make thousands of them. A
refused act has a line already: `channel closed`, with the user and the method.
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
        """Around the wait for the disk to take the change."""
        lasts = bool(change.statements)
        try:
            yield
        except LogError as error:
            if lasts:
                self.record(channel, str(error))
            raise
        if lasts:
            self.record(channel)
