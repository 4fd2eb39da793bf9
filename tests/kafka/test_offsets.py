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
from ottermq.storage.codecs import Codec, close_records
from ottermq.wal import Log, Record
from ottermq.wal.records import OVERHEAD, with_records
from tests.kafka.rooms import House, open_house


async def put(house: House, log: Log, *times: int) -> None:
    """A batch of records with these timestamps."""
    done = log.append([Record(b"x", timestamp=time) for time in times])
    await house.store.wait_durable(done.seq)


async def list_offset(house: House, name: str, timestamp: int, **more: Any) -> dict[str, Any]:
    partition = {"partition_index": 0, "timestamp": timestamp, **more}
    body = {"replica_id": -1, "topics": [{"name": name, "partitions": [partition]}]}
    answer = await house.ask(Api.LIST_OFFSETS, body)
    told: dict[str, Any] = answer["topics"][0]["partitions"][0]
    return told


async def offset(house: House, timestamp: int) -> tuple[int, int]:
    told = await list_offset(house, "orders", timestamp)
    assert told["error_code"] == 0
    return told["offset"], told["timestamp"]


@pytest.fixture
async def log(house: House) -> Log:
    return (await house.topics.create("orders")).partitions[0].log


async def test_an_empty_log_begins_and_ends_at_nought(house: House, log: Log) -> None:
    assert await offset(house, EARLIEST) == (0, -1)
    assert await offset(house, LATEST) == (0, -1)
    assert await offset(house, MAX_TIMESTAMP) == (-1, -1)
    assert await offset(house, 0) == (-1, -1)


async def test_the_marks_of_a_log(house: House, log: Log) -> None:
    await put(house, log, 10, 20, 30)
    log.trim(1)
    assert await offset(house, EARLIEST) == (1, -1)
    assert await offset(house, EARLIEST_LOCAL) == (1, -1)
    assert await offset(house, LATEST) == (3, -1)
    assert await offset(house, LATEST_TIERED) == (-1, -1)


async def test_a_time_leads_to_the_first_record_that_is_not_older(house: House, log: Log) -> None:
    await put(house, log, 10, 30, 20)
    await put(house, log, 40)
    assert await offset(house, 0) == (0, 10)
    assert await offset(house, 11) == (1, 30)
    assert await offset(house, 31) == (3, 40)
    assert await offset(house, 41) == (-1, -1)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
async def test_a_time_is_found_inside_a_compressed_batch(
    house: House, log: Log, codec: Codec
) -> None:
    await put(house, log, 10, 20, 40, 30)
    plain = log.read(0)[0].data
    done = log.append_raw(with_records(plain, codec, close_records(codec, plain[OVERHEAD:])))
    await house.store.wait_durable(done.seq)
    log.trim(4)
    assert await offset(house, 5) == (4, 10)
    assert await offset(house, 25) == (6, 40)
    assert await offset(house, MAX_TIMESTAMP) == (6, 40)
    assert await offset(house, 41) == (-1, -1)


async def test_the_newest_record_is_found_wherever_it_lies(house: House, log: Log) -> None:
    await put(house, log, 10, 50, 50, 20)
    assert await offset(house, MAX_TIMESTAMP) == (1, 50)
    house.store.checkpoint()  # now in a segment
    await put(house, log, 30, 40)
    assert await offset(house, MAX_TIMESTAMP) == (1, 50)
    await put(house, log, 51)
    assert await offset(house, MAX_TIMESTAMP) == (6, 51)


async def test_unknown_topics_partitions_and_epochs_are_errors(house: House, log: Log) -> None:
    async def error(name: str, **more: Any) -> Error:
        return Error((await list_offset(house, name, LATEST, **more))["error_code"])

    epoch = log.stat().leader_epoch
    assert await error("none") is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert await error("orders", partition_index=1) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert await error("orders", partition_index=-1) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert await error("orders", current_leader_epoch=epoch) is Error.NONE
    assert await error("orders", current_leader_epoch=epoch + 1) is Error.UNKNOWN_LEADER_EPOCH
    log.bump_epoch()
    assert await error("orders", current_leader_epoch=epoch) is Error.FENCED_LEADER_EPOCH


async def test_who_may_neither_read_nor_write_a_topic_learns_nothing(
    house: House, log: Log
) -> None:
    user = await house.user("anna", ".*", "^mine", "^mine")
    partition = {"partition_index": 0, "timestamp": LATEST}
    body = {"replica_id": -1, "topics": [{"name": "orders", "partitions": [partition]}]}
    answer = await house.ask(Api.LIST_OFFSETS, body, user=user)
    told = answer["topics"][0]["partitions"][0]
    assert told["error_code"] == Error.TOPIC_AUTHORIZATION_FAILED


async def end_of(house: House, epoch: int, current: int = -1) -> tuple[int, int, int]:
    partition = {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": current}
    body = {"replica_id": -1, "topics": [{"topic": "orders", "partitions": [partition]}]}
    answer = await house.ask(Api.OFFSET_FOR_LEADER_EPOCH, body)
    told = answer["topics"][0]["partitions"][0]
    return told["error_code"], told["leader_epoch"], told["end_offset"]


async def test_an_epoch_ends_where_the_next_one_begins(house: House, log: Log) -> None:
    first = log.stat().leader_epoch
    for _ in range(5):
        await put(house, log, 1, 2, 3)
    second = log.bump_epoch()
    third = log.bump_epoch()
    for _ in range(4):
        await put(house, log, 1, 2)
    assert await end_of(house, first) == (0, first, 15)
    assert await end_of(house, second) == (0, first, 15)
    assert await end_of(house, third) == (0, third, 23)
    assert await end_of(house, third + 1) == (0, -1, -1)
    assert (await end_of(house, third, third + 1))[0] == Error.UNKNOWN_LEADER_EPOCH


async def test_an_epoch_of_which_nothing_is_left_ends_where_the_log_begins(
    house: House, log: Log
) -> None:
    first = log.stat().leader_epoch
    await put(house, log, 1, 2, 3)
    second = log.bump_epoch()
    await put(house, log, 1, 2, 3)
    log.trim(3)
    assert await end_of(house, first) == (0, first, 3)
    assert await end_of(house, second) == (0, second, 6)


async def test_offsets_are_the_same_after_a_restart(tmp_path: Path) -> None:
    async with open_house(tmp_path / "data") as house:
        log = (await house.topics.create("orders")).partitions[0].log
        await put(house, log, 10, 20)
    async with open_house(tmp_path / "data") as house:
        assert await offset(house, LATEST) == (2, -1)
        assert await offset(house, 15) == (1, 20)
        assert await offset(house, MAX_TIMESTAMP) == (1, 20)
