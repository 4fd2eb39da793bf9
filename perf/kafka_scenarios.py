"""The scenarios on the Kafka side: the same requests to us and to Apache Kafka."""

import itertools
from collections.abc import Callable
from dataclasses import replace

from perf import kafka_clients, kafka_load
from perf.report import Figures
from perf.scenarios import Address, Effort, Measure, Options, Scenario, at_least, at_most, timed

_topics = itertools.count()
PROBES = 30
JIT = 3  # seconds more: a Java broker that has just started is slower than it is
PEERS = ("ottermq", "kafka")
FLUSHING = ("ottermq", "kafka-flush")


def topic(partitions: int) -> Options:
    """A fresh one each time: nobody's second round finds the first one's records."""
    return ("--topic", f"bench-{next(_topics)}", "--create", partitions)


def warm(effort: Effort) -> Options:
    return timed(replace(effort, warm_up=effort.warm_up + JIT))


def settle(address: Address, load: Options) -> None:
    """A partition's first batch is expensive: Kafka syncs a file for each, and stands still
    meanwhile, half a minute for a thousand of them. The scenario isn't about that."""
    before = 0.0
    for _ in range(PROBES):
        rate = kafka_load.run(address, *load, "--seconds", 1, "--warm-up", 1).produced_rate
        if 10_000 < rate < 2 * before:
            return
        before = rate


def produce(record: int, batch: int, acks: int, *options: object, partitions: int = 1) -> Measure:
    shape = ("--record", record, "--batch", batch, "--acks", acks, "--producers", 1, *options)

    def measure(address: Address, own: Options, effort: Effort) -> Figures:
        place = topic(partitions)
        if partitions > 1:
            kafka_load.run(address, *place, *shape, "--records", 10 * partitions, "--keep")
            place = (*place[:2], "--partitions", partitions)
            settle(address, (*place, *shape))
        found = kafka_load.run(address, *place, *shape, *own, *warm(effort))
        per_cpu = found.produced_rate / max(found.watched_cpu, 0.01)
        return {"rate": found.produced_rate, "per CPU second": per_cpu, "load CPU": found.cpu}

    return measure


def fill(address: Address, record: int, total: int, effort: Effort) -> tuple[str, int]:
    """A topic with so many bytes: its name, and how many records that were."""
    count = max(1000, int(total / record * effort.scale))
    place = topic(1)
    shape = ("--record", record, "--producers", 1, "--records", count, "--keep")
    kafka_load.run(address, *place, *shape)
    return str(place[1]), count


def consume(record: int, total: int) -> Measure:
    """From the page cache, again and again over the same records."""

    def measure(address: Address, own: Options, effort: Effort) -> Figures:
        name, _ = fill(address, record, total, effort)
        found = kafka_load.run(address, "--topic", name, "--consumers", 1, *own, *warm(effort))
        per_cpu = found.fetched_rate / max(found.watched_cpu, 0.01)
        return {"rate": found.fetched_rate, "per CPU second": per_cpu, "load CPU": found.cpu}

    return measure


def end_to_end(rate: int) -> Measure:
    options = ("--producers", 1, "--consumers", 1, "--rate", rate, "--record", 100)

    def measure(address: Address, own: Options, effort: Effort) -> Figures:
        found = kafka_load.run(address, *topic(1), *options, *own, *warm(effort))
        return {"p50": found.p50_us, "p99": found.p99_us}

    return measure


def client_produces(client: Callable[[Address, str, int, float], float], record: int) -> Measure:
    def measure(address: Address, own: Options, effort: Effort) -> Figures:
        place = topic(1)
        kafka_load.run(address, *place, "--producers", 1, "--records", 1000, "--keep")
        return {"rate": client(address, str(place[1]), record, effort.seconds)}

    return measure


def librdkafka_consumes(record: int, total: int) -> Measure:
    def measure(address: Address, own: Options, effort: Effort) -> Figures:
        name, _ = fill(address, record, total, effort)
        return {"rate": kafka_clients.librdkafka_consume(address, name, effort.seconds)}

    return measure


def java_consumes(record: int, total: int) -> Measure:
    def measure(address: Address, own: Options, effort: Effort) -> Figures:
        return {"rate": kafka_clients.java_consume(address, *fill(address, record, total, effort))}

    return measure


SCENARIOS = (
    *(
        Scenario(
            f"{record}-{batch >> 10}k",
            f"{record} B records, {batch >> 10} KiB batches, acks=1",
            produce(record, batch, 1),
            (at_least("kafka", 1.5),),
            PEERS,
        )
        for record in (100, 1000)
        for batch in (16_384, 1_200)
    ),
    *(
        Scenario(
            f"{record}-{batch >> 10}k-all",
            f"{record} B records, {batch >> 10} KiB batches, acks=all, synced",
            produce(record, batch, -1),
            (at_least("kafka-flush", 3),),
            FLUSHING,
        )
        for record in (100, 1000)
        for batch in (16_384, 1_200)
    ),
    Scenario(
        "consume", "consume 1 KB records from the page cache", consume(1000, 1 << 29),
        (at_least("kafka", 1.2), at_least("kafka", 1, "per CPU second")), PEERS,
    ),
    Scenario(
        "end-to-end", "from producer to consumer at 10,000 msg/s, 100 B", end_to_end(10_000),
        # The second, of all that was done before.
        (at_most("kafka", 0.5, "p99"), at_most("kafka", 0.2, "own MiB")), PEERS,
    ),
    Scenario(
        "1000-partitions", "1,000 partitions, one producer, 1 KiB batches of 100 B",
        produce(100, 1_200, 1, "--batches", 50, partitions=1000),
        (at_least("kafka", 1), at_most("kafka", 0.2, "start s")),
        PEERS,
    ),
    # The client is the limit of these: shown, held to nothing.
    Scenario(
        "librdkafka-produce", "librdkafka produces 100 B records, acks=1",
        client_produces(kafka_clients.librdkafka_produce, 100), (), PEERS,
    ),
    Scenario(
        "java-produce", "the Java client produces 100 B records, acks=1",
        client_produces(kafka_clients.java_produce, 100), (), PEERS,
    ),
    Scenario(
        "librdkafka-consume", "librdkafka consumes 1 KB records",
        librdkafka_consumes(1000, 1 << 29), (), PEERS,
    ),
    Scenario(
        "java-consume", "the Java client consumes 1 KB records", java_consumes(1000, 1 << 29),
        (), PEERS,
    ),
)  # fmt: skip
