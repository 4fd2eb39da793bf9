"""The one place that makes a SparkSession: on this machine (`local[*]`) or on a cluster.

The output of Spark, Java and the Python workers goes to a file, never to the terminal. Where a
session exists already (a job that came by `spark-submit`, a notebook), it is used as it is.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from ottermq.audit.errors import CantRun
from ottermq.audit.failures import first_line
from ottermq.audit.java import java_home
from ottermq.audit.shipping.workers import is_local, ship

LOCAL = "local[*]"
LOUD = (
    "SQLQueryContextLogger",
    "DataFrameQueryContextLogger",
)  # whole Java stack traces, to stderr
LAST_WORDS = 4096  # bytes of the log, to say why there is no session
SETTINGS = {
    "spark.app.name": "ottermq audit",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "32",  # the most: those that turn out small are joined
    "spark.sql.python.filterPushdown.enabled": "true",  # off in Spark 4 unless asked for
    "spark.python.unix.domain.socket.enabled": "true",  # to the workers: fewer steps than TCP
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}
ON_ONE_MACHINE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
}


@contextmanager
def session(
    log: Path, master: str = LOCAL, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """log: where Spark's own words go. settings: more of Spark's, these first."""
    running = SparkSession.getActiveSession()
    if running:
        ship(running)
        yield running
        return
    spark = start(log, master, settings)
    try:
        yield spark
    finally:
        spark.stop()


def start(
    log: Path, master: str = LOCAL, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session that the caller stops."""
    for name in LOUD:
        logging.getLogger(name).disabled = True
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_local(master) or not os.environ.get("PYSPARK_PYTHON"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    chosen = SETTINGS | (ON_ONE_MACHINE if is_local(master) else {}) | dict(settings or {})
    conf = SparkConf().setMaster(master).setAll(list(chosen.items()))
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(log, "wb") as words:
            streams = {"stdout": words, "stderr": words}
            gateway = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
        context = SparkContext(conf=conf, gateway=gateway)
    except Exception as error:  # Java's, py4j's or Spark's own: whichever was first to notice
        why = _reason(error, log)
        raise CantRun(f"Spark doesn't start on {master}: {why} (all of it: {log})") from None
    spark = SparkSession(context)
    try:
        ship(spark)
    except BaseException:
        spark.stop()
        raise
    return spark


def _reason(error: Exception, log: Path) -> str:
    """The last complaint in the log, else what Python saw of it."""
    words = log.read_bytes()[-LAST_WORDS:].decode(errors="replace").splitlines()
    for line in reversed(words):
        for mark in ("Exception: ", "Error: ", " ERROR "):
            if mark in line:
                return line.partition(mark)[2]
    return first_line(error)
