"""One bit of one batch, flipped while the broker was down or while it runs.

It costs that batch, for every kind of reader; it is told, and the file stays.
"""

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.amqp.wire import Client
from tests.brokers import Broker
from tests.damage.flaws import batches, flip, health, metric, segments
from tests.examples import shortened

COUNT = 600
A_BATCH = 20  # messages that are confirmed together
PATIENCE = 60.0
LARGE = b"." * (100 << 10)  # goes by sendfile


def body(number: int) -> bytes:
    return b"%06d" % number + b"." * 200


def publish(broker: Broker, queue: str, kind: str) -> None:
    with Client(broker.address("amqp")) as client:
        channel = client.channel()
        channel.declare(queue, {"x-queue-type": kind}, durable=True)
        channel.confirm()
        for number in range(COUNT):
            channel.publish(body(number), key=queue, delivery_mode=2)
            if number % A_BATCH == A_BATCH - 1:
                channel.confirmed(number + 1)


def consume(broker: Broker, queue: str, expected: int, **arguments: object) -> list[int]:
    """What comes, acknowledged."""
    with Client(broker.address("amqp")) as client:
        channel = client.channel()
        channel.qos(100)
        channel.consume(queue, arguments=arguments)
        got = []
        for _ in range(expected):
            message = channel.delivery()
            channel.ack(message.tag)
            got.append(int(message.body[:6]))
        assert channel.nothing_comes(), channel.take()
        return got


# Where in the batch, and which bit: 0 is the lowest. Only the first is under the checksum.
BITS = {"record": (100, 0), "offset far off": (4, 3), "offset close by": (7, 4), "length": (10, 4)}
each_bit = pytest.mark.parametrize("bit", BITS)


def harm(path: Path, bit: str = "record") -> set[int]:
    """A bit of a batch in the middle: the numbers that it costs."""
    every = list(batches(path))
    position, info = every[len(every) // 2]
    at, which = BITS[bit]
    flip(path, position + at, which)
    return set(range(info.base_offset, info.base_offset + info.last_offset_delta + 1))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def is_told(broker: Broker, lost: set[int], name: str) -> None:
    line = broker.wait_for(rf"log=\S*{name}.* first=(\d+) last=(\d+)")
    assert (int(line[1]), int(line[2])) == (min(lost), max(lost))
    status, answer = health(broker)
    assert status == 503 and answer["status"] == "damaged" and name in answer["reason"]
    assert metric(broker, "ottermq_damaged_places_total") == 1
    assert metric(broker, "ottermq_damaged_records_total") == len(lost)


@each_bit
@pytest.mark.parametrize("kind", shortened(["classic", "quorum"], 1))
def test_a_queue_delivers_all_but_the_bad_batch_and_keeps_its_file(
    data: Path, kind: str, bit: str
) -> None:
    with Broker(data) as broker:
        publish(broker, "orders", kind)
    (path,) = segments(data, "orders")
    lost = harm(path, bit)
    left = sorted(set(range(COUNT)) - lost)
    with Broker(data) as broker:
        assert consume(broker, "orders", len(left)) == left
        is_told(broker, lost, "orders")
        with Client(broker.address("amqp")) as client:
            assert client.channel().look("orders")[0] == 0
        publish(broker, "orders", kind)  # more comes and goes
        assert len(consume(broker, "orders", COUNT)) == COUNT
        time.sleep(2.5)  # retention looks every second
        assert path.exists()
    # Tried again by the next start, and told again.
    with Broker(data) as broker:
        assert consume(broker, "orders", 0) == []
        is_told(broker, lost, "orders")
        assert path.exists()


@pytest.mark.parametrize("bit", shortened(BITS, 2))
def test_the_bad_batch_is_found_while_the_broker_runs(data: Path, bit: str) -> None:
    with Broker(data) as broker:
        publish(broker, "orders", "classic")
        (path,) = wait_for_segment(data, "orders")
        lost = harm(path, bit)
        left = sorted(set(range(COUNT)) - lost)
        assert consume(broker, "orders", len(left)) == left
        is_told(broker, lost, "orders")


@pytest.mark.parametrize("at", shortened([66, 61], 1), ids=["offset", "length"])
def test_a_large_message_that_is_sent_from_the_file_unseen(data: Path, at: int) -> None:
    """Nobody looks at its checksum, unless its record makes no sense."""
    with Broker(data) as broker:
        with Client(broker.address("amqp")) as client:
            channel = client.channel()
            channel.declare("orders", durable=True)
            channel.confirm()
            for number in range(30):
                channel.publish(body(number) + LARGE, key="orders", delivery_mode=2)
                channel.confirmed(number + 1)
        (path,) = wait_for_segment(data, "orders", 30)
        position, info = list(batches(path))[15]
        flip(path, position + at, 1)
        lost = {info.base_offset}
        left = sorted(set(range(30)) - lost)
        assert consume(broker, "orders", len(left)) == left
        is_told(broker, lost, "orders")
        time.sleep(2.5)  # retention looks every second
        assert path.exists()


def wait_for_segment(data: Path, name: str, count: int = COUNT) -> list[Path]:
    limit = time.monotonic() + PATIENCE
    while True:
        found = segments(data, name)
        if found and sum(info.record_count for _, info in batches(found[0])) == count:
            return found
        assert time.monotonic() < limit
        time.sleep(0.1)


@each_bit
def test_a_streams_readers_get_all_but_the_bad_batch(data: Path, bit: str) -> None:
    with Broker(data) as broker:
        publish(broker, "events", "stream")
    (path,) = segments(data, "events")
    lost = harm(path, bit)
    left = sorted(set(range(COUNT)) - lost)
    with Broker(data) as broker:
        for _ in range(2):
            found = consume(broker, "events", len(left), **{"x-stream-offset": "first"})
            assert found == left
        is_told(broker, lost, "events")
        with Client(broker.address("amqp")) as client:
            assert client.channel().look("events")[0] == len(left)


def kafka(broker: Broker, group: str = "readers") -> Consumer:
    host, port = broker.address("kafka")
    return Consumer(
        {
            "bootstrap.servers": f"{host}:{port}",
            "group.id": group,
            "enable.auto.commit": False,
            # At times librdkafka goes on at an offset that it read out of the bad batch.
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )


def read_over(consumer: Consumer, topic: str, lost: set[int]) -> tuple[list[int], list[int]]:
    """Numbers, and where it was told of errors; it goes on behind what it can't read."""
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    errors: list[int] = []
    limit = time.monotonic() + PATIENCE
    while (not found or found[-1] != COUNT - 1) and time.monotonic() < limit:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if error := message.error():
            if error.code() != KafkaError._AUTO_OFFSET_RESET:
                errors.append(error.code())
            # No seek: librdkafka refuses it while it still looks its offset up.
            consumer.assign([TopicPartition(topic, 0, max(lost) + 1)])
        else:
            found.append(int((message.value() or b"")[:6]))
    return found, errors


@each_bit
@pytest.mark.parametrize("known", [False, True])
def test_a_kafka_consumer_is_told_of_it_and_gets_all_behind_it(
    data: Path, known: bool, bit: str
) -> None:
    with Broker(data) as broker:
        publish(broker, "events", "stream")
    (path,) = segments(data, "events")
    lost = harm(path, bit)
    left = sorted(set(range(COUNT)) - lost)
    with Broker(data) as broker:
        if known:  # a reader that looks at checksums was here
            assert consume(broker, "events", len(left), **{"x-stream-offset": "first"}) == left
        consumer = kafka(broker)
        try:
            found, errors = read_over(consumer, "events", lost)
        finally:
            consumer.close()
        assert found == left
        assert errors and {KafkaError.INVALID_MSG, KafkaError._BAD_MSG} >= set(errors)


def test_a_spoilt_header_costs_kafkas_readers_no_more(data: Path) -> None:
    with Broker(data) as broker:
        publish(broker, "events", "stream")
    (path,) = segments(data, "events")
    every = list(batches(path))
    position, info = every[len(every) // 2]
    flip(path, position + 10, 3)  # its length
    lost = set(range(info.base_offset, info.base_offset + info.last_offset_delta + 1))
    with Broker(data) as broker:
        consumer = kafka(broker)
        try:
            found, errors = read_over(consumer, "events", lost)
        finally:
            consumer.close()
        assert found == sorted(set(range(COUNT)) - lost)
        assert errors and {KafkaError.INVALID_MSG, KafkaError._BAD_MSG} >= set(errors)
        is_told(broker, lost, "events")


def test_a_bad_batch_of_the_groups_log_costs_no_other_group(data: Path) -> None:
    names = [f"group-{number}" for number in range(20)]
    with Broker(data) as broker:
        host, port = broker.address("kafka")
        producer = Producer({"bootstrap.servers": f"{host}:{port}"})
        producer.produce("events", b"x")
        assert producer.flush(PATIENCE) == 0
        for name in names:
            consumer = kafka(broker, name)
            consumer.commit(offsets=[TopicPartition("events", 0, 1)], asynchronous=False)
            consumer.close()
    (path,) = data.glob("vhosts/*/queues/*groups*/*.log")
    every = list(batches(path))
    flip(path, every[len(every) // 2][0] + 70)
    with Broker(data) as broker:
        kept = 0
        for name in names:
            consumer = kafka(broker, name)
            (place,) = consumer.committed([TopicPartition("events", 0)], timeout=PATIENCE)
            kept += place.offset == 1
            consumer.close()
        assert kept >= len(names) - 1
        assert health(broker)[0] == 503
