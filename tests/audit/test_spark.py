"""The session, and what it keeps from the terminal."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottermq.audit import spark as sparks
from ottermq.audit.errors import CantRun
from ottermq.audit.failures import first_line


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
    assert first_line(caught.value) == "this log is odd"


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
