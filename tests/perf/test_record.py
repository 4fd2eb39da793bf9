"""The README's figures are those of the recorded runs, in its tables and in its pictures."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from perf.report import quantity

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
SVG = "{http://www.w3.org/2000/svg}"


def rates(after: str) -> list[tuple[str, int, int]]:
    """(label, ours, theirs) of each row with two rates, of the first table behind that text."""
    table = README.read_text().partition(after)[2].partition("\n\n![")[0]
    rows = (re.split(r"\s*\|\s*", line) for line in table.splitlines() if line.startswith("|"))
    number = re.compile(r"[\d,]+")
    return [
        (label, int(ours.replace(",", "")), int(theirs.replace(",", "")))
        for _, label, ours, theirs, *_ in rows
        if number.fullmatch(ours) and number.fullmatch(theirs)
    ]


@pytest.mark.parametrize(("name", "after"), [("amqp", "<!-- amqp:"), ("kafka", "<!-- kafka:")])
def test_the_picture_has_the_bars_of_the_table(name: str, after: str) -> None:
    root = ElementTree.fromstring((ROOT / "docs" / f"{name}-bench.svg").read_text())
    texts = [each.text or "" for each in root.iter(f"{SVG}text")]
    figures = [text.partition(" (")[0] for text in texts]
    in_table = rates(after)
    assert len(in_table) >= 10
    for label, ours, theirs in in_table:
        assert quantity("rate", ours) in figures, label
        assert quantity("rate", theirs) in figures, label


@pytest.mark.parametrize("name", ["amqp", "kafka"])
def test_no_label_of_a_picture_is_cut_off(name: str) -> None:
    """Measured with DejaVu Sans, the widest that `system-ui` is anywhere: 7.3 pixels a letter."""
    root = ElementTree.fromstring((ROOT / "docs" / f"{name}-bench.svg").read_text())
    labels = [each for each in root.iter(f"{SVG}text") if each.get("text-anchor") == "end"]
    assert labels
    for label in labels:
        assert 7.3 * len(label.text or "") <= float(label.get("x", "0")), label.text


def test_the_tables_are_those_of_the_recorded_runs() -> None:
    from perf import record

    text = README.read_text()
    assert record.readme(text) == text, "please run: make record"


@pytest.mark.parametrize("name", ["amqp", "kafka"])
def test_the_pictures_are_those_of_the_recorded_runs(name: str) -> None:
    from perf import record

    comparison, _ = record.COMPARISONS[name]
    drawn = record.picture_path(name).read_text()
    assert record.picture(comparison) == drawn, "please run: make record"


@pytest.mark.parametrize("name", ["amqp", "kafka", "log"])
def test_a_run_of_a_few_scenarios_is_not_taken_for_the_readme(name: str, tmp_path: Path) -> None:
    from perf import record

    whole = record.RECORDED / f"{name}.json"
    assert record.missing(name, whole) == []
    run = json.loads(whole.read_text())
    del run["results" if name == "log" else "outcomes"][0]
    part = tmp_path / "part.json"
    part.write_text(json.dumps(run))
    assert record.missing(name, part)
