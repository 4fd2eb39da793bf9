"""The rules an audit goes by are those the broker goes by."""

from datetime import timedelta

import pika
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottermq.audit.policies import Policies
from ottermq.audit.snapshot import take
from ottermq.config import load
from ottermq.wal.retention import Policy
from tests.audit import sample_data
from tests.brokers import KAFKA_ADMIN

DAY = 86_400_000
CONFIG = "queues:\n  - {match: 'kept*', retention: {max_age: 3d, keep_settled: true}}\n"


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Policy]:
    folder = tmp_path_factory.mktemp("ruled")
    file = folder / "config.yaml"
    file.write_text(CONFIG)
    with sample_data.at_work(folder / "data") as broker:
        host, port = broker.address("amqp")
        with pika.BlockingConnection(pika.ConnectionParameters(host, port)) as connection:
            channel = connection.channel()
            channel.queue_declare("plain", durable=True)
            channel.queue_declare("kept-orders", durable=True)
            aged = {"x-queue-type": "stream", "x-max-age": "7D"}
            channel.queue_declare("aged", durable=True, arguments=aged)
        kafka = "{}:{}".format(*broker.address("kafka"))
        admin = AdminClient({"bootstrap.servers": kafka, **KAFKA_ADMIN})
        topics = [
            NewTopic("short", 2, 1, config={"retention.ms": "60000"}),
            NewTopic("squeezed", 1, 1, config={"cleanup.policy": "compact"}),
            NewTopic("sealed", 1, 1, config={"legal.hold": "true"}),
        ]
        for made in admin.create_topics(topics).values():
            made.result(60)
    snapshot = take(folder / "data")
    found = Policies(folder / "data", snapshot.logs, load(file))
    return {f"{log.queue}/{log.partition}": found.of(log) for log in snapshot.logs}


def test_a_work_queues_records_go_when_they_are_settled(policies: dict[str, Policy]) -> None:
    assert policies["plain/0"].drops_settled and policies["plain/0"].max_age_ms is None


def test_the_configuration_file_rules_by_name(policies: dict[str, Policy]) -> None:
    assert policies["kept-orders/0"].max_age_ms == timedelta(days=3) // timedelta(milliseconds=1)
    assert not policies["kept-orders/0"].drops_settled


def test_a_stream_goes_by_its_arguments(policies: dict[str, Policy]) -> None:
    assert policies["aged/0"] == Policy(max_age_ms=7 * DAY)


def test_a_topic_goes_by_what_was_altered_all_its_partitions_do(
    policies: dict[str, Policy],
) -> None:
    assert policies["short/0"].max_age_ms == policies["short/1"].max_age_ms == 60_000


def test_a_compacted_topic_forgets_nothing_by_age(policies: dict[str, Policy]) -> None:
    assert policies["squeezed/0"].max_age_ms is None


def test_a_legal_hold_comes_first(policies: dict[str, Policy]) -> None:
    assert policies["sealed/0"] == Policy(legal_hold=True)
