"""All audits over a directory in which something of every kind is wrong: beside a broker under
load, at rest, and on a cluster. Each finds what was planted, nothing else, and the same everywhere.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from ottermq.audit.jobs import job
from ottermq.audit.run import AuditRequest, run_all
from ottermq.config import load
from ottermq.wal.catalog import INTERNAL_VHOST
from tests.audit import flawed_data, sample_data
from tests.audit.cluster import Cluster
from tests.audit.flawed_data import ANN, BUSY, CUSTOMER, FOUND, HEADER, RUSH
from tests.audit.sample_data import TWICE, SampleData
from tests.brokers import command, environment
from tests.examples import ALL

JOBS = tuple(FOUND)
WHAT_IF = "wal: {retention: {max_size: 100KiB}}"


@dataclass(frozen=True)
class Answer:
    """What a run over all of them left behind."""

    out: Path
    exit_code: int

    def summary(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / name / "summary.json").read_text())
        return found

    def told(self, name: str) -> set[flawed_data.FindingKey]:
        found = self.summary(name)["findings"]
        return {(each["kind"], each["severity"], each.get("queue")) for each in found}

    def rows(self, name: str) -> dict[str, list[str]]:
        """All tables, in some order, but for the queues that are busy."""
        return {
            table.name: sorted(
                json.dumps(row, default=str)
                for row in ds.dataset(table, partitioning="hive").to_table().to_pylist()
                if row["queue"] not in (BUSY, RUSH) and row["vhost"] != INTERNAL_VHOST
            )
            for table in (self.out / name).iterdir()
            if table.is_dir()
        }

    def hour(self, name: str) -> str:
        return str(self.summary(name)["began"])[:13]


def audited(folder: Path, out: Path) -> Answer:
    what_if = load(folder / "what-if.yaml", {})
    options: dict[str, dict[str, Any]] = {
        "flow": {"old": timedelta(0)},
        "cost": {"prices": {"local": 1.0}, "what_if": what_if},
        "erase-check": {"keys": [ANN, CUSTOMER], "headers": [HEADER]},
    }
    config = load(folder / "policy.yaml", {})
    done = run_all(
        [
            AuditRequest(
                name, folder / "data", out, "local[2]", config, ["violation"],
                options.get(name, {}), quiet=True,
            )
            for name in JOBS
        ]
    )  # fmt: skip
    return Answer(out, max(each.exit_code for each in done))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    (folder / "what-if.yaml").write_text(WHAT_IF)
    return folder


@pytest.fixture(scope="module")
def in_use(spark: SparkSession, folder: Path) -> Iterator[Answer]:
    with flawed_data.plant(folder) as broker:
        with sample_data.under_load(broker, BUSY, RUSH):
            found = audited(folder, folder / "in use")
    yield found


@pytest.fixture(scope="module")
def at_rest(spark: SparkSession, folder: Path, request: pytest.FixtureRequest) -> Answer:
    if ALL:
        request.getfixturevalue("in_use")
    else:
        with flawed_data.plant(folder):
            pass
    return audited(folder, folder / "at rest")


@pytest.fixture(scope="module")
def on_a_cluster(folder: Path, at_rest: Answer, cluster: Cluster) -> Answer:
    """As users run them: all in one go."""
    out = folder / "on a cluster"
    arguments = ["--data", folder / "data", "--policy", folder / "policy.yaml", "--out", out]
    arguments += ["--master", cluster.url, "--old", 0, "--price", "local=1"]
    arguments += ["--what-if", folder / "what-if.yaml", "--key", ANN, "--key", CUSTOMER]
    done = subprocess.run(
        command(["audit", "all", *map(str, arguments), "--header", HEADER, "--json"]),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert {each["master"] for each in told.values()} == {cluster.url}
    found = Answer(out, done.returncode)
    assert told == {name: found.summary(name) for name in JOBS}
    return found


@pytest.mark.parametrize("name", JOBS)
def test_something_of_every_kind_is_planted(name: str) -> None:
    assert {kind for kind, _, _ in FOUND[name]} == set(job(name).kinds)


@pytest.mark.long
@pytest.mark.parametrize("name", JOBS)
def test_beside_a_broker_under_load_only_that_is_found(in_use: Answer, name: str) -> None:
    told = in_use.told(name)
    expected = {
        (kind, flawed_data.IN_USE.get((kind, queue), severity), queue)
        for kind, severity, queue in FOUND[name]
    }
    waiting = {("backlog", "warning", BUSY)} if name == "flow" else set()
    assert told == expected | waiting
    assert in_use.exit_code == 1


@pytest.mark.parametrize("name", JOBS)
def test_at_rest_only_that_is_found(at_rest: Answer, name: str) -> None:
    waiting = {("backlog", "warning", BUSY)} if name == "flow" and ALL else set()
    assert at_rest.told(name) == FOUND[name] | waiting
    assert at_rest.exit_code == 1


@pytest.mark.long
@pytest.mark.parametrize("name", JOBS)
def test_at_rest_tables_are_those_beside_the_load(
    in_use: Answer, at_rest: Answer, name: str
) -> None:
    here, there = in_use.rows(name), at_rest.rows(name)
    for rows in (here, there):
        rows["findings"] = sorted(map(_without_severity, rows.get("findings", [])))
    _are_the_same(here, there, in_use.hour(name) == at_rest.hour(name))


@pytest.mark.long
@pytest.mark.parametrize("name", JOBS)
def test_on_a_cluster_the_answer_is_the_same(
    at_rest: Answer, on_a_cluster: Answer, name: str
) -> None:
    assert on_a_cluster.exit_code == at_rest.exit_code
    here, there = at_rest.summary(name), on_a_cluster.summary(name)
    for key in ("counts", "logs", "a_month", "would_free", "subjects", "bytes", "backlog"):
        assert here.get(key) == there.get(key)
    assert sorted(map(json.dumps, here["findings"])) == sorted(map(json.dumps, there["findings"]))
    same_hour = at_rest.hour(name) == on_a_cluster.hour(name)
    _are_the_same(at_rest.rows(name), on_a_cluster.rows(name), same_hour)


def test_harm_is_told_with_its_place(folder: Path, at_rest: Answer) -> None:
    found = {
        (each["kind"], each.get("queue")): each for each in at_rest.summary("integrity")["findings"]
    }
    missing, damage = found["missing", "views"], found["damage", "clicks"]
    segments = [int(path.stem) for path in SampleData(folder / "data").segments("views")]
    assert (missing["segment"], missing["last_offset"] + 1) in zip(
        [missing["first_offset"]], segments[1:], strict=False
    )
    assert missing["time"] > "2020"
    assert damage["first_offset"] > damage["segment"]
    assert TWICE in found["duplicate-id", "orders"]["message"]


def test_each_run_leaves_a_page_behind(at_rest: Answer) -> None:
    for name in JOBS:
        text = (at_rest.out / name / "report.html").read_text()
        assert f"<h1>{name}</h1>" in text
        assert ("Findings over time" in text) == (name != "cost")


def _without_severity(row: str) -> str:
    return json.dumps({**json.loads(row), "severity": None})


def _are_the_same(
    here: dict[str, list[str]], there: dict[str, list[str]], in_the_same_hour: bool
) -> None:
    assert here.keys() == there.keys()
    for table, rows in here.items():
        # An hour later, records are in another band of ages.
        if in_the_same_hour or table not in ("stock", "cost"):
            assert rows == there[table], table
