"""The report in the terminal: tables, findings, and a bar while Spark works."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ottermq.audit.findings import OfKind, Severity, grouped
from ottermq.audit.outcome import Outcome, ReportTable
from ottermq.audit.report.files import Run
from ottermq.audit.report.formatting import cell, extent, place, plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_QUEUES = 20  # of a kind
MOST_FINDINGS = 3  # of a kind and queue; the page has more, summary.json all
MOST_ROWS = 40
COLOURS = {Severity.VIOLATION: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
LOOK_EVERY = 0.25  # seconds
PIPE_WIDTH = 200  # a file or pipe gets whole lines


def show(run: Run, outcome: Outcome) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    wide = max(map(len, run.facts), default=0)
    for name, text in run.facts.items():
        console.print(f"[dim]{escape(name):<{wide}}[/]  {escape(text)}", soft_wrap=True)
    if run.facts:
        console.print()
    for group in grouped(outcome.findings):
        _show_kind(console, run, group)
    for table in outcome.report_tables:
        _show_table(console, table)
    numbers = [f"{escape(cell(value))} {escape(name)}" for name, value in outcome.headline.items()]
    console.print(f"{', '.join(numbers)}: {_verdict(outcome)}", soft_wrap=True)


def _verdict(outcome: Outcome) -> str:
    counts = [
        plural(count, severity.value)
        for severity in Severity
        if (count := sum(each.severity is severity for each in outcome.findings))
    ]
    if counts:
        return f"[bold]{', '.join(counts)}[/]"
    return f"[bold]{escape(outcome.verdict)}[/]" if outcome.verdict else "[bold green]clean[/]"


def _show_kind(console: Console, run: Run, group: OfKind) -> None:
    """What it means and what to do, once; then queue by queue."""
    colour, known = COLOURS[group.severity], run.kinds.get(group.kind)
    means = f": {known.means}" if known else ""
    console.print(
        f"[{colour}]{group.severity.value}[/] [bold]{escape(group.kind)}[/]{escape(means)}",
        soft_wrap=True,
    )
    if known:
        console.print(f"  [dim]what to do:[/] {escape(known.do)}", soft_wrap=True)
    for queue in group.queues[:MOST_QUEUES]:
        for each in queue.findings[:MOST_FINDINGS]:
            where = " ".join(filter(None, (place(each), extent(each))))
            line = f"{where}: {each.message}" if where else each.message
            console.print(f"  {escape(line)}", soft_wrap=True)
        if len(queue.findings) > MOST_FINDINGS:
            more = plural(len(queue.findings) - MOST_FINDINGS, "more finding")
            console.print(f"  … and {more} of this kind there")
    if len(group.queues) > MOST_QUEUES:
        more = plural(len(group.queues) - MOST_QUEUES, "more queue")
        console.print(f"  … and {more}, see the report")
    console.print()


def _show_table(console: Console, shown: ReportTable) -> None:
    if not shown.rows:
        return
    console.print(f"[bold]{escape(shown.title)}[/]")
    table = Table(box=None, header_style="bold", pad_edge=False)
    for at, name in enumerate(shown.columns):
        numeric = any(isinstance(row[at], int | float) for row in shown.rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in shown.rows[:MOST_ROWS]:
        table.add_row(*(escape(cell(value)) for value in row))
    console.print(table)
    if len(shown.rows) > MOST_ROWS:
        console.print(f"… and {plural(len(shown.rows) - MOST_ROWS, 'more row')}")
    if shown.note:
        console.print(f"[dim]{escape(shown.note)}[/]", soft_wrap=True)
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
