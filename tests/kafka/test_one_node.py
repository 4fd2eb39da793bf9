"""What tools ask a cluster of many nodes: a cluster of one has an answer to each."""

from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import for_code

from ottermq.config.schema import KafkaSettings
from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error, KafkaError
from tests.brokers import Broker
from tests.kafka.broker_harness import Harness, open_harness
from tests.kafka.raw_client import RawClient

NODE = 1


def reassigned(*partitions: tuple[int, list[int] | None], **more: Any) -> dict[str, Any]:
    parts = [{"partition_index": index, "replicas": nodes} for index, nodes in partitions]
    return {"topics": [{"name": "t", "partitions": parts}], **more}


async def reassign(harness: Harness, body: dict[str, Any]) -> list[Error]:
    told = await harness.ask(Api.ALTER_PARTITION_REASSIGNMENTS, body)
    assert told["error_code"] == Error.NONE
    return [Error(part["error_code"]) for part in told["responses"][0]["partitions"]]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_only_broker_leads_already(harness: Harness, version: int) -> None:
    await harness.topics.create("t")
    asked = [{"topic": "t", "partitions": [0, 7]}, {"topic": "nowhere", "partitions": [0]}]
    told = await harness.ask(Api.ELECT_LEADERS, {"topic_partitions": asked}, version=version)
    assert told["error_code"] == Error.NONE
    assert [
        (each["topic"], part["partition_id"], Error(part["error_code"]))
        for each in told["replica_election_results"]
        for part in each["partition_result"]
    ] == [
        ("t", 0, Error.ELECTION_NOT_NEEDED),
        ("t", 7, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ("nowhere", 0, Error.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    told = await harness.ask(Api.ELECT_LEADERS, {"topic_partitions": None}, version=version)
    assert told["replica_election_results"] == []


async def test_a_kind_of_election_that_is_none_is_refused(harness: Harness) -> None:
    with pytest.raises(KafkaError) as refused:
        await harness.ask(Api.ELECT_LEADERS, {"election_type": 2, "topic_partitions": None})
    assert refused.value.error is Error.INVALID_REQUEST


async def test_a_partition_is_reassigned_to_the_only_broker_and_to_no_other(
    harness: Harness,
) -> None:
    await harness.topics.create("t", 4)
    asked = reassigned((0, [NODE]), (1, [2]), (2, [NODE, 2]), (3, []), (0, None), (9, [NODE]))
    assert await reassign(harness, asked) == [
        Error.NONE,
        Error.INVALID_REPLICA_ASSIGNMENT,
        Error.INVALID_REPLICA_ASSIGNMENT,
        Error.INVALID_REPLICA_ASSIGNMENT,
        Error.NO_REASSIGNMENT_IN_PROGRESS,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    told = await harness.ask(Api.LIST_PARTITION_REASSIGNMENTS, {"topics": None})
    assert (told["error_code"], told["topics"]) == (Error.NONE, [])


async def test_more_replicas_are_taken_where_any_factor_is(tmp_path: Any) -> None:
    settings = KafkaSettings(any_replication_factor=True)
    async with open_harness(tmp_path / "data", settings=settings) as harness:
        await harness.topics.create("t")
        asked = reassigned((0, [NODE, 2, 3]))
        assert await reassign(harness, asked) == [Error.NONE]
        asked["allow_replication_factor_change"] = False
        assert await reassign(harness, asked) == [Error.INVALID_REPLICATION_FACTOR]


async def test_replicas_stay_in_the_only_directory(harness: Harness) -> None:
    await harness.topics.create("t")
    [described] = (await harness.ask(Api.DESCRIBE_LOG_DIRS, {"topics": None}))["results"]
    asked = [
        {"path": described["log_dir"], "topics": [{"name": "t", "partitions": [0, 5]}]},
        {"path": "/elsewhere", "topics": [{"name": "t", "partitions": [0]}]},
    ]
    [told] = (await harness.ask(Api.ALTER_REPLICA_LOG_DIRS, {"dirs": asked}))["results"]
    assert told["topic_name"] == "t"
    assert [
        (each["partition_index"], Error(each["error_code"])) for each in told["partitions"]
    ] == [
        (0, Error.NONE),
        (5, Error.REPLICA_NOT_AVAILABLE),
        (0, Error.LOG_DIR_NOT_FOUND),
    ]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_quorum_is_one_voter(harness: Harness, version: int) -> None:
    partitions = [{"partition_index": 0}, {"partition_index": 1}]
    asked = [{"topic_name": "__cluster_metadata", "partitions": partitions}]
    told = await harness.ask(Api.DESCRIBE_QUORUM, {"topics": asked}, version=version)
    quorum, nothing = told["topics"][0]["partitions"]
    assert (quorum["error_code"], quorum["leader_id"], quorum["observers"]) == (0, NODE, [])
    assert [each["replica_id"] for each in quorum["current_voters"]] == [NODE]
    assert nothing["error_code"] == Error.UNKNOWN_TOPIC_OR_PARTITION
    if version == 2:
        listener = {"name": "CONTROLLER", "host": "127.0.0.1", "port": 9092}
        assert told["nodes"] == [{"node_id": NODE, "listeners": [listener]}]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_there_is_no_feature_to_update(harness: Harness, version: int) -> None:
    updates = [{"feature": "metadata.version", "max_version_level": 25}]
    told = await harness.ask(Api.UPDATE_FEATURES, {"feature_updates": updates}, version=version)
    assert told["error_code"] == Error.INVALID_UPDATE_VERSION
    assert "metadata.version" in told["error_message"]
    assert len(told["results"]) == (1 if version < 2 else 0)
    told = await harness.ask(Api.UPDATE_FEATURES, {"feature_updates": []}, version=version)
    assert told["error_code"] == Error.NONE


async def test_what_has_configs_is_listed(harness: Harness) -> None:
    async def listed(*types: int, version: int = 1) -> set[tuple[int, str]]:
        body = {"resource_types": list(types)}
        told = await harness.ask(Api.LIST_CONFIG_RESOURCES, body, version=version)
        found = told["config_resources"]
        return {(each["resource_type"], each["resource_name"]) for each in found}

    await harness.topics.create("t")
    assert await listed() == {(2, "t"), (4, str(NODE))}
    assert await listed(2) == {(2, "t")}
    assert await listed(8, 16, 32) == set()
    assert await listed(version=0) == set()
    with pytest.raises(KafkaError) as refused:
        await listed(7)
    assert refused.value.error is Error.UNSUPPORTED_VERSION


def test_who_is_no_administrator_may_only_look(start: Callable[..., Broker]) -> None:
    partition = {"topic": "t", "partitions": [0]}
    refused = Error.CLUSTER_AUTHORIZATION_FAILED
    with start() as broker, RawClient(broker.address("kafka")) as raw_client:  # an anonymous one
        for version in (0, 2):
            told = raw_client.ask(Api.ELECT_LEADERS, {"topic_partitions": [partition]}, version)
            [topic] = told["replica_election_results"]
            assert topic["partition_result"][0]["error_code"] == refused
        assert told["error_code"] == refused
        for api, body in (
            (Api.ALTER_PARTITION_REASSIGNMENTS, reassigned((0, [NODE]))),
            (Api.UPDATE_FEATURES, {"feature_updates": []}),
            (Api.LIST_CONFIG_RESOURCES, {}),
        ):
            assert raw_client.ask(api, body)["error_code"] == refused
        dirs = [{"path": "/", "topics": [{"name": "t", "partitions": [0]}]}]
        [topic] = raw_client.ask(Api.ALTER_REPLICA_LOG_DIRS, {"dirs": dirs})["results"]
        assert topic["partitions"][0]["error_code"] == refused
        for api in (Api.LIST_PARTITION_REASSIGNMENTS, Api.DESCRIBE_QUORUM):
            assert raw_client.ask(api)["error_code"] == Error.NONE


def test_kafka_pythons_administrator_finds_a_cluster_of_one(start: Callable[..., Broker]) -> None:
    with start() as broker:
        host, port = broker.address("kafka")
        admin = KafkaAdminClient(
            bootstrap_servers=f"{host}:{port}", security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN", sasl_plain_username="guest", sasl_plain_password="guest",
        )  # fmt: skip
        admin.create_topics({"t": {"num_partitions": 1, "replication_factor": 1}})
        partition = TopicPartition("t", 0)
        admin.elect_leaders(0, {"t": [0]})
        assert admin.alter_partition_reassignments({partition: [NODE]}) == {partition: None}
        refused = for_code(Error.INVALID_REPLICA_ASSIGNMENT)
        assert admin.alter_partition_reassignments({partition: [2]}) == {partition: refused}
        assert not admin.list_partition_reassignments()
        [quorum] = admin.describe_metadata_quorum()["topics"][0]["partitions"]
        assert (quorum["error"], quorum["leader_id"]) == (None, NODE)
        assert admin.list_config_resources() == {"broker": [str(NODE)], "topic": ["t"]}
        admin.close()
        broker.wait_for("audit act=leader.elect user=guest .* what=t result=ELECTION_NOT_NEEDED")
        broker.wait_for("audit act=partition.reassign user=guest .* what=t result=ok")
