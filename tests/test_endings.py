"""Every connection that the broker ends has its reason in the log, whoever it is."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottermq.engine.dispatch import dispatch
from ottermq.engine.events import ConnectionClosed
from ottermq.engine.types import Protocol
from ottermq.kafka.api import Api
from tests.amqp.wire import Client
from tests.brokers import Broker
from tests.kafka.raw_client import Gone, RawClient

GREETING = b"AMQP\0\0\x09\x01"
LOGIN_ONLY = {"OTTERMQ_KAFKA__ANONYMOUS_USER": "null", "OTTERMQ_LOG__LEVEL": "debug"}


@contextmanager
def silent(address: tuple[str, int], said: bytes = b"") -> Iterator[str]:
    """A socket that says no more than that; its name."""
    with socket.create_connection(address) as stranger:
        stranger.sendall(said)
        host, port = stranger.getsockname()[:2]
        yield re.escape(f"{host}:{port}")


def closing(peer: str, reason: str, listener: str = "kafka", user: str = "-") -> str:
    return rf" connection closing listener={listener} peer={peer} user={user} reason=\"{reason}\""


def test_who_says_nothing_has_a_line(tmp_path: Path) -> None:
    patience = {"OTTERMQ_AMQP__HANDSHAKE_TIMEOUT": "1s", **LOGIN_ONLY}
    with Broker(tmp_path / "data", env=patience) as broker:
        for listener in ("amqp", "kafka"):
            with silent(broker.address(listener)) as peer:
                broker.wait_for(
                    rf" INFO connection closed listener={listener} peer={peer}"
                    r' reason="handshake timeout"$'
                )
            with silent(broker.address(listener)) as peer:
                pass
            broker.wait_for(rf" DEBUG connection closed listener={listener} peer={peer} reason=")


def test_a_crowd_that_says_nothing_has_few_lines(tmp_path: Path) -> None:
    few = {"OTTERMQ_AUTH__UNAUTHENTICATED_PER_ADDRESS": "1"}
    with Broker(tmp_path / "data", env=few) as broker:
        address = broker.address("amqp")
        for _ in range(100):
            with silent(address):
                pass
        with silent(address) as first, silent(address):
            pass
        assert first
        with silent(address), silent(address):
            broker.wait_for(
                " INFO connection closed listener=amqp peer=127.0.0.1:.*"
                ' reason="too many unauthenticated connections from its address"'
            )
    assert sum("connection closed" in line for line in broker.lines) <= 20


def test_a_stop_is_told(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        kafka = RawClient(broker.address("kafka"))
        kafka.metadata()
        with silent(broker.address("amqp"), GREETING) as peer, kafka:
            # It has our connection.start: the server knows it.
            Client(broker.address("amqp")).close()
            broker.stop()
            broker.wait_for(closing(re.escape(kafka.name), "broker stopped", user="anonymous"))
            broker.wait_for(closing(peer, "broker stopped", "amqp"))


def test_a_login_that_fails_is_told(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", env=LOGIN_ONLY) as broker:
        with RawClient(broker.address("kafka")) as raw_client:
            assert raw_client.log_in(password="wrong")["error_code"]
            peer = re.escape(raw_client.name)
            broker.wait_for(" DEBUG" + closing(peer, "authentication failed") + "$")
            broker.wait_for(" WARNING login refused .*mechanism=PLAIN .* user=guest$")
        with RawClient(broker.address("kafka")) as raw_client:
            raw_client.ask(Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
            assert raw_client.authenticate(b"no login")["error_code"]
            peer = re.escape(raw_client.name)
            broker.wait_for(" WARNING" + closing(peer, "authentication failed") + " error=")
        assert not any("wrong" in line for line in broker.lines if "login refused" in line)


def test_a_change_of_its_user_is_told(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", env=LOGIN_ONLY) as broker:
        secret = {
            "name": "guest", "mechanism": 1, "iterations": 4096, "salt": b"salt",
            "salted_password": b"x" * 32,
        }  # fmt: skip
        with RawClient(broker.address("kafka")) as raw_client:
            raw_client.log_in()
            with pytest.raises((Gone, ConnectionError)):
                raw_client.ask(
                    Api.ALTER_USER_SCRAM_CREDENTIALS, {"upsertions": [secret], "deletions": []}
                )
                raw_client.metadata()
            line = closing(re.escape(raw_client.name), "user changed or deleted", user="guest")
            broker.wait_for(line + " change=\"the credentials of user 'guest' were changed\"$")


async def test_an_event_that_fails_names_the_peer_and_ends_its_connection(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        def __init__(self) -> None:
            self.broken: list[int] = []

        def take(self, event: Any) -> None:
            raise RuntimeError("our mistake")

        def peer_of(self, id: int) -> str:
            return f"client-{id}"

        def break_off(self, id: int) -> None:
            self.broken.append(id)

    async def ready(fd: int) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(trio.lowlevel, "wait_readable", ready)
    events = [(0, ConnectionClosed(7, "why")), (0, ConnectionClosed(8, "why", "10.0.0.7:51234"))]
    engine: Any = SimpleNamespace(event_fd=0, events=lambda: [events.pop()] if events else [])
    server = Failing()
    with trio.move_on_after(0.1):
        await dispatch(engine, {Protocol.AMQP: server})
    assert server.broken == [8, 7]
    assert caplog.messages == [
        "engine event failed kind=ConnectionClosed peer=10.0.0.7:51234",
        "engine event failed kind=ConnectionClosed peer=client-7",
    ]
