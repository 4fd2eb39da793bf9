"""`ottermq audit` before Spark starts: what can't be audited is told in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers import run


def refused(*arguments: str) -> str:
    """The one line, of a command that could not run."""
    done = run("audit", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    return done.stderr.removeprefix("ottermq: ").rstrip("\n")


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert refused("integrity", "--data", str(gone)) == f"{gone}: no such directory"


def test_a_directory_that_is_not_a_log(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    told = refused("integrity", "--data", str(tmp_path))
    assert told == f"{tmp_path}: not a data directory of OtterMQ (no meta.db)"


def test_a_file_instead_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    assert "no such directory" in refused("integrity", "--data", str(tmp_path / "letters.txt"))


@pytest.mark.parametrize(
    ("text", "told"),
    [("wal: {retention: {max_age: soon}}", "soon"), ("wall: {}", "wall"), ("a: [", "policy.yaml")],
)
def test_a_policy_file_that_is_wrong(tmp_path: Path, text: str, told: str) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(text)
    assert told in refused("integrity", "--data", str(tmp_path), "--policy", str(policy))


def test_a_word_that_fail_on_does_not_know(tmp_path: Path) -> None:
    told = refused("integrity", "--data", str(tmp_path), "--fail-on", "gaps")
    assert told.startswith("--fail-on doesn't know 'gaps'; it knows") and "gap," in told


def test_an_erase_check_wants_keys(tmp_path: Path) -> None:
    done = run("audit", "erase-check", "--data", str(tmp_path))
    assert done.returncode == 2
    assert "--key KEY or --keys FILE" in done.stderr


@pytest.mark.parametrize("url", ["broker", "http://h/", "amqp://guest:secret@h:port/"])
def test_a_watch_is_told_where_to_publish_without_the_password(tmp_path: Path, url: str) -> None:
    (tmp_path / "meta.db").touch()
    arguments = ["--data", str(tmp_path), "--checkpoint", str(tmp_path.parent / "watch")]
    told = refused("watch", *arguments, "--publish", url)
    assert told == "--publish is amqp://USER:PASSWORD@HOST:PORT/VHOST"


def test_a_watch_writes_nothing_into_the_data_directory(tmp_path: Path) -> None:
    (tmp_path / "meta.db").touch()
    told = refused("watch", "--data", str(tmp_path), "--checkpoint", str(tmp_path / "watch"))
    assert told.endswith("not in the data directory, please")
    assert [path.name for path in tmp_path.iterdir()] == ["meta.db"]


@pytest.mark.parametrize(
    "audit", ["integrity", "retention", "cost", "flow", "erase-check --key k", "watch"]
)
def test_without_the_extra_one_line_says_what_to_install(audit: str) -> None:
    blocked = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['pyarrow'] = None\n"
        f"sys.argv = 'ottermq audit {audit} --data .'.split()\n"
        "from ottermq.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", blocked], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr == (
        "ottermq: `ottermq audit` needs pyspark and pyarrow; "
        "please run: pip install 'ottermq[audit]'\n"
    )


def test_the_help_names_each_audit() -> None:
    done = run("audit", "--help")
    for name in ("integrity", "retention", "cost", "flow", "erase-check", "watch"):
        assert name in done.stdout


def test_a_broker_that_starts_never_loads_spark() -> None:
    look = (
        "import sys, ottermq.broker, ottermq.cli.serve\n"
        "print(sorted({'pyspark', 'pyarrow', 'ottermq.audit'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", look], capture_output=True, text=True)
    assert done.stdout == "[]\n"
