"""The logs and the queue of each: meta.db, read while a broker may be writing it.

| a log                          | queue                   | partition            |
|--------------------------------|-------------------------|----------------------|
| of a queue or stream           | its name                | 0                    |
| of a super stream's partition  | the super stream's name | its place            |
| of a priority queue            | the queue's name        | the priority         |
| of a delayed exchange          | `NAME (delayed)`        | 0                    |
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottermq.topology import Queue, QueueSettings, QueueType, Topology
from ottermq.topology.log_names import delayed_exchange, queue_and_priority
from ottermq.topology.restore import fill
from ottermq.topology.super_streams import parts_of
from ottermq.wal import LogFlags
from ottermq.wal.catalog import INTERNAL_VHOST, Entry, entries, open_to_look

DELAYED, INTERNAL = "delayed", "internal"


@dataclass(frozen=True, slots=True)
class Named:
    """A log and whose it is. `settings`: None, it isn't a queue's."""

    entry: Entry
    queue: str
    partition: int
    kind: str  # classic, quorum, stream, delayed, internal
    settings: QueueSettings | None


class _Rows:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def read(self, sql: str) -> list[tuple[Any, ...]]:
        return self._db.execute(sql).fetchall()


def read(data: Path) -> list[Named]:
    """By vhost, queue and partition. All of it is of one moment: one transaction."""
    with closing(open_to_look(data)) as db:
        db.execute("BEGIN")
        logs = entries(db)
        topology = Topology()
        # A log that no broker kept (the library's own) has no topology.
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'queues'").fetchone():
            fill(topology, _Rows(db))
    places = _places(topology)
    named = [_named(entry, topology, places) for entry in logs]
    return sorted(named, key=lambda each: (each.entry.vhost, each.queue, each.partition))


def _places(topology: Topology) -> dict[Queue, tuple[str, int]]:
    """A partition of a super stream → its name and place."""
    found: dict[Queue, tuple[str, int]] = {}
    for host in topology.vhosts.values():
        for exchange in host.exchanges.values():
            parts = parts_of(exchange)
            namesake = host.queues.get(exchange.name)
            if namesake is None or namesake in parts:
                found |= {queue: (exchange.name, place) for place, queue in enumerate(parts)}
    return found


def _named(entry: Entry, topology: Topology, places: dict[Queue, tuple[str, int]]) -> Named:
    if entry.vhost == INTERNAL_VHOST:
        return Named(entry, entry.name, 0, INTERNAL, None)
    if (exchange := delayed_exchange(entry.name)) is not None:
        return Named(entry, f"{exchange} (delayed)", 0, DELAYED, None)
    name, priority = queue_and_priority(entry.name)
    host = topology.vhosts.get(entry.vhost)
    queue = host.queues.get(name) if host else None
    if queue is None:  # declared or deleted this very moment
        kind = QueueType.STREAM if entry.flags & LogFlags.NO_CURSOR else QueueType.CLASSIC
        return Named(entry, name, priority, kind.value, None)
    shown, place = places.get(queue, (name, priority))
    return Named(entry, shown, place, queue.type.value, topology.effective(queue))
