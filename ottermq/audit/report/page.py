"""The report as one HTML file: no script, nothing fetched, light and dark."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from ottermq.audit.findings import Finding, OfKind, Severity, grouped
from ottermq.audit.outcome import Bars, Lines, Outcome, ReportTable
from ottermq.audit.report import charts
from ottermq.audit.report.files import Run
from ottermq.audit.report.formatting import cell, moment, plural, vhost_name
from ottermq.audit.report.style import STYLE

MOST_FINDINGS = 200  # of a kind; Parquet and JSON have all of them
MOST_SEGMENTS = 6  # of a finding
MOST_ROWS = 500


def page(run: Run, outcome: Outcome) -> str:
    parts = [
        _head(run, outcome),
        _facts(run.facts),
        *(_kind(run, each) for each in grouped(outcome.findings)),
        _headline(outcome.headline),
        _timeline(outcome.findings),
        *(_chart(each) for each in outcome.charts),
        *(_report_table(each) for each in outcome.report_tables),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(run.job)} audit of {escape(run.data)}</title>"
        f"<style>{STYLE}</style></head><body><main>{''.join(parts)}{_foot(run)}</main></body></html>"
    )


def _head(run: Run, outcome: Outcome) -> str:
    counts = Counter(each.severity for each in outcome.findings)
    worst = next((each for each in Severity if counts[each]), None)
    if worst is None and outcome.verdict:
        state, verdict = "note", escape(outcome.verdict)
    elif worst is None:
        state, verdict = "clean", "Clean: nothing was found"
    else:
        state = worst.value
        verdict = ", ".join(plural(counts[each], each.value) for each in Severity if counts[each])
    return (
        f'<header class="{state}"><div><p class="kicker">OtterMQ audit</p>'
        f"<h1>{escape(run.job)}</h1></div>"
        f'<p class="verdict {state}"><i></i>{verdict}</p></header>'
    )


def _headline(headline: Mapping[str, str | int | float]) -> str:
    tiles = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(cell(value))}</dd></div>"
        for name, value in headline.items()
    )
    return f'<dl class="tiles">{"".join(tiles)}</dl>'


def _timeline(findings: Sequence[Finding]) -> str:
    drawn = charts.timeline(findings)
    if not drawn:
        return ""
    shown = [each for each in Severity if any(one.severity is each for one in findings)]
    items = "".join(f'<li><i class="{each.value}"></i>{each.value}</li>' for each in shown)
    key = f'<ul class="legend round">{items}</ul>'
    return _card("Findings over time", key + drawn)


def _chart(drawn: Bars | Lines) -> str:
    key = charts.legend(drawn) if isinstance(drawn, Bars) else ""
    unit = "" if drawn.unit == "bytes" else drawn.unit
    return _card(drawn.title, key + charts.chart(drawn), drawn.note, unit)


def _facts(facts: Mapping[str, str]) -> str:
    rows = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in facts.items()
    )
    return f'<dl class="facts">{"".join(rows)}</dl>'


def _kind(run: Run, group: OfKind) -> str:
    """What it means and what to do, once; then queue by queue."""
    severity, known = group.severity.value, run.kinds.get(group.kind)
    queues = f"{plural(group.count, 'finding')} in {plural(len(group.queues), 'queue')}"
    title = (
        f'<h2><span class="chip {severity}">{severity}</span> {escape(group.kind)}'
        f" <small>{queues if group.queues[0].queue is not None else ''}</small></h2>"
    )
    if known:
        title += f"<p>{_prose(known.means)}</p><p><b>What to do:</b> {_prose(known.do)}</p>"
    names = ("vhost", "queue", "partition", "what", "segment", "offsets", "time")
    rows = [
        _finding(each, is_first=at == 0)
        for queue in group.queues
        for at, each in enumerate(queue.findings)
    ][:MOST_FINDINGS]
    table = _table("".join(f"<th>{name}</th>" for name in names), "".join(rows))
    left = group.count - len(rows)
    note = f"{plural(left, 'more finding')} in summary.json and findings/" if left else ""
    below = f'<p class="note">{note}</p>' if note else ""
    return f'<section class="finding">{title}{table}{below}</section>'


def _prose(text: str) -> str:
    """What stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _finding(each: Finding, is_first: bool) -> str:
    """is_first: of its queue; those below it needn't name it again."""
    offsets = ""
    if each.first_offset is not None:
        last = each.last_offset if each.last_offset is not None else each.first_offset
        offsets = f"{each.first_offset:,}" + (f" – {last:,}" if last > each.first_offset else "")
    of = [vhost_name(each.vhost or "–"), each.queue or "–"] if is_first else ["", ""]
    rule = f"<small>{escape(each.rule)}</small>" if each.rule else ""
    return (
        f"<tr><td>{escape(of[0])}</td><td>{escape(of[1])}</td>"
        f"<td class='number'>{cell(each.partition)}</td>"
        f"<td class='what'>{escape(each.message)}{rule}</td>"
        f"<td class='segment'>{_segments(each)}</td><td class='number'>{offsets}</td>"
        f"<td class='time'>{moment(each.time) if each.time else ''}</td></tr>"
    )


def _segments(each: Finding) -> str:
    listed = each.segments or (() if each.segment is None else (each.segment,))
    shown = "<br>".join(f"{base:020}" for base in listed[:MOST_SEGMENTS])
    left = len(listed) - MOST_SEGMENTS
    return f"{shown}<br>and {left:,} more" if left > 0 else shown


def _report_table(table: ReportTable) -> str:
    numeric = [
        any(isinstance(row[at], int | float) for row in table.rows)
        for at in range(len(table.columns))
    ]
    kinds = [' class="number"' if each else "" for each in numeric]
    heads = "".join(
        f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, table.columns, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{escape(cell(value))}</td>" for kind, value in zip(kinds, row, strict=True)
        )
        + "</tr>"
        for row in table.rows[:MOST_ROWS]
    )
    left = len(table.rows) - MOST_ROWS
    note = f"{table.note} … and {plural(left, 'more row')}".strip() if left > 0 else table.note
    return _card(table.title, _table(heads, body), note)


def _table(heads: str, body: str) -> str:
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _card(title: str, inner: str, note: str = "", unit: str = "") -> str:
    below = f'<p class="note">{escape(note)}</p>' if note else ""
    beside = f" <small>{escape(unit)}</small>" if unit else ""
    return f"<section><h2>{escape(title)}{beside}</h2>{inner}{below}</section>"


def _foot(run: Run) -> str:
    return f"<footer>{escape(run.job)}, {moment(run.began)}. All times are UTC.</footer>"
