"""Legal holds: while one stands on a queue, nothing of it goes.

It may come from config.yaml (`retention.legal_hold`), from a policy (`legal-hold`), or from a Kafka
topic's config (`legal.hold`); one of them is enough. Retention and compaction pass the queue by, to
purge or delete it is refused, and settled messages are kept in the log. Consumers go on as ever.

Queues that aren't durable can't be held: nothing of them outlives the broker.
"""

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from ottermq.errors import UnderLegalHold
from ottermq.topology import Queue, Topology
from ottermq.topology.log_names import queue_and_priority
from ottermq.wal import Log
from ottermq.wal.catalog import INTERNAL_VHOST

KEY = "legal-hold"
KAFKA_KEY = "legal.hold"


class Holds:
    def __init__(
        self, topology: Topology, configured: Callable[[str], bool] = lambda name: False
    ) -> None:
        """configured: does config.yaml hold a queue of that name?"""
        self._topology = topology
        self._configured = configured
        # Another source of holds: Kafka's configs.
        self.also: list[Callable[[Queue], bool]] = []
        # Called when one of these may have changed.
        self.on_change: list[Callable[[Queue], None]] = []

    def on(self, queue: Queue) -> bool:
        return queue.durable and (
            self._configured(queue.name)
            or self._topology.effective(queue).legal_hold
            or any(says(queue) for says in self.also)
        )

    def on_log(self, log: Log) -> bool:
        if log.vhost == INTERNAL_VHOST or log.vhost not in self._topology.vhosts:
            return False
        queue = self._topology.find_queue(log.vhost, queue_and_priority(log.name)[0])
        return queue is not None and self.on(queue)

    def look_again(self, queue: Queue) -> None:
        for listener in self.on_change:
            listener(queue)

    def refuse(self, queue: Queue, what: str) -> None:
        """UnderLegalHold: it may not be done to this queue now."""
        if self.on(queue):
            raise UnderLegalHold(f"{queue.label} is under legal hold: it can't be {what}")


def at_rest(data: Path) -> Callable[[str], bool]:
    """Might a log of that name be held, according to meta.db? Asked before anything is recovered:
    recovery must not drop settled messages of a queue whose hold it doesn't know. One too many
    does no harm, so priorities, vhosts and queue types don't count."""
    patterns: list[re.Pattern[str]] = []
    with closing(sqlite3.connect(data / "meta.db")) as db:
        for value in _column(db, f"SELECT value FROM parameters WHERE value LIKE '%{KEY}%'"):
            policy = json.loads(value)
            if policy.get("definition", {}).get(KEY) is True:
                patterns.append(re.compile(policy["pattern"]))
        sql = f"SELECT topic FROM kafka_configs WHERE name = '{KAFKA_KEY}' AND value = 'true'"
        patterns += [re.compile("^" + re.escape(topic)) for topic in _column(db, sql)]
    return lambda name: any(each.search(queue_and_priority(name)[0]) for each in patterns)


def _column(db: sqlite3.Connection, sql: str) -> list[str]:
    try:
        return [str(value) for (value,) in db.execute(sql)]
    except sqlite3.OperationalError:
        return []  # a first start: there is no such table yet
