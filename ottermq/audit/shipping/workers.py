"""Gives a session's workers this package, and pyarrow where they have none."""

import subprocess
from typing import TYPE_CHECKING

from ottermq.audit.errors import CantRun
from ottermq.audit.failures import first_line
from ottermq.audit.shipping.pack import OURS, pack

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

ARROW = "pyarrow"
PACKED = (f"{OURS}-", f"{ARROW}-")
ASKED_A_CORE = 2  # so that most workers are asked, in whatever order they are free
_READY: set[str] = set()  # ids of applications


def is_local(master: str) -> bool:
    """Its workers are on this machine, and run on our own interpreter."""
    return master.partition("[")[0] == "local"


def ship(spark: "SparkSession") -> None:
    """Before the first job. What came by --py-files isn't sent again."""
    context = spark.sparkContext
    if is_local(str(context.master)) or context.applicationId in _READY:
        return
    if not _has(context, OURS):
        context.addPyFile(str(pack()))
    lacking = [_planner_lacks_arrow(context), _workers_lack_arrow(context)]
    if any(lacking) and not _has(context, ARROW):
        context.addPyFile(str(pack(ARROW)))
    _tell_planners(context)
    _READY.add(context.applicationId)


def _has(context: "SparkContext", package: str) -> bool:
    return any(name.startswith(f"{package}-") for name in context._python_includes or ())


def _tell_planners(context: "SparkContext") -> None:
    """Reads are planned on this machine, by processes on the workers' interpreter. Those of batches
    want pyarrow before they look at a pack, and those of streams don't find packs at all: Spark
    looks in another folder. So they get ours by their path. On workers it leads nowhere."""
    from pyspark import SparkFiles

    packs = (name for name in context._python_includes or () if name.startswith(PACKED))
    paths = [SparkFiles.get(name) for name in packs]
    before = context.environment.get("PYTHONPATH")
    context.environment["PYTHONPATH"] = ":".join([*paths, *([before] if before else [])])


def _planner_lacks_arrow(context: "SparkContext") -> bool:
    asked = [context.pythonExec, "-c", f"import {ARROW}"]
    try:
        return subprocess.run(asked, capture_output=True, cwd="/").returncode != 0
    except OSError as error:
        raise CantRun(f"PYSPARK_PYTHON={context.pythonExec}: {error.strerror}") from None


def _workers_lack_arrow(context: "SparkContext") -> bool:
    """Also the first to notice when our pack doesn't fit them."""
    slices = context.defaultParallelism * ASKED_A_CORE
    try:
        return any(context.parallelize(range(slices), slices).map(lacks_arrow).collect())
    except Exception as error:  # Java's, py4j's or Spark's own
        raise CantRun(first_line(error)) from None


def lacks_arrow(_: int) -> bool:
    """On a worker: there is none, or none that is new enough for Spark."""
    from pyspark.sql.pandas.utils import require_minimum_pyarrow_version

    try:
        require_minimum_pyarrow_version()
    except ImportError:
        return True
    return False
