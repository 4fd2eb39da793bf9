"""The results of a comparison: medians of figures, the bars they are held to, JSON and a table.

A figure belongs to a contestant (`ottermq`, `rabbitmq`, `quorum`, `relay`, `durable`) and has a
name (`rate`, `p50`, ...). A bar compares one figure of ours with one of another, of ourselves, or
with a number somebody measured elsewhere.
"""

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

CONTESTANTS = {
    "ottermq": "OtterMQ",
    "before": "before",
    "rabbitmq": "RabbitMQ",
    "quorum": "RabbitMQ quorum",
    "copying": "OtterMQ copying",
    "relay": "ceiling",
    "durable": "durable ceiling",
    "kafka": "Apache Kafka",
    "kafka-flush": "Apache Kafka, flushing",
}
Figures = dict[str, float]
# Figures that only the JSON has, not the table and the picture.
UNSEEN = {"copying"}
ASIDE = {"per CPU second", "load CPU", "peak MiB", "own MiB", "start s"}
NO_LESS = 0.97  # of what it was before


@dataclass(frozen=True)
class Bar:
    """Our `figure` is at least (`most`: at most) `factor` times the peer's `base`."""

    figure: str
    peer: str
    factor: float
    most: bool = False
    base: str = ""  # the same figure, if not given
    elsewhere: float = 0  # measured on another machine, so that only the number is known

    def judge(self, found: dict[str, Figures]) -> "Verdict":
        ours = found.get("ottermq", {}).get(self.figure)
        base = self.elsewhere or found.get(self.peer, {}).get(self.base or self.figure)
        ratio = ours / base if ours is not None and base else None
        met = ratio is not None and (ratio <= self.factor if self.most else ratio >= self.factor)
        return Verdict(self.text(), ratio, met)

    def text(self) -> str:
        peer = CONTESTANTS.get(self.peer, self.peer)
        if self.peer == "ottermq":
            peer = self.base
        elif self.elsewhere:
            peer += f" ({quantity(self.figure, self.elsewhere)})"
        sign = "≤" if self.most else "≥"
        what = "" if self.figure == "rate" else f"{self.figure} "
        return f"{what}{sign} {self.factor:.3g} × {peer}"


@dataclass(frozen=True)
class Verdict:
    bar: str
    ratio: float | None  # None: one of the two wasn't measured
    met: bool


@dataclass(frozen=True)
class Outcome:
    """One scenario's."""

    name: str
    title: str
    found: dict[str, Figures]
    verdicts: list[Verdict]
    rounds: dict[str, list[Figures]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    taken: str
    machine: str
    rounds: int
    seconds: float
    outcomes: list[Outcome]

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n")


def beside_before(found: dict[str, Figures]) -> list[Verdict]:
    """Each figure of ours held to the same one of an earlier version: no scenario may sink."""
    figures = (name for name in found.get("ottermq", {}) if name not in ASIDE)
    bars = (
        Bar(name, "before", 1 / NO_LESS if is_latency(name) else NO_LESS, most=is_latency(name))
        for name in figures
    )
    return [bar.judge(found) for bar in bars]


def is_latency(figure: str) -> bool:
    return figure.startswith("p") and figure[1:].isdigit()


def read(path: Path) -> Report:
    found: dict[str, Any] = json.loads(path.read_text())
    outcomes = [
        Outcome(**{**each, "verdicts": [Verdict(**verdict) for verdict in each["verdicts"]]})
        for each in found.pop("outcomes")
    ]
    return Report(**found, outcomes=outcomes)


def quantity(figure: str, value: float) -> str:
    """As people say it: 1.24 M/s, 18.6 k/s, 830 µs."""
    if is_latency(figure):
        return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.0f} µs"
    if figure.endswith(" MiB"):
        return f"{value:.0f} MiB"
    if figure.endswith(" s"):
        return f"{value:.2g} s"
    for unit, size in (("M/s", 1e6), ("k/s", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} /s"


def show(report: Report, console: Console | None = None) -> None:
    title = f"Medians of {report.rounds} × {report.seconds:g} s on {report.machine}"
    table = Table(title=title, show_lines=True)
    table.add_column("what")
    there = {contestant for outcome in report.outcomes for contestant in outcome.found}
    there |= {contestant for outcome in report.outcomes for contestant in outcome.errors}
    seen = [contestant for contestant in CONTESTANTS if contestant in there - UNSEEN]
    for contestant in seen:
        table.add_column(CONTESTANTS[contestant], justify="right")
    table.add_column("bars")
    for outcome in report.outcomes:
        cells = [_figures(outcome, contestant) for contestant in seen]
        table.add_row(outcome.title, *cells, _verdicts(outcome))
    width = None if sys.stdout.isatty() else 160
    (console or Console(width=width)).print(table)


def _figures(outcome: Outcome, contestant: str) -> str:
    if contestant in outcome.errors:
        return "failed"
    figures = outcome.found.get(contestant, {})
    shown = {name: value for name, value in figures.items() if name not in ASIDE}
    if set(shown) == {"rate"}:
        return quantity("rate", shown["rate"])
    return "\n".join(f"{name} {quantity(name, value)}" for name, value in shown.items())


def _verdicts(outcome: Outcome) -> Text:
    lines = Text()
    for verdict in outcome.verdicts:
        mark, style = ("✓", "green") if verdict.met else ("✗", "red")
        if verdict.ratio is None:
            mark, style = "–", "dim"
        got = "not measured" if verdict.ratio is None else f"{verdict.ratio:.3g}"
        lines.append(f"{mark} {got}", style)
        lines.append(f"  {verdict.bar}\n")
    for contestant, error in outcome.errors.items():
        lines.append(f"{CONTESTANTS[contestant]}: {error}\n", "red")
    lines.rstrip()
    return lines
