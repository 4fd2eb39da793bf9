"""The log, with the write-ahead log at its heart: segments, group commit, recovery, retention.

    errors.py     the errors of a log
    records.py    records and batches: Apache Kafka's format v2
    catalog.py    the list of the logs
    log.py        one log: append, read, look up, settle
    store.py      all of them over one WAL: open, recover, close
    durability_wait.py  waiting for the disk in trio
    retention.py  when whole segments go
    removal_reasons.py  why one went
    orphans.py    leftovers of a deletion that was cut short
    unknown.py    logs that meta.db doesn't name: leftovers, or a wrong meta.db

and to look at what lies on disk, also while a broker runs:

    file_window.py  a file in pieces
    segmentfile.py, walfile.py, checkpoint.py, manifest.py, removals.py    each kind of file, read
    dump.py        the same, item by item
    verify.py      is it right?     segmentcheck.py    one segment of it
    replay.py      the WAL, one change after the other

The promise: a record that `Store.wait` has answered for is on disk, and comes back after any crash,
in order and once; a refused one never does; an offset is never given twice. docs/design.md
describes how that is kept, docs/log-format.md every byte on disk.
"""

from ottermq.wal.errors import LogError
from ottermq.wal.log import Appended, Log, Transaction
from ottermq.wal.records import Batch, Record
from ottermq.wal.removal_reasons import RemovalReason
from ottermq.wal.store import FlushMode, LogFlags, LogOptions, Options, Report, ReportKind, Store

__all__ = [
    "Appended",
    "Batch",
    "FlushMode",
    "Log",
    "LogError",
    "LogFlags",
    "LogOptions",
    "Options",
    "Record",
    "Report",
    "ReportKind",
    "RemovalReason",
    "Store",
    "Transaction",
]
