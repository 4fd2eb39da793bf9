"""The log: segments, indexes, group commit, recovery, retention.

    errors.py     what a log can refuse
    records.py    records and batches: Apache Kafka's format v2
    catalog.py    which logs there are
    log.py        one log: append, read, look up, settle
    store.py      all of them over one WAL: open, recover, close
    durability_wait.py  waiting for the disk in trio
    retention.py  when whole segments go
    removal_reasons.py  why one went
    orphans.py    what a deletion that was cut short has left
    unknown.py    logs that meta.db doesn't name: which of them are such

and to look at what lies on disk, also while a broker runs:

    file_window.py  a file in pieces
    segmentfile.py, walfile.py, checkpoint.py, manifest.py, removals.py    what is in each kind
    dump.py        the same, item by item
    verify.py      is it right?     segmentcheck.py    one segment of it
    replay.py      the WAL, one change after the other

The promise: what `Store.wait` has answered for is on disk, and comes back after any crash, in
order and once; what was refused never does; an offset is never given twice. How that is kept is
told in docs/design.md, and every byte on disk in docs/log-format.md.
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
