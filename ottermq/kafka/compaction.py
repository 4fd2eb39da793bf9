"""The keeper of compacted topics: when a log has enough new records, its segments are filtered.

How far a log was cleaned is kept in meta.db, so that a start doesn't filter everything again. That
is a saving, not a promise: filtering again changes nothing. wal/compaction.py decides which
records go.

It works in a thread, one log at a time, and sleeps three times as long as it worked.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from ottermq import eventlog
from ottermq.contained import contained
from ottermq.kafka.topic_config_store import TopicConfigStore, Values
from ottermq.storage.codecs import NotDecompressed, compress_records, decompress_records
from ottermq.storage.topic_retention import LONG_MAX
from ottermq.topology import MetaDb
from ottermq.wal import Log, LogError, Store
from ottermq.wal.compaction import Codecs, Compaction, Outcome
from ottermq.wal.log import SegmentStat

INTERVAL = 15.0  # seconds between two looks
SHARE = 4  # it works one part in so many of the time
SCHEMA = """
CREATE TABLE IF NOT EXISTS kafka_cleaned (
    log  INTEGER PRIMARY KEY,
    up_to  INTEGER NOT NULL
);
CREATE TRIGGER IF NOT EXISTS kafka_cleaned_go AFTER DELETE ON logs BEGIN
    DELETE FROM kafka_cleaned WHERE log = old.id;
END;
"""


@dataclass(frozen=True)
class Due:
    """Up to where a log may be filtered now, and whether that is worth it."""

    end: int
    dirty_bytes: int
    is_worth: bool


def look(segments: Sequence[SegmentStat], cleaned_to: int, values: Values, now_ms: int) -> Due:
    """A pure rule: by age, young records stay out of reach; by size, the new records must be a
    good part of the whole, or have waited for too long."""
    min_lag, max_lag = int(values["min.compaction.lag.ms"]), int(values["max.compaction.lag.ms"])
    end, clean, dirty, waited = 0, 0, 0, -1
    for segment in segments:
        if not segment.sealed or (min_lag and segment.max_timestamp > now_ms - min_lag):
            break
        end = segment.next_offset
        if segment.base_offset < cleaned_to:
            clean += segment.size
            continue
        if not dirty and segment.first_timestamp >= 0:
            waited = now_ms - segment.first_timestamp
        dirty += segment.size
    ratio = float(values["min.cleanable.dirty.ratio"])
    is_heavy = dirty > 0 and dirty >= ratio * (clean + dirty)
    is_late = dirty > 0 and max_lag < LONG_MAX and waited > max_lag
    return Due(end, dirty, is_heavy or is_late)


class Compactor:
    def __init__(self, db: MetaDb, store: Store, configs: TopicConfigStore) -> None:
        """Blocks: for the start."""
        self._db = db
        self._store = store
        self._configs = configs
        db.define(SCHEMA)
        self._cleaned: dict[int, int] = {}
        known = {log.id for log in store}
        for log, up_to in db.read("SELECT log, up_to FROM kafka_cleaned"):
            if log in known:
                self._cleaned[log] = up_to
            else:
                db.commit_now([("DELETE FROM kafka_cleaned WHERE log = ?", (log,))])

    async def keep(self, interval: float = INTERVAL) -> None:
        """Until cancelled."""
        while True:
            with contained("compaction failed"):
                await self.look_at_all()
            await trio.sleep(interval)

    async def look_at_all(self) -> None:
        for log in self._configs.compacted():
            with contained("log not compacted", log=log.name):
                await self._look_or_say(log)

    async def _look_or_say(self, log: Log) -> None:
        try:
            await self._look_at(log)
        except LogError as error:
            # Deleted meanwhile, or unreadable: the next look comes anyway.
            eventlog.debug("log not compacted", log=log.name, error=error)
        except (OSError, MemoryError) as error:
            eventlog.warning("log not compacted", log=log.name, error=error)

    async def _look_at(self, log: Log) -> None:
        values = self._configs.values_of(log)
        if values is None or self._configs.holds(log):
            return
        now = log.now_ms()
        cleaned_to = self._cleaned.get(log.id, 0)
        due = look(log.segments(), cleaned_to, values, now)
        if not due.is_worth:
            return
        with log.held() as held:
            compact = partial(
                _compact,
                held,
                cleaned_to,
                due.end,
                now,
                int(values["delete.retention.ms"]),
                partial(self._configs.holds, log),
            )
            outcome = await trio.to_thread.run_sync(compact)
        if outcome.cleaned_to > cleaned_to:
            # The log may be gone by the time of the commit.
            sql = (
                "INSERT OR REPLACE INTO kafka_cleaned SELECT ?1, ?2"
                " WHERE EXISTS (SELECT 1 FROM logs WHERE id = ?1)"
            )
            await self._db.commit([(sql, (log.id, outcome.cleaned_to))])
            self._cleaned[log.id] = outcome.cleaned_to
        eventlog.log(
            logging.INFO if outcome.dropped else logging.DEBUG,
            "log compacted",
            log=log.name,
            records=outcome.dropped,
            before=outcome.bytes_before,
            after=outcome.bytes_after,
        )


class _HeldMeanwhile(LogError):
    """A legal hold came while a log was being compacted."""


def _compact(
    log: Log,
    cleaned_to: int,
    end: int,
    now: int,
    retention: int,
    is_held: Callable[[], bool],
) -> Outcome:
    began = time.thread_time()

    def breathe() -> None:
        nonlocal began
        trio.from_thread.check_cancelled()
        if trio.from_thread.run_sync(is_held):
            raise _HeldMeanwhile(f"{log.name} is under legal hold")
        time.sleep((time.thread_time() - began) * (SHARE - 1))
        began = time.thread_time()

    compaction = Compaction(
        log,
        now_ms=now,
        delete_retention_ms=retention,
        codecs=Codecs(_opened, compress_records),
        breathe=breathe,
    )
    return compaction.run(cleaned_to, end)


def _opened(codec: int, data: bytes) -> bytes | None:
    try:
        return decompress_records(codec, data)
    except NotDecompressed:
        return None
