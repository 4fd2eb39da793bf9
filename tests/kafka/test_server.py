"""The Kafka port of a broker process, as seen from a socket."""

import struct
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from ottermq.kafka import codec
from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from ottermq.kafka.request import Body
from ottermq.kafka.schema import MESSAGES
from tests.brokers import Broker
from tests.engine.kafka_plane import batch
from tests.kafka.raw_client import RawClient
from tests.kafka.wire import Link


@pytest.fixture
def raw_client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.address("kafka")) as opened:
        yield opened


# -- versions


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_api_versions_tells_the_same(raw_client: RawClient, version: int) -> None:
    name = {"client_software_name": "test", "client_software_version": "1"}
    answer = raw_client.ask(Api.API_VERSIONS, name, version)
    told = {
        each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]
    }
    assert answer["error_code"] == 0
    assert told[Api.PRODUCE] == (0, 11)  # older librdkafka wants to see version 0
    assert told[Api.FETCH] == (4, 17)
    assert told[Api.METADATA] == (0, 13)
    assert not {71, 72} & told.keys()  # telemetry
    assert answer["supported_features"] == [] == answer["finalized_features"]


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    raw_client: RawClient, version: int
) -> None:
    head = struct.pack(">hhih", Api.API_VERSIONS, version, 7, -1)
    raw_client.send(struct.pack(">i", len(head) + 3) + head + b"\0\0\0")
    correlation, answer = codec.decode_response(Api.API_VERSIONS, 0, raw_client.receive())
    assert (correlation, answer["error_code"]) == (7, Error.UNSUPPORTED_VERSION)
    assert [tuple(each.values()) for each in answer["api_keys"]] == [(18, 0, 4)]
    assert raw_client.ask(Api.API_VERSIONS)["error_code"] == 0


@pytest.mark.parametrize(("api", "version"), [(Api.METADATA, 14), (99, 0), (Api.FETCH, 3)])
def test_what_isnt_spoken_ends_the_connection_with_a_line(
    broker: Broker, raw_client: RawClient, api: int, version: int
) -> None:
    raw_client.ask(Api.METADATA)
    head = struct.pack(">hhih", api, version, 7, -1)
    raw_client.send(struct.pack(">i", len(head)) + head)
    assert raw_client.is_closed()
    broker.wait_for(f"peer={raw_client.name}.*")


@pytest.mark.parametrize(
    "body", [b"", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x00\x00\x00\x05\x00\x01a"]
)
def test_a_malformed_request_ends_its_connection_and_no_other(
    broker: Broker, raw_client: RawClient, body: bytes
) -> None:
    with RawClient(broker.address("kafka")) as other:
        other.ask(Api.METADATA)
        head = struct.pack(">hhih", Api.METADATA, 4, 7, -1)
        raw_client.send(struct.pack(">i", len(head) + len(body)) + head + body)
        assert raw_client.is_closed()
        broker.wait_for(
            rf"closing listener=kafka peer={raw_client.name} user=anonymous"
            r' reason="malformed request"'
        )
        assert other.ask(Api.METADATA)["error_code"] == 0


@pytest.mark.parametrize(
    ("hello", "what"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"AMQP\x00\x00\x09\x01", '"AMQP 0-9-1"'),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", '"TLS, on the port for plain connections"'),
    ],
)
def test_who_speaks_something_else_is_shown_out_with_one_line(
    broker: Broker, raw_client: RawClient, hello: bytes, what: str
) -> None:
    raw_client.send(hello)
    assert raw_client.is_closed()
    broker.wait_for(
        f'listener=kafka peer={raw_client.name} reason="wrong protocol" received={what}$'
    )


def test_kafka_at_the_amqp_port_is_called_by_its_name(broker: Broker) -> None:
    with RawClient(broker.address("amqp")) as raw_client:
        raw_client.send(codec.encode_request(Api.API_VERSIONS, 3, 1, "lost", {}))
        assert raw_client.receive_until_closed().startswith(b"AMQP")
        broker.wait_for(
            f'listener=amqp peer={raw_client.name} reason="wrong protocol" received=Kafka$'
        )


# -- metadata


def test_metadata_names_one_broker_where_the_client_came_to(
    broker: Broker, raw_client: RawClient
) -> None:
    host, port = broker.address("kafka")
    answer = raw_client.ask(Api.METADATA)
    [node] = answer["brokers"]
    assert (node["node_id"], node["host"], node["port"]) == (1, host, port)
    assert answer["controller_id"] == 1
    assert answer["cluster_id"] == raw_client.ask(Api.DESCRIBE_CLUSTER)["cluster_id"]


@pytest.mark.parametrize("version", range(MESSAGES[Api.METADATA].versions[1] + 1))
def test_every_version_of_metadata_tells_of_a_topic(raw_client: RawClient, version: int) -> None:
    name = f"versioned-{version}"
    [made] = raw_client.metadata(name)
    assert (made["error_code"], len(made["partitions"])) == (0, 1)
    asked = {"topics": [{"name": name}]}
    [topic] = raw_client.ask(Api.METADATA, asked, version)["topics"]
    assert topic["name"] == name
    assert [part["partition_index"] for part in topic["partitions"]] == [0]
    everything: Body = {"topics": [] if version == 0 else None}
    named = [each["name"] for each in raw_client.ask(Api.METADATA, everything, version)["topics"]]
    assert name in named
    if version >= 12:
        by_id = {"topics": [{"topic_id": made["topic_id"], "name": None}]}
        [found] = raw_client.ask(Api.METADATA, by_id, version)["topics"]
        assert found["name"] == name


def test_a_client_may_ask_without_creating(raw_client: RawClient) -> None:
    [topic] = raw_client.metadata("never-made", allow_auto_topic_creation=False)
    assert topic["error_code"] == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert "never-made" not in [each["name"] for each in raw_client.metadata()]


@pytest.mark.parametrize("name", ["", "a b", "ü", "x" * 250, ".."])
def test_an_illegal_name_is_told(raw_client: RawClient, name: str) -> None:
    [topic] = raw_client.metadata(name)
    assert topic["error_code"] == Error.INVALID_TOPIC_EXCEPTION


def test_nothing_is_made_by_asking_if_a_setting_says_so(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", env={"OTTERMQ_KAFKA__AUTO_CREATE": "false"}) as broker:
        with Link(broker.address("kafka")) as link:
            [topic] = link.metadata("wanted", allow_auto_topic_creation=True)
            assert topic["error_code"] == Error.UNKNOWN_TOPIC_OR_PARTITION
            assert link.metadata() == []
            link.create("wanted")
            assert [topic["name"] for topic in link.metadata()] == ["wanted"]


def test_topics_that_come_by_asking_have_as_many_partitions_as_a_setting_says(
    tmp_path: Path,
) -> None:
    with Broker(tmp_path / "data", env={"OTTERMQ_KAFKA__DEFAULT_PARTITIONS": "4"}) as broker:
        with RawClient(broker.address("kafka")) as raw_client:
            [topic] = raw_client.metadata("wanted")
            assert len(topic["partitions"]) == 4


def test_an_unknown_topic_id_is_told(raw_client: RawClient) -> None:
    nobody = {"topic_id": uuid4(), "name": None}
    [topic] = raw_client.ask(Api.METADATA, {"topics": [nobody]})["topics"]
    assert (topic["error_code"], topic["name"]) == (Error.UNKNOWN_TOPIC_ID, None)


def test_partitions_are_described_page_by_page(raw_client: RawClient) -> None:
    names = [f"paged-{n}" for n in range(3)]
    new = [{"name": name, "num_partitions": 3, "replication_factor": 1} for name in names]
    raw_client.ask(Api.CREATE_TOPICS, {"topics": new, "timeout_ms": 10_000})
    asked = {"topics": [{"name": name} for name in names], "response_partition_limit": 4}
    seen = []
    cursor = None
    for _ in range(10):
        page = raw_client.ask(Api.DESCRIBE_TOPIC_PARTITIONS, {**asked, "cursor": cursor})
        for topic in page["topics"]:
            seen += [(topic["name"], part["partition_index"]) for part in topic["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [(name, index) for name in names for index in range(3)]


def test_a_clients_first_batch_may_be_a_large_one(broker: Broker) -> None:
    """Clients ask for versions, and nothing else, where they are going to produce."""
    with Link(broker.address("kafka")) as link:
        link.create("large-first")
    with Link(broker.address("kafka")) as link:
        link.ask(Api.API_VERSIONS)
        link.send_produce("large-first", 0, batch(bytes(1_000_000)))
        assert link.produced() == (0, 0)


def test_who_only_asked_for_versions_is_not_sent_away(tmp_path: Path) -> None:
    """As librdkafka does on connections that it may need later."""
    with Broker(tmp_path / "data", env={"OTTERMQ_AMQP__HANDSHAKE_TIMEOUT": "2s"}) as broker:
        with RawClient(broker.address("kafka")) as raw_client:
            raw_client.ask(Api.API_VERSIONS)
            broker.wait_for(
                f"connection opened listener=kafka peer={raw_client.name} user=anonymous"
            )
            assert raw_client.metadata() == []
