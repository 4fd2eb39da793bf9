"""A data directory as a real broker leaves it, written through real clients; and ways to harm it.

orders     a work queue by pika: some of it acked, one message-id twice
clicks     a stream by pika
payments   a topic of two partitions by librdkafka, idempotent
"""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pika
import xxhash
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottermq.wal import manifest
from ottermq.wal.file_window import Window
from ottermq.wal.segmentfile import Placed, batches
from tests.brokers import Broker
from tests.wal.stopped_store import flip, overwrite

SMALL_SEGMENTS = {
    "OTTERMQ_WAL__SEGMENT_SIZE": "64KiB",
    "OTTERMQ_WAL__RETENTION__CHECK_INTERVAL": "1d",
}
STREAMS = ("clicks", "views", "visits", "taps", "likes", "shares", "tags", "notes")
ORDERS, ACKED, EACH_STREAM, PAYMENTS = 90, 10, 70, 90
BODY = bytes(4000)
TWICE = "order-41"


@dataclass(frozen=True)
class SampleData:
    data: Path

    def copy(self, to: Path) -> "SampleData":
        shutil.copytree(self.data, to)
        return SampleData(to)

    def folder(self, log: str) -> Path:
        [found] = self.data.glob(f"vhosts/*/queues/{log}.*")
        return found

    def segments(self, log: str) -> list[Path]:
        return sorted(self.folder(log).glob("*.log"))

    # -- harm

    def flip_a_bit(self, log: str) -> None:
        """In a record of the second segment's second batch."""
        path = self.segments(log)[1]
        flip(path, placed(path)[1].position + 100)

    def remove_a_segment(self, log: str) -> None:
        self.segments(log)[1].unlink()

    def remove_a_segment_and_its_indexes(self, log: str) -> None:
        path = self.segments(log)[1]
        for file in self.folder(log).glob(f"{path.stem}.*"):
            file.unlink()

    def forget_a_segment(self, log: str) -> None:
        """As one who covers his tracks: the manifest doesn't name it any more."""
        base = int(self.segments(log)[1].stem)
        self.remove_a_segment_and_its_indexes(log)
        self._rewrite_manifest(log, base, b"")

    def lie_in_the_manifest(self, log: str) -> None:
        """Of the second segment: its newest record is said to be of 1970."""
        base = int(self.segments(log)[1].stem)
        found = manifest.load(self.folder(log))
        assert found
        [known] = [each for each in found.segments if each.base_offset == base]
        numbers = (base, known.next_offset, known.size, known.first_timestamp, 1)
        self._rewrite_manifest(log, base, b"segment %d %d %d %d %d\n" % numbers)

    def _rewrite_manifest(self, log: str, base: int, to: bytes) -> None:
        """The line of one segment, and a checksum that is right again."""
        named = self.folder(log) / manifest.NAME
        lines = named.read_bytes().splitlines(keepends=True)[:-1]
        body = b"".join(to if line.startswith(b"segment %d " % base) else line for line in lines)
        named.write_bytes(body + b"xxh3 %s\n" % xxhash.xxh3_64_hexdigest(body).encode())

    def spoil_the_manifest(self, log: str) -> None:
        flip(self.folder(log) / manifest.NAME, 30)

    def put_a_copy_back(self, log: str) -> None:
        """The second segment's batches but its first, as a segment of their own."""
        path = self.segments(log)[1]
        second = placed(path)[1]
        copy = path.with_name(f"{second.base_offset:020}.log")
        copy.write_bytes(path.read_bytes()[second.position :])

    def tear(self, log: str) -> None:
        """Half a batch at the end of the last segment, as power that fails leaves it."""
        path = self.segments(log)[-1]
        first = placed(path)[0]
        half = path.read_bytes()[: first.size // 2]
        with open(path, "ab") as file:
            file.write(half)

    def cut_a_segment(self, log: str) -> None:
        """Within its first batch: nothing of it can be read, and a start sets it aside."""
        os.truncate(self.segments(log)[1], 50)

    def spoil_an_index(self, log: str) -> None:
        overwrite(self.segments(log)[1].with_suffix(".index"), 4, b"\0\0\0\1")

    def leave_an_orphan(self, log: str) -> None:
        (self.folder(log) / "copy-of-segment.bak").write_bytes(b"x")

    def write_a_batch_again(self, log: str) -> None:
        """The last segment's last one, once more behind itself: only its offsets are others."""
        path = self.segments(log)[-1]
        last = placed(path)[-1]
        raw = path.read_bytes()
        copy = bytearray(raw[last.position : last.position + last.size])
        copy[:8] = (last.last_offset + 1).to_bytes(8, "big")
        path.write_bytes(raw + copy)


def placed(path: Path) -> list[Placed]:
    with Window(path) as window:
        return [each for each in batches(window) if isinstance(each, Placed)]


@contextmanager
def at_work(data: Path) -> Iterator[Broker]:
    with Broker(data, env=SMALL_SEGMENTS) as broker:
        yield broker


def fill(data: Path) -> SampleData:
    with at_work(data) as broker:
        write_amqp(broker)
        write_kafka(broker)
    return SampleData(data)


def write_amqp(broker: Broker) -> None:
    host, port = broker.address("amqp")
    with pika.BlockingConnection(pika.ConnectionParameters(host, port)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        for stream in STREAMS:
            channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_delivery()
        for number in range(ORDERS):
            id = TWICE if number in (41, 50) else f"order-{number}"
            properties = pika.BasicProperties(delivery_mode=2, message_id=id)
            channel.basic_publish("", "orders", BODY, properties)
        for number in range(EACH_STREAM * len(STREAMS)):
            stream = STREAMS[number % len(STREAMS)]
            channel.basic_publish("", stream, BODY, pika.BasicProperties(delivery_mode=2))
        for _ in range(ACKED):
            got, _, _ = channel.basic_get("orders")
            assert got and got.delivery_tag
            channel.basic_ack(got.delivery_tag)


def write_kafka(broker: Broker) -> None:
    servers = "{}:{}".format(*broker.address("kafka"))
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("payments", 2, 1)])["payments"].result(60)
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "batch.num.messages": 10}
    )
    for number in range(PAYMENTS):
        producer.produce("payments", BODY, key=f"customer-{number % 10}", partition=number % 2)
    assert producer.flush(60) == 0


@contextmanager
def under_load(broker: Broker, queue: str = "orders", stream: str = "clicks") -> Iterator[None]:
    """Somebody publishes and acks all the while."""
    over = threading.Event()

    def work() -> None:
        host, port = broker.address("amqp")
        with pika.BlockingConnection(pika.ConnectionParameters(host, port)) as connection:
            channel = connection.channel()
            channel.queue_declare(queue, durable=True)
            channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
            properties = pika.BasicProperties(delivery_mode=2)
            while not over.wait(0.05):  # the audit has to keep up on a busy machine, too
                for _ in range(10):
                    channel.basic_publish("", queue, b"more", properties)
                    channel.basic_publish("", stream, b"more", properties)
                for _ in range(8):
                    got, _, _ = channel.basic_get(queue)
                    if got and got.delivery_tag:
                        channel.basic_ack(got.delivery_tag)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        over.set()
        worker.join()
