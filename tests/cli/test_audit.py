"""`ottermq audit` before Spark starts: what can't be audited is told in one line."""

import os
import shlex
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ottermq.wal.catalog import SCHEMA
from tests.brokers import command, environment, run

ROOT = Path(__file__).parent.parent.parent


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


def test_a_directory_whose_catalogue_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "meta.db").write_text("dear diary, " * 100)
    told = refused("retention", "--data", str(tmp_path))
    assert told == f"{tmp_path / 'meta.db'}: file is not a database"


def test_a_catalogue_of_something_else(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "meta.db").execute("CREATE TABLE songs (name)")
    assert "no such table: logs" in refused("flow", "--data", str(tmp_path))


@pytest.mark.parametrize(
    ("mode", "told"), [(0, "is not readable"), (0o400, "meta.db: Permission denied")]
)
def test_a_directory_that_may_not_be_read(tmp_path: Path, mode: int, told: str) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=mode)
    even_root = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    done = subprocess.run(
        (even_root if os.geteuid() == 0 else [])
        + command(["audit", "integrity", "--data", str(data), "--out", str(tmp_path / "out")]),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr


@pytest.mark.parametrize("out", ["letters.txt/out", "letters.txt"])
def test_a_place_where_no_report_can_be_written(tmp_path: Path, out: str) -> None:
    sqlite3.connect(tmp_path / "meta.db").executescript(SCHEMA)
    (tmp_path / "letters.txt").write_text("dear")
    done = run("audit", "cost", "--data", str(tmp_path), "--out", str(tmp_path / out))
    assert (done.returncode, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]
    assert "letters.txt" in last and ("Not a directory" in last or "is a file" in last)


@pytest.mark.parametrize("text", ["wal: {retention: {max_size: much}}", "a: [", None])
def test_another_policy_that_is_wrong(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "what-if.yaml"
    if text is not None:
        file.write_text(text)
    told = refused("cost", "--data", str(tmp_path), "--what-if", str(file))
    assert "what-if.yaml" in told or "much" in told


@pytest.mark.parametrize("price", ["local", "local=much", "local=-1", "local=nan", "moon=1", "=1"])
def test_a_price_that_is_none(tmp_path: Path, price: str) -> None:
    done = run("audit", "cost", "--data", str(tmp_path), "--price", price)
    assert (done.returncode, done.stdout) == (2, "")
    told = f"--price {price}: it should be TIER=PRICE, as local=0.08; tiers are local, wal"
    assert done.stderr == f"ottermq: {told} (ottermq audit cost --help says more)\n"


@pytest.mark.parametrize(
    ("content", "told"), [(None, "No such file or directory"), (b"\xff\xfe", "not UTF-8 text")]
)
def test_a_file_of_keys_that_is_none(tmp_path: Path, content: bytes | None, told: str) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    told_of = refused("erase-check", "--data", str(tmp_path), "--keys", str(file))
    assert told_of == f"{file}: {told}"


def test_a_word_that_fail_on_does_not_know(tmp_path: Path) -> None:
    told = refused("integrity", "--data", str(tmp_path), "--fail-on", "gaps")
    assert told.startswith("--fail-on doesn't know 'gaps'; it knows") and "gap," in told


@pytest.mark.parametrize("empty", [True, False])
def test_an_erase_check_wants_keys(tmp_path: Path, empty: bool) -> None:
    (tmp_path / "keys").write_text("\n \n")
    more = ["--keys", str(tmp_path / "keys")] if empty else []
    done = run("audit", "erase-check", "--data", str(tmp_path), *more)
    assert done.returncode == 2
    assert "--key KEY or --keys FILE" in done.stderr


@pytest.mark.parametrize("url", ["broker", "http://h/", "amqp://guest:secret@h:port/"])
def test_a_watch_is_told_where_to_publish_without_the_password(tmp_path: Path, url: str) -> None:
    sqlite3.connect(tmp_path / "meta.db").executescript(SCHEMA)
    arguments = ["--data", str(tmp_path), "--checkpoint", str(tmp_path.parent / "watch")]
    told = refused("watch", *arguments, "--publish", url)
    assert told == "--publish is amqp://USER:PASSWORD@HOST:PORT/VHOST"


def test_a_watch_writes_nothing_into_the_data_directory(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "meta.db").executescript(SCHEMA)
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
    needs, _, please = done.stderr.partition("; please run: ")
    assert needs == "ottermq: `ottermq audit` needs pyspark and pyarrow"
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert shlex.split(please) == [sys.executable, "-m", "pip", "install", *extra["audit"]]


def test_the_help_names_each_audit() -> None:
    done = run("audit", "--help")
    for name in ("integrity", "retention", "cost", "flow", "erase-check", "all", "watch"):
        assert name in done.stdout


def test_a_broker_that_starts_never_loads_spark() -> None:
    look = (
        "import sys, ottermq.broker, ottermq.cli.serve\n"
        "print(sorted({'pyspark', 'pyarrow', 'ottermq.audit'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", look], capture_output=True, text=True)
    assert done.stdout == "[]\n"
