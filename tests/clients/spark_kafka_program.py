"""Runs on the Spark that has a Kafka connector: a line of JSON in, a line of JSON out.
tests/clients/spark_kafka.py is its other end."""

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

ROW = (
    "topic",
    "partition",
    "offset",
    "cast(unix_millis(timestamp) as long) timestamp",
    "cast(key as string) key",
    "cast(value as string) value",
)
HEADERS = "transform(headers, h -> struct(h.key, cast(h.value as string) value)) headers"
WRITTEN = (
    "topic string, key string, value string, partition int, "
    "headers array<struct<key string, value binary>>"
)


class Program:
    def __init__(self, jars: str) -> None:
        self.spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.jars", jars)
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "1g")
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate()
        )
        self.following: StreamingQuery | None = None
        self.found: list[dict[str, Any]] = []

    def read(self, options: dict[str, str]) -> list[dict[str, Any]]:
        return rows(self.spark.read.format("kafka").options(**options).load())

    def write(self, rows: list[dict[str, Any]], options: dict[str, str]) -> None:
        frame = self.spark.createDataFrame([told(row) for row in rows], WRITTEN)
        frame.write.format("kafka").options(**options).save()

    def news(self, checkpoint: str, options: dict[str, str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        query = self._stream(options).foreachBatch(lambda each, _: found.extend(rows(each)))
        query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query.start().awaitTermination()
        return found

    def copy(self, checkpoint: str, options: dict[str, str], sink: dict[str, str]) -> None:
        frame = self.spark.readStream.format("kafka").options(**options).load()
        query = frame.select("key", F.upper(F.col("value").cast("string")).alias("value"))
        writing = query.writeStream.format("kafka").options(**sink)
        writing = writing.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        writing.start().awaitTermination()

    def follow(self, checkpoint: str, options: dict[str, str]) -> None:
        self.found = found = []
        query = self._stream(options).foreachBatch(lambda each, _: found.extend(rows(each)))
        query = query.option("checkpointLocation", checkpoint)
        self.following = query.trigger(processingTime="500 milliseconds").start()

    def seen(self) -> list[dict[str, Any]]:
        assert self.following
        if error := self.following.exception():
            raise error
        return self.found

    def leave(self) -> None:
        assert self.following
        self.following.stop()

    def _stream(self, options: dict[str, str]) -> Any:
        return self.spark.readStream.format("kafka").options(**options).load().writeStream


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    headers = [HEADERS] if "headers" in frame.columns else []
    return [row.asDict(recursive=True) for row in frame.selectExpr(*ROW, *headers).collect()]


def told(row: dict[str, Any]) -> tuple[Any, ...]:
    headers = row.get("headers")
    pairs = headers and [(name, str(value).encode()) for name, value in headers.items()]
    return (row.get("topic"), row.get("key"), row["value"], row.get("partition"), pairs)


def main() -> None:
    program = Program(sys.argv[1])
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"result": getattr(program, asked.pop("do"))(**asked)}
        except Exception as error:
            answer = {"error": str(error)[:3000]}
        print(json.dumps(answer), file=answers, flush=True)
    program.spark.stop()


main()
