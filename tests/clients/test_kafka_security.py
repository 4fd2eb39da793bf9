"""Logins and TLS with real clients: SASL in each of its mechanisms, over both listeners."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError as PythonError

from tests.brokers import Broker

PATIENCE = 60.0
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
Unique = Callable[[str], str]
Options = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secure")


@pytest.fixture(scope="module")
def secure(folder: Path) -> Iterator[Broker]:
    """Nobody comes in without a login."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued = ca.issue_cert("127.0.0.1", "localhost")
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(folder / "cert.pem"), append=True)
    settings = {
        "OTTERMQ_KAFKA__ANONYMOUS_USER": "null",
        "OTTERMQ_LISTEN__KAFKAS": "127.0.0.1:0",
        "OTTERMQ_TLS__CERT": str(folder / "cert.pem"),
        "OTTERMQ_TLS__KEY": str(folder / "key.pem"),
    }
    with Broker(folder / "data", env=settings) as running:
        yield running


def place(broker: Broker, listener: str) -> str:
    host, port = broker.address(listener)
    return f"{host}:{port}"


@pytest.fixture(params=["kafka", "kafkas"])
def listener(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=MECHANISMS)
def mechanism(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def librdkafka(
    broker: Broker, folder: Path, listener: str, mechanism: str, password: str = "guest"
) -> Options:
    return {
        "bootstrap.servers": place(broker, listener),
        "security.protocol": "SASL_SSL" if listener == "kafkas" else "SASL_PLAINTEXT",
        "ssl.ca.location": str(folder / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.username": "guest",
        "sasl.password": password,
    }


def python(
    broker: Broker, folder: Path, listener: str, mechanism: str, password: str = "guest"
) -> Options:
    return {
        "bootstrap_servers": place(broker, listener),
        "security_protocol": "SASL_SSL" if listener == "kafkas" else "SASL_PLAINTEXT",
        "ssl_cafile": str(folder / "ca.pem"),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "guest",
        "sasl_plain_password": password,
    }


def test_librdkafka_logs_in(
    secure: Broker, folder: Path, unique: Unique, listener: str, mechanism: str
) -> None:
    producer = Producer(librdkafka(secure, folder, listener, mechanism))
    told: list[KafkaError | None] = []
    producer.produce(unique("secure"), b"value", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(PATIENCE) == 0
    assert told == [None]


def test_kafka_python_logs_in(
    secure: Broker, folder: Path, unique: Unique, listener: str, mechanism: str
) -> None:
    producer = KafkaProducer(**python(secure, folder, listener, mechanism))
    try:
        assert producer.send(unique("secure"), b"value").get(PATIENCE).offset == 0
    finally:
        producer.close()


def test_aiokafka_logs_in(secure: Broker, folder: Path, unique: Unique, mechanism: str) -> None:
    options = python(secure, folder, "kafka", mechanism)
    del options["ssl_cafile"]

    async def work() -> None:
        producer = AIOKafkaProducer(**options)
        await producer.start()
        assert (await producer.send_and_wait(unique("secure"), b"value")).offset == 0
        await producer.stop()

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


def test_a_wrong_password_is_what_librdkafka_reports(
    secure: Broker, folder: Path, mechanism: str
) -> None:
    errors: list[KafkaError] = []
    options: dict[str, Any] = {**librdkafka(secure, folder, "kafka", mechanism, "wrong")}
    admin = AdminClient(options | {"error_cb": errors.append})
    for _ in range(int(PATIENCE)):
        admin.poll(1.0)
        if any(error.code() == KafkaError._AUTHENTICATION for error in errors):
            return
    pytest.fail(f"no failed login: {errors}")


@pytest.mark.long
def test_a_wrong_password_is_what_kafka_python_reports(secure: Broker, folder: Path) -> None:
    with pytest.raises(PythonError):
        KafkaAdminClient(**python(secure, folder, "kafka", "PLAIN", "wrong"))
