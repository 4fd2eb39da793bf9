"""OtterMQ's Kafka beside Apache Kafka, in one run: `make bench ARGS="kafka"`."""

from collections.abc import Callable, Sequence
from pathlib import Path

from perf import apache_kafka, comparison, tables
from perf.apache_kafka import ApacheKafka, NotFetched
from perf.comparison import Comparison
from perf.kafka_scenarios import SCENARIOS
from perf.ottermq import OtterMQ
from perf.served import Served

# An acknowledgement that means "on disk", as ours does with acks=all.
EACH_BATCH = "log.flush.interval.messages=1"
SERVERS: dict[str, Callable[[Path], Served]] = {
    "ottermq": lambda folder: OtterMQ(folder, listener="kafka"),
    "kafka": ApacheKafka,
    "kafka-flush": lambda folder: ApacheKafka(folder, EACH_BATCH, name="Apache Kafka, flushing"),
}


def missing(broker: str) -> str | None:
    if broker.startswith("kafka"):
        try:
            apache_kafka.jars()
        except NotFetched as error:
            return str(error)
    return None


KAFKA = Comparison(
    "kafka",
    __doc__ or "",
    ("ottermq", "kafka", "kafka-flush"),
    SCENARIOS,
    SERVERS,
    missing,
    tables.KAFKA,
    "Records",
)


def main(arguments: Sequence[str]) -> None:
    comparison.run(KAFKA, arguments)
