"""The load generator and the relays talk to each other; both notice what goes wrong."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from perf import load
from perf.relay import Relay


@pytest.fixture(scope="module", params=["relay", "durable"])
def relay(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Relay]:
    folder = tmp_path_factory.mktemp("relay")
    with Relay(folder, durable=request.param == "durable") as running:
        yield running


def test_all_that_is_published_is_confirmed_and_delivered(relay: Relay) -> None:
    found = load.run(relay.address, "--messages", 500, "--confirms", 50, "--persistent")
    assert (found.published, found.confirmed, found.delivered) == (500, 500, 500)


def test_without_confirms_and_acks_all_is_delivered(relay: Relay) -> None:
    found = load.run(relay.address, "--messages", 5000, "--size", 16, "--auto-ack")
    assert (found.published, found.confirmed, found.delivered) == (5000, 0, 5000)


@pytest.mark.parametrize("size", [0, 1, 4096, 65_536, 300_000])
def test_bodies_of_any_size_pass(relay: Relay, size: int) -> None:
    options = ("--messages", 40, "--size", size, "--confirms", 8, "--prefetch", 10)
    assert load.run(relay.address, *options).delivered == 40


def test_many_connections_on_many_queues(relay: Relay) -> None:
    many = ("--publishers", 12, "--consumers", 6, "--queues", 6, "--threads", 2)
    found = load.run(relay.address, *many, "--messages", 1003, "--confirms", 20, "--ack-every", 7)
    assert (found.confirmed, found.delivered) == (1003, 1003)


def test_a_fan_out_delivers_to_every_queue(relay: Relay) -> None:
    fan = ("--exchange", "fanout", "--queues", 3, "--consumers", 3)
    found = load.run(relay.address, *fan, "--messages", 200, "--confirms", 20)
    assert (found.published, found.delivered) == (200, 600)


def test_a_backlog_waits_for_its_consumer(relay: Relay) -> None:
    filled = load.run(
        relay.address, "--consumers", 0, "--messages", 300, "--confirms", 30, "--keep"
    )
    assert (filled.confirmed, filled.delivered) == (300, 0)
    drained = load.run(relay.address, "--publishers", 0, "--messages", 300, "--auto-ack")
    assert drained.delivered == 300


def test_a_fixed_rate_tells_how_long_confirms_took(relay: Relay) -> None:
    found = load.run(relay.address, "--messages", 100, "--rate", 1000, "--confirms", 1000)
    assert found.confirm_us
    assert 0 < found.confirm_us.p50 <= found.confirm_us.p99
    assert found.confirm_us.p99 <= found.confirm_us.max * 1.04
    assert found.all_seconds >= 0.09


def test_a_measured_time_ends_with_all_counts_equal(relay: Relay) -> None:
    found = load.run(relay.address, "--seconds", 0.3, "--warm-up", 0.1, "--confirms", 100)
    assert found.published == found.confirmed == found.delivered
    assert found.seconds >= 0.3


def method(channel: int, number: tuple[int, int], arguments: bytes) -> bytes:
    payload = number[0].to_bytes(2, "big") + number[1].to_bytes(2, "big") + arguments
    head = b"\x01" + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return head + payload + b"\xce"


def scripted(*answers: bytes) -> tuple[tuple[str, int], threading.Thread]:
    """A broker that gives one answer to each thing it is sent, then hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        link, _ = listener.accept()
        with listener, link:
            link.settimeout(30)
            for answer in answers:
                if not link.recv(65536):
                    return
                link.sendall(answer)
            link.recv(65536)

    thread = threading.Thread(target=serve)
    thread.start()
    host, port = listener.getsockname()
    return (host, port), thread


START = method(0, (10, 10), b"\x00\x09" + bytes(4) + b"\x00\x00\x00\x05PLAIN\x00\x00\x00\x05en_US")


def test_a_broker_that_closes_the_connection_is_quoted() -> None:
    refusal = method(0, (10, 50), (403).to_bytes(2, "big") + b"\x10ACCESS_REFUSED -" + bytes(4))
    address, thread = scripted(START, refusal)
    with pytest.raises(load.LoadFailed, match="403 ACCESS_REFUSED -"):
        load.run(address, "--messages", 1)
    thread.join()


def test_a_broker_that_hangs_up_is_noticed() -> None:
    address, thread = scripted(START)
    with pytest.raises(load.LoadFailed, match="closed the connection during set-up"):
        load.run(address, "--messages", 1)
    thread.join()


def test_a_message_of_another_size_fails_the_run(relay: Relay) -> None:
    keep = ("--consumers", 0, "--messages", 5, "--size", 10, "--confirms", 5, "--keep")
    load.run(relay.address, *keep, "--name", "odd")
    with pytest.raises(load.LoadFailed, match="a message of 10 bytes, not 11"):
        drain = ("--publishers", 0, "--messages", 5, "--size", 11)
        load.run(relay.address, *drain, "--name", "odd")


def test_an_option_it_does_not_know_ends_it_with_the_list(tmp_path: Path) -> None:
    with pytest.raises(load.LoadFailed, match="usage: amqp_load"):
        load.run(("127.0.0.1", 1), "--no-such-option")
