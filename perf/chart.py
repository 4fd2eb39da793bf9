"""The comparison as a picture for the README: plain SVG, readable on light and on dark pages.

One row per scenario, one bar per contestant, on a logarithmic scale of messages per second:
OtterMQ, its peers and the ceilings lie orders of magnitude apart.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from perf.report import CONTESTANTS, UNSEEN, Outcome, Report, quantity
from perf.tables import Row, present, ratio

SCALE, RIGHT, TOP = 440, 190, 84  # RIGHT: for the figure behind a bar
LETTER = 7.5  # pixels, of a label in the widest font there is for it
BAR, GAP, GROUP = 14, 3, 16
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 17px; font-weight: 600 }
  .small { font-size: 11px; fill: #59636e }
  .grid { stroke: #d1d9e0; stroke-width: 1 }
  .ottermq { fill: #0969da } .rabbitmq { fill: #d4741c } .quorum { fill: #e8a868 }
  .relay { fill: #c4ccd4 } .durable { fill: #9aa5b1 }
  .kafka { fill: #57606a } .kafka-flush { fill: #8c959f }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .small { fill: #9198a1 } .grid { stroke: #3d444d }
    .ottermq { fill: #4493f8 } .rabbitmq { fill: #e0823d } .quorum { fill: #a8622b }
    .relay { fill: #4b535d } .durable { fill: #6b7682 }
    .kafka { fill: #9198a1 } .kafka-flush { fill: #6e7681 }
  }
"""


@dataclass(frozen=True)
class Axis:
    """Where a rate lies: behind `left` pixels of labels, between 10^`low` and 10^`high`."""

    left: int
    low: int
    high: int

    def x(self, rate: float) -> float:
        share = (math.log10(rate) - self.low) / (self.high - self.low)
        return self.left + share * SCALE


def draw(report: Report, rows: tuple[Row, ...], unit: str) -> str:
    """Rows with a rate; latencies are another unit, and stay in the table."""
    drawn = [(row, outcome) for row, outcome in present(report, rows) if row.drawn]
    rates = [rate for row, outcome in drawn for _, rate in _bars(row, outcome)]
    low = math.floor(math.log10(min(rates, default=10)) - 0.3)
    high = max(math.ceil(math.log10(max(rates, default=10))), low + 1)
    longest = max((len(row.label) for row, _ in drawn), default=0)
    axis = Axis(round(28 + LETTER * longest), low, high)
    width = axis.left + SCALE + RIGHT
    height = TOP + sum(_height(*each) for each in drawn) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}" role="img">',
        f"<title>{unit} per second: OtterMQ and its peers</title>",
        f"<style>{STYLE}</style>",
        f'<text class="title" x="16" y="28">{unit} per second, more is better</text>',
        *_legend(drawn),
        *_grid(axis, height),
    ]
    y = TOP
    for row, outcome in drawn:
        lines += _group(row, outcome, y, axis)
        y += _height(row, outcome)
    note = f"medians of {report.rounds} × {report.seconds:g} s, {report.machine}, {report.taken}"
    lines.append(f'<text class="small" x="16" y="{height - 8}">{escape(note)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _height(row: Row, outcome: Outcome) -> int:
    lines = len(list(_bars(row, outcome))) + len(_failed(outcome))
    return max(lines, 1) * (BAR + GAP) + GROUP


def _bars(row: Row, outcome: Outcome) -> Iterator[tuple[str, float]]:
    for contestant in CONTESTANTS:
        rate = outcome.found.get(contestant, {}).get(row.figure, 0)
        if rate > 0 and contestant not in UNSEEN:
            yield contestant, rate


def _failed(outcome: Outcome) -> list[str]:
    return [name for name in CONTESTANTS if name in outcome.errors and name not in UNSEEN]


def _legend(drawn: list[tuple[Row, Outcome]]) -> Iterator[str]:
    there = {contestant for each in drawn for contestant, _ in _bars(*each)}
    x = 16
    for contestant, name in CONTESTANTS.items():
        if contestant in there:
            yield f'<rect class="{contestant}" x="{x}" y="40" width="12" height="12" rx="2"/>'
            yield f'<text x="{x + 18}" y="51">{name}</text>'
            x += 40 + 8 * len(name)


def _grid(axis: Axis, height: int) -> Iterator[str]:
    for power in range(axis.low, axis.high + 1):
        x = axis.x(10.0**power)
        bottom = height - 28
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{bottom}"/>'
        label = quantity("rate", 10.0**power)
        yield f'<text class="small" x="{x:.1f}" y="{TOP - 9}" text-anchor="middle">{label}</text>'


def _group(row: Row, outcome: Outcome, y: int, axis: Axis) -> Iterator[str]:
    middle = y + (_height(row, outcome) - GROUP) / 2 + 4
    yield (
        f'<text x="{axis.left - 12}" y="{middle:.1f}" text-anchor="end">{escape(row.label)}</text>'
    )
    for contestant, rate in _bars(row, outcome):
        end = max(axis.x(rate), axis.left + 2)
        label = quantity("rate", rate)
        if contestant == "ottermq" and (times := ratio(row, outcome)):
            label += f" ({times} × {CONTESTANTS[row.peer].split(',')[0]})"
        yield (
            f'<rect class="{contestant}" x="{axis.left}" y="{y}" width="{end - axis.left:.1f}"'
            f' height="{BAR}" rx="2"/>'
        )
        yield f'<text class="small" x="{end + 6:.1f}" y="{y + BAR - 3}">{label}</text>'
        y += BAR + GAP
    for contestant in _failed(outcome):  # a row without a bar would say nothing
        label = f"{CONTESTANTS[contestant]} failed"
        yield f'<text class="small" x="{axis.left + 6}" y="{y + BAR - 3}">{label}</text>'
        y += BAR + GAP
