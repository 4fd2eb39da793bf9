"""Where a log begins and ends, what was there at a time, where an epoch ended."""

from pathlib import Path
from typing import Any

import pytest

from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from ottermq.kafka.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from ottermq.storage.codecs import Codec, compress_records
from ottermq.wal import Log, Record
from ottermq.wal.records import OVERHEAD, with_records
from tests.kafka.broker_harness import Harness, open_harness


async def put(harness: Harness, log: Log, *times: int) -> None:
    """A batch of records with these timestamps."""
    done = log.append([Record(b"x", timestamp=time) for time in times])
    await harness.store.wait_durable(done.seq)


async def list_offset(harness: Harness, name: str, timestamp: int, **more: Any) -> dict[str, Any]:
    partition = {"partition_index": 0, "timestamp": timestamp, **more}
    body = {"replica_id": -1, "topics": [{"name": name, "partitions": [partition]}]}
    answer = await harness.ask(Api.LIST_OFFSETS, body)
    told: dict[str, Any] = answer["topics"][0]["partitions"][0]
    return told


async def offset(harness: Harness, timestamp: int) -> tuple[int, int]:
    told = await list_offset(harness, "orders", timestamp)
    assert told["error_code"] == 0
    return told["offset"], told["timestamp"]


@pytest.fixture
async def log(harness: Harness) -> Log:
    return (await harness.topics.create("orders")).partitions[0].log


async def test_an_empty_log_begins_and_ends_at_nought(harness: Harness, log: Log) -> None:
    assert await offset(harness, EARLIEST) == (0, -1)
    assert await offset(harness, LATEST) == (0, -1)
    assert await offset(harness, MAX_TIMESTAMP) == (-1, -1)
    assert await offset(harness, 0) == (-1, -1)


async def test_the_marks_of_a_log(harness: Harness, log: Log) -> None:
    await put(harness, log, 10, 20, 30)
    log.trim(1)
    assert await offset(harness, EARLIEST) == (1, -1)
    assert await offset(harness, EARLIEST_LOCAL) == (1, -1)
    assert await offset(harness, LATEST) == (3, -1)
    assert await offset(harness, LATEST_TIERED) == (-1, -1)


async def test_a_time_leads_to_the_first_record_that_is_not_older(
    harness: Harness, log: Log
) -> None:
    await put(harness, log, 10, 30, 20)
    await put(harness, log, 40)
    assert await offset(harness, 0) == (0, 10)
    assert await offset(harness, 11) == (1, 30)
    assert await offset(harness, 31) == (3, 40)
    assert await offset(harness, 41) == (-1, -1)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
async def test_a_time_is_found_inside_a_compressed_batch(
    harness: Harness, log: Log, codec: Codec
) -> None:
    await put(harness, log, 10, 20, 40, 30)
    plain = log.read(0)[0].data
    done = log.append_raw(with_records(plain, codec, compress_records(codec, plain[OVERHEAD:])))
    await harness.store.wait_durable(done.seq)
    log.trim(4)
    assert await offset(harness, 5) == (4, 10)
    assert await offset(harness, 25) == (6, 40)
    assert await offset(harness, MAX_TIMESTAMP) == (6, 40)
    assert await offset(harness, 41) == (-1, -1)


async def test_the_newest_record_is_found_wherever_it_lies(harness: Harness, log: Log) -> None:
    await put(harness, log, 10, 50, 50, 20)
    assert await offset(harness, MAX_TIMESTAMP) == (1, 50)
    harness.store.checkpoint()  # now in a segment
    await put(harness, log, 30, 40)
    assert await offset(harness, MAX_TIMESTAMP) == (1, 50)
    await put(harness, log, 51)
    assert await offset(harness, MAX_TIMESTAMP) == (6, 51)


async def test_unknown_topics_partitions_and_epochs_are_errors(harness: Harness, log: Log) -> None:
    async def error(name: str, **more: Any) -> Error:
        return Error((await list_offset(harness, name, LATEST, **more))["error_code"])

    epoch = log.stat().leader_epoch
    assert await error("none") is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert await error("orders", partition_index=1) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert await error("orders", partition_index=-1) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert await error("orders", current_leader_epoch=epoch) is Error.NONE
    assert await error("orders", current_leader_epoch=epoch + 1) is Error.UNKNOWN_LEADER_EPOCH
    log.bump_epoch()
    assert await error("orders", current_leader_epoch=epoch) is Error.FENCED_LEADER_EPOCH


async def test_who_may_neither_read_nor_write_a_topic_learns_nothing(
    harness: Harness, log: Log
) -> None:
    user = await harness.user("anna", ".*", "^mine", "^mine")
    partition = {"partition_index": 0, "timestamp": LATEST}
    body = {"replica_id": -1, "topics": [{"name": "orders", "partitions": [partition]}]}
    answer = await harness.ask(Api.LIST_OFFSETS, body, user=user)
    told = answer["topics"][0]["partitions"][0]
    assert told["error_code"] == Error.TOPIC_AUTHORIZATION_FAILED


async def end_of(harness: Harness, epoch: int, current: int = -1) -> tuple[int, int, int]:
    partition = {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": current}
    body = {"replica_id": -1, "topics": [{"topic": "orders", "partitions": [partition]}]}
    answer = await harness.ask(Api.OFFSET_FOR_LEADER_EPOCH, body)
    told = answer["topics"][0]["partitions"][0]
    return told["error_code"], told["leader_epoch"], told["end_offset"]


async def test_an_epoch_ends_where_the_next_one_begins(harness: Harness, log: Log) -> None:
    first = log.stat().leader_epoch
    for _ in range(5):
        await put(harness, log, 1, 2, 3)
    second = log.bump_epoch()
    third = log.bump_epoch()
    for _ in range(4):
        await put(harness, log, 1, 2)
    assert await end_of(harness, first) == (0, first, 15)
    assert await end_of(harness, second) == (0, first, 15)
    assert await end_of(harness, third) == (0, third, 23)
    assert await end_of(harness, third + 1) == (0, -1, -1)
    assert (await end_of(harness, third, third + 1))[0] == Error.UNKNOWN_LEADER_EPOCH


async def test_an_epoch_of_which_nothing_is_left_ends_where_the_log_begins(
    harness: Harness, log: Log
) -> None:
    first = log.stat().leader_epoch
    await put(harness, log, 1, 2, 3)
    second = log.bump_epoch()
    await put(harness, log, 1, 2, 3)
    log.trim(3)
    assert await end_of(harness, first) == (0, first, 3)
    assert await end_of(harness, second) == (0, second, 6)


async def test_offsets_are_the_same_after_a_restart(tmp_path: Path) -> None:
    async with open_harness(tmp_path / "data") as harness:
        log = (await harness.topics.create("orders")).partitions[0].log
        await put(harness, log, 10, 20)
    async with open_harness(tmp_path / "data") as harness:
        assert await offset(harness, LATEST) == (2, -1)
        assert await offset(harness, 15) == (1, 20)
        assert await offset(harness, MAX_TIMESTAMP) == (1, 20)
