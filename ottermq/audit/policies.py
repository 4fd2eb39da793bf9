"""The rules of retention that a log is under: worked out as the broker does, from its files.

First a legal hold from any source; then the topic's configs that Kafka clients altered; then a
stream's own arguments and policies; then the configuration file's rule for queues of that name.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from ottermq.audit.snapshot import Log
from ottermq.config import Config
from ottermq.storage.legal_holds import KAFKA_KEY
from ottermq.storage.retention import policy_for
from ottermq.storage.topic_retention import (
    DELETE_RETENTION,
    DELETE_RETENTION_MS,
    is_compacted,
    policy_of,
)
from ottermq.wal.catalog import open_to_look
from ottermq.wal.retention import Policy

Altered = dict[str, str]


class Policies:
    def __init__(self, data: Path, logs: Sequence[Log], config: Config) -> None:
        self._config = config
        rows = _altered(data)
        # They belong to the log of a topic's first partition.
        self._altered = {(log.vhost, log.queue): rows[log.id] for log in logs if log.id in rows}

    def of(self, log: Log) -> Policy:
        altered = self._altered.get((log.vhost, log.queue), {})
        configured = policy_for(self._config.for_queue(log.name).retention)
        declared = log.settings
        is_held = configured.legal_hold or (declared is not None and declared.legal_hold)
        if is_held or altered.get(KAFKA_KEY) == "true":
            return Policy(legal_hold=True)
        if log.cursor is not None or declared is None:
            return configured
        if altered:
            return self._of_topic(log, altered, configured)
        if declared.max_age_ms is None and declared.max_length_bytes is None:
            return configured
        return Policy(max_age_ms=declared.max_age_ms, max_size=declared.max_length_bytes)

    def is_compacted(self, log: Log) -> bool:
        altered = self._altered.get((log.vhost, log.queue), {})
        return is_compacted(altered)

    def tombstones_stay(self, log: Log) -> timedelta:
        """How long a compacted topic keeps a record without a value."""
        altered = self._altered.get((log.vhost, log.queue), {})
        said = altered.get(DELETE_RETENTION, DELETE_RETENTION_MS)
        return timedelta(milliseconds=min(int(said), timedelta.max // timedelta(milliseconds=1)))

    def _of_topic(self, log: Log, altered: Altered, configured: Policy) -> Policy:
        assert log.settings is not None
        age, size = log.settings.max_age_ms, log.settings.max_length_bytes
        usual = Policy(
            max_age_ms=configured.max_age_ms if age is None else age,
            max_size=configured.max_size if size is None else size,
        )
        return policy_of(altered, usual)


def _altered(data: Path) -> dict[int, Altered]:
    found: dict[int, Altered] = {}
    with closing(open_to_look(data)) as db:
        try:
            for log, name, value in db.execute("SELECT log, name, value FROM kafka_configs"):
                found.setdefault(log, {})[name] = value
        except sqlite3.OperationalError:
            pass  # no such table: no Kafka client has ever altered anything there
    return found
