"""Who may come in by Kafka: SASL, anonymous clients, TLS; and what they may touch."""

import base64
import hashlib
import json
import ssl
from collections.abc import Iterator

import pytest
import trustme

from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from tests.auth.scram_client import ScramClient
from tests.brokers import Broker
from tests.kafka.raw_client import Gone, RawClient


def hashed(password: str) -> str:
    """As RabbitMQ exports it."""
    salt = b"salt"
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


DEFINITIONS = {
    "vhosts": [{"name": "/"}],
    "users": [
        {"name": name, "password_hash": hashed(name), "tags": tags}
        for name, tags in (("guest", "administrator"), ("reader", ""), ("nobody", ""))
    ],
    "permissions": [
        {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
        {"user": "reader", "vhost": "/", "configure": "", "write": "^out", "read": "^in"},
    ],
}


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, ca: trustme.CA) -> Iterator[Broker]:
    """A broker that serves nobody who doesn't log in, over TLS too."""
    folder = tmp_path_factory.mktemp("strict")
    (folder / "definitions.json").write_text(json.dumps(DEFINITIONS))
    issued = ca.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(folder / "cert.pem"), append=True)
    settings = {
        "OTTERMQ_KAFKA__ANONYMOUS_USER": "null",
        "OTTERMQ_KAFKA__ADVERTISED": "broker.example:4711",
        "OTTERMQ_LISTEN__KAFKAS": "127.0.0.1:0",
        "OTTERMQ_TLS__CERT": str(folder / "cert.pem"),
        "OTTERMQ_TLS__KEY": str(folder / "key.pem"),
    }
    definitions = str(folder / "definitions.json")
    with Broker(folder / "data", "--definitions", definitions, env=settings) as running:
        yield running


@pytest.fixture
def raw_client(strict: Broker) -> Iterator[RawClient]:
    with RawClient(strict.address("kafka")) as opened:
        yield opened


def test_who_doesnt_log_in_is_shown_out(strict: Broker, raw_client: RawClient) -> None:
    assert raw_client.ask(Api.API_VERSIONS)["error_code"] == 0
    with pytest.raises(Gone):
        raw_client.ask(Api.METADATA)
    strict.wait_for(
        f'closing listener=kafka peer={raw_client.name} user=- reason="authentication required"'
    )


def test_the_mechanisms_are_told(raw_client: RawClient) -> None:
    answer = raw_client.ask(Api.SASL_HANDSHAKE, {"mechanism": "GSSAPI"})
    assert answer["error_code"] == Error.UNSUPPORTED_SASL_MECHANISM
    assert answer["mechanisms"] == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert raw_client.log_in()["error_code"] == 0


def test_plain(raw_client: RawClient) -> None:
    assert raw_client.log_in()["error_code"] == 0
    [node] = raw_client.ask(Api.METADATA)["brokers"]
    assert (node["host"], node["port"]) == ("broker.example", 4711)


@pytest.mark.parametrize("token", [b"\0guest\0wrong", b"\0who\0guest", b"guest", b"", b"\0" * 9])
def test_a_wrong_password_is_told_and_ends_the_connection(
    raw_client: RawClient, token: bytes
) -> None:
    raw_client.ask(Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
    answer = raw_client.authenticate(token)
    assert answer["error_code"] == Error.SASL_AUTHENTICATION_FAILED
    assert raw_client.is_closed()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(strict: Broker, mechanism: str) -> None:
    with RawClient(strict.address("kafka")) as first:
        assert first.log_in()["error_code"] == 0  # an imported hash has no verifier before this
    with RawClient(strict.address("kafka")) as raw_client:
        client = ScramClient(mechanism, "guest", b"guest")
        raw_client.ask(Api.SASL_HANDSHAKE, {"mechanism": mechanism})
        challenge = raw_client.authenticate(client.first())["auth_bytes"]
        answer = raw_client.authenticate(client.final(challenge))
        assert (answer["error_code"], answer["auth_bytes"]) == (0, client.theirs)
        assert raw_client.ask(Api.METADATA)["error_code"] == 0
    with RawClient(strict.address("kafka")) as raw_client:
        client = ScramClient(mechanism, "guest", b"wrong")
        raw_client.ask(Api.SASL_HANDSHAKE, {"mechanism": mechanism})
        challenge = raw_client.authenticate(client.first())["auth_bytes"]
        answer = raw_client.authenticate(client.final(challenge))
        assert answer["error_code"] == Error.SASL_AUTHENTICATION_FAILED
        assert raw_client.is_closed()


def test_the_first_handshake_has_bare_tokens(raw_client: RawClient) -> None:
    answer = raw_client.ask(Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, version=0)
    assert answer["error_code"] == 0
    token = b"\0guest\0guest"
    raw_client.send(len(token).to_bytes(4, "big") + token)
    assert raw_client.receive() == b""
    assert raw_client.ask(Api.METADATA)["error_code"] == 0


def test_there_is_no_login_without_a_handshake_nor_a_second_one(raw_client: RawClient) -> None:
    assert raw_client.authenticate(b"\0guest\0guest")["error_code"] == Error.ILLEGAL_SASL_STATE
    assert raw_client.log_in()["error_code"] == 0
    answer = raw_client.ask(Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
    assert answer["error_code"] == Error.ILLEGAL_SASL_STATE


def test_nobody_sees_or_makes_what_isnt_theirs(strict: Broker, raw_client: RawClient) -> None:
    raw_client.log_in()
    raw_client.metadata("in-box", "out-box", "secret")
    with RawClient(strict.address("kafka")) as other:
        assert other.log_in("reader", "reader")["error_code"] == 0
        assert {topic["name"] for topic in other.metadata()} == {"in-box", "out-box"}
        codes = {topic["name"]: topic["error_code"] for topic in other.metadata("secret", "in-new")}
        assert codes == {
            "secret": Error.TOPIC_AUTHORIZATION_FAILED,
            "in-new": Error.UNKNOWN_TOPIC_OR_PARTITION,
        }
        codes = {name: fetched(other, name) for name in ("in-box", "out-box", "secret")}
        assert codes == {
            "in-box": Error.NONE,
            "out-box": Error.TOPIC_AUTHORIZATION_FAILED,
            "secret": Error.TOPIC_AUTHORIZATION_FAILED,
        }


def fetched(raw_client: RawClient, topic: str) -> int:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    asked = {"topics": [{"topic": topic, "partitions": [part]}], "max_bytes": 1 << 20}
    [answer] = raw_client.ask(Api.FETCH, asked, version=11)["responses"]
    code: int = answer["partitions"][0]["error_code"]
    return code


def test_tls(strict: Broker, ca: trustme.CA) -> None:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    with RawClient(strict.address("kafkas"), context) as raw_client:
        assert raw_client.log_in()["error_code"] == 0
        host, port = strict.address("kafkas")
        [node] = raw_client.ask(Api.METADATA)["brokers"]
        assert (node["host"], node["port"]) == (host, port)
        strict.wait_for(f"connection opened listener=kafkas peer={raw_client.name} user=guest")
