"""One run of the Kafka load generator, and its results."""

from dataclasses import dataclass

from perf.load import play
from perf.programs import program


@dataclass(frozen=True)
class KafkaLoad:
    seconds: float
    produced: int  # records that were answered; with acks=0, sent
    fetched: int
    produced_rate: float
    fetched_rate: float
    produced_bytes_rate: float
    fetched_bytes_rate: float
    cpu: float  # cores the generator itself took
    watched_cpu: float  # and those of the process group it was told to watch
    p50_us: float  # from a producer to a consumer, at a fixed rate
    p99_us: float
    max_us: float


def run(address: tuple[str, int], *options: object, time_limit: float = 600) -> KafkaLoad:
    """Options as `kafka_load --help` lists them."""
    generator = program("kafka_load", "kafka_load_*.c", "measure.c", "csrc/base/crc32c.c")
    return KafkaLoad(**play(generator, address, options, time_limit))
