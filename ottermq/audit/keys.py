"""The keys with the most records, queue by queue. An AMQP message's key is its routing key."""

from dataclasses import dataclass

from pyspark.sql import Window
from pyspark.sql import functions as F

from ottermq.audit.outcome import Context
from ottermq.audit.records import records

TOP = 10  # per queue
QUEUE = ("vhost", "queue")


@dataclass(frozen=True, slots=True)
class Key:
    vhost: str
    queue: str
    key: str
    records: int
    bytes: int
    share: float  # of the queue's records that have a key


def top_keys(context: Context) -> list[Key]:
    """The largest first, those of a queue together."""
    queue = Window.partitionBy(*QUEUE)
    found = (
        records(context, "key", "size")
        .where("length(key) > 0")
        .groupBy(*QUEUE, "key")
        .agg(F.count("*").alias("records"), F.sum("size").alias("bytes"))
        .withColumn("share", F.col("records") / F.sum("records").over(queue))
        .withColumn("place", F.row_number().over(queue.orderBy(F.desc("records"), "key")))
        .where(F.col("place") <= TOP)
        .orderBy(*QUEUE, "place")
        .drop("place")
    )
    return [
        Key(**{**row.asDict(), "key": bytes(row.key).decode(errors="backslashreplace")})
        for row in found.collect()
    ]
