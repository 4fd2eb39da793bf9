"""A Kafka producer while the disk is full: it is told at once, and can come again."""

import time
from pathlib import Path

from ottermq.kafka.errors import Error
from tests.amqp.conformance.test_load_alarms import on_a_disk
from tests.engine.kafka_plane import batch
from tests.kafka.wire import Link

PATIENCE = 60.0


def produce(link: Link, topic: str) -> int:
    link.send_produce(topic, 0, batch(b"x"))
    return link.produced()[0]


def test_a_producer_is_told_of_a_full_disk_instead_of_waiting_for_it(tmp_path: Path) -> None:
    with on_a_disk(tmp_path, OTTERMQ_WAL__LOW_SPACE_LIMIT="100MiB") as (broker, recording):
        with Link(broker.address("kafka")) as link:
            link.create("orders")
            assert produce(link, "orders") == 0
            recording.faults.report_free_space(50 << 20)
            broker.wait_for("less than .*low_space_limit")
            began = time.monotonic()
            assert produce(link, "orders") == Error.KAFKA_STORAGE_ERROR
            assert time.monotonic() - began < 10
            assert link.read_all("orders", 0) == [(0, b"x")]
            recording.faults.report_free_space(None)
            limit = time.monotonic() + PATIENCE
            while produce(link, "orders") != 0:
                assert time.monotonic() < limit, "it is never taken again"
                time.sleep(0.05)
