"""What needed a second try is on record, and what is in quarantine is told in every run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers import environment
from tests.conftest import SECONDS
from tests.second_tries import QUARANTINE, ROOT, quarantined

FLAKY = """
import pathlib

def test_it_passes():
    pass

def test_it_needs_two():
    tried = pathlib.Path(__file__).with_name("tried")
    if not tried.exists():
        tried.touch()
        raise AssertionError("the first time")

def test_it_never_passes():
    assert False
"""
CONFTEST = """
import pathlib
from tests.second_tries import SecondTries

def pytest_configure(config):
    here = pathlib.Path(__file__).parent
    quarantine = {}
    if (here / "quarantined").exists():
        quarantine["test_flaky.py::test_it_never_passes"] = "waits for a mend"
    config.pluginmanager.register(SecondTries(config, here / "build" / "ledger", quarantine))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "test_flaky.py").write_text(FLAKY)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run(project: Path, *options: str, **more: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *options],
        cwd=project,
        env=environment() | {"PYTHONPATH": str(ROOT)} | more,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout


def test_a_second_try_leaves_a_line_that_each_run_shows(project: Path) -> None:
    code, told = run(project)
    assert code == 1 and "second try" not in told
    code, told = run(project, "--last-failed", OTTERMQ_AGAIN="1")
    assert code == 1
    lines = [line.split("\t") for line in (project / "build" / "ledger").read_text().splitlines()]
    assert [(line[2], line[5]) for line in lines] == [
        ("test_flaky.py::test_it_needs_two", "passed"),
        ("test_flaky.py::test_it_never_passes", "failed again"),
    ]
    for when, commit, _, first, second, _ in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", when)
        assert re.fullmatch(r"[0-9a-f]{7,}|\?", commit)
        assert re.fullmatch(r"\d+\.\d s", first) and re.fullmatch(r"\d+\.\d s", second)
    for _ in range(2):
        _, told = run(project)
        assert "needed a second try: 2" in told and "\t".join(lines[0]) in told


def test_what_is_in_quarantine_is_run_and_told_and_ends_nothing(project: Path) -> None:
    (project / "quarantined").touch()
    (project / "tried").touch()
    code, told = run(project)
    assert code == 0 and "2 passed, 1 xfailed" in told
    assert "test_flaky.py::test_it_never_passes: waits for a mend" in told


def test_a_third_second_try_fails_the_run_unless_in_quarantine(project: Path) -> None:
    line = "\t".join(["2026-11-19T00:00:00Z", "abc1234", "{}", "0.1 s", "0.1 s", "passed"]) + "\n"
    ledger = project / "build" / "ledger"
    ledger.parent.mkdir()
    passes, never = "test_flaky.py::test_it_passes", "test_flaky.py::test_it_never_passes"
    ledger.write_text((line.format(passes) + line.format(never)) * 2)
    (project / "quarantined").touch()
    (project / "tried").touch()
    code, told = run(project)
    assert code == 0 and "the run fails" not in told
    ledger.write_text((line.format(passes) + line.format(never)) * 3)
    code, told = run(project)
    assert code == 1
    assert f"{passes}: 3 lines in ledger" in told and "tests/quarantine.txt" in told
    assert f"{never}: 3 lines" not in told
    code, _ = run(project, "--last-failed", "--last-failed-no-failures", "none", OTTERMQ_AGAIN="1")
    assert code == 1, "make again doesn't pass over it"


def test_quarantine_wants_a_reason() -> None:
    assert quarantined("# why\n\ntests/x.py::y[1-2]: slow: see z") == {
        "tests/x.py::y[1-2]": "slow: see z"
    }
    with pytest.raises(pytest.UsageError, match="no reason"):
        quarantined("tests/test_x.py::test_y: ")


def test_each_name_in_quarantine_is_a_test() -> None:
    for name in quarantined(QUARANTINE.read_text()):
        found = re.fullmatch(r"(tests/[\w/]+\.py)::(\w+)(\[.*\])?", name)
        assert found, name
        file, test, _ = found.groups()
        assert f"def {test}(" in (ROOT / file).read_text(), name


def test_what_is_started_first_is_there() -> None:
    assert [name for name in SECONDS if not (ROOT / name).exists()] == []
