"""Requests of Kafka clients: cut anywhere, answered in order, too large, not Kafka at all."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottermq.engine.events import (
    ConnectionClosed,
    ConnectionHello,
    KafkaRequest,
    OutputReady,
    WrongProtocol,
)
from ottermq.engine.types import ConnFlags, Protocol
from tests.engine.kafka_plane import KafkaPlane, batch, request
from tests.engine.plane import Client

METADATA, VERSIONS = 3, 18


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[KafkaPlane]:
    plane = KafkaPlane(tmp_path)
    yield plane
    plane.close()


def test_a_request_reaches_python_and_its_answer_the_client(plane: KafkaPlane) -> None:
    client = plane.kafka()
    client.send(request(VERSIONS, 3, 77, b"body"))
    event = client.asked()
    body = request(VERSIONS, 3, 77, b"body")[4:]
    assert event == KafkaRequest(client.id, slot=1, api=VERSIONS, version=3, payload=body)
    assert client.answer(event, b"the answer")
    assert client.response() == b"the answer"


def test_a_connection_opens_with_the_first_whole_request(plane: KafkaPlane) -> None:
    client = plane.kafka()
    data = request(VERSIONS, 0, 1)
    client.send(data[:-1])
    assert plane.events_of(client.id) == []
    client.send(data[-1:])
    kinds = [type(event) for event in plane.events_of(client.id)]
    assert kinds == [ConnectionHello, KafkaRequest]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_requests_may_be_cut_anywhere(plane: KafkaPlane, step: int) -> None:
    client = plane.kafka()
    data = b"".join(request(METADATA, 1, n, b"x" * n) for n in range(20))
    for at in range(0, len(data), step):
        client.send(data[at : at + step])
    for n in range(20):
        event = client.asked()
        assert event.payload == request(METADATA, 1, n, b"x" * n)[4:]
        client.answer(event, b"%d" % n)
        assert client.response() == b"%d" % n


def test_what_is_meant_for_amqp_finds_no_kafka_connection(plane: KafkaPlane) -> None:
    """A connection is its protocol's own struct: nothing of one may be done to the other."""
    kafka, engine = plane.kafka(), plane.engine
    assert not engine.tune(kafka.id, 8192, 10, 0)
    assert not engine.open(kafka.id, 1, "guest", ConnFlags(0))
    assert not engine.may_publish(kafka.id, b"x", 0, False)
    assert not engine.channel_open(kafka.id, 1)
    assert not engine.expects_replies(b"amq.rabbitmq.reply-to.%x.1.1" % kafka.id)
    stat = engine.conn_stat(kafka.id)
    assert stat is not None and stat.channels == 0
    kafka.send(request(VERSIONS, 0, 1))
    assert kafka.answer(kafka.asked(), b"served all the same")
    amqp = plane.client()
    assert not engine.kafka_open(amqp.id, "guest")
    assert not engine.kafka_throttle(amqp.id, 10)


def test_nothing_is_heard_while_python_thinks(plane: KafkaPlane) -> None:
    client = plane.kafka()
    client.send(request(METADATA, 1, 1) + request(METADATA, 1, 2))
    first = client.asked()
    assert client.requests == []
    assert not client.answer(first._replace(slot=first.slot + 1), b"not this one")
    assert client.answer(first, b"")
    assert not client.answer(first, b"twice")
    assert client.asked().slot == 2


def test_an_answer_may_be_none(plane: KafkaPlane) -> None:
    client = plane.kafka()
    client.send(request(METADATA, 1, 1) + request(METADATA, 1, 2))
    assert plane.engine.kafka_answer(client.id, client.asked().slot)
    client.answer(client.asked(), b"second")
    assert client.response() == b"second"


def test_a_large_request_comes_whole(plane: KafkaPlane) -> None:
    client = plane.kafka()
    body = bytes(range(256)) * 16384
    client.send(request(VERSIONS, 0, 1))
    client.answer(client.asked(), b"versions")
    assert client.response() == b"versions"
    client.send(request(METADATA, 1, 1, body) + request(METADATA, 1, 2))
    event = client.asked()
    assert event.payload.endswith(body)
    client.answer(event, b"large")
    assert client.response() == b"large"
    assert client.asked().slot == 3


def test_before_its_login_a_client_has_little_to_say(plane: KafkaPlane) -> None:
    client = plane.kafka(opened=False)
    client.send(request(VERSIONS, 0, 1, b"x" * 15_000))
    client.answer(client.asked(), b"versions")
    assert client.response() == b"versions"
    client.send(request(VERSIONS, 0, 1, b"x" * 17_000))
    assert client.ends() == "request too large before login"


def test_who_needs_no_login_may_begin_with_a_large_batch(plane: KafkaPlane) -> None:
    client = plane.kafka(opened=False)
    client.send(request(VERSIONS, 0, 1))
    assert plane.engine.kafka_trust(client.id, True)
    client.answer(client.asked(), b"versions")
    assert client.response() == b"versions"
    client.send(request(METADATA, 0, 2, b"x" * 900_000))
    client.answer(client.asked(), b"heard")
    assert client.response() == b"heard"


@pytest.mark.parametrize("trusted", [True, False])
def test_a_large_first_request_waits_for_who_sends_it(plane: KafkaPlane, trusted: bool) -> None:
    client = plane.kafka(opened=False)
    client.send(request(METADATA, 0, 1, b"x" * 900_000)[:1000])
    assert not client.requests
    assert plane.engine.kafka_trust(client.id, trusted)
    if not trusted:
        assert client.ends() == "request too large before login"
        return
    client.send(request(METADATA, 0, 1, b"x" * 900_000)[1000:])
    client.answer(client.asked(), b"heard")
    assert client.response() == b"heard"


STRANGERS = {
    "AMQP": b"AMQP\0\0\x09\x01",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
    "a negative size": b"\xff\xff\xff\xff\0\x12\0\0",
    "a size too small": b"\0\0\0\x07\0\x12\0\0\0\0\0",
    "no API": b"\0\0\x10\0zz\0\0",
}


@pytest.mark.parametrize("what", STRANGERS)
def test_another_protocol_is_closed_and_told(plane: KafkaPlane, what: str) -> None:
    client = plane.kafka()
    client.send(STRANGERS[what])
    assert client.ends() == "closed by the broker"
    wrong, *others = plane.events_of(client.id)
    assert wrong == WrongProtocol(client.id, "test", STRANGERS[what])
    assert [type(event) for event in others] == [OutputReady, ConnectionClosed]


def test_a_size_over_the_limit_ends_the_connection(tmp_path: Path) -> None:
    plane = KafkaPlane(tmp_path, kafka_max_request=1000)
    client, other = plane.kafka(), plane.kafka()
    client.send(request(METADATA, 1, 1, b"x" * 990))
    client.answer(client.asked(), b"fits")
    client.send(request(METADATA, 1, 2, b"x" * 991))
    assert client.ends() == "invalid request size"
    other.send(request(METADATA, 1, 1))
    other.answer(other.asked(), b"unharmed")
    assert other.response() == b"unharmed"
    plane.close()


def test_a_half_request_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    plane = KafkaPlane(tmp_path, kafka_patience_ms=100)
    client = plane.kafka()
    client.send(request(METADATA, 1, 1) + b"\0\0")
    client.answer(client.asked(), b"first")
    assert client.response() == b"first"
    assert client.ends() == "incomplete request timeout"
    plane.close()


def test_a_silent_connection_is_closed_in_the_end(tmp_path: Path) -> None:
    plane = KafkaPlane(tmp_path, kafka_idle_ms=100)
    client = plane.kafka()
    client.send(request(METADATA, 1, 1))
    client.answer(client.asked(), b"first")
    assert client.response() == b"first"
    assert client.ends() == "idle timeout"
    plane.close()


def test_who_never_logs_in_is_closed(tmp_path: Path) -> None:
    plane = KafkaPlane(tmp_path, handshake_timeout_ms=100)
    client = plane.kafka(opened=False)
    client.send(request(VERSIONS, 0, 1))
    client.answer(client.asked(), b"versions")
    assert client.response() == b"versions"
    assert client.ends() == "handshake timeout"
    plane.close()


@pytest.mark.parametrize("key", [0, 1])
def test_before_its_login_even_a_produce_is_pythons(plane: KafkaPlane, key: int) -> None:
    client = plane.kafka(opened=False)
    client.send(request(key, 3, 1, b"whatever") + request(METADATA, 1, 2))
    event = client.asked()
    assert event.api == key
    client.answer(event, b"log in first")
    assert client.response() == b"log in first"
    assert client.asked().api == METADATA


def test_over_a_socket_the_client_learns_the_address_it_came_to(plane: KafkaPlane) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        plane.engine.listen(listener.fileno(), Protocol.KAFKA)
        with socket.create_connection(listener.getsockname()) as sock:
            sock.sendall(request(VERSIONS, 0, 1))
            hello = plane.wait(lambda: plane.events_like(ConnectionHello))[0]
            host, port = listener.getsockname()
            assert hello.local == f"{host}:{port}"
            assert hello.peer == "{}:{}".format(*sock.getsockname())
            asked = plane.wait(lambda: plane.events_like(KafkaRequest))[0]
            assert plane.engine.kafka_answer(asked.conn, asked.slot, b"\0\0\0\x02ok")
            assert sock.recv(100) == b"\0\0\0\x02ok"


def test_amqp_connections_stay_what_they_were(plane: KafkaPlane) -> None:
    plane.queue("work")
    client: Client = plane.client()
    client.publish(b"hello", "work")
    got = client.get("work")
    assert got is not None and got.body == b"hello"


def test_who_was_told_to_keep_away_is_not_heard_so_long(plane: KafkaPlane) -> None:
    plane.topic("clicks")
    client = plane.kafka()
    assert client.produce("clicks", batch(b"1"), acks=1).error == 0
    plane.engine.kafka_throttle(client.id, 60)
    began = time.monotonic()
    client.send_produce({("clicks", 0): batch(b"2")}, acks=1)
    client.send(request(METADATA, 1, 7))
    assert client.produced()["clicks", 0].error == 0
    client.answer(client.asked(), b"metadata")
    assert time.monotonic() - began >= 0.055
    assert client.response() == b"metadata"


def test_a_muted_connection_may_be_closed(plane: KafkaPlane) -> None:
    plane.topic("clicks")
    client = plane.kafka()
    plane.engine.kafka_throttle(client.id, 600_000)
    client.produce("clicks", batch(b"1"))
    plane.engine.hang_up(client.id)
    assert client.ends() == "closed by the broker"
