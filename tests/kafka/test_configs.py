"""Configs of topics and the broker: all are told, what is altered lasts and acts."""

from pathlib import Path
from typing import Any

import pytest

from ottermq.kafka import configs
from ottermq.kafka.api import Api
from ottermq.kafka.broker_defaults import DEFAULTS
from ottermq.kafka.config_admin import Operation, Resource
from ottermq.kafka.configs import TOPIC_CONFIGS, BadValue, Source
from ottermq.kafka.errors import Error
from ottermq.kafka.topics import Topic
from tests.kafka.broker_harness import Harness, open_harness


async def describe(
    harness: Harness,
    name: str,
    type: int = Resource.TOPIC,
    keys: list[str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    asked = {"resource_type": type, "resource_name": name, "configuration_keys": keys}
    answer = await harness.ask(Api.DESCRIBE_CONFIGS, {"resources": [asked], **more})
    result: dict[str, Any] = answer["results"][0]
    return result


async def values(harness: Harness, name: str) -> dict[str, str]:
    found = await describe(harness, name)
    return {each["name"]: each["value"] for each in found["configs"]}


async def alter(harness: Harness, name: str, *steps: tuple[str, Operation, str | None]) -> Error:
    asked = {
        "resource_type": Resource.TOPIC,
        "resource_name": name,
        "configs": [
            {"name": key, "config_operation": operation, "value": value}
            for key, operation, value in steps
        ],
    }
    answer = await harness.ask(Api.INCREMENTAL_ALTER_CONFIGS, {"resources": [asked]})
    return Error(answer["responses"][0]["error_code"])


async def set_config(harness: Harness, name: str, **given: str) -> Error:
    steps = [(key.replace("_", "."), Operation.SET, value) for key, value in given.items()]
    return await alter(harness, name, *steps)


def found(harness: Harness, name: str) -> Topic:
    topic = harness.topics.find(name)
    assert topic is not None
    return topic


def test_every_default_is_a_value_that_may_be_set() -> None:
    for name, config in TOPIC_CONFIGS.items():
        configs.check(name, config.default)
        assert config.doc


@pytest.mark.parametrize(
    "name, value",
    [
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "compact,forget"),
        ("segment.bytes", "65535"),
        ("min.cleanable.dirty.ratio", "2"),
        ("message.timestamp.type", "Sometime"),
        ("min.insync.replicas", "0"),
        ("compression.type", "none"),
        ("preallocate", "perhaps"),
        ("no.such.thing", "1"),
    ],
)
def test_what_cannot_be_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadValue):
        configs.check(name, value)


async def test_all_configs_of_a_topic_are_told_with_their_types(harness: Harness) -> None:
    await harness.topics.create("orders")
    result = await describe(harness, "orders", include_documentation=True)
    told = {each["name"]: each for each in result["configs"]}
    assert told.keys() == TOPIC_CONFIGS.keys()
    assert all(each["config_source"] == Source.DEFAULT for each in told.values())
    assert told["max.message.bytes"]["value"] == "1048588"
    assert told["max.message.bytes"]["config_type"] == configs.Type.INT
    assert told["max.message.bytes"]["documentation"]
    assert told["segment.bytes"]["value"] == str(64 << 20)  # ours, not Kafka's
    assert told["retention.ms"]["value"] == "-1"


async def test_only_the_keys_that_are_asked_for_are_told(harness: Harness) -> None:
    await harness.topics.create("orders")
    result = await describe(harness, "orders", keys=["retention.ms", "nothing"])
    assert [each["name"] for each in result["configs"]] == ["retention.ms"]


async def test_an_altered_config_is_told_beside_what_it_hides(harness: Harness) -> None:
    await harness.topics.create("orders", configs={"retention.ms": "5000"})
    result = await describe(harness, "orders", keys=["retention.ms"], include_synonyms=True)
    (told,) = result["configs"]
    assert (told["value"], told["config_source"]) == ("5000", Source.DYNAMIC_TOPIC)
    assert [(each["name"], each["value"]) for each in told["synonyms"]] == [
        ("retention.ms", "5000"),
        ("log.retention.ms", "-1"),
    ]


async def test_a_streams_arguments_are_configs(harness: Harness) -> None:
    await harness.queue("events", queue_type="stream", max_age="1h", max_length_bytes=1 << 30)
    told = await values(harness, "events")
    assert told["retention.ms"] == "3600000"
    assert told["retention.bytes"] == str(1 << 30)


async def test_the_brokers_settings_are_told_and_read_only(harness: Harness) -> None:
    result = await describe(harness, "1", Resource.BROKER)
    told = {each["name"]: each for each in result["configs"]}
    assert told["num.partitions"]["value"] == "1"
    assert told["log.segment.bytes"]["value"] == str(64 << 20)
    assert all(each["read_only"] for each in told.values())
    assert (await describe(harness, "7", Resource.BROKER))["error_code"] == Error.INVALID_REQUEST
    assert (await describe(harness, "x", 99))["error_code"] == Error.INVALID_REQUEST


async def test_what_kafka_lists_of_a_broker_is_told_as_true_or_as_its_default(
    harness: Harness,
) -> None:
    result = await describe(harness, "1", Resource.BROKER)
    told = {each["name"]: (each["value"], each["config_source"]) for each in result["configs"]}
    for name, value in (
        ("advertised.listeners", "SASL_PLAINTEXT://127.0.0.1:9092"),
        ("log.cleaner.backoff.ms", "15000"),
        ("group.min.session.timeout.ms", "6000"),
        ("transaction.max.timeout.ms", "900000"),
        ("offsets.retention.minutes", "10080"),
        ("log.cleanup.policy", "delete"),
        ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"),
    ):
        assert told[name] == (value, Source.STATIC_BROKER), name
    defaults: dict[str, str | None] = {
        "num.io.threads": "8",
        "log.cleaner.threads": "1",
        "broker.rack": None,
        "log.roll.hours": "168",
        "group.coordinator.threads": "4",
        "remote.log.storage.system.enable": "false",
        "ssl.client.auth": "none",
        "controller.quorum.election.timeout.ms": "1000",
    }
    for name, default in defaults.items():
        assert told[name] == (default, Source.DEFAULT), name
    # Kafka 4.3.1's AbstractKafkaConfig.CONFIG_DEF has 340 that aren't internal.
    assert len(DEFAULTS) == 340 and {name for name, _, _ in DEFAULTS} <= told.keys()
    secret = {each["name"] for each in result["configs"] if each["is_sensitive"]}
    assert "ssl.keystore.password" in secret
    assert all(told[name] == (None, Source.DEFAULT) for name in secret)


@pytest.mark.parametrize("type", [Resource.BROKER_LOGGER, Resource.GROUP, Resource.CLIENT_METRICS])
async def test_a_type_without_configs_is_refused_by_its_name(
    harness: Harness, type: Resource
) -> None:
    refused = await describe(harness, "1", type)
    assert refused["error_code"] == Error.INVALID_REQUEST
    assert type.name in refused["error_message"]
    body = {"resources": [{"resource_type": type, "resource_name": "1", "configs": []}]}
    [refused] = (await harness.ask(Api.ALTER_CONFIGS, body))["responses"]
    assert type.name in refused["error_message"]


async def test_strangers_are_told_nothing(harness: Harness) -> None:
    await harness.topics.create("orders")
    user = await harness.user("anna", "^mine", "^mine", "^mine")
    asked = [
        {"resource_type": Resource.TOPIC, "resource_name": "orders"},
        {"resource_type": Resource.BROKER, "resource_name": "1"},
    ]
    answer = await harness.ask(Api.DESCRIBE_CONFIGS, {"resources": asked}, user=user)
    assert [each["error_code"] for each in answer["results"]] == [
        Error.TOPIC_AUTHORIZATION_FAILED,
        Error.CLUSTER_AUTHORIZATION_FAILED,
    ]
    change = {**asked[0], "configs": []}
    answer = await harness.ask(Api.ALTER_CONFIGS, {"resources": [change]}, user=user)
    assert answer["responses"][0]["error_code"] == Error.TOPIC_AUTHORIZATION_FAILED


async def test_configs_are_altered_step_by_step(harness: Harness) -> None:
    await harness.topics.create("orders")
    assert await set_config(harness, "orders", retention_ms="1000", segment_bytes="1048576") == 0
    assert await alter(harness, "orders", ("retention.ms", Operation.DELETE, None)) == 0
    assert await alter(harness, "orders", ("cleanup.policy", Operation.APPEND, "compact")) == 0
    told = await values(harness, "orders")
    assert told["retention.ms"] == "-1"
    assert told["segment.bytes"] == "1048576"
    assert told["cleanup.policy"] == "delete,compact"
    assert await alter(harness, "orders", ("cleanup.policy", Operation.SUBTRACT, "delete")) == 0
    assert (await values(harness, "orders"))["cleanup.policy"] == "compact"


async def test_one_wrong_step_alters_nothing(harness: Harness) -> None:
    await harness.topics.create("orders")
    SET = Operation.SET
    for wrong, error in (
        (("retention.bytes", SET, "much"), Error.INVALID_CONFIG),
        (("no.such.thing", SET, "1"), Error.INVALID_CONFIG),
        (("retention.bytes", Operation.APPEND, "1"), Error.INVALID_CONFIG),
        (("retention.ms", SET, "2"), Error.INVALID_REQUEST),
        (("retention.bytes", SET, None), Error.INVALID_REQUEST),
    ):
        assert await alter(harness, "orders", ("retention.ms", SET, "1"), wrong) == error
    assert (await values(harness, "orders"))["retention.ms"] == "-1"
    assert await set_config(harness, "none", retention_ms="1") == Error.UNKNOWN_TOPIC_OR_PARTITION


async def test_altering_all_at_once_takes_back_what_is_not_named(harness: Harness) -> None:
    await harness.topics.create("orders", configs={"retention.ms": "1000"})
    asked = {
        "resource_type": Resource.TOPIC,
        "resource_name": "orders",
        "configs": [{"name": "retention.bytes", "value": "4096"}],
    }
    await harness.ask(Api.ALTER_CONFIGS, {"resources": [asked], "validate_only": True})
    assert (await values(harness, "orders"))["retention.ms"] == "1000"
    await harness.ask(Api.ALTER_CONFIGS, {"resources": [asked]})
    told = await values(harness, "orders")
    assert (told["retention.ms"], told["retention.bytes"]) == ("-1", "4096")


async def test_a_work_queues_records_are_not_let_go_by_kafka(harness: Harness) -> None:
    await harness.queue("work")
    assert await set_config(harness, "work", retention_ms="1") == Error.INVALID_CONFIG
    assert await set_config(harness, "work", cleanup_policy="compact") == Error.INVALID_CONFIG
    assert await set_config(harness, "work", max_message_bytes="100") == Error.NONE
    assert harness.table.options["work"].max_message_bytes == 100


async def test_the_engine_hears_of_what_was_altered(harness: Harness) -> None:
    await harness.topics.create("orders", 2)
    assert not harness.table.options["orders"].compacted
    await set_config(
        harness,
        "orders",
        cleanup_policy="compact",
        message_timestamp_type="LogAppendTime",
        max_message_bytes="2000",
        flush_mode="async",
        message_timestamp_before_max_ms="60000",
    )
    options = harness.table.options["orders"]
    assert options.compacted and options.log_append_time and options.unsynced
    assert (options.max_message_bytes, options.timestamp_before_max_ms) == (2000, 60000)


async def test_retention_goes_by_what_was_altered(harness: Harness) -> None:
    topic = await harness.topics.create("orders", 2)
    last = topic.partitions[1].log
    assert harness.configs.retention_of(last) is None
    await set_config(harness, "orders", retention_ms="1000", retention_bytes="4096")
    policy = harness.configs.retention_of(last)
    assert policy is not None and (policy.max_age_ms, policy.max_size) == (1000, 4096)
    await set_config(harness, "orders", cleanup_policy="compact")
    policy = harness.configs.retention_of(last)
    assert policy is not None and (policy.max_age_ms, policy.max_size) == (None, None)
    assert last in harness.configs.compacted()


async def test_what_was_altered_is_there_after_a_restart_and_gone_with_its_topic(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    async with open_harness(data) as harness:
        await harness.topics.create("stays", 2)
        await set_config(harness, "stays", retention_ms="1000")
        await harness.topics.create("goes", configs={"retention.ms": "1000"})
        await harness.topics.delete("goes")
        await harness.topics.create("goes")
        assert (await values(harness, "goes"))["retention.ms"] == "-1"
    async with open_harness(data) as harness:
        assert (await values(harness, "stays"))["retention.ms"] == "1000"
        assert (await values(harness, "goes"))["retention.ms"] == "-1"
        log = found(harness, "stays").partitions[1].log
        assert harness.configs.retention_of(log) is not None
        assert len(harness.db.read("SELECT DISTINCT log FROM kafka_configs")) == 1


async def test_new_partitions_go_by_their_topics_configs(harness: Harness) -> None:
    topic = await harness.topics.create("orders", configs={"retention.ms": "1000"})
    grown = await harness.topics.grow(topic, 2)
    assert harness.configs.retention_of(grown.partitions[1].log) is not None


async def test_a_topic_that_could_not_be_made_leaves_no_configs(harness: Harness) -> None:
    asked = {
        "name": "orders",
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": [{"name": "retention.ms", "value": "1"}, {"name": "bad", "value": "1"}],
    }
    await harness.ask(Api.CREATE_TOPICS, {"topics": [asked]})
    assert harness.db.read("SELECT * FROM kafka_configs") == []


async def test_a_deleted_topics_configs_go_in_the_same_commit(harness: Harness) -> None:
    """By either protocol, and also when a change of them comes too late."""
    for name in ("deleted", "late"):
        await harness.topics.create(name)
    assert await set_config(harness, "deleted", retention_ms="1000") is Error.NONE
    assert len(harness.db.read("SELECT * FROM kafka_configs")) == 1
    late = found(harness, "late")
    for name in ("deleted", "late"):
        await harness.topics.delete(name)
    assert harness.db.read("SELECT * FROM kafka_configs") == []
    await harness.configs.set(late, {"retention.ms": "1000"})
    assert harness.db.read("SELECT * FROM kafka_configs") == []
