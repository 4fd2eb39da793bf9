"""Recovery, watched: a bar on a terminal, lines in a log otherwise, and an end on demand.

It runs in a thread. It is silent in the first second; one line at the end reports the result. A
broker that is stopped meanwhile calls it off: the next start recovers all the same.
"""

import sys
import time

import trio

from ottermq import eventlog
from ottermq.wal import Store
from ottermq.wal.store import Progress

PATIENCE = 1.0  # seconds before it is worth a word
LINE_EVERY = 1.0
FRAME = 0.1


async def recover(store: Store, stop: trio.Event) -> None:
    """Interrupted: `stop` was set first."""
    began = time.monotonic()
    if stop.is_set():
        store.interrupt()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_show, store)
        nursery.start_soon(_call_off, store, stop)
        await trio.to_thread.run_sync(store.start)
        nursery.cancel_scope.cancel()
    came_to = store.progress()
    eventlog.info(
        "recovered",
        logs=came_to.logs_total,
        bytes=came_to.done,
        replayed=came_to.replayed,
        took=f"{time.monotonic() - began:.1f}s",
    )


async def _call_off(store: Store, stop: trio.Event) -> None:
    await stop.wait()
    store.interrupt()


async def _show(store: Store) -> None:
    await trio.sleep(PATIENCE)
    drawn = sys.stderr.isatty() and not eventlog.is_json()
    await (_show_bar(store) if drawn else _show_lines(store))


def percent(now: Progress) -> int:
    """How far it is. The logs' own files come first, then the WAL, whose length is known only
    when it is opened: each counts for half."""
    if now.logs_done < now.logs_total:
        return 50 * now.logs_done // now.logs_total
    return 50 + 50 * now.done // max(now.total, now.done, 1)


async def _show_lines(store: Store) -> None:
    while True:
        now = store.progress()
        eventlog.info(
            "recovering",
            done=f"{percent(now)}%",
            logs=f"{now.logs_done}/{now.logs_total}",
            bytes=now.done,
            replayed=now.replayed,
        )
        await trio.sleep(LINE_EVERY)


async def _show_bar(store: Store) -> None:
    # Here and not above: most starts have no bar to draw and need not load the brush.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("recovering"),
        BarColumn(),
        TextColumn("{task.percentage:.0f}%  {task.fields[logs]} logs"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("recovering", total=100, logs="")
        while True:
            now = store.progress()
            logs = f"{now.logs_done}/{now.logs_total}"
            bar.update(task, completed=percent(now), logs=logs)
            await trio.sleep(FRAME)
