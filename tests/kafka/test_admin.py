"""Topics made, divided, emptied and removed, each topic of a request for itself."""

from typing import Any
from uuid import UUID

from ottermq.config.schema import KafkaSettings
from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from ottermq.wal import Record
from tests.kafka.broker_harness import Harness, open_harness

NO_ID = UUID(int=0)


def wanted(
    name: str, partitions: int = 1, factor: int = 1, **configs: str | None
) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "configs": [
            {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
        ],
    }


async def create(harness: Harness, *topics: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    answer = await harness.ask(Api.CREATE_TOPICS, {"topics": topics, **more})
    return list(answer["topics"])


def codes(answers: list[dict[str, Any]]) -> list[Error]:
    return [Error(each["error_code"]) for each in answers]


async def test_a_topic_is_made_with_its_partitions_and_configs(harness: Harness) -> None:
    (answer,) = await create(harness, wanted("clicks", 3, retention_ms="1000"))
    assert answer["error_code"] == 0
    topic = harness.topics.find("clicks")
    assert topic is not None and answer["topic_id"] == topic.id
    assert (answer["num_partitions"], answer["replication_factor"]) == (3, 1)
    configs = {each["name"]: each["value"] for each in answer["configs"]}
    assert configs["retention.ms"] == "1000"
    assert configs["cleanup.policy"] == "delete"


async def test_minus_one_leaves_partitions_and_replicas_to_the_broker(tmp_path: Any) -> None:
    settings = KafkaSettings(default_partitions=4)
    async with open_harness(tmp_path / "data", settings=settings) as harness:
        (answer,) = await create(harness, wanted("clicks", -1, -1))
        assert (answer["error_code"], answer["num_partitions"]) == (0, 4)


async def test_each_topic_is_answered_for_itself(harness: Harness) -> None:
    await harness.queue("taken")
    await harness.exchange("exchange")
    answers = await create(
        harness,
        wanted("taken"),
        wanted("bad name"),
        wanted("none", 0),
        wanted("minus", -2),
        wanted("three", 1, 3),
        wanted("zero", 1, 0),
        wanted("unknown", x_y="1"),
        wanted("wrong", retention_ms="soon"),
        wanted("null", retention_ms=None),
        wanted("exchange", 2),
        wanted("good", 2),
    )
    assert codes(answers) == [
        Error.TOPIC_ALREADY_EXISTS,
        Error.INVALID_TOPIC_EXCEPTION,
        Error.INVALID_PARTITIONS,
        Error.INVALID_PARTITIONS,
        Error.INVALID_REPLICATION_FACTOR,
        Error.INVALID_REPLICATION_FACTOR,
        Error.INVALID_CONFIG,
        Error.INVALID_CONFIG,
        Error.INVALID_CONFIG,
        Error.POLICY_VIOLATION,
        Error.NONE,
    ]
    assert all(each["error_message"] for each in answers[:-1])
    assert "kafka.any_replication_factor" in answers[4]["error_message"]
    assert answers[-1]["error_message"] is None
    assert [topic.name for topic in harness.topics.all()] == ["good", "taken"]


async def test_a_topic_that_is_named_twice_is_not_made(harness: Harness) -> None:
    assert codes(await create(harness, wanted("one"), wanted("one"))) == [Error.INVALID_REQUEST]
    assert harness.topics.find("one") is None


async def test_replicas_are_counted_but_there_is_one_if_a_setting_allows_it(tmp_path: Any) -> None:
    settings = KafkaSettings(any_replication_factor=True)
    async with open_harness(tmp_path / "data", settings=settings) as harness:
        assert codes(await create(harness, wanted("three", 1, 3))) == [Error.NONE]


async def test_partitions_may_be_assigned_to_the_one_broker(harness: Harness) -> None:
    def assigned(name: str, *brokers: tuple[int, int]) -> dict[str, Any]:
        places = [{"partition_index": index, "broker_ids": [broker]} for index, broker in brokers]
        return {**wanted(name, -1, -1), "assignments": places}

    answers = await create(
        harness, assigned("good", (1, 1), (0, 1)), assigned("gap", (0, 1), (2, 1)),
        assigned("far", (0, 7)), {**assigned("both", (0, 1)), "num_partitions": 1},
    )  # fmt: skip
    assert codes(answers) == [
        Error.NONE,
        Error.INVALID_REPLICA_ASSIGNMENT,
        Error.INVALID_REPLICA_ASSIGNMENT,
        Error.INVALID_REQUEST,
    ]
    topic = harness.topics.find("good")
    assert topic is not None and len(topic.partitions) == 2


async def test_validating_makes_nothing(harness: Harness) -> None:
    answers = await create(harness, wanted("good"), wanted("bad", 0), validate_only=True)
    assert codes(answers) == [Error.NONE, Error.INVALID_PARTITIONS]
    assert harness.topics.all() == []


async def test_nobody_makes_or_removes_what_they_may_not_configure(harness: Harness) -> None:
    await harness.topics.create("others")
    user = await harness.user("anna", "^mine", "", "")
    made = await harness.ask(
        Api.CREATE_TOPICS, {"topics": [wanted("mine"), wanted("yours")]}, user=user
    )
    assert codes(made["topics"]) == [Error.NONE, Error.TOPIC_AUTHORIZATION_FAILED]
    gone = await harness.ask(Api.DELETE_TOPICS, {"topics": [{"name": "others"}]}, user=user)
    assert codes(gone["responses"]) == [Error.TOPIC_AUTHORIZATION_FAILED]
    more = await harness.ask(
        Api.CREATE_PARTITIONS, {"topics": [{"name": "others", "count": 2}]}, user=user
    )
    assert codes(more["results"]) == [Error.TOPIC_AUTHORIZATION_FAILED]
    assert harness.topics.find("others") is not None


async def test_topics_go_by_name_and_by_id(harness: Harness) -> None:
    one = await harness.topics.create("one")
    two = await harness.topics.create("two", 2)
    answer = await harness.ask(
        Api.DELETE_TOPICS,
        {
            "topics": [
                {"name": "one", "topic_id": NO_ID},
                {"name": None, "topic_id": two.id},
                {"name": "none", "topic_id": NO_ID},
                {"name": None, "topic_id": UUID(int=7)},
                {"name": "one", "topic_id": one.id},
            ]
        },
    )
    assert codes(answer["responses"]) == [
        Error.NONE,
        Error.NONE,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNKNOWN_TOPIC_ID,
        Error.INVALID_REQUEST,
    ]
    assert [each["name"] for each in answer["responses"][:2]] == ["one", "two"]
    assert harness.topics.all() == []


async def test_old_clients_name_topics_to_be_deleted_in_a_list(harness: Harness) -> None:
    await harness.topics.create("one")
    answer = await harness.ask(Api.DELETE_TOPICS, {"topic_names": ["one", "none"]}, version=3)
    assert codes(answer["responses"]) == [Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION]


async def test_every_topic_gets_an_answer_when_partitions_are_added(harness: Harness) -> None:
    await harness.topics.create("grows")
    await harness.topics.create("same", 2)
    await harness.queue("work")
    counts = {"grows": 3, "same": 2, "work": 2, "none": 2}
    topics = [{"name": name, "count": count, "assignments": None} for name, count in counts.items()]
    answer = await harness.ask(Api.CREATE_PARTITIONS, {"topics": topics})
    assert codes(answer["results"]) == [
        Error.NONE,
        Error.INVALID_PARTITIONS,
        Error.INVALID_PARTITIONS,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    topic = harness.topics.find("grows")
    assert topic is not None and len(topic.partitions) == 3


async def test_validating_adds_no_partitions(harness: Harness) -> None:
    await harness.topics.create("grows")
    topics = [{"name": "grows", "count": 3, "assignments": [{"broker_ids": [1]}] * 2}]
    answer = await harness.ask(Api.CREATE_PARTITIONS, {"topics": topics, "validate_only": True})
    assert codes(answer["results"]) == [Error.NONE]
    topic = harness.topics.find("grows")
    assert topic is not None and len(topic.partitions) == 1


async def delete_records(harness: Harness, name: str, **at: int) -> list[tuple[Error, int]]:
    partitions = [
        {"partition_index": int(index[1:]), "offset": offset} for index, offset in at.items()
    ]
    body = {"topics": [{"name": name, "partitions": partitions}], "timeout_ms": 1000}
    answer = await harness.ask(Api.DELETE_RECORDS, body)
    return [
        (Error(each["error_code"]), each["low_watermark"])
        for each in answer["topics"][0]["partitions"]
    ]


async def test_records_are_deleted_up_to_an_offset_or_to_the_end(harness: Harness) -> None:
    topic = await harness.topics.create("clicks", 3)
    for partition in topic.partitions:
        done = partition.log.append([Record(b"x") for _ in range(10)])
        await harness.store.wait_durable(done.seq)
    assert await delete_records(harness, "clicks", p0=4, p1=-1, p2=11, p3=0) == [
        (Error.NONE, 4),
        (Error.NONE, 10),
        (Error.OFFSET_OUT_OF_RANGE, -1),
        (Error.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert await delete_records(harness, "clicks", p0=2) == [(Error.NONE, 4)]


async def test_what_amqp_consumers_have_not_settled_is_not_deleted(harness: Harness) -> None:
    await harness.queue("work")
    log = harness.store.get("work")
    done = log.append([Record(b"x") for _ in range(10)])
    log.acquire(4)
    log.settle(0, 3)
    await harness.store.wait_durable(done.seq)
    assert await delete_records(harness, "work", p0=6) == [(Error.POLICY_VIOLATION, -1)]
    assert await delete_records(harness, "work", p0=4) == [(Error.NONE, 4)]


async def test_log_dirs_tell_each_partitions_size(harness: Harness) -> None:
    topic = await harness.topics.create("clicks", 2)
    done = topic.partitions[1].log.append([Record(b"x" * 1000)])
    await harness.store.wait_durable(done.seq)
    answer = await harness.ask(Api.DESCRIBE_LOG_DIRS, {"topics": None})
    (result,) = answer["results"]
    sizes = [each["partition_size"] for each in result["topics"][0]["partitions"]]
    assert sizes[0] == 0 and sizes[1] > 1000
    assert result["total_bytes"] > result["usable_bytes"] > 0
    one = {"topics": [{"topic": "clicks", "partitions": [1, 7]}]}
    answer = await harness.ask(Api.DESCRIBE_LOG_DIRS, one)
    told = answer["results"][0]["topics"][0]["partitions"]
    assert [each["partition_index"] for each in told] == [1]
