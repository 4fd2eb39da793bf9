"""Legal holds as an operator sets them and a client meets them: nothing goes while one stands."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from operator import methodcaller
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ottermq.wal import RemovalReason, removals
from ottermq.wal.dump import BatchItem, dump
from tests.brokers import KAFKA_ADMIN, Broker

SMALL_SEGMENTS = {"OTTERMQ_WAL__SEGMENT_SIZE": "64KiB"}
BODY = bytes(8000)
COUNT = 40
WALKS = 3.0  # seconds: the keeper looks each second, and a checkpoint follows


def hold(path: Path, on: bool) -> str:
    policy = {
        "vhost": "/", "name": "hold", "pattern": "^ledger", "apply-to": "queues", "priority": 1,
        "definition": {"legal-hold": on},
    }  # fmt: skip
    path.write_text(json.dumps({"policies": [policy]}))
    return str(path)


def channel_of(broker: Broker) -> Iterator[Any]:
    host, port = broker.address("amqp")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, port))
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


def use(broker: Broker, act: Callable[[Any], Any]) -> Any:
    for channel in channel_of(broker):
        return act(channel)


def fill_and_drain(channel: Any, queue: str) -> None:
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    for _ in range(COUNT):
        channel.basic_publish("", queue, BODY, pika.BasicProperties(delivery_mode=2))
    for _ in range(COUNT):
        method, _, _ = channel.basic_get(queue)
        channel.basic_ack(method.delivery_tag)
    channel.queue_declare(queue, durable=True, passive=True)  # all acks were handled


def stored(data: Path, queue: str) -> int:
    """Records in its segments."""
    files = sorted(data.glob(f"vhosts/*/queues/{queue}.*/*.log"))
    items = (item for path in files for item in dump(path))
    return sum(item.records for item in items if isinstance(item, BatchItem))


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def refusal(broker: Broker, act: Callable[[Any], Any]) -> pika.exceptions.ChannelClosedByBroker:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        use(broker, act)
    return caught.value


def test_a_held_queue_keeps_all_that_was_settled_over_a_kill_until_it_is_lifted(
    tmp_path: Path,
) -> None:
    data, definitions = tmp_path / "data", tmp_path / "definitions.json"
    held = ["--definitions", hold(definitions, on=True)]
    with Broker(data, *held, env=SMALL_SEGMENTS) as broker:
        use(broker, lambda channel: fill_and_drain(channel, "ledger"))
        use(broker, lambda channel: fill_and_drain(channel, "free"))
        time.sleep(1.5)  # acks are synced within a second
        broker.stop(signal.SIGKILL)
    with Broker(data, env=SMALL_SEGMENTS) as broker:
        until(lambda: stored(data, "ledger") == COUNT)
        time.sleep(WALKS)
        assert stored(data, "ledger") == COUNT and stored(data, "free") < COUNT
        for act, done in (
            (lambda channel: channel.queue_purge("ledger"), "purged"),
            (lambda channel: channel.queue_delete("ledger"), "deleted"),
        ):
            refused = refusal(broker, act)
            assert refused.reply_code == 406
            assert refused.reply_text == (
                "PRECONDITION_FAILED - queue 'ledger' in vhost '/' is under legal hold:"
                f" it can't be {done}"
            )
        assert "ledger" not in {each.name for each in removals.load(data).removals}
    lifted = ["--definitions", hold(definitions, on=False)]
    with Broker(data, *lifted, env=SMALL_SEGMENTS) as broker:
        until(lambda: stored(data, "ledger") < COUNT)
        use(broker, lambda channel: channel.queue_delete("ledger"))
    rules = {each.rule for each in removals.load(data).removals if each.name == "ledger"}
    assert rules == {RemovalReason.SETTLED, RemovalReason.DELETE}


def test_a_held_queue_outlives_its_expiry_and_its_last_consumer(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("queues: [{match: 'held.*', retention: {legal_hold: true}}]\n")
    with Broker(tmp_path / "data", "--config", str(config)) as broker:

        def declare(channel: Any) -> None:
            for name in ("held.a", "free.a"):
                channel.queue_declare(name, durable=True, auto_delete=True)
                channel.basic_cancel(channel.basic_consume(name, lambda *_: None))
            for name in ("held.b", "free.b"):
                channel.queue_declare(name, durable=True, arguments={"x-expires": 300})

        use(broker, declare)
        time.sleep(1.5)
        for name in ("held.a", "held.b"):
            use(broker, methodcaller("queue_declare", name, passive=True))
        for name in ("free.a", "free.b"):
            gone = lambda channel, name=name: channel.queue_declare(name, passive=True)  # noqa: E731
            assert refusal(broker, gone).reply_code == 404


# -- by Kafka's configs


def kafka(broker: Broker) -> tuple[AdminClient, Producer]:
    host, port = broker.address("kafka")
    where: dict[str, Any] = {"bootstrap.servers": f"{host}:{port}", **KAFKA_ADMIN}
    return AdminClient(where), Producer(where)


def done(futures: dict[Any, Any]) -> Any:
    [future] = futures.values()
    return future.result(30)


def error_of(futures: dict[Any, Any]) -> int:
    with pytest.raises(KafkaException) as caught:
        done(futures)
    return int(caught.value.args[0].code())


def set_hold(admin: AdminClient, topic: str, value: str) -> None:
    entry = ConfigEntry("legal.hold", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    done(admin.incremental_alter_configs([resource]))


def shown(admin: AdminClient, topic: str) -> str:
    found = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    return str(found["legal.hold"].value)


def test_a_held_topic_outlives_its_retention_and_refuses_to_be_emptied(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data, env=SMALL_SEGMENTS) as broker:
        admin, producer = kafka(broker)
        limits = {"retention.ms": "1000", "segment.bytes": "65536", "legal.hold": "true"}
        done(admin.create_topics([NewTopic("ledger", 1, 1, config=limits)]))
        old = int(time.time() * 1000) - 3_600_000
        for _ in range(COUNT):
            producer.produce("ledger", BODY, timestamp=old)
        assert producer.flush(30) == 0
    with Broker(data, env=SMALL_SEGMENTS) as broker:
        admin, _ = kafka(broker)
        time.sleep(WALKS)
        assert shown(admin, "ledger") == "true"
        assert stored(data, "ledger") == COUNT
        everything = [TopicPartition("ledger", 0, COUNT)]
        assert error_of(admin.delete_records(everything)) == KafkaError.POLICY_VIOLATION
        assert error_of(admin.delete_topics(["ledger"])) == KafkaError.POLICY_VIOLATION
        assert refusal(broker, lambda c: c.queue_delete("ledger")).reply_code == 406
        set_hold(admin, "ledger", "false")
        until(lambda: stored(data, "ledger") == 0)
        done(admin.delete_topics(["ledger"]))
    assert {each.rule for each in removals.load(data).removals} == {RemovalReason.MAX_AGE}


def test_what_a_policy_holds_a_kafka_client_cant_lift(tmp_path: Path) -> None:
    definitions = hold(tmp_path / "definitions.json", on=True)
    with Broker(tmp_path / "data", "--definitions", definitions) as broker:
        admin, _ = kafka(broker)
        done(admin.create_topics([NewTopic("ledger", 1, 1)]))
        set_hold(admin, "ledger", "false")
        assert shown(admin, "ledger") == "true"
        assert error_of(admin.delete_topics(["ledger"])) == KafkaError.POLICY_VIOLATION


def test_when_a_hold_stood_is_in_the_record(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data, env=SMALL_SEGMENTS) as broker:
        admin, _ = kafka(broker)
        done(admin.create_topics([NewTopic("ledger", 1, 1, config={"legal.hold": "true"})]))
        set_hold(admin, "ledger", "false")
        set_hold(admin, "ledger", "true")
    with Broker(data, env=SMALL_SEGMENTS):
        pass
    told = [each.rule for each in removals.load(data).records]
    assert told == [
        RemovalReason.LIFE,
        RemovalReason.HOLD,
        RemovalReason.LIFTED,
        RemovalReason.HOLD,
        RemovalReason.LIFE,
        RemovalReason.HOLD,
    ]
