"""The report as one HTML file: no script, nothing fetched, light and dark."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from ottermq import __version__
from ottermq.audit.findings import Finding, Severity
from ottermq.audit.outcome import Bars, Lines, Outcome, Sheet
from ottermq.audit.report import charts
from ottermq.audit.report.files import Run
from ottermq.audit.report.style import STYLE
from ottermq.audit.report.words import cell, moment, plural

MOST_FINDINGS = 500  # in the page; Parquet and JSON have all of them
MOST_ROWS = 500


def page(run: Run, outcome: Outcome) -> str:
    parts = [
        _head(run, outcome),
        _headline(outcome.headline),
        _timeline(outcome.findings),
        *(_chart(each) for each in outcome.charts),
        _findings(outcome.findings),
        *(_sheet(each) for each in outcome.sheets),
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
    if worst is None:
        state, verdict = "clean", "Clean: nothing was found"
    else:
        state = worst.value
        verdict = ", ".join(plural(counts[each], each.value) for each in Severity if counts[each])
    return (
        f'<header class="{state}"><div><p class="kicker">OtterMQ audit</p>'
        f"<h1>{escape(run.job)}</h1><p class='where'>{escape(run.data)}</p></div>"
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


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    order = list(Severity)
    rows = sorted(findings, key=lambda each: order.index(each.severity))[:MOST_FINDINGS]
    body = "".join(_finding(each) for each in rows)
    left = len(findings) - len(rows)
    note = f"{plural(left, 'more finding')} in summary.json and findings/" if left else ""
    heads = "".join(f"<th>{name}</th>" for name in ("", "kind", "queue", "what", "offsets", "time"))
    return _card("Findings", _table(heads, body), note)


def _finding(each: Finding) -> str:
    offsets = ""
    if each.first_offset is not None:
        last = each.last_offset if each.last_offset is not None else each.first_offset
        offsets = f"{each.first_offset:,}" + (f" – {last:,}" if last > each.first_offset else "")
    queue = escape(each.queue or "–")
    if each.partition:
        queue += f"<small> / {each.partition}</small>"
    rule = f"<small>{escape(each.rule)}</small>" if each.rule else ""
    return (
        f'<tr><td><span class="chip {each.severity.value}">{each.severity.value}</span></td>'
        f"<td class='kind'>{escape(each.kind)}</td><td>{queue}</td>"
        f"<td class='what'>{escape(each.message)}{rule}</td><td class='number'>{offsets}</td>"
        f"<td class='time'>{moment(each.time) if each.time else ''}</td></tr>"
    )


def _sheet(sheet: Sheet) -> str:
    numeric = [
        any(isinstance(row[at], int | float) for row in sheet.rows)
        for at in range(len(sheet.columns))
    ]
    kinds = [' class="number"' if each else "" for each in numeric]
    heads = "".join(
        f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, sheet.columns, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{escape(cell(value))}</td>" for kind, value in zip(kinds, row, strict=True)
        )
        + "</tr>"
        for row in sheet.rows[:MOST_ROWS]
    )
    left = len(sheet.rows) - MOST_ROWS
    note = f"{sheet.note} … and {plural(left, 'more row')}".strip() if left > 0 else sheet.note
    return _card(sheet.title, _table(heads, body), note)


def _table(heads: str, body: str) -> str:
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _card(title: str, inner: str, note: str = "", unit: str = "") -> str:
    below = f'<p class="note">{escape(note)}</p>' if note else ""
    beside = f" <small>{escape(unit)}</small>" if unit else ""
    return f"<section><h2>{escape(title)}{beside}</h2>{inner}{below}</section>"


def _foot(run: Run) -> str:
    return (
        f"<footer>{moment(run.began)} UTC, {run.seconds:.1f} s on {escape(run.master)}"
        f" · ottermq {__version__}</footer>"
    )
