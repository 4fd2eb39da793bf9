"""The README's figures: `make record` takes the last whole run of each measurement from build/perf
into docs/bench/, and makes README's tables and the pictures from what lies there. A test holds
them to it."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perf import amqp_bench, chart, kafka_bench, report, tables
from perf.comparison import Comparison
from perf.log_bench import Result
from perf.programs import BUILD, ROOT

RECORDED = ROOT / "docs" / "bench"
README = ROOT / "README.md"
COMPARISONS = {
    "amqp": (amqp_bench.AMQP, ("OtterMQ", "RabbitMQ", "×", "of the durable relay")),
    "kafka": (kafka_bench.KAFKA, ("OtterMQ", "Apache Kafka", "×")),
}


@dataclass(frozen=True)
class Line:
    """One of the log's, of one or more results: their names, and the form of a figure."""

    label: str
    results: tuple[str, ...]
    form: str = "{:.2f}"


LOG = (
    Line(
        "durable 1 KiB appends into 1 / 100 / 10,000 logs, of a loop of 64 KiB writes + fdatasync",
        tuple(f"durable 1 KiB into {logs} logs" for logs in ("1", "100", "10,000")),
    ),
    Line("async appends, of raw page-cache writes", ("async 1 KiB appends",)),
    Line("cold sequential read with every CRC checked, of `cat`", ("sequential read, cold",)),
    Line("look-ups by offset", ("point look-ups by offset",), "{:.1f} M/s"),
    Line(
        "memory (RssAnon) with 10 M × 100 B in a queue", ("memory with 10 M × 100 B",), "{:.0f} MiB"
    ),
    Line(
        "ready after SIGKILL with 10 M × 100 B / 1 M × 1 KiB",
        ("ready after SIGKILL, 10 M × 100 B", "ready after SIGKILL, 1 M × 1024 B"),
        "{:.2f} s",
    ),
)


def log_results(path: Path) -> dict[str, Result]:
    listed = json.loads(path.read_text())["results"]
    return {each["name"]: Result(**each) for each in listed}


def log_table(path: Path) -> str:
    found = log_results(path)
    lines = ["| | ratio or figure |", "|---|--:|"]
    for line in LOG:
        figures = (line.form.format(found[name].figure) for name in line.results)
        lines.append(f"| {line.label} | {' / '.join(figures)} |")
    return "\n".join(lines) + "\n"


def missing(name: str, path: Path) -> list[str]:
    """The README's rows that the run lacks: it was one of some scenarios or brokers only."""
    if name == "log":
        found = set(log_results(path))
        return [each for line in LOG for each in line.results if each not in found]
    outcomes = {outcome.name: outcome.found for outcome in report.read(path).outcomes}
    comparison, _ = COMPARISONS[name]
    return [
        f"{row.scenario} ({row.peer})"
        for row in comparison.rows
        if row.peer not in outcomes.get(row.scenario, {})
    ]


def tables_of(folder: Path) -> Iterator[tuple[str, str]]:
    for name, (comparison, columns) in COMPARISONS.items():
        run = report.read(folder / f"{name}.json")
        taken = f"{run.taken[:10]}, medians of {run.rounds} × {run.seconds:g} s on {run.machine}"
        yield name, f"({taken})\n\n" + tables.markdown(run, comparison.rows, columns)
    yield "log", log_table(folder / "log.json")


def readme(text: str, folder: Path = RECORDED) -> str:
    """The text with each table between its two marks as the recorded run gives it."""
    for name, table in tables_of(folder):
        between = re.compile(rf"(?<=<!-- {name}: make record -->\n\n)[^<]*(?=\n<!-- end -->)")
        parts = between.split(text)
        assert len(parts) == 2, f"README.md has {len(parts) - 1} places for the table {name}"
        text = table.join(parts)
    return text


def picture(comparison: Comparison, folder: Path = RECORDED) -> str:
    run = report.read(folder / f"{comparison.name}.json")
    return chart.draw(run, comparison.rows, comparison.unit)


def picture_path(name: str) -> Path:
    return ROOT / "docs" / f"{name}-bench.svg"


def main(tell: Callable[[str], None] = print) -> None:
    for name in (*COMPARISONS, "log"):
        run = BUILD / f"{name}_bench.json"
        if not run.exists():
            continue
        if lacking := missing(name, run):
            sys.exit(f"{run.relative_to(ROOT)} isn't a whole run: {', '.join(lacking)} are missing")
        (RECORDED / f"{name}.json").write_text(run.read_text())
        tell(f"recorded: {run.relative_to(ROOT)}")
    README.write_text(readme(README.read_text()))
    for name, (comparison, _) in COMPARISONS.items():
        picture_path(name).write_text(picture(comparison))


if __name__ == "__main__":
    main()
