"""The session, and what it keeps from the terminal."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottermq.audit import spark as sparks
from ottermq.audit.errors import CantRun
from tests.audit.cluster import Cluster


def test_workers_run_on_our_interpreter(spark: SparkSession) -> None:
    def who(_: int) -> str:
        return sys.executable

    found = spark.sparkContext.parallelize([0], 1).map(who).collect()
    assert found == [sys.executable]


def test_a_session_that_is_there_is_used_and_left_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    with sparks.session(tmp_path / "spark.log") as same:
        assert same is spark
    assert spark.range(3).count() == 3


def test_a_failure_in_a_worker_is_one_line(spark: SparkSession) -> None:
    def fail(_: int) -> int:
        raise CantRun("this log is odd")

    with pytest.raises(Exception) as caught:
        spark.sparkContext.parallelize([0], 1).map(fail).collect()
    assert sparks.first_line(caught.value) == "this log is odd"


def test_without_a_master_to_talk_to_one_line_says_so(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from ottermq.audit.errors import CantRun\n"
        "from ottermq.audit.spark import start\n"
        "try: start(Path('spark.log'), 'spork://nowhere')\n"
        "except CantRun as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.stderr == "" and done.stdout.count("\n") == 1
    assert "spork://nowhere" in done.stdout


def test_a_standalone_cluster_has_its_two_workers(cluster: Cluster, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from ottermq.audit.spark import session\n"
        "with session(Path('spark.log'), sys.argv[1]) as spark:\n"
        "    print(spark.sparkContext.parallelize(range(8), 8).map(lambda n: n * n).sum())"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, cluster.url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert (done.stdout, done.stderr) == ("140\n", ""), (tmp_path / "spark.log").read_text()[-2000:]
