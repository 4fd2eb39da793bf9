"""Bad input at a broker process: each has its own end, and a client beside it never notices."""

import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottermq.kafka import codec
from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from tests.brokers import Broker
from tests.engine.kafka_plane import batch
from tests.kafka.raw_client import RawClient
from tests.kafka.wire import PRODUCE, Link

MANY = 5000
PATIENCE_OF_OTHERS = 10.0  # seconds for a round trip, on a machine that is busy with other tests


class BackgroundClient(threading.Thread):
    """Another client: produces one record after the other and reads each back."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(daemon=True)
        self.link = Link(address)
        self.link.create("background")
        self.rounds = 0
        self.slowest = 0.0
        self.failure: BaseException | None = None
        self.over = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            while not self.over.wait(0.001):
                began = time.monotonic()
                self.link.send_produce("background", 0, batch(b"%d" % self.rounds), acks=1)
                assert self.link.produced() == (0, self.rounds)
                self.rounds += 1
                self.slowest = max(self.slowest, time.monotonic() - began)
            assert [int(value) for _, value in self.link.read_all("background", 0)] == [
                *range(self.rounds)
            ]
        except BaseException as failure:
            self.failure = failure

    def close(self) -> None:
        self.over.set()
        self.join()
        self.link.socket.close()
        if self.failure:
            raise self.failure
        assert self.rounds and self.slowest < PATIENCE_OF_OTHERS


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that serves a background client, whatever the tests do to it."""
    with Broker(tmp_path_factory.mktemp("bad") / "data") as broker:
        background = BackgroundClient(broker.address("kafka"))
        with Link(broker.address("kafka")) as link:
            link.create("small")
        try:
            yield broker
        finally:
            background.close()


@pytest.fixture(scope="module", autouse=True)
def half(watched: Broker) -> Iterator[RawClient]:
    """A client that stopped in the middle of a request, before the others came."""
    with RawClient(watched.address("kafka")) as raw_client:
        raw_client.metadata("small")
        raw_client.send(codec.encode_request(Api.METADATA, 4, 9, "half", {"topics": None})[:-3])
        yield raw_client


@pytest.fixture
def link(watched: Broker) -> Iterator[Link]:
    with Link(watched.address("kafka")) as opened:
        yield opened


def produce(link: Link, topic: str, records: bytes) -> int:
    link.send_produce(topic, 0, records)
    return link.produced()[0]


# -- what is refused


def test_a_wrong_crc_is_a_corrupt_message(link: Link) -> None:
    spoilt = bytearray(batch(b"1"))
    spoilt[17] ^= 1
    assert produce(link, "small", bytes(spoilt)) == Error.CORRUPT_MESSAGE
    assert produce(link, "small", batch(b"1")) == Error.NONE


def test_more_than_a_topic_takes_is_too_large(link: Link) -> None:
    link.ask(Api.API_VERSIONS)
    assert produce(link, "small", batch(bytes(1_100_000))) == Error.MESSAGE_TOO_LARGE
    assert produce(link, "small", batch(b"1")) == Error.NONE


def test_a_topic_that_nobody_made_is_unknown(link: Link) -> None:
    assert produce(link, "nowhere", batch(b"1")) == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_epochs_that_are_not_ours_are_told(link: Link) -> None:
    partition = {"partition_index": 0, "timestamp": -1}
    for epoch, error in ((1 << 30, Error.UNKNOWN_LEADER_EPOCH), (-1, Error.NONE)):
        asked = partition | {"current_leader_epoch": epoch}
        body = {"replica_id": -1, "topics": [{"name": "small", "partitions": [asked]}]}
        [told] = link.ask(Api.LIST_OFFSETS, body)["topics"][0]["partitions"]
        assert told["error_code"] == error


def test_a_producer_of_an_older_epoch_is_fenced(link: Link) -> None:
    id, epoch = link.new_producer()
    assert produce(link, "small", batch(b"1", producer=(id, epoch + 1, 0))) == Error.NONE
    old = batch(b"2", producer=(id, epoch, 1))
    assert produce(link, "small", old) == Error.INVALID_PRODUCER_EPOCH


# -- what ends its connection


def head(api: int, version: int) -> bytes:
    return struct.pack(">hhih", api, version, 7, -1)


def sized(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


COUNT = b"\x7f\xff\xff\xff"
NO_ID = b"\xff\xff"
ENDS = {
    "a negative size": struct.pack(">i", -5) + bytes(20),
    "the largest size": struct.pack(">i", 0x7FFFFFFF) + head(3, 4),
    "a count of 2**31 - 1": sized(head(Api.METADATA, 4) + COUNT),
    "a negative count": sized(head(Api.METADATA, 4) + b"\x80\0\0\0"),
    "topics of a produce": sized(head(Api.PRODUCE, 7) + NO_ID + b"\0\1\0\0\0\0" + COUNT),
    "topics of a fetch": sized(head(Api.FETCH, 11) + b"\xff" * 4 + bytes(21) + COUNT),
    "records of 2 GiB": sized(
        head(Api.PRODUCE, 7) + NO_ID + b"\0\1\0\0\0\0\0\0\0\1\0\5small\0\0\0\1\0\0\0\0" + COUNT
    ),
    "a huge version": sized(head(Api.METADATA, 32767)),
    "a huge version of Produce": sized(head(Api.PRODUCE, 32767)),
    "a huge version of Fetch": sized(head(Api.FETCH, 32767)),
    "a negative version": sized(head(Api.FETCH, -1)),
    "an API that isn't there": sized(head(999, 0)),
}


@pytest.mark.parametrize("what", ENDS)
def test_what_cant_be_read_ends_its_own_connection(link: Link, what: str) -> None:
    link.metadata("small")
    link.send(ENDS[what])
    assert link.is_closed()


# -- what is merely much

NAMES = [f"unheard-{n}" for n in range(MANY)]
PARTITION = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
TIMES = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
CROWDS: dict[str, tuple[Api, int, dict[str, Any], Callable[[Any], Any]]] = {
    "metadata": (
        Api.METADATA,
        12,
        {"topics": [{"name": name} for name in NAMES], "allow_auto_topic_creation": False},
        lambda told: [topic["error_code"] for topic in told["topics"]],
    ),
    "produce": (
        Api.PRODUCE,
        PRODUCE,
        {
            "acks": -1,
            "timeout_ms": 1000,
            "topic_data": [
                {"name": name, "partition_data": [{"index": 0, "records": batch(b"1")}]}
                for name in NAMES
            ],
        },
        lambda told: [
            part["error_code"] for each in told["responses"] for part in each["partition_responses"]
        ],
    ),
    "fetch": (
        Api.FETCH,
        11,
        {
            "session_epoch": -1,
            "topics": [{"topic": name, "partitions": [PARTITION]} for name in NAMES],
        },
        lambda told: [
            part["error_code"] for each in told["responses"] for part in each["partitions"]
        ],
    ),
    "list-offsets": (
        Api.LIST_OFFSETS,
        7,
        {"replica_id": -1, "topics": [{"name": name, "partitions": [TIMES]} for name in NAMES]},
        lambda told: [part["error_code"] for each in told["topics"] for part in each["partitions"]],
    ),
}


@pytest.mark.parametrize("what", CROWDS)
def test_thousands_of_topics_in_one_request_are_each_answered(watched: Broker, what: str) -> None:
    api, version, body, errors = CROWDS[what]
    with RawClient(watched.address("kafka")) as raw_client:
        found = errors(raw_client.ask(api, body, version))
    assert found == [Error.UNKNOWN_TOPIC_OR_PARTITION] * MANY


def test_thousands_of_topics_are_made_by_one_request(watched: Broker) -> None:
    names = [f"made-{n}" for n in range(2000)]
    wanted = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    with RawClient(watched.address("kafka")) as raw_client:
        made = raw_client.ask(Api.CREATE_TOPICS, {"topics": wanted, "timeout_ms": 60_000})["topics"]
        assert [topic["error_code"] for topic in made] == [Error.NONE] * len(wanted)
        assert {*names} <= {topic["name"] for topic in raw_client.metadata()}


# -- last, since it takes its time


@pytest.mark.long
def test_half_a_request_is_not_waited_for_for_ever(watched: Broker, half: RawClient) -> None:
    assert half.is_closed()
    watched.wait_for(f"peer={half.name}.*incomplete request timeout")
