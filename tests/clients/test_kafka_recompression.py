"""Topics with a codec of their own: whatever producers send, one codec is what lies on disk."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from ottermq.kafka.configs import codec_name
from ottermq.storage.codecs import Codec
from ottermq.wal.records import CONTROL, Batch, batches
from tests.brokers import Broker, run
from tests.clients.test_kafka_admin import done
from tests.clients.test_kafka_python import consume, produce
from tests.clients.test_kafka_transactions import in_transaction, read_all, transactional
from tests.examples import shortened

PATIENCE = 60.0
SENT = ("none", "gzip", "snappy", "lz4", "zstd")
Make = Callable[..., str]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def kafka(broker: Broker) -> str:
    host, port = broker.address("kafka")
    return f"{host}:{port}"


@pytest.fixture
def make(kafka: str) -> Make:
    """A topic of that name with these configs."""
    admin = AdminClient({"bootstrap.servers": kafka})

    def create(name: str, **configs: str) -> str:
        config = {key.replace("_", "."): value for key, value in configs.items()}
        done(admin.create_topics([NewTopic(name, config=config)]))
        return name

    return create


def on_disk(broker: Broker, topic: str) -> list[Batch]:
    """What its files hold when the broker has stopped."""
    broker.stop()
    files = sorted(broker.data.glob(f"vhosts/*/queues/{topic}.*/*.log"))
    return [batch for file in files for batch in batches(file.read_bytes())]


@pytest.mark.parametrize(
    "target", shortened([codec for codec in Codec if codec is not Codec.SNAPPY], 2)
)
def test_all_producers_batches_are_kept_in_one_codec(
    broker: Broker, kafka: str, make: Make, target: Codec
) -> None:
    topic = make("t", compression_type=codec_name(target))
    values = [b"%d " % number * 50 for number in range(200)]
    for codec in SENT:
        settings = {"bootstrap.servers": kafka, "compression.type": codec, "acks": "all"}
        producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 20})
        for number, value in enumerate(values):
            producer.produce(topic, value, key=b"k", headers={"h": codec}, timestamp=1000 + number)
        assert producer.flush(PATIENCE) == 0
    found = consume(kafka, topic, len(SENT) * len(values))
    assert [record.value for record in found] == values * len(SENT)
    assert [record.offset for record in found] == list(range(len(found)))
    assert {record.key for record in found} == {b"k"}
    assert [dict(record.headers)["h"].decode() for record in found[:: len(values)]] == list(SENT)
    assert [record.timestamp for record in found[:200]] == list(range(1000, 1200))
    kept = on_disk(broker, topic)
    assert {batch.codec for batch in kept} == {target}
    assert len({batch.producer_id for batch in kept}) == len(SENT)
    [file, *_] = broker.data.glob(f"vhosts/*/queues/{topic}.*/*.log")
    shown = run("segment", "dump", "--json", str(file)).stdout.splitlines()
    assert {json.loads(line)["codec"] for line in shown} == {target.name.lower()}


def test_transactions_stay_what_they_are(broker: Broker, kafka: str, make: Make) -> None:
    topic = make("t", compression_type="snappy")
    producer = transactional(kafka, "id")
    in_transaction(producer, topic, [b"a" * 100, b"b" * 100], commit=True)
    in_transaction(producer, topic, [b"never"], commit=False)
    in_transaction(producer, topic, [b"c" * 100], commit=True)
    committed = [b"a" * 100, b"b" * 100, b"c" * 100]
    assert read_all(kafka, topic, "read_committed") == committed
    kept = on_disk(broker, topic)
    assert {each.codec for each in kept if not each.attributes & CONTROL} == {Codec.SNAPPY}
    assert [each.attributes & CONTROL for each in kept].count(CONTROL) == 3


def test_a_codec_that_is_set_later_holds_from_then_on(
    broker: Broker, kafka: str, make: Make
) -> None:
    topic = make("t")
    admin = AdminClient({"bootstrap.servers": kafka})
    for codec in ("producer", "zstd", "gzip"):
        change = ConfigEntry("compression.type", codec, incremental_operation=AlterConfigOpType.SET)
        altered = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
        done(admin.incremental_alter_configs([altered]))
        produce(kafka, topic, [codec.encode() * 100], compression_type="lz4")
    values = [record.value for record in consume(kafka, topic, 3)]
    assert values == [b"producer" * 100, b"zstd" * 100, b"gzip" * 100]
    kept = [each.codec for each in on_disk(broker, topic)]
    assert kept == [Codec.LZ4, Codec.ZSTD, Codec.GZIP]


def test_a_compacted_topic_looks_into_compressed_batches(kafka: str, make: Make) -> None:
    topic = make("t", cleanup_policy="compact")
    told: list[Any] = []
    producer = Producer({"bootstrap.servers": kafka, "compression.type": "zstd", "linger.ms": 20})
    for key in (None, b"k"):
        producer.produce(
            topic, b"v" * 500, key, on_delivery=lambda error, _: told.append(error and error.name())
        )
        assert producer.flush(PATIENCE) == 0
    assert told == ["INVALID_RECORD", None]
