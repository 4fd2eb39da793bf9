"""The broker's log: opened by its configuration, closed with a checkpoint, heard out.

Opening recovers, which may take a while after a crash: it runs in a thread, and whoever waits
sees how far it is, as a bar on a terminal and as lines in a log.
"""

import logging
import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import trio

from ottermq import eventlog
from ottermq.config import Config, QueueSettings, queue_defaults
from ottermq.errors import OtterError, StartupError
from ottermq.wal import FlushMode, LogError, LogOptions, Options, ReportKind, Store
from ottermq.wal.store import DirectIO

PATIENCE = 1.0  # seconds of recovery before it is worth a word
LINE_EVERY = 5.0

# What only tells that all is well again, or normal after a crash; anything else is trouble.
CALM = {
    ReportKind.DELETED,
    ReportKind.SEGMENT_REWRITTEN,
    ReportKind.SPACE_BACK,
    ReportKind.TAIL_CUT,
}


@asynccontextmanager
async def open_store(config: Config) -> AsyncIterator[Store]:
    """The one place where the log is opened and closed."""
    try:
        store = await trio.to_thread.run_sync(Store, config.data, store_options(config))
        await _recover(store)
    except Exception as caught:
        reason = eventlog.cause(caught)
        if isinstance(reason, LogError | sqlite3.Error | OSError):
            raise StartupError(f"data directory {config.data}: {reason}") from None
        raise
    try:
        _apply_rules(store, config)
        yield store
    finally:
        with trio.CancelScope(shield=True):
            await _close(store)


async def _recover(store: Store) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_show_progress, store)
        await trio.to_thread.run_sync(store.start)
        nursery.cancel_scope.cancel()


async def _close(store: Store) -> None:
    _tell(store)
    try:
        await trio.to_thread.run_sync(store.close)
    except LogError as error:
        raise OtterError(f"stopped without a checkpoint: {error}") from None


async def tell_reports(store: Store) -> None:
    """Log what the store has to say as it happens, until cancelled."""
    while True:
        _tell(store)
        await trio.lowlevel.wait_readable(store.event_fd)
        os.eventfd_read(store.event_fd)


def _tell(store: Store) -> None:
    for report in store.reports():
        eventlog.log(
            logging.INFO if report.kind in CALM else logging.ERROR,
            report.kind.name.lower().replace("_", " "),
            log=report.log_id,
            first=report.first_offset,
            last=report.last_offset,
            text=report.text,
        )


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
        open_files=wal.page_cache.open_files,
        low_space_limit=wal.low_space_limit,
        checkpoint_interval_ms=wal.checkpoint_interval // timedelta(milliseconds=1),
        log=log_options(queue_defaults(config.wal)),
    )


def log_options(queue: QueueSettings) -> LogOptions:
    age = queue.segment_max_age
    return LogOptions(
        flush_mode=FlushMode[queue.flush_mode.upper()],
        segment_size=queue.segment_size,
        segment_max_age_ms=age // timedelta(milliseconds=1) if age else 0,
        pre_allocate=queue.pre_allocate,
        keep_settled=queue.retention.keep_settled,
    )


def _apply_rules(store: Store, config: Config) -> None:
    """Queues that a rule names go by it; the others came up with the defaults."""
    if config.queues:
        for log in store:
            store.set_options(log, log_options(config.for_queue(log.name)))


async def _show_progress(store: Store) -> None:
    await trio.sleep(PATIENCE)
    await (_show_bar(store) if sys.stderr.isatty() else _show_lines(store))


async def _show_lines(store: Store) -> None:
    while True:
        now = store.progress()
        eventlog.info(
            "recovering",
            done=f"{100 * now.done // max(now.total, 1)}%",
            logs=f"{now.logs_done}/{now.logs_total}",
            replayed=now.replayed,
        )
        await trio.sleep(LINE_EVERY)


async def _show_bar(store: Store) -> None:
    # Here and not above: most starts have no bar to draw and need not load the brush.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("recovering"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("recovering")
        while True:
            now = store.progress()
            bar.update(task, completed=now.done, total=now.total)
            await trio.sleep(0.1)
