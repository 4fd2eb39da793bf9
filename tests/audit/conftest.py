"""One Spark session for the whole run: it takes 10 to 20 s to start. For its sake all tests in this
folder run in one process (tests/conftest.py)."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from ottermq.audit.spark import start
from tests.audit import sample_data
from tests.audit.cluster import Cluster
from tests.audit.sample_data import SampleData

SMALL = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    running = start(tmp_path_factory.mktemp("spark") / "spark.log", "local[2]", SMALL)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SampleData:
    """To be looked at, and copied before it is harmed."""
    return sample_data.fill(tmp_path_factory.mktemp("sample") / "data")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Master and two workers; `cluster.url` is what --master takes."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
