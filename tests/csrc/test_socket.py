"""What the kernel is told about a client's socket: who is paced, and who isn't."""

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.internals import ffi, lib

NAME = 16
LOOPBACK = "127.0.0.1"
ELSEWHERE = "192.0.2.7"


def congestion(sock: socket.socket) -> str:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, NAME).rstrip(b"\0").decode()


def address(host: str, port: int, family: socket.AddressFamily = socket.AF_INET) -> Any:
    """A struct sockaddr_storage."""
    kind = int(family).to_bytes(2, "little") + port.to_bytes(2, "big")
    flow = b"" if family == socket.AF_INET else bytes(4)
    return ffi.new("char[128]", kind + flow + socket.inet_pton(family, host))


@pytest.fixture
def usual() -> Any:
    return ffi.new(f"char[{NAME}]")


@pytest.fixture
def accepted(usual: Any) -> Iterator[socket.socket]:
    """Of a listener that was told."""
    with closing(socket.create_server((LOOPBACK, 0))) as listener:
        lib.om_socket_listens(listener.fileno(), usual)
        with closing(socket.create_connection(listener.getsockname())):
            sock, _ = listener.accept()
            with closing(sock):
                yield sock


def test_a_client_on_this_machine_is_not_paced(accepted: socket.socket, usual: Any) -> None:
    lib.om_socket_accepted(accepted.fileno(), address(LOOPBACK, 1), usual)
    assert congestion(accepted) == "reno"
    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_client_from_elsewhere_gets_what_the_machine_chose(
    accepted: socket.socket, usual: Any
) -> None:
    with closing(socket.socket()) as untold:
        chosen = congestion(untold)
    lib.om_socket_accepted(accepted.fileno(), address(ELSEWHERE, 1), usual)
    assert ffi.string(usual).decode() == chosen
    assert congestion(accepted) == chosen


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (address(LOOPBACK, 5672), "127.0.0.1:5672"),
        (address("::1", 5671, socket.AF_INET6), "[::1]:5671"),
        (ffi.new("char[128]"), "?"),
    ],
)
def test_an_address_is_told_as_one_writes_it(place: Any, told: str) -> None:
    out = ffi.new("char[64]")
    lib.om_socket_describe(place, out, 64)
    assert ffi.string(out).decode() == told
