"""Rates of real clients: librdkafka (through confluent-kafka) and the Java client (by Kafka's
tools). Shown beside the load generator's numbers: the client is the limit.
"""

import itertools
import subprocess
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from perf import apache_kafka
from perf.apache_kafka import NotFetched
from perf.load import LoadFailed
from perf.scenarios import Address

PATIENCE = 300.0
SILENCE = 30.0
MANY = 10_000  # records per call
FIRST_RATE = 200_000  # a second: what the tools are given to do follows from it
_groups = itertools.count()


def librdkafka_produce(address: Address, topic: str, record: int, seconds: float) -> float:
    """Records a second, the last of them acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap(address), "acks": 1})
    value, began = bytes(record), time.monotonic()
    before = librdkafka_end(address, topic)
    while time.monotonic() < began + seconds:
        for _ in range(MANY):
            try:
                producer.produce(topic, value, partition=0)
            except BufferError:  # as many under way as it keeps
                producer.poll(0.01)
        producer.poll(0)
    if producer.flush(PATIENCE):
        raise LoadFailed("librdkafka: records without an answer")
    took = time.monotonic() - began
    return (librdkafka_end(address, topic) - before) / took


def librdkafka_end(address: Address, topic: str) -> int:
    consumer = librdkafka_consumer(address)
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE)
        return int(end)
    finally:
        consumer.close()


def librdkafka_consume(address: Address, topic: str, seconds: float) -> float:
    """Records a second, from the beginning, for so long or to the end."""
    consumer, end = librdkafka_consumer(address), librdkafka_end(address, topic)
    at = count = 0
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        began = heard = time.monotonic()
        while at < end and (now := time.monotonic()) < began + seconds:
            messages = consumer.consume(MANY, 0.05)
            if failed := [message for message in messages if message.error()]:
                raise LoadFailed(f"librdkafka: {failed[0].error()}")
            if messages:
                heard, count, at = now, count + len(messages), (messages[-1].offset() or 0) + 1
            elif now > heard + SILENCE:
                raise LoadFailed(f"librdkafka: nothing comes at {at} of {end}")
        return count / (time.monotonic() - began)
    finally:
        consumer.close()


def librdkafka_consumer(address: Address) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap(address),
            "group.id": "bench",
            "enable.auto.commit": False,
            # Else the test would measure librdkafka's pause of a second whenever 64 MiB are queued.
            "fetch.queue.backoff.ms": 10,
        }
    )


def java_produce(address: Address, topic: str, record: int, seconds: float) -> float:
    """As kafka-producer-perf-test says it; the first seconds, while Java warms up, don't count."""
    count = int(FIRST_RATE * seconds)
    output = tool(
        "ProducerPerformance", "--topic", topic, "--num-records", 2 * count,
        "--warmup-records", count, "--record-size", record, "--throughput", -1,
        "--bootstrap-server", bootstrap(address), "--command-property", "acks=1",
    )  # fmt: skip
    # ... records sent, 812345.1 records/sec (...), ...
    [*_, last] = [line for line in output.splitlines() if "records/sec" in line]
    return float(last.partition(" records/sec")[0].rpartition(" ")[2])


def java_consume(address: Address, topic: str, count: int) -> float:
    """As kafka-consumer-perf-test says it, without the time its group took to form."""
    output = tool(
        "ConsumerPerformance", "--topic", topic, "--num-records", count, "--timeout", 60_000,
        "--bootstrap-server", bootstrap(address), "--group", f"bench-{next(_groups)}",
    )  # fmt: skip
    # start.time, end.time, ..., fetch.nMsg.sec
    head, line = [line.split(", ") for line in output.splitlines() if ", " in line][-2:]
    found = dict(zip(head, line, strict=True))
    if int(found["data.consumed.in.nMsg"]) < count:
        raise LoadFailed(f"the Java client got {found['data.consumed.in.nMsg']} of {count} records")
    return float(found["fetch.nMsg.sec"])


def tool(name: str, *arguments: object) -> str:
    try:
        jars = apache_kafka.jars()
    except NotFetched as error:
        raise LoadFailed(str(error)) from error
    command = ["java", "-cp", f"{jars}/*", f"org.apache.kafka.tools.{name}", *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise LoadFailed(f"{name}: no end after {PATIENCE:g} s") from error
    if done.returncode:
        raise LoadFailed(f"{name}: {done.stderr.strip()[-500:]}")
    return done.stdout


def bootstrap(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
