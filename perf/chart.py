"""The comparison as a picture for the README: plain SVG, readable on light and on dark pages.

A row a scenario, a bar a contestant, on a logarithmic scale of messages a second: OtterMQ, its
peers and the ceilings lie orders of magnitude apart.
"""

import math
from collections.abc import Iterator
from html import escape

from perf.report import CONTESTANTS, UNSEEN, Outcome, Report, quantity

WIDTH, LEFT, RIGHT, TOP = 960, 330, 190, 84
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


def draw(report: Report) -> str:
    """Scenarios with a rate; latencies are another unit, and stay in the table."""
    drawn = [each for each in report.outcomes if any("rate" in it for it in each.found.values())]
    rates = [it["rate"] for each in drawn for it in each.found.values() if it.get("rate", 0) > 0]
    low = math.floor(math.log10(min(rates, default=10)) - 0.3)
    high = max(math.ceil(math.log10(max(rates, default=10))), low + 1)
    height = TOP + sum(map(_height, drawn)) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        f' width="{WIDTH}" height="{height}" role="img">',
        "<title>Messages a second: OtterMQ beside its peers</title>",
        f"<style>{STYLE}</style>",
        '<text class="title" x="16" y="28">Messages a second, more is better</text>',
        *_legend(drawn),
        *_grid(low, high, height),
    ]
    y = TOP
    for outcome in drawn:
        lines += _group(outcome, y, low, high)
        y += _height(outcome)
    note = f"medians of {report.rounds} × {report.seconds:g} s, {report.machine}, {report.taken}"
    lines.append(f'<text class="small" x="16" y="{height - 8}">{escape(note)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _height(outcome: Outcome) -> int:
    return len(list(_bars(outcome))) * (BAR + GAP) + GROUP


def _bars(outcome: Outcome) -> Iterator[tuple[str, float]]:
    for contestant in CONTESTANTS:
        rate = outcome.found.get(contestant, {}).get("rate", 0)
        if rate > 0 and contestant not in UNSEEN:
            yield contestant, rate


def _x(rate: float, low: int, high: int) -> float:
    share = (math.log10(rate) - low) / (high - low)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _legend(drawn: list[Outcome]) -> Iterator[str]:
    there = {contestant for outcome in drawn for contestant, _ in _bars(outcome)}
    x = 16
    for contestant, name in CONTESTANTS.items():
        if contestant in there:
            yield f'<rect class="{contestant}" x="{x}" y="40" width="12" height="12" rx="2"/>'
            yield f'<text x="{x + 18}" y="51">{name}</text>'
            x += 40 + 8 * len(name)


def _grid(low: int, high: int, height: int) -> Iterator[str]:
    for power in range(low, high + 1):
        x = _x(10.0**power, low, high)
        bottom = height - 28
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{bottom}"/>'
        label = quantity("rate", 10.0**power)
        yield f'<text class="small" x="{x:.1f}" y="{TOP - 9}" text-anchor="middle">{label}</text>'


def _group(outcome: Outcome, y: int, low: int, high: int) -> Iterator[str]:
    bars = list(_bars(outcome))
    middle = y + len(bars) * (BAR + GAP) / 2 + 4
    title = escape(outcome.title)
    yield f'<text x="{LEFT - 12}" y="{middle:.1f}" text-anchor="end">{title}</text>'
    rabbit = outcome.found.get("rabbitmq", {}).get("rate", 0)
    for contestant, rate in bars:
        end = max(_x(rate, low, high), LEFT + 2)
        label = quantity("rate", rate)
        if contestant == "ottermq" and rabbit:
            label += f" ({rate / rabbit:.3g} × RabbitMQ)"
        yield (
            f'<rect class="{contestant}" x="{LEFT}" y="{y}" width="{end - LEFT:.1f}"'
            f' height="{BAR}" rx="2"/>'
        )
        yield f'<text class="small" x="{end + 6:.1f}" y="{y + BAR - 3}">{label}</text>'
        y += BAR + GAP
