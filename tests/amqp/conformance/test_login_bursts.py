"""Wrong logins by the hundred, at a real broker: others get in, and little is hashed."""

import json
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import commands
from pamqp import frame as frames

from tests.amqp.wire import PROTOCOL_HEADER, Client, Gone, Refused
from tests.brokers import PATIENCE, Broker
from tests.weights import takes_at_most

pytestmark = pytest.mark.ottermq_only("guessing is slowed down here")

ATTACKER, ELSEWHERE = "127.0.0.66", "127.0.0.2"
BURST = 400
USERS = ("ann", "bob")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Broker]:
    definitions = tmp_path / "definitions.json"
    rights = {"vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    definitions.write_text(
        json.dumps(
            {
                "users": [{"name": name, "password": f"{name}'s", "tags": ""} for name in USERS],
                "permissions": [{"user": name, **rights} for name in USERS],
            }
        )
    )
    with Broker(tmp_path / "data", "--definitions", str(definitions)) as broker:
        yield broker


def wrong_login(address: tuple[str, int], source: str, user: str, password: str) -> socket.socket:
    """Sent, and not waited for."""
    sock = socket.create_connection(address, PATIENCE, (source, 0))
    sock.sendall(PROTOCOL_HEADER)
    sock.recv(4096)
    start_ok = commands.Connection.StartOk(
        client_properties={"capabilities": {"authentication_failure_close": True}},
        mechanism="PLAIN",
        response=f"\0{user}\0{password}",
        locale="en_US",
    )
    sock.sendall(frames.marshal(start_ok, 0))
    return sock


def leave(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def enters(broker: Broker, source: str, user: str) -> float:
    """How long a right login takes that nobody has seen before; it is let in."""
    began = time.monotonic()
    sock = wrong_login(broker.address("amqp"), source, user, f"{user}'s")  # right, for once
    try:
        sock.settimeout(PATIENCE)
        answer = sock.recv(4096)
        assert answer[7:11] == bytes((0, 10, 0, 30)), answer  # connection.tune
    finally:
        leave(sock)
    return time.monotonic() - began


@pytest.mark.parametrize("one_user", [True, False])
def test_a_burst_of_wrong_logins_keeps_nobody_else_out(guarded: Broker, one_user: bool) -> None:
    with takes_at_most(guarded, mib=64, cpu_s=6.0):  # 400 hashes of 38 ms are 15 s
        for number in range(BURST):
            name = "guest" if one_user else f"guess-{number}"
            leave(wrong_login(guarded.address("amqp"), ATTACKER, name, f"wrong {number}"))
        assert enters(guarded, ELSEWHERE, "ann") < 5.0
        time.sleep(1.0)  # whatever else was queued
        assert enters(guarded, ELSEWHERE, "bob") < 5.0
    refused = [line for line in guarded.lines if "login refused" in line]
    assert len(refused) < 40


def test_wrong_clients_do_not_lock_out_who_shares_their_address(guarded: Broker) -> None:
    address = guarded.address("amqp")
    Client(address, user="ann", password="ann's").close()  # known from now on
    for number in range(4):
        for _ in range(30):
            leave(wrong_login(address, "127.0.0.1", f"wrong-{number}", "wrong"))
    for _ in range(20):
        Client(address, user="ann", password="ann's").close()
    Client(address, user="bob", password="bob's").close()


def test_guessing_one_users_password_is_slow_whatever_is_known(guarded: Broker) -> None:
    address = guarded.address("amqp")
    Client(address, user="ann", password="ann's").close()
    for number in range(40):
        leave(wrong_login(address, ATTACKER, "ann", f"wrong {number}"))
    sock = wrong_login(address, ATTACKER, "ann", "ann's")
    sock.settimeout(PATIENCE)
    began = time.monotonic()
    answer = sock.recv(4096)
    refused = answer[7:11] == bytes((0, 10, 0, 50))
    assert refused or time.monotonic() - began > 0.5
    leave(sock)
    Client(address, user="ann", password="ann's").close()  # from elsewhere, at once


def test_the_wrong_password_is_still_wrong(guarded: Broker) -> None:
    with pytest.raises((Refused, Gone)):
        Client(guarded.address("amqp"), user="ann", password="bob's")
