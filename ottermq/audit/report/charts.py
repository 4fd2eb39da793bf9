"""Charts as SVG, drawn to be read: few lines, round numbers, names beside what they name.

Colours are classes (page.py gives them their values, light and dark). What a shape stands for is in
its <title>: browsers show it when the pointer rests there, screen readers say it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from html import escape

from ottermq.audit.findings import Finding, Severity
from ottermq.audit.outcome import Bars, Lines
from ottermq.audit.report import axes
from ottermq.audit.report.formatting import in_unit, moment, plural, queue_label

MOST_DOTS = 60  # of a line: more would hide it
APART = 3  # pixels between two points of a line
WIDTH = 960
MOST_BARS = 20
MOST_LANES = 12
BINS = 120  # of a time line: findings closer than this become one mark
COLOURS = 8
ROW = 34
NAME_WIDTH = 190  # left of bars and lanes
NAME_LENGTH = 26


def chart(drawn: Bars | Lines) -> str:
    return bars(drawn) if isinstance(drawn, Bars) else lines(drawn)


# -- stacked bars


def bars(drawn: Bars) -> str:
    drawn = _longest(drawn)
    totals = [sum(values) for values in zip(*drawn.series.values(), strict=True)]
    ticks = axes.round_steps(max(totals, default=0), drawn.unit)
    left, right, top = NAME_WIDTH, 84, 10
    bottom = top + ROW * len(drawn.labels)
    inner = WIDTH - left - right
    parts = _grid(ticks, drawn.unit, left, inner, top, bottom)
    for row, label in enumerate(drawn.labels):
        y = top + ROW * row + ROW / 2
        parts.append(_name(label, left - 12, y))
        x = float(left)
        for number, (name, values) in enumerate(drawn.series.items()):
            width = values[row] / ticks[-1] * inner
            if width <= 0:
                continue
            told = f"{label}, {name}: {in_unit(values[row], drawn.unit)}"
            # A hair's breadth of the page between two parts of a bar keeps them apart.
            parts.append(
                f'<rect class="{_colour(number, drawn)}" x="{x:.1f}" y="{y - 9:.1f}" '
                f'width="{max(width - 1.5, 1):.1f}" height="18" rx="2.5">{_title(told)}</rect>'
            )
            x += width
        total = in_unit(totals[row], drawn.unit)
        parts.append(f'<text class="value" x="{x + 8:.1f}" y="{y + 4:.1f}">{total}</text>')
    return _svg(parts, bottom + 28, drawn.title)


def _longest(drawn: Bars) -> Bars:
    """The largest ones, and the rest as one."""
    if len(drawn.labels) <= MOST_BARS:
        return drawn
    totals = [sum(values) for values in zip(*drawn.series.values(), strict=True)]
    order = sorted(range(len(totals)), key=lambda at: -totals[at])
    kept, rest = order[: MOST_BARS - 1], order[MOST_BARS - 1 :]
    series = {
        name: [*(values[at] for at in kept), sum(values[at] for at in rest)]
        for name, values in drawn.series.items()
    }
    labels = [*(drawn.labels[at] for at in kept), f"{len(rest):,} others"]
    return Bars(drawn.title, drawn.unit, labels, series, drawn.ordered, drawn.note)


def _grid(
    ticks: Sequence[float], unit: str, left: float, inner: float, top: float, bottom: float
) -> list[str]:
    parts = []
    for tick in ticks:
        x = left + tick / ticks[-1] * inner
        parts.append(
            f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'
            f'<text class="tick" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">'
            f"{in_unit(tick, unit)}</text>"
        )
    return parts


# -- lines over time


def lines(drawn: Lines) -> str:
    if not drawn.times:
        return ""
    largest = max(
        (v for values in drawn.series.values() for v in values if v is not None), default=0
    )
    ticks = axes.round_steps(largest, drawn.unit)
    left, right, top, height = 70, 150, 14, 240
    bottom = top + height
    x_of = _scale(drawn.times[0], drawn.times[-1], left, WIDTH - left - right)

    def y_of(value: float) -> float:
        return bottom - value / ticks[-1] * height

    parts = [
        f'<line class="grid" x1="{left}" y1="{y_of(tick):.1f}" x2="{WIDTH - right}" '
        f'y2="{y_of(tick):.1f}"/><text class="tick" x="{left - 10}" y="{y_of(tick) + 4:.1f}" '
        f'text-anchor="end">{in_unit(tick, drawn.unit)}</text>'
        for tick in ticks
    ]
    parts += _time_axis(drawn.times[0], drawn.times[-1], x_of, bottom)
    if drawn.now and drawn.times[0] < drawn.now < drawn.times[-1]:
        x = x_of(drawn.now)
        parts.append(
            f'<line class="now" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'
            f'<text class="tick" x="{x + 6:.1f}" y="{top + 10}">now</text>'
        )
    ends: list[tuple[float, int, str]] = []
    for number, (name, values) in enumerate(drawn.series.items()):
        points = [(at, v) for at, v in zip(drawn.times, values, strict=True) if v is not None]
        if points:
            thin = _thinned(points, x_of)
            parts += _line(thin, number, name, drawn, x_of, y_of, only=len(drawn.series) == 1)
            ends.append((y_of(points[-1][1]), number, name))
    parts += _end_names(ends, WIDTH - right + 10)
    return _svg(parts, bottom + 30, drawn.title)


def _thinned(
    points: Sequence[tuple[datetime, float]], x_of: Callable[[datetime], float]
) -> list[tuple[datetime, float]]:
    """Years of hours: of those that would lie upon each other the last, and the very first."""
    columns = {int(x_of(at) // APART): (at, value) for at, value in points}
    thin = list(columns.values())
    return thin if thin[0] == points[0] else [points[0], *thin]


def _line(
    points: Sequence[tuple[datetime, float]],
    number: int,
    name: str,
    drawn: Lines,
    x_of: Callable[[datetime], float],
    y_of: Callable[[float], float],
    only: bool,
) -> list[str]:
    known = [each for each in points if drawn.now is None or each[0] <= drawn.now]
    ahead = points[max(len(known) - 1, 0) :] if len(known) < len(points) else []
    colour = f"c{number % COLOURS}"

    def path(some: Iterable[tuple[datetime, float]]) -> str:
        return "M" + " L".join(f"{x_of(at):.1f},{y_of(value):.1f}" for at, value in some)

    parts = []
    if only and len(known) > 1:
        first, last = x_of(known[0][0]), x_of(known[-1][0])
        parts.append(
            f'<path class="area {colour}" d="{path(known)} L{last:.1f},{y_of(0):.1f} '
            f'L{first:.1f},{y_of(0):.1f} Z"/>'
        )
    for some, kind in ((known, "line"), (ahead, "line ahead")):
        if len(some) > 1:
            parts.append(f'<path class="{kind} {colour}" d="{path(some)}"/>')
    dot = "dot" if len(points) <= MOST_DOTS else "touch"
    for at, value in points:
        told = f"{name}, {moment(at)}: {in_unit(value, drawn.unit)}"
        parts.append(
            f'<circle class="{dot} {colour}" cx="{x_of(at):.1f}" cy="{y_of(value):.1f}" r="2.5">'
            f"{_title(told)}</circle>"
        )
    return parts


def _end_names(ends: list[tuple[float, int, str]], x: float) -> list[str]:
    """Beside the ends of their lines, pushed apart where they would overlap."""
    parts, lowest = [], -20.0
    for y, number, name in sorted(ends):
        lowest = max(y, lowest + 16)
        parts.append(
            f'<text class="endname c{number % COLOURS}" x="{x:.1f}" y="{lowest + 4:.1f}">'
            f"{escape(_cut(name, 16))}</text>"
        )
    return parts


# -- findings on a time line


def timeline(findings: Sequence[Finding]) -> str:
    """One lane per queue; a large mark stands for many findings. Empty: none of them has a time."""
    timed = [(each.time, each) for each in findings if each.time is not None]
    if not timed:
        return ""
    first, last = min(at for at, _ in timed), max(at for at, _ in timed)
    margin = max((last - first) / 30, timedelta(seconds=1))
    first, last = first - margin, last + margin
    lanes = Counter(_lane(each) for _, each in timed)
    names = [name for name, _ in lanes.most_common(MOST_LANES)]
    left, right, top = NAME_WIDTH, 24, 8
    bottom = top + ROW * len(names)
    x_of = _scale(first, last, left, WIDTH - left - right)
    parts = []
    for row, name in enumerate(names):
        y = top + ROW * row + ROW / 2
        parts.append(_name(name, left - 12, y))
        parts.append(f'<line class="lane" x1="{left}" y1="{y}" x2="{WIDTH - right}" y2="{y}"/>')
    parts += _time_axis(first, last, x_of, bottom)
    marks: dict[tuple[int, int], list[Finding]] = defaultdict(list)
    for at, each in timed:
        if _lane(each) in names:
            place = int((at - first) / (last - first) * BINS)
            marks[names.index(_lane(each)), place].append(each)
    for (row, _), some in sorted(marks.items()):
        parts.append(_mark(some, x_of, top + ROW * row + ROW / 2))
    return _svg(parts, bottom + 30, "findings over time")


def _lane(finding: Finding) -> str:
    if finding.queue is None:
        return "data directory"
    return queue_label(finding.vhost or "/", finding.queue)


def _mark(some: Sequence[Finding], x_of: Callable[[datetime], float], y: float) -> str:
    worst = min(some, key=lambda each: list(Severity).index(each.severity))
    assert worst.time
    radius = min(5 + 1.6 * (len(some) - 1) ** 0.5, 14)
    told = f"{moment(worst.time)}  {worst.message}"
    if len(some) > 1:
        told += f"\nand {plural(len(some) - 1, 'more finding')}"
    return (
        f'<circle class="mark {worst.severity.value}" cx="{x_of(worst.time):.1f}" cy="{y:.1f}" '
        f'r="{radius:.1f}">{_title(told)}</circle>'
    )


# -- parts


def _scale(
    first: datetime, last: datetime, left: float, inner: float
) -> Callable[[datetime], float]:
    span = (last - first).total_seconds() or 1.0
    return lambda at: left + (at - first).total_seconds() / span * inner


def _time_axis(
    first: datetime, last: datetime, x_of: Callable[[datetime], float], y: float
) -> list[str]:
    return [
        f'<line class="notch" x1="{x_of(at):.1f}" y1="{y}" x2="{x_of(at):.1f}" y2="{y + 5}"/>'
        f'<text class="tick" x="{x_of(at):.1f}" y="{y + 20}" text-anchor="middle">{name}</text>'
        for at, name in axes.time_steps(first, last)
    ]


def _name(name: str, x: float, y: float) -> str:
    return (
        f'<text class="name" x="{x}" y="{y + 4:.1f}" text-anchor="end">'
        f"{escape(_cut(name, NAME_LENGTH))}{_title(name)}</text>"
    )


def _cut(name: str, length: int) -> str:
    return name if len(name) <= length else f"{name[: length - 1]}…"


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>"


def _colour(number: int, drawn: Bars) -> str:
    """Bands that have an order get shades of one colour, the rest a colour each."""
    if not drawn.ordered:
        return f"c{number % COLOURS}"
    most = max(len(drawn.series) - 1, 1)
    return f"o{round(number / most * (COLOURS - 1))}"


def legend(drawn: Bars) -> str:
    if len(drawn.series) < 2:
        return ""
    items = (
        f'<li><i class="{_colour(number, drawn)}"></i>{escape(name)}</li>'
        for number, name in enumerate(drawn.series)
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _svg(parts: Sequence[str], height: float, title: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )
