"""What one client can take of the broker's memory and time: weighed on the process itself."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottermq.kafka import codec
from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from tests.amqp.crowd import memory
from tests.brokers import Broker
from tests.engine.kafka_plane import batch
from tests.kafka.talker import Gone, Talker
from tests.kafka.wire import Link

Start = Callable[..., Broker]
MIB = 1 << 20
ZSTD = 4


def cpu_of(broker: Broker) -> float:
    """Seconds, of the kernel's for it, too."""
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anon(broker: Broker) -> int:
    return memory(broker.process.pid)


def visitor(broker: Broker) -> Talker:
    """Known, or its requests would have to be small."""
    talker = Talker(broker.address("kafka"))
    assert talker.log_in()["error_code"] == 0
    return talker


class Peak(threading.Thread):
    """The most memory that it had meanwhile."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(daemon=True)
        self.broker, self.most, self.over = broker, 0, threading.Event()
        self.start()

    def run(self) -> None:
        while not self.over.wait(0.01):
            self.most = max(self.most, anon(self.broker))

    def end(self) -> int:
        self.over.set()
        self.join()
        return self.most


@pytest.fixture
def broker(start: Start) -> Iterator[Broker]:
    with start() as running:
        yield running


@pytest.mark.weighed
def test_metadata_that_is_asked_for_is_not_kept_without_a_limit(broker: Broker) -> None:
    """Six questions about 10,000 made-up names each: their answers were kept, and their names."""
    with visitor(broker) as talker:
        before = anon(broker)
        for number in range(6):
            topics = [{"name": f"{number}-{each}-{'x' * 2_000}"} for each in range(10_000)]
            asked = {"topics": topics, "allow_auto_topic_creation": False}
            assert len(talker.ask(Api.METADATA, asked)["topics"]) == 10_000
    assert anon(broker) - before < 160 * MIB  # it was 347


def test_a_request_of_too_many_names_is_refused_at_once(broker: Broker) -> None:
    requests = [
        (Api.FIND_COORDINATOR, 4, {"coordinator_keys": [f"k{each}" for each in range(250_000)]}),
        (
            Api.DESCRIBE_CONFIGS,
            4,
            {"resources": [{"resource_type": 2, "resource_name": "x"} for _ in range(200_000)]},
        ),
    ]
    before = cpu_of(broker)
    for api, version, body in requests:
        with visitor(broker) as talker:
            talker.send(codec.encode_request(api, version, 1, "many", body))
            with pytest.raises((Gone, ConnectionError)):
                talker.receive()
        broker.wait_for(f"more than 10000 elements.* api={api.name}")
    assert cpu_of(broker) - before < 0.7
    with visitor(broker) as talker:  # where there is a place for it, it is told
        ids = [f"t{each}" for each in range(20_000)]
        listed = talker.ask(Api.LIST_GROUPS, {"states_filter": ids})
        assert listed["error_code"] == Error.INVALID_REQUEST
        keys = {"coordinator_keys": [f"k{each}" for each in range(9_000)]}
        assert len(talker.ask(Api.FIND_COORDINATOR, keys)["coordinators"]) == 9_000


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
        before, peak = anon(broker), Peak(broker)
        talkers = [stack.enter_context(visitor(broker)) for _ in range(8)]
        for talker in talkers:
            body = by_time("bomb")
            body["topics"][0]["partitions"][0]["timestamp"] = 500  # type: ignore[index]
            talker.send(codec.encode_request(Api.LIST_OFFSETS, 7, 1, "t", body))
        for talker in talkers:
            _, told = codec.decode_response(Api.LIST_OFFSETS, 7, talker.receive())
            assert told["topics"][0]["partitions"][0]["offset"] == 0
        assert peak.end() - before < 200 * MIB
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
        before = cpu_of(broker)
        talkers = [visitor(broker) for _ in range(4)]
        for talker in talkers:
            body = by_time("bomb", times=20_000)
            talker.send(codec.encode_request(Api.LIST_OFFSETS, 7, 1, "t", body))
            talker.socket.close()
        began = time.monotonic()
        assert broker.stop(signal.SIGTERM) == 0
        assert time.monotonic() - began < 10
        assert before < 30


@pytest.mark.weighed
def test_a_fetch_session_keeps_no_names_that_no_topic_can_have(broker: Broker) -> None:
    part = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1,
        "partition_max_bytes": 1024,
    }  # fmt: skip
    with visitor(broker) as talker:
        before, session = anon(broker), 0
        for epoch in range(4):
            names = [f"{epoch}-{each}-" + "x" * 32_000 for each in range(2_000)]
            body = {
                "replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20,
                "isolation_level": 0, "session_id": session, "session_epoch": epoch,
                "topics": [{"topic": name, "partitions": [part]} for name in names],
            }  # fmt: skip
            told = talker.ask(Api.FETCH, body, 11)
            session = told["session_id"]
            assert told["error_code"] == 0
            codes = {each["partitions"][0]["error_code"] for each in told["responses"]}
            assert codes == {Error.UNKNOWN_TOPIC_OR_PARTITION}
        assert anon(broker) - before < 100 * MIB


@pytest.mark.weighed
def test_members_of_a_group_leave_little_behind(broker: Broker) -> None:
    before = anon(broker)
    for number in range(10):
        with visitor(broker) as talker:
            body = {
                "group_id": f"g{number}", "session_timeout_ms": 1_800_000,
                "rebalance_timeout_ms": 1_800_000, "member_id": "", "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": bytes(20 * MIB)}],
            }  # fmt: skip
            assert talker.ask(Api.JOIN_GROUP, body, 3)["error_code"] == Error.MESSAGE_TOO_LARGE
            body["protocols"] = [{"name": "range", "metadata": bytes(MIB)}]
            assert talker.ask(Api.JOIN_GROUP, body, 3)["error_code"] == Error.NONE
    assert anon(broker) - before < 160 * MIB  # it was 288
