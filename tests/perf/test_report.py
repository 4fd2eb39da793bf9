"""Bars, table, JSON and picture, from figures nobody had to measure."""

import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from rich.console import Console

from perf import chart, report
from perf.report import Bar, Figures, Outcome, Report, quantity
from perf.tables import Row, markdown, rate, two_digits

ROWS = (
    rate("1 KiB <persistent>", "1k", "rabbitmq", "durable"),
    rate("not run", "16b", "rabbitmq"),
    Row("confirms", "latency", "rabbitmq", "p50"),
)

FOUND: dict[str, Figures] = {
    "ottermq": {"rate": 300_000, "p50": 400, "plain rate": 1000, "expired rate": 200},
    "rabbitmq": {"rate": 15_000, "p50": 1300},
    "durable": {"rate": 500_000},
}


@pytest.fixture
def canned() -> Report:
    bars = (Bar("rate", "rabbitmq", 15), Bar("rate", "durable", 0.7), Bar("rate", "quorum", 10))
    verdicts = [bar.judge(FOUND) for bar in bars]
    one = Outcome("1k", "1 KiB <persistent>", FOUND, verdicts)
    late = Outcome(
        "latency", "confirms", {"rabbitmq": {"p50": 1300}}, [], errors={"ottermq": "hung up"}
    )
    return Report("2026-01-01T00:00:00+00:00", "2 cores", 3, 5, [one, late])


@pytest.mark.parametrize(
    ("bar", "ratio", "met"),
    [
        (Bar("rate", "rabbitmq", 15), 20, True),
        (Bar("rate", "rabbitmq", 25), 20, False),
        (Bar("p50", "rabbitmq", 0.5, most=True), 400 / 1300, True),
        (Bar("p50", "rabbitmq", 0.25, most=True), 400 / 1300, False),
        (Bar("expired rate", "ottermq", 0.25, base="plain rate"), 0.2, False),
        (Bar("rate", "LavinMQ", 1.5, elsewhere=100_000), 3, True),
    ],
)
def test_a_bar_compares_ours_with_another_figure(bar: Bar, ratio: float, met: bool) -> None:
    verdict = bar.judge(FOUND)
    assert verdict.ratio == pytest.approx(ratio)
    assert verdict.met is met


@pytest.mark.parametrize("bar", [Bar("rate", "quorum", 10), Bar("p99", "rabbitmq", 1, most=True)])
def test_what_was_not_measured_is_not_met(bar: Bar) -> None:
    assert bar.judge(FOUND).ratio is None
    assert not bar.judge(FOUND).met


def test_a_bar_says_what_it_asks() -> None:
    assert Bar("rate", "rabbitmq", 15).text() == "≥ 15 × RabbitMQ"
    assert Bar("p99", "durable", 1.5, most=True).text() == "p99 ≤ 1.5 × durable ceiling"
    assert Bar("drain", "ottermq", 0.5, base="live").text() == "drain ≥ 0.5 × live"
    assert Bar("rate", "LavinMQ", 1.5, elsewhere=87_000).text() == "≥ 1.5 × LavinMQ (87 k/s)"


def test_quantities_read_as_people_say_them() -> None:
    assert quantity("rate", 1_240_000) == "1.24 M/s"
    assert quantity("rate", 18_600) == "18.6 k/s"
    assert quantity("p50", 830) == "830 µs"
    assert quantity("p99", 5_700) == "5.7 ms"


def test_a_report_survives_its_json(canned: Report, tmp_path: Path) -> None:
    canned.write(tmp_path / "deep" / "report.json")
    assert report.read(tmp_path / "deep" / "report.json") == canned


def test_the_table_tells_figures_ratios_and_failures(canned: Report) -> None:
    page = io.StringIO()
    report.show(canned, Console(file=page, width=200))
    shown = page.getvalue()
    assert "300 k/s" in shown and "500 k/s" in shown
    assert "✓ 20  ≥ 15 × RabbitMQ" in shown
    assert "✗ 0.6  ≥ 0.7 × durable ceiling" in shown
    assert "– not measured  ≥ 10 × RabbitMQ quorum" in shown
    assert "OtterMQ: hung up" in shown


def test_the_picture_is_svg_with_a_bar_for_each_rate(canned: Report) -> None:
    drawn = chart.draw(canned, ROWS, "Messages")
    root = ElementTree.fromstring(drawn)
    bars = [
        (each.get("class"), float(each.get("width", "0")))
        for each in root.iter("{http://www.w3.org/2000/svg}rect")
        if each.get("height") == str(chart.BAR)
    ]
    widths = dict(bars)
    assert len(bars) == 3
    assert widths["rabbitmq"] < widths["ottermq"] < widths["durable"]
    assert "300 k/s (20 × RabbitMQ)" in drawn
    assert "prefers-color-scheme: dark" in drawn


def test_without_any_rate_the_picture_is_still_one() -> None:
    nothing = Report("2026-01-01T00:00:00+00:00", "2 cores", 1, 1, [])
    assert ElementTree.fromstring(chart.draw(nothing, ROWS, "Messages")).tag.endswith("svg")


def test_whoever_failed_is_named_where_the_bar_would_be() -> None:
    failed = Outcome("1k", "", {"rabbitmq": {"rate": 1000}}, [], errors={"ottermq": "hung up"})
    drawn = chart.draw(Report("", "", 1, 1, [failed]), ROWS, "Messages")
    assert "OtterMQ failed" in drawn
    assert "| 1 KiB <persistent> | failed | 1,000 |" in markdown(
        Report("", "", 1, 1, [failed]), ROWS, ("OtterMQ", "RabbitMQ", "×")
    )


def test_a_table_for_the_readme_has_the_rows_that_were_run(canned: Report) -> None:
    assert markdown(canned, ROWS, ("OtterMQ", "RabbitMQ", "×", "of the relay")).splitlines() == [
        "| | OtterMQ | RabbitMQ | × | of the relay |",
        "|---|--:|--:|--:|--:|",
        "| 1 KiB <persistent> | 300,000 | 15,000 | 20 | 0.60 |",
        "| confirms | failed | 1.3 ms |  | |",
    ]


@pytest.mark.parametrize(
    ("ratio", "told"),
    [(0.5, "0.50"), (0.6124, "0.61"), (0.05, "0.050"), (2, "2.0"), (9.97, "10"), (152, "152")],
)
def test_ratios_have_two_digits(ratio: float, told: str) -> None:
    assert two_digits(ratio) == told
