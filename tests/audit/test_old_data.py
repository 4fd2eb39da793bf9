"""What an earlier version left behind is clean for an audit, before today's broker opens it and
after (tests/test_old_data.py looks at what is in it)."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottermq.audit.findings import Finding
from ottermq.audit.jobs import integrity
from ottermq.audit.outcome import Context
from ottermq.config import load
from tests.brokers import Broker
from tests.old_data import ENDS, unpack


def findings(spark: SparkSession, data: Path) -> list[Finding]:
    outcome = integrity.run(Context(spark, data, datetime.now(UTC), load()))
    assert int(outcome.headline["records"]) > 500
    return list(outcome.findings)


@pytest.mark.parametrize("end", ENDS)
def test_it_is_whole_before_and_after_a_life_of_today(
    spark: SparkSession, tmp_path: Path, end: str
) -> None:
    data = unpack(end, tmp_path)
    assert findings(spark, data) == []
    with Broker(data) as broker:
        assert broker.stop() == 0
    assert findings(spark, data) == []
