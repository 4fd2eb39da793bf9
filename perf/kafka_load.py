"""One run of the Kafka load generator, and what it found."""

import json
import subprocess
from dataclasses import dataclass

from perf.load import LoadFailed
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
    place = f"{address[0]}:{address[1]}"
    generator = program("kafka_load", "kafka_load_*.c", "measure.c", "../csrc/crc32c.c")
    command = [str(generator), "--address", place, *map(str, options)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=time_limit)
    except subprocess.TimeoutExpired as error:
        raise LoadFailed(f"no end after {time_limit:g} s") from error
    if done.returncode:
        raise LoadFailed(done.stderr.strip() or f"exit code {done.returncode}")
    return KafkaLoad(**json.loads(done.stdout))
