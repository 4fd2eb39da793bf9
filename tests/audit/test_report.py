"""What a run leaves behind: Parquet, JSON, a page; and the terminal."""

import json
import os
import pwd
import re
import socket
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from ottermq import __version__
from ottermq.audit.findings import Finding, Kind, Severity
from ottermq.audit.outcome import Bars, Lines, Outcome, ReportTable
from ottermq.audit.report import axes, charts, facts, files, formatting, terminal
from ottermq.audit.report.page import page
from ottermq.storage import version_file as versionfile

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
FACTS = {"host": "otter-1", "data directory": "/srv/<data>", "run by": "ann (uid 1000)"}
KINDS = {"gap": Kind("Offsets are missing.", "Ask `ottermq segment verify`.")}
RUN = files.Run("retention", "/srv/<data>", "local[2]", NOW, 1.5, 1, FACTS, KINDS)
GAP = Finding(
    "gap", Severity.VIOLATION, "3 <b>records</b> are gone", "/", "or/ders & co", 0, 7, 9,
    time=NOW - timedelta(days=1),
)  # fmt: skip
ORPHAN = Finding("orphan", Severity.WARNING, "a folder that no log has")
OUTCOME = Outcome(
    headline={"logs": 2, "bytes": "3 MiB"},
    findings=[ORPHAN, GAP],
    report_tables=[ReportTable("Queues", ["queue", "records"], [["<orders>", 12345], ["b", None]])],
    charts=[
        Bars("Age", "bytes", ["a", "b"], {"young": [1024, 0], "old": [10, 5]}, ordered=True),
        Lines("Growth", "bytes", [NOW, NOW + timedelta(days=30)], {"all": [1, 2]}, now=NOW),
    ],
    tables={"ages": pa.table({"queue": ["a", "b"], "bytes": [1, 2]})},
    summary={"projected": 7},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files.write(tmp_path, RUN, OUTCOME)
    return tmp_path


def test_findings_are_parquet_by_date_and_queue(folder: Path) -> None:
    found = ds.dataset(folder / "findings", partitioning="hive").to_table().to_pylist()
    by_kind = {row["kind"]: row for row in found}
    assert by_kind["gap"]["queue"] == "or/ders & co"
    assert by_kind["gap"]["date"] == "2026-11-15"
    assert (by_kind["gap"]["first_offset"], by_kind["gap"]["last_offset"]) == (7, 9)
    assert by_kind["orphan"]["date"] == "2026-11-16"  # no time of its own: the run's
    assert by_kind["orphan"]["queue"] == files.NO_QUEUE


def test_a_jobs_own_tables_are_parquet_too(folder: Path) -> None:
    found = ds.dataset(folder / "ages", partitioning="hive").to_table()
    assert sorted(found["queue"].to_pylist()) == ["a", "b"]
    assert set(found["date"].to_pylist()) == {"2026-11-16"}


def test_a_second_run_replaces_the_first(folder: Path) -> None:
    files.write(folder, RUN, Outcome({"logs": 0}))
    assert not list((folder / "findings").rglob("*.parquet"))
    assert json.loads((folder / "summary.json").read_text())["findings"] == []


def test_the_summary_is_json(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["counts"] == {
        "severity": {"warning": 1, "violation": 1},
        "kind": {"orphan": 1, "gap": 1},
    }
    assert summary["exit_code"] == 1 and summary["projected"] == 7
    assert summary["run"] == FACTS
    assert summary["kinds"] == {"gap": KINDS["gap"]._asdict()}
    assert summary["findings"][1]["time"] == "2026-11-15T12:00:00.000+00:00"


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.outside += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    text = page(RUN, OUTCOME)
    parsed = Links()
    parsed.feed(text)
    assert not parsed.open and not parsed.outside
    assert "script" not in parsed.tags and "url(" not in text and "@import" not in text
    assert parsed.tags.count("svg") == 3  # the time line and two charts


def test_names_in_the_page_are_text_and_never_markup() -> None:
    text = page(RUN, OUTCOME)
    assert "<b>records" not in text and "&lt;b&gt;records" in text
    assert "<orders>" not in text and "/srv/&lt;data&gt;" in text


def test_charts_are_well_formed() -> None:
    for drawn in [*map(charts.chart, OUTCOME.charts), charts.timeline(OUTCOME.findings)]:
        ElementTree.fromstring(drawn)


def test_bars_are_as_long_as_what_they_stand_for() -> None:
    drawn = charts.bars(Bars("t", "", ["a", "b"], {"s": [100.0, 50.0]}))
    long, short = (float(width) for width in re.findall(r'<rect.*?width="([\d.]+)"', drawn))
    assert (long + 1.5) / (short + 1.5) == pytest.approx(2, rel=0.01)


def test_more_bars_than_one_can_read_become_others() -> None:
    labels = [f"q{number}" for number in range(100)]
    drawn = charts.bars(Bars("t", "", labels, {"s": [float(n) for n in range(100)]}))
    assert drawn.count("<rect") == charts.MOST_BARS
    assert "81 others" in drawn


def test_findings_at_the_same_time_share_a_mark() -> None:
    other = Finding("gap", Severity.NOTE, "later", queue=GAP.queue, time=NOW)
    drawn = charts.timeline([GAP, GAP, GAP, other])
    assert drawn.count("<circle") == 2
    assert "and 2 more findings" in drawn


def test_years_of_hours_are_a_line_and_not_a_heap_of_dots() -> None:
    times = [NOW + timedelta(hours=number) for number in range(10_000)]
    drawn = charts.chart(Lines("Growth", "bytes", times, {"a": list(map(float, range(10_000)))}))
    assert 'class="dot' not in drawn and 100 < drawn.count("<circle") < 400
    few = charts.chart(Lines("Growth", "bytes", times[:20], {"a": list(map(float, range(20)))}))
    assert few.count('class="dot') == 20


def test_what_has_no_time_has_no_time_line() -> None:
    assert charts.timeline([ORPHAN]) == ""


def test_axes_have_round_numbers() -> None:
    assert axes.round_steps(97, "") == [0, 25, 50, 75, 100]
    assert axes.round_steps(3 << 30, "bytes")[-1] == 3 << 30
    ticks = axes.time_steps(NOW, NOW + timedelta(days=30))
    assert 3 <= len(ticks) <= 7 and ticks[0][1] == "19 Nov"


@pytest.mark.parametrize(
    ("count", "written"), [(0, "0 B"), (1536, "1.5 KiB"), (1 << 40, "1 TiB"), (999, "999 B")]
)
def test_sizes_are_written_as_people_do(count: int, written: str) -> None:
    assert formatting.size(count) == written


@pytest.mark.parametrize(
    ("price", "written"), [(0.00123, "0.0012"), (0.5, "0.50"), (1234.5, "1,234.50"), (0.0, "0.00")]
)
def test_what_costs_little_doesnt_cost_nothing(price: float, written: str) -> None:
    assert formatting.cell(price) == written
    assert formatting.short(0.00025) == "0.00025"


def test_the_page_begins_with_its_circumstances_and_the_findings() -> None:
    text = page(RUN, OUTCOME)
    order = ["otter-1", "ann (uid 1000)", "Offsets are missing.", "What to do:", "a folder that"]
    places = [text.index(part) for part in [*order, '<dl class="tiles">', "Growth"]]
    assert places == sorted(places)
    assert "<code>ottermq segment verify</code>" in text


def test_findings_are_told_by_kind_and_queue_with_vhost_and_partition() -> None:
    one = Finding("gap", Severity.VIOLATION, "first", "/", "orders", 3, 7, 9, 0)
    others = [
        Finding("gap", Severity.VIOLATION, f"other {n}", "shop", "orders", n) for n in range(2)
    ]
    text = page(RUN, Outcome({}, [others[0], one, ORPHAN, others[1]]))
    cells = re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td><td class='number'>(.*?)</td>", text)
    assert cells == [
        ("/", "orders", "3"),
        ("shop", "orders", "0"),
        ("", "", "1"),  # the same queue
        ("–", "–", "–"),
    ]
    assert text.count("Offsets are missing.") == 1
    assert "3 findings in 2 queues" in text


def test_a_job_that_looks_for_no_faults_says_what_it_found() -> None:
    outcome = Outcome({"stored": "3 MiB"}, verdict="1.50 EUR a month")
    assert "1.50 EUR a month" in page(RUN, outcome) and "Clean" not in page(RUN, outcome)


def test_the_terminal_shows_circumstances_findings_tables_and_a_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal.show(RUN, OUTCOME)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "host            otter-1",
        "data directory  /srv/<data>",
        "run by          ann (uid 1000)",
        "",
        "violation gap: Offsets are missing.",
        "  what to do: Ask `ottermq segment verify`.",
        "  vhost=/ queue=or/ders & co partition=0 offsets=7-9: 3 <b>records</b> are gone",
        "",
        "warning orphan",
        "  a folder that no log has",
        "",
        "Queues",
        "queue     records",
        "<orders>   12,345",
        "b               –",
        "",
        "2 logs, 3 MiB bytes: 1 violation, 1 warning",
    ]


def test_many_findings_of_a_queue_are_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show(RUN, Outcome({"logs": 1}, [GAP] * 50))
    out = capsys.readouterr().out
    assert out.count("are gone") == terminal.MOST_FINDINGS
    assert "… and 47 more findings of this kind there" in out


def test_the_terminal_says_when_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show(files.Run("integrity", "/srv", "local", NOW, 1, 0), Outcome({"logs": 3}))
    assert capsys.readouterr().out == "3 logs: clean\n"


@pytest.mark.parametrize(
    ("time", "written"),
    [
        (timedelta(0), "0"),
        (timedelta(seconds=12), "12s"),
        (timedelta(hours=1, minutes=30, seconds=7), "1h30m"),
        (timedelta(days=7), "7d"),
        (timedelta(days=3, hours=4, minutes=20), "3d4h"),
    ],
)
def test_durations_are_written_as_in_the_configuration(time: timedelta, written: str) -> None:
    assert formatting.span(time) == written


def test_a_report_names_its_circumstances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTTERMQ_WAL__RETENTION__MAX_AGE", "7d")
    versionfile.note(tmp_path)
    options = {"keys": ["ann", "bob"], "grace": timedelta(minutes=5)}
    found = facts.facts(Path("."), Path("policy.yaml"), options, "local[2]", NOW, 1.5)
    assert found == {
        "host": socket.gethostname(),
        "data directory": str(tmp_path),
        "broker": f"ottermq {__version__}, not running",
        "policy file": f"{tmp_path}/policy.yaml; and the variables OTTERMQ_WAL__RETENTION__MAX_AGE",
        "keys": "ann, bob",
        "--grace": "5m",
        "run by": f"{pwd.getpwuid(os.getuid()).pw_name} (uid {os.getuid()})",
        "run at": "2026-11-16 12:00:00 UTC, 1.5 s on local[2]",
        "audited with": f"ottermq {__version__}",
    }


def test_of_many_keys_the_head_names_a_few(tmp_path: Path) -> None:
    keys = [f"customer-{number}" for number in range(100)]
    found = facts.facts(tmp_path, None, {"keys": keys}, "local", NOW, 1)
    assert found["keys"].endswith("customer-19 and 80 more")
    assert found["broker"].startswith("ottermq of an unknown version")
