"""Binding and accepting: names, ports, limits, accidents."""

import socket

import pytest
import trio

from ottermq.config import Address
from ottermq.errors import StartupError
from ottermq.net import listeners
from ottermq.net.listeners import Service


def test_port_0_picks_the_same_free_port_for_all_of_a_hosts_addresses() -> None:
    bound = listeners.bind("amqp", Address("localhost", 0))
    ports = {sock.getsockname()[1] for sock in bound.sockets}
    assert ports == {bound.address.port} and bound.address.port > 0
    bound.close()


def test_every_address_of_ipv6_means_those_of_ipv4_too() -> None:
    bound = listeners.bind("amqp", Address("::", 0))
    assert "0.0.0.0" in bound.hosts
    assert {sock.getsockname()[1] for sock in bound.sockets} == {bound.address.port}
    listeners.listen("amqp", bound)
    socket.create_connection(("127.0.0.1", bound.address.port)).close()
    bound.close()


def test_one_address_of_ipv6_means_no_other() -> None:
    try:
        bound = listeners.bind("amqp", Address("::1", 0))
    except StartupError:
        pytest.skip("no IPv6 on this machine")
    assert bound.hosts == ["::1"]
    bound.close()


def test_a_name_nobody_knows_is_told() -> None:
    with pytest.raises(StartupError, match="amqp: can't listen on no.invalid:5672: "):
        listeners.bind("amqp", Address("no.invalid", 5672))


def test_two_that_bound_the_same_port_do_not_both_listen() -> None:
    first = listeners.bind("amqp", Address("127.0.0.1", 0))
    second = listeners.bind("amqp", first.address)  # both may bind while nobody listens
    for sock in first.sockets:
        sock.listen()
    with pytest.raises(StartupError, match="the port is in use"):
        listeners.listen("amqp", second)
    first.close()
    second.close()


async def opened(service: Service, nursery: trio.Nursery) -> tuple[str, int]:
    bound = listeners.bind(service.name, Address("127.0.0.1", 0))
    nursery.start_soon(listeners.accept, service, listeners.listen(service.name, bound))
    return bound.address.host, bound.address.port


async def test_one_more_than_the_most_is_turned_away(caplog: pytest.LogCaptureFixture) -> None:
    served = trio.Event()

    async def serve(stream: trio.SocketStream) -> str:
        served.set()
        return "left" if not await stream.receive_some() else "spoke"

    async with trio.open_nursery() as nursery:
        place = await opened(Service("amqp", serve, most=1), nursery)
        async with await trio.open_tcp_stream(*place):
            await served.wait()
            async with await trio.open_tcp_stream(*place) as second:
                assert await second.receive_some() == b""
        served = trio.Event()
        async with await trio.open_tcp_stream(*place):
            await served.wait()  # its place is free again
        nursery.cancel_scope.cancel()
    assert [
        line for line in caplog.messages if line.startswith("connection rejected listener=amqp")
    ]


async def test_one_connections_accident_is_not_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def serve(stream: trio.SocketStream) -> str:
        if await stream.receive_some() == b"bad":
            raise ZeroDivisionError
        await stream.send_all(b"fine")
        return "served"

    async with trio.open_nursery() as nursery:
        place = await opened(Service("amqp", serve, most=10), nursery)
        for sent, answer in ((b"bad", b""), (b"good", b"fine")):
            async with await trio.open_tcp_stream(*place) as stream:
                await stream.send_all(sent)
                assert await stream.receive_some() == answer
        nursery.cancel_scope.cancel()
    assert [line for line in caplog.messages if line.startswith("connection failed listener=amqp")]


async def test_a_client_that_resets_the_connection_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "ottermq")
    done = trio.Event()

    async def serve(stream: trio.SocketStream) -> str:
        try:
            await stream.receive_some()
        finally:
            done.set()
        return "left"

    async with trio.open_nursery() as nursery:
        place = await opened(Service("amqp", serve, most=10), nursery)
        stream = await trio.open_tcp_stream(*place)
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        await stream.aclose()
        await done.wait()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert [line for line in caplog.messages if line.endswith('reason="connection lost"')]
