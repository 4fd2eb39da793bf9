"""Tests that needed a second try, and those in quarantine: never forgotten, said in every run.

`make again` runs what failed once more, alone, and leaves a line for each in LEDGER: when, at which
commit, which test, how long it took before it failed and how long the second try took, and what
came of that. A test with a line there is mended, or stands in QUARANTINE with the reason; there it
still runs, and its failure is reported but ends nothing. A test with MOST lines that is not in
QUARANTINE fails every run. Once it is mended, its lines are deleted from LEDGER.

`make clean` keeps LEDGER.
"""

import os
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LEDGER = ROOT / ".second-tries.tsv"
QUARANTINE = ROOT / "tests" / "quarantine.txt"
FAILED = "ottermq/failed"  # in pytest's cache: test → seconds until it failed
SHOWN = 20
MOST = 3  # lines of a test in the ledger


def quarantined(text: str) -> dict[str, str]:
    """Test → reason, from lines `tests/x/test_y.py::test_z: reason`."""
    found = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            name, separator, reason = line.partition(": ")
            if not separator or not reason.strip():
                raise pytest.UsageError(f"quarantine.txt: {line!r} has no reason")
            found[name] = reason.strip()
    return found


class SecondTries:
    def __init__(self, config: pytest.Config, ledger: Path, quarantine: dict[str, str]) -> None:
        self.config = config
        self.ledger = ledger
        self.quarantine = quarantine
        self.again = "OTTERMQ_AGAIN" in os.environ
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if reason := self.quarantine.get(item.nodeid):
                item.add_marker(pytest.mark.xfail(reason=f"quarantined: {reason}", strict=False))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = self.seconds.get(report.nodeid, 0.0)
        self.seconds[report.nodeid] = before + report.duration
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        cache = getattr(self.config, "cache", None)
        if hasattr(self.config, "workerinput") or cache is None:
            return
        if not self.again:
            cache.set(FAILED, {name: self.seconds[name] for name in self.failed})
        elif self.seconds:
            self.write(cache.get(FAILED, {}))
        if self.too_often() and session.exitstatus in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def lines(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def too_often(self) -> dict[str, int]:
        """Tests that needed a second try so often that they fail the run."""
        tries = Counter(line.split("\t")[2] for line in self.lines())
        return {
            name: count
            for name, count in tries.items()
            if count >= MOST and name not in self.quarantine
        }

    def write(self, first: dict[str, float]) -> None:
        now, commit = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), head()
        self.ledger.parent.mkdir(parents=True, exist_ok=True)
        with self.ledger.open("a") as ledger:
            for name, seconds in self.seconds.items():
                before = f"{first[name]:.1f} s" if name in first else "?"
                outcome = "failed again" if name in self.failed else "passed"
                line = (now, commit, name, before, f"{seconds:.1f} s", outcome)
                ledger.write("\t".join(line) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.quarantine:
            terminalreporter.section("in quarantine: mend them")
            for name, reason in self.quarantine.items():
                terminalreporter.line(f"{name}: {reason}")
        if lines := self.lines():
            terminalreporter.section(f"needed a second try: {len(lines)}, the last {SHOWN} of them")
            for line in lines[-SHOWN:]:
                terminalreporter.line(line)
        if often := self.too_often():
            terminalreporter.section("the run fails: second tries too often", red=True)
            for name, count in often.items():
                terminalreporter.line(
                    f"{name}: {count} lines in {self.ledger.name}. Mend it and delete its lines, or"
                    f" put it into {QUARANTINE.relative_to(ROOT)} with the reason"
                )


def head() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "?"
