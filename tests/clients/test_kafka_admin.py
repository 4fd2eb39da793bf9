"""What operators do with librdkafka's admin client: configs, offsets, users, ACLs, quotas."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottermq.kafka.api import Api
from tests.brokers import KAFKA_ADMIN, Broker
from tests.kafka.raw_client import RawClient

PATIENCE = 60.0
Unique = Callable[[str], str]


@pytest.fixture
def admin(kafka: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka, **KAFKA_ADMIN})


def done(futures: dict[Any, Any]) -> Any:
    """The one answer, once it is there."""
    [future] = futures.values()
    return future.result(PATIENCE)


def produce(kafka: str, topic: str, count: int, **options: Any) -> list[KafkaError | None]:
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": kafka, **options})
    for number in range(count):
        producer.produce(
            topic, b"%d" % number, timestamp=1000 + number,
            on_delivery=lambda error, message: told.append(error),
        )  # fmt: skip
    assert producer.flush(PATIENCE) == 0
    return told


def test_configs_are_told_and_altered(admin: AdminClient, unique: Unique) -> None:
    name = unique("configs")
    topic = NewTopic(name, num_partitions=2, config={"retention.ms": "86400000"})
    done(admin.create_topics([topic]))
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    told = done(admin.describe_configs([resource]))
    assert told["retention.ms"].value == "86400000"
    assert told["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert told["cleanup.policy"].source == ConfigSource.DEFAULT_CONFIG.value
    change = ConfigEntry(
        "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
    )
    altered = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[change])
    done(admin.incremental_alter_configs([altered]))
    told = done(admin.describe_configs([resource]))
    assert told["cleanup.policy"].value == "delete,compact"
    assert told["retention.ms"].value == "86400000"


def test_more_replicas_in_sync_than_there_are_hold_nobody_up(
    kafka: str, admin: AdminClient, unique: Unique
) -> None:
    """As by Apache Kafka: min.insync.replicas counts up to a topic's replicas, and there is one."""
    name = unique("insync")
    done(admin.create_topics([NewTopic(name, 1, config={"min.insync.replicas": "2"})]))
    told = done(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name)]))
    assert told["min.insync.replicas"].value == "2"
    for acks in ("all", "1", "0"):
        assert produce(kafka, name, 1, acks=acks) == [None]


def test_offsets_are_listed_and_records_deleted(
    kafka: str, admin: AdminClient, unique: Unique
) -> None:
    name = unique("offsets")
    done(admin.create_topics([NewTopic(name, num_partitions=1)]))
    assert produce(kafka, name, 10) == [None] * 10
    place = TopicPartition(name, 0)

    def offset(spec: OffsetSpec) -> int:
        return int(done(admin.list_offsets({place: spec})).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 10
    assert offset(OffsetSpec.max_timestamp()) == 9
    assert offset(OffsetSpec.for_timestamp(1005)) == 5
    assert done(admin.delete_records([TopicPartition(name, 0, 4)])).low_watermark == 4
    assert offset(OffsetSpec.earliest()) == 4


def test_a_user_made_here_logs_in_and_may_do_what_its_acls_say(
    kafka: str, admin: AdminClient, unique: Unique
) -> None:
    name, user = unique("acl"), unique("anna")
    done(admin.create_topics([NewTopic(name, num_partitions=1)]))
    assert produce(kafka, name, 3) == [None] * 3
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    done(admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, info, b"secret")]))

    def acl(type: ResourceType) -> AclBinding:
        return AclBinding(
            type, name, ResourcePatternType.LITERAL, f"User:{user}", "*",
            AclOperation.READ, AclPermissionType.ALLOW,
        )  # fmt: skip

    for type in (ResourceType.TOPIC, ResourceType.GROUP):
        done(admin.create_acls([acl(type)]))
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": "secret",
    }
    assert [value for value, _ in read(kafka, name, 3, **login)] == [b"0", b"1", b"2"]
    [refused] = produce(kafka, name, 1, **login)
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    any_name: Any = None  # which its hints leave out
    all_of_hers = AclBindingFilter(
        ResourceType.ANY, any_name, ResourcePatternType.ANY, f"User:{user}", any_name,
        AclOperation.ANY, AclPermissionType.ANY,
    )  # fmt: skip
    assert acl(ResourceType.TOPIC) in admin.describe_acls(all_of_hers).result(PATIENCE)
    assert acl(ResourceType.TOPIC) in done(admin.delete_acls([all_of_hers]))
    assert admin.describe_acls(all_of_hers).result(PATIENCE) == []


def read(
    kafka: str, topic: str, count: int, **options: Any
) -> list[tuple[bytes | None, int | None]]:
    consumer = Consumer(
        {"bootstrap.servers": kafka, "group.id": topic, "enable.auto.commit": False, **options}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes | None, int | None]] = []
    limit = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < limit:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None
            found.append((message.value(), message.offset()))
    consumer.close()
    return found


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[str]:
    """A broker where clients that don't log in may produce 20 kB a second."""
    with Broker(tmp_path / "data") as broker:
        host, port = broker.address("kafka")
        entry = {
            "entity": [{"entity_type": "user", "entity_name": "anonymous"}],
            "ops": [{"key": "producer_byte_rate", "value": 20_000.0}],
        }
        with RawClient((host, port)) as raw_client:
            raw_client.log_in()
            told = raw_client.ask(Api.ALTER_CLIENT_QUOTAS, {"entries": [entry]})
        assert told["entries"][0]["error_code"] == 0
        yield f"{host}:{port}"


def test_who_produces_more_than_the_quota_is_told_to_keep_away(limited: str) -> None:
    throttled: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": limited,
            "acks": "all",
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    limit = time.monotonic() + PATIENCE
    while not throttled and time.monotonic() < limit:
        producer.produce("busy", b"." * 10_000)
        producer.flush(PATIENCE)
    assert throttled and throttled[0] > 0
