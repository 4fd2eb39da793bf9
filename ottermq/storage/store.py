"""The broker's log: opened by its configuration, its reports logged, closed with a checkpoint."""

import logging
import re
import resource
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cache

import trio

from ottermq import eventlog
from ottermq.config import Config, QueueSettings
from ottermq.contained import contained
from ottermq.errors import OtterError, StartupError
from ottermq.storage import ballast
from ottermq.storage import legal_holds as holds
from ottermq.storage.recovery import recover
from ottermq.topology import MetaDb
from ottermq.wal import FlushMode, LogError, LogOptions, Options, Report, ReportKind, Store, unknown
from ottermq.wal.store import DirectIO, Interrupted

# A report's log level and event. Reports that all is well again, or of things that are normal after
# a crash, have a low one.
REPORTS = {
    ReportKind.CORRUPT: (logging.ERROR, "log corrupt"),
    ReportKind.TAIL_CUT: (logging.INFO, "segment tail cut"),
    ReportKind.WAL_HOLE: (logging.ERROR, "wal hole"),
    ReportKind.FENCED: (logging.ERROR, "wal fenced"),
    ReportKind.SEGMENT_REWRITTEN: (logging.WARNING, "segment rewritten"),
    ReportKind.NO_SPACE: (logging.ERROR, "no disk space"),
    ReportKind.SPACE_BACK: (logging.INFO, "disk space back"),
    ReportKind.CHECKPOINT_FAILED: (logging.ERROR, "checkpoint failed"),
    ReportKind.UNREADABLE: (logging.ERROR, "segment unreadable"),
    ReportKind.WRITE_FAILED: (logging.ERROR, "write failed"),
    ReportKind.DELETED: (logging.INFO, "log deleted"),
    ReportKind.CLOCK_BEHIND: (logging.WARNING, "clock behind"),
    ReportKind.ORPHANED: (logging.WARNING, "logs orphaned"),
    ReportKind.STALLED: (logging.ERROR, "writes stalled"),
    ReportKind.GOES_ON: (logging.INFO, "writes resumed"),
}


@asynccontextmanager
async def open_store(
    config: Config, *, accept_missing_metadata: bool = False
) -> AsyncIterator[Store]:
    """The one place where the log is opened and closed. It takes work after `recovering`."""
    with told_in_one_line(config):
        store = await trio.to_thread.run_sync(_make, config, accept_missing_metadata)
    try:
        yield store
    finally:
        with trio.CancelScope(shield=True):
            await _close(store)


@asynccontextmanager
async def recovering(config: Config, store: Store, stop: trio.Event) -> AsyncIterator[None]:
    """It recovers while the work in here runs, and is done at the end; a doubtful one recovers
    first, as meta.db isn't written to before the log has seen it. Interrupted: `stop` was set
    before."""

    async def recovered() -> None:
        with told_in_one_line(config):
            await recover(store, stop)

    async with trio.open_nursery() as nursery:
        if store.is_doubtful:
            await recovered()
        else:
            nursery.start_soon(recovered)
        yield


# Errors from rows that aren't ours any more, where they are decoded.
NOT_A_ROW = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError, re.error,
    OtterError,
)  # fmt: skip
DAMAGED = frozenset(
    (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR)
)


@contextmanager
def told_in_one_line(config: Config, db: MetaDb | None = None) -> Iterator[None]:
    """A log or a meta.db that can't be read ends the start. db: the source of the rows."""
    try:
        yield
    except Exception as caught:
        reason = eventlog.cause(caught)
        if isinstance(reason, StartupError | Interrupted):
            raise
        where = f"data directory {config.data}"
        if isinstance(reason, NOT_A_ROW) or _is_damage(reason):
            eventlog.trace("metadata unreadable", caught)
            table = f"table {db.reading}: " if db is not None and db.reading else ""
            raise StartupError(
                f"{where}: meta.db is damaged ({table}{eventlog.describe(reason)}): put a backup in"
                f" its place, or move it away and start once with {unknown.FLAG}"
            ) from None
        if isinstance(reason, LogError | sqlite3.Error | OSError):
            full = ", and the disk is full" if ballast.free(config.data) < ballast.LEAST else ""
            raise StartupError(f"{where}: {reason}{full}") from None
        raise


def _is_damage(error: BaseException) -> bool:
    code = getattr(error, "sqlite_errorcode", None)  # the low byte: the rest is detail
    # One that SQLite didn't raise is of Python's own binding: text that isn't UTF-8.
    return isinstance(error, sqlite3.Error) and (code is None or code & 0xFF in DAMAGED)


def _make(config: Config, accept_missing_metadata: bool) -> Store:
    held: Callable[[str], bool] | None = None

    def rules(name: str) -> LogOptions:
        nonlocal held
        held = held or holds.at_rest(config.data)
        options = log_options(config.for_queue(name))
        return replace(options, keep_settled=True) if held(name) else options

    return Store(
        config.data,
        store_options(config),
        rules=rules,
        accept_missing_metadata=accept_missing_metadata,
    )


async def _close(store: Store) -> None:
    for report in store.reports():
        tell(store, report)
    try:
        await trio.to_thread.run_sync(store.close)
    except LogError as error:
        raise OtterError(f"stopped without a checkpoint: {error}") from None


async def tell_reports(store: Store) -> None:
    """Log the store's reports as they come, wake the tasks that wait for it, until cancelled."""

    def told(report: Report) -> None:
        with contained("storage report not logged"):
            tell(store, report)

    await store.waiting.run(told)


def tell(store: Store, report: Report) -> None:
    fields: dict[str, object] = {}
    if report.log_id:
        fields["log"] = store.name_of(report.log_id) or report.log_id
    if report.last_offset > 0:
        fields |= {"first": report.first_offset, "last": report.last_offset}
    level, event = REPORTS[report.kind]
    eventlog.log(level, event, **fields, text=report.text)


def store_options(config: Config) -> Options:
    wal = config.wal
    return Options(
        wal_file_size=wal.file_size,
        wal_max_size=wal.max_size,
        batch_max_size=wal.batch_max_size,
        batch_max_wait_us=wal.batch_max_wait // timedelta(microseconds=1),
        flush_immediate=wal.flush_mode == "immediate",
        direct_io=DirectIO[wal.direct_io.upper()],
        hot_buffer_size=wal.page_cache.hot_buffer_size,
        mmap_cache_size=wal.page_cache.mmap_cache_size,
        open_files=min(wal.page_cache.open_files, _files() // 4),
        low_space_limit=wal.low_space_limit,
        checkpoint_interval_ms=wal.checkpoint_interval // timedelta(milliseconds=1),
        log=log_options(config.usual),
    )


def _files() -> int:
    """How many this process may have open; most of them are for connections."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@cache
def log_options(queue: QueueSettings) -> LogOptions:
    age = queue.segment_max_age
    return LogOptions(
        flush_mode=FlushMode[queue.flush_mode.upper()],
        segment_size=queue.segment_size,
        segment_max_age_ms=age // timedelta(milliseconds=1) if age else 0,
        pre_allocate=queue.pre_allocate,
        keep_settled=queue.retention.keep_settled or queue.retention.legal_hold,
    )
