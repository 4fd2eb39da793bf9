"""The same in the terminal: tables, what was found, and a bar while Spark works."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ottermq.audit.findings import Severity
from ottermq.audit.outcome import Outcome, Sheet
from ottermq.audit.report.words import cell, plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_FINDINGS = 20
MOST_ROWS = 40
COLOURS = {Severity.VIOLATION: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
LOOK_EVERY = 0.25  # seconds
PIPE_WIDTH = 200  # whoever reads a file or pipe wants whole lines


def show(outcome: Outcome) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    for sheet in outcome.sheets:
        _show_sheet(console, sheet)
    order = list(Severity)
    found = sorted(outcome.findings, key=lambda each: order.index(each.severity))
    for each in found[:MOST_FINDINGS]:
        colour = COLOURS[each.severity]
        where = f"{each.queue}: " if each.queue else ""
        word = f"[{colour}]{each.severity.value}[/] {escape(each.kind)}"
        console.print(f"{word}  {escape(where + each.message)}", soft_wrap=True)
    if len(found) > MOST_FINDINGS:
        console.print(f"… and {plural(len(found) - MOST_FINDINGS, 'more finding')}")
    numbers = [f"{escape(cell(value))} {escape(name)}" for name, value in outcome.headline.items()]
    counts = [
        plural(count, severity.value)
        for severity in Severity
        if (count := sum(each.severity is severity for each in found))
    ]
    verdict = f"[bold]{', '.join(counts)}[/]" if counts else "[bold green]clean[/]"
    console.print(f"{', '.join(numbers)}: {verdict}", soft_wrap=True)


def _show_sheet(console: Console, sheet: Sheet) -> None:
    if not sheet.rows:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for at, name in enumerate(sheet.columns):
        numeric = any(isinstance(row[at], int | float) for row in sheet.rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in sheet.rows[:MOST_ROWS]:
        table.add_row(*(escape(cell(value)) for value in row))
    console.print(table)
    if len(sheet.rows) > MOST_ROWS:
        console.print(f"… and {plural(len(sheet.rows) - MOST_ROWS, 'more row')}")
    console.print()


@contextmanager
def waiting(what: str, quiet: bool) -> Iterator[None]:
    """While there is nothing to count yet."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


@contextmanager
def progress(spark: "SparkSession", what: str, quiet: bool) -> Iterator[None]:
    """A bar of the tasks that Spark has done, of those it knows of so far."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    done = threading.Event()
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        watcher = threading.Thread(target=_watch, args=(spark, what, bar, done), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _watch(spark: "SparkSession", what: str, bar: Progress, done: threading.Event) -> None:
    task = bar.add_task(f"{what}: Spark at work", total=None)
    tracker = spark.sparkContext.statusTracker()
    seen: dict[int, tuple[int, int]] = {}
    while not done.wait(LOOK_EVERY):
        for stage in tracker.getActiveStageIds():
            if info := tracker.getStageInfo(stage):
                seen[stage] = info.numCompletedTasks, info.numTasks
        for stage in seen.keys() - set(tracker.getActiveStageIds()):
            seen[stage] = seen[stage][1], seen[stage][1]
        if seen:
            counts = [sum(column) for column in zip(*seen.values(), strict=True)]
            bar.update(task, completed=counts[0], total=counts[1])
