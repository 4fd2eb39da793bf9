"""docs/log-events.md against the source: each line of the log, and each end of a connection."""

import re
from pathlib import Path

import pytest

from tests import log_events
from tests.log_events import LEVELS, ROOT, Event

PAGE = (ROOT / "docs" / "log-events.md").read_text()
EVENTS = log_events.events()
# Written by eventlog itself, without the functions that all others call.
EVENTS |= {
    "broker failed": Event({"ERROR"}, {"error"}, {"error", "traceback"}),
    "exception ignored": Event({"ERROR"}, {"error", "where"}, {"error", "where"}),
}
LINES, _, REST = PAGE.partition("\n## Audit acts\n")
ACTS, _, ENDS = REST.partition("\n## Why a connection ended\n")


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


TABLE = {cells[0].strip("`"): cells[1:] for cells in rows(LINES)}


def words(cell: str) -> set[str]:
    return {word.strip() for word in cell.split(",") if word.strip()}


def test_each_event_of_the_source_is_in_a_table_and_no_other() -> None:
    assert set(TABLE) == set(EVENTS)
    assert len(rows(LINES)) == len(TABLE), "an event has two rows"


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_an_event_has_the_levels_and_fields_of_its_row(name: str) -> None:
    event, (level, fields, meaning) = EVENTS[name], TABLE[name]
    assert event.levels == words(level) or (event.any_level and event.levels < words(level))
    assert words(level) <= LEVELS
    told = {word for word in words(fields) if not word.startswith("[")}
    optional = {word.strip("[]") for word in words(fields)} - told
    always = event.always or set()
    if event.is_open:  # some come from a table that is made when it runs
        assert always <= told and event.sometimes <= told | optional
    else:
        assert (told, optional) == (always, event.sometimes - always)
    assert meaning


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_an_event_is_plain_and_leaves_the_heads_names_alone(name: str) -> None:
    assert re.fullmatch(r"[a-z]+( [a-z]+)*", name), "lower case words, nothing to quote"
    assert not EVENTS[name].sometimes & {"time", "level", "event", "logger", "traceback"} or (
        name == "broker failed"
    )


def test_each_reason_for_an_end_is_in_the_table_and_no_other() -> None:
    told = [cells[0].strip("`") for cells in rows(ENDS)]
    assert sorted(told) == sorted(log_events.reasons())


def test_each_audit_act_of_the_source_is_in_the_table_and_no_other() -> None:
    told = [cells[0].strip("`") for cells in rows(ACTS)]
    assert sorted(told) == sorted(log_events.acts())
    allowed = words(TABLE["audit"][1])
    for act, fields, meaning in rows(ACTS):
        assert {f"[{word.strip('[]')}]" for word in words(fields)} <= allowed, act
        assert meaning


def test_each_reason_for_an_end_is_a_constant() -> None:
    for path in log_events.sources():
        log_events.check_ends(path)


@pytest.mark.parametrize(
    "line",
    [
        'eventlog.info("connection closed", peer=peer, reason="because")',
        'eventlog.log(level, "connection closing", reason=f"no {thing}")',
        'eventlog.warning("connection rejected", reason=a or "b")',
        'conn.ending = "because"',
        'conn.ending = reason or "because"',
        'self._end(conn, "because")',
        'connection.cut_off(conn, "because")',
    ],
)
def test_a_literal_reason_for_an_end_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    (tmp_path / "some.py").write_text(line + "\n")
    monkeypatch.setattr(log_events, "ROOT", tmp_path)
    with pytest.raises(AssertionError, match="close_reasons"):
        log_events.check_ends(tmp_path / "some.py")


@pytest.mark.parametrize(
    "line", ["request.audit(words, name)", 'Act(f"queue.{verb}", name)', "acts.record(what, name)"]
)
def test_an_act_that_varies_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    (tmp_path / "some.py").write_text(line + "\n")
    monkeypatch.setattr(log_events, "ROOT", tmp_path)
    with pytest.raises(AssertionError, match="which nobody can search for"):
        list(log_events.acts_of(tmp_path / "some.py"))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('eventlog.info(f"queue {name} gone")', "which nobody can search for"),
        ("eventlog.warning(text, peer=peer)", "which nobody can search for"),
        ('with contained("a" + b): pass', "which nobody can search for"),
    ],
)
def test_a_text_that_varies_is_found(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    complaint: str,
) -> None:
    folder = tmp_path_factory.mktemp("source")
    (folder / "some.py").write_text(line + "\n")
    monkeypatch.setattr(log_events, "ROOT", folder)
    with pytest.raises(AssertionError, match=complaint):
        list(log_events.calls(folder / "some.py"))


def test_an_end_without_a_known_reason_is_found() -> None:
    with pytest.raises(AssertionError, match="why does the connection end"):
        log_events.told_by("why", "const char *why = reason_of(x);", "some.c")
