"""The same audit at rest, in use and on a cluster; and what a run leaves behind."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from ottermq.audit.findings import Severity
from ottermq.audit.run import Done, Order, run
from ottermq.config import load
from tests.audit import yard as yards
from tests.audit.cluster import Cluster
from tests.audit.yard import STREAMS, Yard
from tests.brokers import environment

TWICE = "duplicate-id"


@pytest.fixture(scope="module")
def harmed(tmp_path_factory: pytest.TempPathFactory) -> Yard:
    yard = yards.fill(tmp_path_factory.mktemp("yard") / "data")
    yard.flip_a_bit("clicks")
    yard.remove_a_segment("views")
    yard.forget_a_segment("visits")
    return yard


def audited(data: Path, out: Path, fail_on: str = "violation") -> Done:
    return run(Order("integrity", data, out, "local[2]", load(), [fail_on], {}, quiet=True))


def plain(findings: Any) -> list[Any]:
    return sorted((json.dumps(each, sort_keys=True) for each in findings), key=str)


def test_at_rest_and_on_a_cluster_the_answer_is_the_same(
    spark: SparkSession, harmed: Yard, cluster: Cluster, tmp_path: Path
) -> None:
    here = audited(harmed.data, tmp_path / "here")
    told = json.loads((here.folder / "summary.json").read_text())
    arguments = ["--data", harmed.data, "--master", cluster.url, "--out", tmp_path / "there"]
    there = subprocess.run(
        [sys.executable, "-P", "-m", "ottermq", "audit", "integrity", *arguments, "--json"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (there.returncode, there.stderr) == (here.exit_code, "") == (1, "")
    summary = json.loads(there.stdout)
    assert summary["master"] == cluster.url
    assert plain(summary["findings"]) == plain(told["findings"])
    assert summary["logs"] == told["logs"]
    assert {each["kind"] for each in told["findings"]} == {
        "damage",
        TWICE,
        "gap",
        "missing",
    }


def test_a_run_leaves_its_report_behind(spark: SparkSession, harmed: Yard, tmp_path: Path) -> None:
    done = audited(harmed.data, tmp_path, "never")
    assert done.exit_code == 0
    found = ds.dataset(done.folder / "findings", partitioning="hive").to_table()
    assert set(found["kind"].to_pylist()) == {"damage", TWICE, "gap", "missing"}
    logs = ds.dataset(done.folder / "logs", partitioning="hive").to_table().to_pylist()
    assert {row["queue"] for row in logs} >= {"orders", "payments", *STREAMS}
    text = (done.folder / "report.html").read_text()
    assert "<h1>integrity</h1>" in text and "Findings over time" in text


def test_a_directory_in_use_under_load_is_clean(spark: SparkSession, tmp_path: Path) -> None:
    with yards.at_work(tmp_path / "data") as broker:
        yards.write_amqp(broker)
        yards.write_kafka(broker)
        with yards.under_load(broker):
            for number in range(2):
                done = audited(tmp_path / "data", tmp_path / str(number))
                grave = [e for e in done.outcome.findings if e.severity is not Severity.NOTE]
                assert {each.kind for each in grave} <= {TWICE}
                assert done.exit_code == 0
                assert done.summary["running"]
