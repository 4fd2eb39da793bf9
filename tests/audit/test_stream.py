"""Structured Streaming over the log: each record once, also when the query starts again."""

from pathlib import Path

from pyspark.sql import SparkSession

from ottermq.audit.source.datasource import register
from tests.audit import logs
from tests.brokers import Broker


def publish(broker: Broker, numbers: range) -> None:
    channel = logs.channel_to(broker)
    channel.queue_declare("orders", durable=True)
    for number in numbers:
        channel.basic_publish("", "orders", b"%d" % number, logs.PERSISTENT)
    channel.connection.close()


def test_a_query_that_starts_again_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    register(spark)
    data, out, checkpoint = tmp_path / "data", str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def run_once(**options: str) -> list[int]:
        stream = spark.readStream.format("ottermq").option("columns", "queue,offset,body")
        query = (
            stream.options(path=str(data), queue="orders", **options)
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start(out)
        )
        query.awaitTermination(600)
        assert query.exception() is None
        rows = spark.read.parquet(out).collect()
        assert all(row.body == b"%d" % row.offset for row in rows)
        return sorted(row.offset for row in rows)

    with Broker(data, env=logs.SMALL_SEGMENTS) as broker:
        publish(broker, range(30))
        assert run_once() == list(range(30))
        publish(broker, range(30, 50))
        assert run_once(maxOffsetsPerTrigger="7") == list(range(50))
    assert run_once() == list(range(50)), "nothing came since"
