"""What one client can take of the broker's memory and time: weighed on the process itself."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from ottermq.kafka import codec
from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from ottermq.kafka.request import Body
from tests.brokers import Broker
from tests.engine.kafka_plane import batch
from tests.kafka.raw_client import Gone, RawClient
from tests.kafka.wire import Link
from tests.weights import MIB, cpu_seconds, takes_at_most

Start = Callable[..., Broker]
ZSTD = 4


def visitor(broker: Broker) -> RawClient:
    """Known, or its requests would have to be small."""
    raw_client = RawClient(broker.address("kafka"))
    assert raw_client.log_in()["error_code"] == 0
    return raw_client


@pytest.fixture
def broker(start: Start) -> Iterator[Broker]:
    with start() as running:
        yield running


@pytest.mark.weighed
def test_metadata_that_is_asked_for_is_not_kept_without_a_limit(broker: Broker) -> None:
    """Six questions about 10,000 made-up names each: their answers were kept, and their names."""
    with visitor(broker) as raw_client, takes_at_most(broker, mib=200, cpu_s=6):  # it was 347 MiB
        for number in range(6):
            topics = [{"name": f"{number}-{each}-{'x' * 2_000}"} for each in range(10_000)]
            asked = {"topics": topics, "allow_auto_topic_creation": False}
            assert len(raw_client.ask(Api.METADATA, asked)["topics"]) == 10_000


def test_a_request_of_too_many_names_is_refused_at_once(broker: Broker) -> None:
    requests: list[tuple[Api, int, Body]] = [
        (Api.FIND_COORDINATOR, 4, {"coordinator_keys": [f"k{each}" for each in range(250_000)]}),
        (
            Api.DESCRIBE_CONFIGS,
            4,
            {"resources": [{"resource_type": 2, "resource_name": "x"} for _ in range(200_000)]},
        ),
    ]
    with takes_at_most(broker, mib=64, cpu_s=0.7):
        for api, version, body in requests:
            with visitor(broker) as raw_client:
                raw_client.send(codec.encode_request(api, version, 1, "many", body))
                with pytest.raises((Gone, ConnectionError)):
                    raw_client.receive()
            broker.wait_for(f"api={api.name} .*more than 10000 elements")
    with visitor(broker) as raw_client:  # where there is a place for it, it is told
        ids = [f"t{each}" for each in range(20_000)]
        listed = raw_client.ask(Api.LIST_GROUPS, {"states_filter": ids})
        assert listed["error_code"] == Error.INVALID_REQUEST
        keys = {"coordinator_keys": [f"k{each}" for each in range(9_000)]}
        assert len(raw_client.ask(Api.FIND_COORDINATOR, keys)["coordinators"]) == 9_000


def by_time(topic: str, times: int = 1) -> dict[str, object]:
    part = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": 5_000}
    return {
        "replica_id": -1, "isolation_level": 0,
        "topics": [{"name": topic, "partitions": [part] * times}],
    }  # fmt: skip


def plant_bomb(link: Link) -> None:
    """A batch of 120 kilobytes that opens to a hundred megabytes, and a small one."""
    link.create("bomb")
    # As much noise as lets a hundred megabytes out of it: more than a thousandfold is refused.
    value = os.urandom(120_000) + bytes(100 * MIB)
    link.send_produce("bomb", 0, batch(value, codec=ZSTD, when=1_000))
    assert link.produced()[0] == 0
    link.send_produce("bomb", 0, batch(b"small", b"next", codec=ZSTD, when=9_000))
    assert link.produced()[0] == 0


@pytest.mark.weighed
def test_looking_up_times_in_compressed_batches_takes_little_memory(broker: Broker) -> None:
    with Link(broker.address("kafka")) as link, ExitStack() as stack:
        plant_bomb(link)
        with takes_at_most(broker, mib=200, cpu_s=3):
            raw_clients = [stack.enter_context(visitor(broker)) for _ in range(8)]
            for raw_client in raw_clients:
                body = by_time("bomb")
                body["topics"][0]["partitions"][0]["timestamp"] = 500  # type: ignore[index]
                raw_client.send(codec.encode_request(Api.LIST_OFFSETS, 7, 1, "t", body))
            for raw_client in raw_clients:
                _, told = codec.decode_response(Api.LIST_OFFSETS, 7, raw_client.receive())
                assert told["topics"][0]["partitions"][0]["offset"] == 0
        told = link.ask(Api.LIST_OFFSETS, by_time("bomb"))
        [part] = told["topics"][0]["partitions"]
        assert (part["offset"], part["timestamp"]) == (1, 9_000)


def test_a_partition_is_looked_up_once_a_request_and_a_stop_does_not_wait(start: Start) -> None:
    with start() as broker:
        with Link(broker.address("kafka")) as link:
            plant_bomb(link)
            told = link.ask(Api.LIST_OFFSETS, by_time("bomb", times=3))
            codes = [each["error_code"] for each in told["topics"][0]["partitions"]]
            assert codes == [Error.NONE, Error.INVALID_REQUEST, Error.INVALID_REQUEST]
        before = cpu_seconds(broker)
        raw_clients = [visitor(broker) for _ in range(4)]
        for raw_client in raw_clients:
            body = by_time("bomb", times=20_000)
            raw_client.send(codec.encode_request(Api.LIST_OFFSETS, 7, 1, "t", body))
            raw_client.socket.close()
        time.sleep(2)  # as much work as there is
        assert cpu_seconds(broker) - before < 2
        began = time.monotonic()
        assert broker.stop(signal.SIGTERM) == 0
        assert time.monotonic() - began < 10


@pytest.mark.weighed
def test_a_fetch_session_keeps_no_names_that_no_topic_can_have(broker: Broker) -> None:
    part = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1,
        "partition_max_bytes": 1024,
    }  # fmt: skip
    with visitor(broker) as raw_client, takes_at_most(broker, mib=100, cpu_s=4):
        session = 0
        for epoch in range(4):
            names = [f"{epoch}-{each}-" + "x" * 32_000 for each in range(2_000)]
            body = {
                "replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20,
                "isolation_level": 0, "session_id": session, "session_epoch": epoch,
                "topics": [{"topic": name, "partitions": [part]} for name in names],
            }  # fmt: skip
            told = raw_client.ask(Api.FETCH, body, 11)
            session = told["session_id"]
            assert told["error_code"] == 0
            codes = {each["partitions"][0]["error_code"] for each in told["responses"]}
            assert codes == {Error.UNKNOWN_TOPIC_OR_PARTITION}


def joining(group: str, metadata: bytes) -> dict[str, object]:
    return {
        "group_id": group, "session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 1_800_000,
        "member_id": "", "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}],
    }  # fmt: skip


@pytest.mark.weighed
def test_what_all_members_tell_and_are_assigned_is_bounded_together(start: Start) -> None:
    """Each alone is small enough, and its client is gone."""
    with start(OTTERMQ_KAFKA__GROUPS__INITIAL_REBALANCE_DELAY="0s") as broker:
        with visitor(broker) as raw_client, takes_at_most(broker, mib=350, cpu_s=5):
            codes = []
            for number in range(70):
                told = raw_client.ask(Api.JOIN_GROUP, joining(f"g{number}", bytes(1 << 10)), 3)
                assert told["error_code"] == Error.NONE
                who = {"generation_id": told["generation_id"], "member_id": told["member_id"]}
                share = {"member_id": told["member_id"], "assignment": bytes(MIB)}
                sync = {"group_id": f"g{number}", **who, "assignments": [share]}
                codes.append(raw_client.ask(Api.SYNC_GROUP, sync, 2)["error_code"])
            assert codes == [Error.NONE] * 63 + [Error.MESSAGE_TOO_LARGE] * 7
            told = raw_client.ask(Api.JOIN_GROUP, joining("large", bytes(MIB)), 3)
            assert told["error_code"] == Error.GROUP_MAX_SIZE_REACHED
            told = raw_client.ask(Api.JOIN_GROUP, joining("usual", bytes(8 << 10)), 3)
            assert told["error_code"] == Error.NONE


@pytest.mark.weighed
def test_members_of_a_group_leave_little_behind(broker: Broker) -> None:
    with takes_at_most(broker, mib=160, cpu_s=4):  # it was 288 MiB
        for number in range(10):
            with visitor(broker) as raw_client:
                body = joining(f"g{number}", bytes(20 * MIB))
                assert (
                    raw_client.ask(Api.JOIN_GROUP, body, 3)["error_code"] == Error.MESSAGE_TOO_LARGE
                )
                body["protocols"] = [{"name": "range", "metadata": bytes(MIB)}]
                assert raw_client.ask(Api.JOIN_GROUP, body, 3)["error_code"] == Error.NONE
