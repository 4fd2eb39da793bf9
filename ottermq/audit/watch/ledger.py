"""The memory of a watch across restarts: a SQLite file next to Spark's checkpoint.

A micro-batch is in it as a whole or not at all, so that one which Spark brings again after a kill
is either new or known.
"""

import hashlib
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ottermq.audit.errors import CantRun
from ottermq.audit.findings import Finding
from ottermq.audit.report.files import as_dict, as_json
from ottermq.audit.report.formatting import extent, place

NAME = "ledger.db"
TABLES = """
CREATE TABLE IF NOT EXISTS watch (name TEXT PRIMARY KEY, value);
CREATE TABLE IF NOT EXISTS found (
    id TEXT PRIMARY KEY, line TEXT NOT NULL, body TEXT NOT NULL,
    printed INTEGER NOT NULL DEFAULT 0, published INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS reached (
    log INTEGER PRIMARY KEY, next_offset INTEGER, leader_epoch INTEGER, damaged INTEGER
);
CREATE TABLE IF NOT EXISTS sequences (
    log INTEGER, producer INTEGER, epoch INTEGER, sequence INTEGER, base_offset INTEGER,
    PRIMARY KEY (log, producer)
);
"""
# These come from the record of removals, with a time of their own that stays when the log is gone.
OF_THE_RECORD = ("gone-early", "hold-broken")
# Damage seen in the WAL first lies in a segment later: its offsets are its identity.
BY_OFFSETS = ("gap", "duplicate-sequence")


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a log was seen."""

    next_offset: int = 0
    leader_epoch: int = 0
    damaged: int = -1  # the last offset that couldn't be read


@dataclass(frozen=True, slots=True)
class Sequence:
    """An idempotent producer's last batch in a log."""

    epoch: int
    sequence: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What a micro-batch showed, by log id."""

    findings: Mapping[str, Finding]
    reached: Mapping[int, Reached]
    sequences: Mapping[tuple[int, int], Sequence] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notice:
    id: str
    line: str
    body: str


def identity(finding: Finding, log: int | None) -> str:
    """The same for the same violation, whenever it is found. log: its id, since a queue that was
    deleted and declared again is a new one."""
    parts: list[object] = [finding.kind, finding.vhost, finding.queue, finding.partition]
    parts += [finding.first_offset, finding.last_offset]
    parts.append(None if finding.kind in BY_OFFSETS else finding.segment)
    if finding.queue is None:
        parts.append(finding.message)  # of the directory: it has no other identity
    elif finding.rule is not None and finding.kind in OF_THE_RECORD:
        parts.append(finding.time)
    else:
        parts.append(log)
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


class Ledger:
    """Used by the watch's own thread and by Spark's, which brings the micro-batches."""

    def __init__(self, folder: Path, data: Path) -> None:
        path = folder / NAME
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(path, check_same_thread=False)
            self._db.executescript(TABLES)
            with self._db:
                self._db.execute("INSERT OR IGNORE INTO watch VALUES ('data', ?)", (str(data),))
            [(of,)] = self._db.execute("SELECT value FROM watch WHERE name = 'data'")
        except sqlite3.Error as error:
            raise CantRun(f"{path}: {error}") from None
        if of != str(data):
            self._db.close()
            raise CantRun(
                f"{folder}: the checkpoint of a watch over {of}; --checkpoint DIR, please"
            )

    def close(self) -> None:
        with self._lock:
            self._db.close()

    # -- what was seen

    def knows_batch(self, batch: int) -> bool:
        with self._lock:
            row = self._db.execute("SELECT value FROM watch WHERE name = 'batch'").fetchone()
        return row is not None and batch <= row[0]

    def reached(self) -> dict[int, Reached]:
        with self._lock:
            rows = self._db.execute("SELECT * FROM reached").fetchall()
        return {log: Reached(*rest) for log, *rest in rows}

    def sequence(self, log: int, producer: int) -> Sequence | None:
        asked = "SELECT epoch, sequence, base_offset FROM sequences WHERE log = ? AND producer = ?"
        with self._lock:
            row = self._db.execute(asked, (log, producer)).fetchone()
        return Sequence(*row) if row else None

    def note_batch(self, batch: int, seen: Seen) -> int:
        """How many of its findings are new."""
        reached = [
            (log, each.next_offset, each.leader_epoch, each.damaged)
            for log, each in seen.reached.items()
        ]
        sequences = [
            (log, producer, each.epoch, each.sequence, each.base_offset)
            for (log, producer), each in seen.sequences.items()
        ]
        with self._lock, self._db:
            self._db.executemany("INSERT OR REPLACE INTO reached VALUES (?, ?, ?, ?)", reached)
            self._db.executemany(
                "INSERT OR REPLACE INTO sequences VALUES (?, ?, ?, ?, ?)", sequences
            )
            self._db.execute("INSERT OR REPLACE INTO watch VALUES ('batch', ?)", (batch,))
            return self._add(seen.findings)

    def note(self, findings: Mapping[str, Finding]) -> int:
        """By their identity. How many of them are new."""
        with self._lock, self._db:
            return self._add(findings)

    def _add(self, findings: Mapping[str, Finding]) -> int:
        now = datetime.now(UTC)
        added = "INSERT OR IGNORE INTO found (id, line, body) VALUES (?, ?, ?)"
        return sum(
            self._db.execute(added, (id, _line(each, now), as_json(as_dict(each), None))).rowcount
            for id, each in findings.items()
        )

    def forget_all_but(self, logs: Iterable[int]) -> None:
        """Of logs that are gone nothing more can come."""
        there = [(log,) for log in logs]
        with self._lock, self._db:
            self._db.execute("CREATE TEMP TABLE IF NOT EXISTS there (log INTEGER PRIMARY KEY)")
            self._db.execute("DELETE FROM there")
            self._db.executemany("INSERT INTO there VALUES (?)", there)
            for table in ("reached", "sequences"):
                self._db.execute(f"DELETE FROM {table} WHERE log NOT IN (SELECT log FROM there)")

    # -- findings to report

    def unprinted(self) -> list[Notice]:
        return self._waiting("printed")

    def unpublished(self) -> list[Notice]:
        return self._waiting("published")

    def printed(self, notice: Notice) -> None:
        self._done("printed", notice)

    def published(self, notice: Notice) -> None:
        self._done("published", notice)

    def _waiting(self, mark: str) -> list[Notice]:
        asked = f"SELECT id, line, body FROM found WHERE NOT {mark} ORDER BY rowid"
        with self._lock:
            return [Notice(*row) for row in self._db.execute(asked)]

    def _done(self, mark: str, notice: Notice) -> None:
        with self._lock, self._db:
            self._db.execute(f"UPDATE found SET {mark} = 1 WHERE id = ?", (notice.id,))


def _line(finding: Finding, now: datetime) -> str:
    stamp = now.isoformat(timespec="seconds").replace("+00:00", "Z")
    head = (stamp, finding.severity.value, finding.kind, place(finding), extent(finding))
    return f"{' '.join(filter(None, head))}: {finding.message}"
