"""The requests of transactional producers, through the codec: what clients are told."""

from typing import Any

import pytest

from ottermq.auth import User
from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error, KafkaError
from ottermq.wal import Log
from tests.kafka.broker_harness import Harness
from tests.wal.producing import batch

MINUTE = 60_000


async def begin(harness: Harness, id: str | None = "tx", **how: Any) -> dict[str, Any]:
    body = {"transactional_id": id, "transaction_timeout_ms": MINUTE}
    return await harness.ask(Api.INIT_PRODUCER_ID, body, **how)


async def join(
    harness: Harness, producer: dict[str, Any], *partitions: int, topic: str = "t", **how: Any
) -> dict[int, Error]:
    body = {
        "v3_and_below_transactional_id": "tx",
        "v3_and_below_producer_id": producer["producer_id"],
        "v3_and_below_producer_epoch": producer["producer_epoch"],
        "v3_and_below_topics": [{"name": topic, "partitions": list(partitions)}],
    }
    told = await harness.ask(Api.ADD_PARTITIONS_TO_TXN, body, **how)
    [results] = told["results_by_topic_v3_and_below"]
    return {
        each["partition_index"]: Error(each["partition_error_code"])
        for each in results["results_by_partition"]
    }


async def of(harness: Harness, api: Api, producer: dict[str, Any], **fields: Any) -> dict[str, Any]:
    version = fields.pop("version", -1)
    body = {
        "transactional_id": "tx",
        "producer_id": producer["producer_id"],
        "producer_epoch": producer["producer_epoch"],
        **fields,
    }
    return await harness.ask(api, body, version=version)


def write(log: Log, producer: dict[str, Any]) -> None:
    id, epoch = producer["producer_id"], producer["producer_epoch"]
    log.append_raw(batch(id, 0, epoch=epoch, transactional=True))


async def test_an_idempotent_producer_gets_an_id(harness: Harness) -> None:
    first, second = await begin(harness, None), await begin(harness, None)
    assert first["error_code"] == Error.NONE
    assert (first["producer_epoch"], second["producer_epoch"]) == (0, 0)
    assert first["producer_id"] != second["producer_id"]


@pytest.mark.parametrize("commit", [True, False])
async def test_from_the_first_partition_to_the_end(harness: Harness, commit: bool) -> None:
    topic = await harness.topics.create("t", 2)
    producer = await begin(harness)
    assert await join(harness, producer, 0, 1) == {0: Error.NONE, 1: Error.NONE}
    for partition in topic.partitions:
        write(partition.log, producer)
    [told] = (await harness.ask(Api.DESCRIBE_TRANSACTIONS, {"transactional_ids": ["tx"]}))[
        "transaction_states"
    ]
    assert told["transaction_state"] == "Ongoing"
    assert told["topics"] == [{"topic": "t", "partitions": [0, 1]}]
    assert (await of(harness, Api.END_TXN, producer, committed=commit))["error_code"] == Error.NONE
    for partition in topic.partitions:
        assert partition.log.stat().last_stable == 2
        assert bool(partition.log.aborted(0, 10)) != commit


async def test_offsets_are_seen_when_the_transaction_is_committed(harness: Harness) -> None:
    await harness.topics.create("t")
    producer = await begin(harness)
    added = await of(harness, Api.ADD_OFFSETS_TO_TXN, producer, group_id="g")
    assert added["error_code"] == Error.NONE
    offsets = [
        {
            "name": "t",
            "partitions": [
                {
                    "partition_index": 0,
                    "committed_offset": 42,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "noted",
                }
            ],
        }
    ]
    fields = {
        "group_id": "g",
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": offsets,
    }
    told = await of(harness, Api.TXN_OFFSET_COMMIT, producer, **fields)
    assert told["topics"][0]["partitions"][0]["error_code"] == Error.NONE
    places = dict(harness.context.groups.committed("g"))
    assert places == {}
    await of(harness, Api.END_TXN, producer, committed=True)
    [committed] = harness.context.groups.committed("g").values()
    assert (committed.offset, committed.metadata) == (42, "noted")
    told = await of(harness, Api.TXN_OFFSET_COMMIT, producer, **fields)
    error = told["topics"][0]["partitions"][0]["error_code"]
    assert error == Error.INVALID_TXN_STATE


async def test_partitions_are_added_all_or_none(harness: Harness) -> None:
    await harness.topics.create("t")
    producer = await begin(harness)
    assert await join(harness, producer, 0, 7) == {
        0: Error.OPERATION_NOT_ATTEMPTED,
        7: Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert await join(harness, producer, 0) == {0: Error.NONE}


@pytest.mark.parametrize(
    ("version", "error"), [(3, Error.PRODUCER_FENCED), (1, Error.INVALID_PRODUCER_EPOCH)]
)
async def test_who_is_fenced_is_told_so_in_words_it_knows(
    harness: Harness, version: int, error: Error
) -> None:
    await harness.topics.create("t")
    first = await begin(harness)
    await begin(harness)
    assert await join(harness, first, 0, version=version) == {0: error}
    ended = await of(harness, Api.END_TXN, first, committed=True, version=version)
    assert ended["error_code"] == error


async def test_permissions(harness: Harness) -> None:
    await harness.topics.create("t")
    user: User = await harness.user("carol", "", "^(tx|t)$", "^t$")
    stranger: User = await harness.user("dave", "", "^t$", "^t$")
    assert (await begin(harness, user=user))["error_code"] == Error.NONE
    refused = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (await begin(harness, user=stranger))["error_code"] == refused
    producer = await begin(harness)
    assert await join(harness, producer, 0, user=stranger) == {0: refused}
    listed = await harness.ask(Api.LIST_TRANSACTIONS, FILTERS, user=stranger)
    assert listed["transaction_states"] == []


FILTERS: dict[str, Any] = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}


async def test_transactions_are_listed(harness: Harness) -> None:
    await harness.topics.create("t")
    producer = await begin(harness)
    await begin(harness, "idle")
    await join(harness, producer, 0)
    told = await harness.ask(Api.LIST_TRANSACTIONS, FILTERS | {"state_filters": ["Ongoing", "Odd"]})
    assert [each["transactional_id"] for each in told["transaction_states"]] == ["tx"]
    assert told["unknown_state_filters"] == ["Odd"]
    told = await harness.ask(Api.LIST_TRANSACTIONS, FILTERS | {"duration_filter": 3_600_000})
    assert told["transaction_states"] == []


async def test_transactions_are_listed_by_a_pattern_of_their_ids(harness: Harness) -> None:
    for id in ("orders-1", "orders-2", "audit"):
        await begin(harness, id)
    for pattern, ids in (
        ("orders-.*", {"orders-1", "orders-2"}),
        ("orders", set()),
        ("", {"orders-1", "orders-2", "audit"}),
        (None, {"orders-1", "orders-2", "audit"}),
    ):
        asked = FILTERS | {"transactional_id_pattern": pattern}
        told = await harness.ask(Api.LIST_TRANSACTIONS, asked)
        assert {each["transactional_id"] for each in told["transaction_states"]} == ids
    with pytest.raises(KafkaError) as refused:
        await harness.ask(Api.LIST_TRANSACTIONS, FILTERS | {"transactional_id_pattern": "(a"})
    assert refused.value.error is Error.INVALID_REGULAR_EXPRESSION


async def test_a_logs_producers_are_described(harness: Harness) -> None:
    topic = await harness.topics.create("t")
    producer = await begin(harness)
    await join(harness, producer, 0)
    write(topic.partitions[0].log, producer)
    body = {"topics": [{"name": "t", "partition_indexes": [0, 5]}]}
    told = await harness.ask(Api.DESCRIBE_PRODUCERS, body)
    here, nowhere = told["topics"][0]["partitions"]
    [one] = here["active_producers"]
    assert one["producer_id"] == producer["producer_id"]
    assert (one["last_sequence"], one["current_txn_start_offset"]) == (0, 0)
    assert nowhere["error_code"] == Error.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("id", ["tx", ""])
async def test_wrong_requests_are_told_so(harness: Harness, id: str) -> None:
    body = {"transactional_id": id, "transaction_timeout_ms": -5}
    told = await harness.ask(Api.INIT_PRODUCER_ID, body)
    wanted = Error.INVALID_TRANSACTION_TIMEOUT if id else Error.INVALID_REQUEST
    assert told["error_code"] == wanted
