"""Strings that nobody would send, in every string field of every API and version.

The tables in ottermq/kafka/schema say what there is. Each value goes alone into a request that is
otherwise sound enough to get somewhere. Whatever the answer is, or if the connection ends: the
broker lives, serves others, and nothing of it was a mistake of our own.
"""

import itertools
import math
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from ottermq.kafka import codec
from ottermq.kafka.api import Api
from ottermq.kafka.configs import TOPIC_CONFIGS
from ottermq.kafka.schema import MESSAGES, Field
from tests.brokers import Broker
from tests.engine.kafka_plane import batch
from tests.kafka.bodies import VERSIONS
from tests.kafka.raw_client import Gone, RawClient
from tests.kafka.wire import Link

LONG = 40_000
HOSTILE = {
    "long": b"x" * LONG,
    "nul": b"a\0b",
    "not utf-8": b"\xff\xfe\x80",
    "empty": b"",
    "line break": b"a\nINFO ready",
}
# What keeps a request from being refused for another reason.
USUAL: dict[str, Any] = {
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "transaction_timeout_ms": 10_000,
    "timeout_ms": 10_000,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "producer_id": -1,
    "producer_epoch": -1,
    "num_partitions": 1,
    "count": 2,
    "replication_factor": 1,
    "iterations": 4096,
    "mechanism": 1,
    "resource_type": 2,
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "resource_pattern_type": 3,
    "operation": 3,
    "permission_type": 3,
    "permission_type_filter": 1,
    "protocol_type": "consumer",
    "principal": "User:guest",
    "host": "*",
    "salt": b"salt",
    "salted_password": b"x" * 32,
    "acks": -1,
    "session_epoch": -1,
    "min_bytes": 0,
    "response_partition_limit": 10,
}


class Raw(str):
    """A string that is sent as these bytes."""

    raw: bytes

    def encode(self, *_: Any, **__: Any) -> bytes:
        return self.raw


Path = tuple[str, ...]
_number = itertools.count()


def string_fields(fields: tuple[Field, ...], version: int, above: Path = ()) -> Iterator[Path]:
    for field in fields:
        if version in field.versions:
            here = (*above, field.name)
            if field.type == "string":
                yield here
            yield from string_fields(field.fields, version, here)


def body_with(
    fields: tuple[Field, ...], version: int, path: Path, value: Any, above: Path = ()
) -> dict[str, Any]:
    return {
        field.name: value_of(field, version, path, value, (*above, field.name))
        for field in fields
        if version in field.versions
    }


def value_of(field: Field, version: int, path: Path, value: Any, here: Path) -> Any:
    if here == path:
        one = value
    elif field.fields:
        one = body_with(field.fields, version, path, value, here)
    elif field.name in USUAL and not field.is_array:
        one = USUAL[field.name]
    elif field.type == "string":
        one = f"s{next(_number)}"  # another group each time: nobody waits for another
    elif field.type == "records":
        one = batch(b"value")
    elif field.type == "bytes":
        one = b"\0\0\0\0"
    elif field.type == "uuid":
        one = UUID(int=7)
    elif field.is_array:
        one = 0
    else:
        one = field.default
    return [one] if field.is_array else one


def hostile(raw: bytes, flexible: bool) -> Raw:
    """Where lengths are 16 bits wide, the longest there is."""
    made = Raw("hostile")
    made.raw = raw if flexible else raw[: 2**15 - 1]
    return made


class Visitor:
    """Comes again whenever it is thrown out."""

    def __init__(self, broker: Broker) -> None:
        self._address = broker.address("kafka")
        self._talker: RawClient | None = None

    def send(self, api: Api, version: int, body: dict[str, Any]) -> None:
        raw_client = self._come(log_in=api not in (Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE))
        try:
            raw_client.send(codec.encode_request(api, version, 1, "visitor", body))
            raw_client.receive()
        except (Gone, ConnectionError):
            self.leave()
        except TimeoutError:  # a JoinGroup waits for others, a Fetch for records
            self.leave()
        if api in (Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE):
            self.leave()

    def _come(self, log_in: bool) -> RawClient:
        if self._talker is None:
            self._talker = RawClient(self._address)
            if log_in:
                assert self._talker.log_in()["error_code"] == 0
            self._talker.socket.settimeout(3)
        return self._talker

    def leave(self) -> None:
        if self._talker is not None:
            self._talker.socket.close()
            self._talker = None


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    env = {
        "OTTERMQ_KAFKA__GROUPS__INITIAL_REBALANCE_DELAY": "0s",
        "OTTERMQ_KAFKA__GROUPS__OFFSETS_CHECK_INTERVAL": "100ms",
    }
    with Broker(tmp_path_factory.mktemp("attacked") / "data", env=env) as broker:
        yield broker


def assert_serves(broker: Broker) -> None:
    assert broker.process.poll() is None, broker.lines[-20:]
    topic = f"lives{next(_number)}"
    with Link(broker.address("kafka")) as link:
        assert link.log_in()["error_code"] == 0
        link.create(topic)
        link.send_produce(topic, 0, batch(b"here"))
        assert link.produced() == (0, 0)
        assert [value for _, value in link.read_all(topic, 0)] == [b"here"]
    mistakes = [line for line in broker.lines if " ERROR " in line]
    assert not mistakes


@pytest.mark.parametrize("api", sorted(MESSAGES), ids=lambda api: api.name.lower())
def test_no_string_of_a_request_harms_the_broker(attacked: Broker, api: Api) -> None:
    message, visitor = MESSAGES[api], Visitor(attacked)
    for version in [version for each, version in VERSIONS if each == api]:
        for path in string_fields(message.request, version):
            for raw in HOSTILE.values():
                value = hostile(raw, message.is_flexible(version))
                visitor.send(api, version, body_with(message.request, version, path, value))
    visitor.leave()
    assert_serves(attacked)


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE)
def test_no_client_id_harms_the_broker(attacked: Broker, raw: bytes) -> None:
    name = raw[: 2**15 - 1]
    for api, version in ((Api.METADATA, 9), (Api.JOIN_GROUP, 5), (Api.JOIN_GROUP, 9)):
        body = body_with(MESSAGES[api].request, version, (), None)
        sound = codec.encode_request(api, version, 1, "", body)
        request = sound[4:12] + struct.pack(">h", len(name)) + name + sound[14:]
        with RawClient(attacked.address("kafka")) as raw_client:
            raw_client.log_in()
            raw_client.send(len(request).to_bytes(4, "big") + request)
            with _gone_is_fine():
                raw_client.receive()
    assert_serves(attacked)


class _gone_is_fine:
    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, Gone | ConnectionError)


def test_a_group_id_that_no_record_can_hold_is_refused(start: Callable[..., Broker]) -> None:
    """Three requests of anybody who may read some group's name ended the process."""
    env = {"OTTERMQ_KAFKA__GROUPS__OFFSETS_CHECK_INTERVAL": "100ms"}
    with start(**env) as broker, RawClient(broker.address("kafka")) as raw_client:
        raw_client.log_in()
        for length in (40_000, 32_767, 2_000):
            body = body_with(MESSAGES[Api.JOIN_GROUP].request, 9, ("group_id",), "g" * length)
            try:
                told = raw_client.ask(Api.JOIN_GROUP, body | {"member_id": ""}, 9)
            except Gone:
                assert length == 40_000  # longer than a string of the protocol can be
                raw_client = RawClient(broker.address("kafka"))
                raw_client.log_in()
            else:
                assert told["error_code"] == 24  # INVALID_GROUP_ID
        raw_client.socket.close()
        assert_serves(broker)
        assert not [line for line in broker.lines if re.search("internal error", line)]


def test_a_member_without_an_id_of_its_own_gets_one_that_a_record_can_hold(
    start: Callable[..., Broker],
) -> None:
    """Its client id becomes a part of it."""
    with start() as broker:
        with RawClient(broker.address("kafka")) as raw_client:
            raw_client.log_in()
            body = {
                "group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
                "member_id": "", "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
            }  # fmt: skip
            raw_client.send(codec.encode_request(Api.JOIN_GROUP, 2, 1, "c" * 32_767, body))
            _, told = codec.decode_response(Api.JOIN_GROUP, 2, raw_client.receive())
            assert told["error_code"] == 0
            sync = {
                "group_id": "g", "generation_id": told["generation_id"],
                "member_id": told["member_id"], "assignments": [],
            }  # fmt: skip
            assert raw_client.ask(Api.SYNC_GROUP, sync, 1)["error_code"] == 0
        assert_serves(broker)


VALUES = ["", "9" * 30_000, str(2**64), str(2**63 - 1), "-1", "0", "nan", "1e999", "a\0b", "true"]


@pytest.mark.parametrize("name", TOPIC_CONFIGS)
def test_no_config_of_a_topic_harms_the_broker(attacked: Broker, name: str) -> None:
    with RawClient(attacked.address("kafka")) as raw_client:
        raw_client.log_in()
        for value in VALUES:
            topic = f"configured{next(_number)}"
            config = {"name": name, "value": value}
            wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1}
            body = {"topics": [wanted | {"configs": [config]}], "timeout_ms": 10_000}
            raw_client.ask(Api.CREATE_TOPICS, body)
            raw_client.ask(Api.CREATE_TOPICS, body | {"topics": [wanted]})
            altered = {"resource_type": 2, "resource_name": topic}
            change = altered | {"configs": [config | {"config_operation": 0}]}
            raw_client.ask(Api.INCREMENTAL_ALTER_CONFIGS, {"resources": [change]})
            raw_client.ask(
                Api.DESCRIBE_CONFIGS, {"resources": [altered | {"configuration_keys": None}]}
            )
            with Link(attacked.address("kafka")) as link:
                link.log_in()
                link.send_produce(topic, 0, batch(b"here"))
                link.produced()
    assert_serves(attacked)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0, 5e-324, 1.7e308])
def test_no_number_of_a_quota_harms_the_broker(attacked: Broker, value: float) -> None:
    with RawClient(attacked.address("kafka")) as raw_client:
        raw_client.log_in()
        for key in ("producer_byte_rate", "consumer_byte_rate"):
            entity = [{"entity_type": "client-id", "entity_name": "raw_client"}]
            entry = {"entity": entity, "ops": [{"key": key, "value": value, "remove": False}]}
            raw_client.ask(Api.ALTER_CLIENT_QUOTAS, {"entries": [entry], "validate_only": False})
            described = {"components": [], "strict": False}
            raw_client.ask(Api.DESCRIBE_CLIENT_QUOTAS, described)
            entry["ops"] = [{"key": key, "value": 0.0, "remove": True}]
            raw_client.ask(Api.ALTER_CLIENT_QUOTAS, {"entries": [entry], "validate_only": False})
    assert_serves(attacked)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_no_login_harms_the_broker(attacked: Broker, mechanism: str) -> None:
    for raw in HOSTILE.values():
        for token in (raw, b"\0" + raw + b"\0" + raw, b"n,,n=" + raw + b",r=" + raw):
            with RawClient(attacked.address("kafka")) as raw_client:
                raw_client.ask(Api.SASL_HANDSHAKE, {"mechanism": mechanism})
                with _gone_is_fine():
                    raw_client.authenticate(token)
    assert_serves(attacked)


def test_what_they_left_keeps_no_start_from_serving(attacked: Broker) -> None:
    """What ended the broker came back with each start."""
    assert attacked.stop() == 0
    env = {"OTTERMQ_KAFKA__GROUPS__OFFSETS_CHECK_INTERVAL": "100ms"}
    with Broker(attacked.data, env=env) as again:
        assert_serves(again)
