"""Strings that nobody would send, in every string argument of every method, in tables and in
properties. Whatever the answer is: the broker lives, serves others, and nothing of it was a mistake
of our own.
"""

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from pamqp import commands
from pamqp.base import Frame

from tests.amqp.wire import Client
from tests.brokers import Broker

LONG = 40_000
HOSTILE = {
    "long": b"x" * LONG,
    "nul": b"a\0b",
    "not utf-8": b"\xff\xfe\x80",
    "empty": b"",
    "line break": b"a\nINFO ready",
}
FIXED = {"octet": ">B", "short": ">H", "long": ">I", "longlong": ">Q", "timestamp": ">Q"}
CLOSE = bytes.fromhex("000a0032 00c8 00 00000000".replace(" ", ""))
METHODS: list[type[Frame]] = [
    method for _, method in sorted(commands.INDEX_MAPPING.items()) if issubclass(method, Frame)
]
PROPERTIES = [
    name
    for name in commands.Basic.Properties.attributes()
    if commands.Basic.Properties.amqp_type(name) == "shortstr"
]


def short(raw: bytes) -> bytes:
    cut = raw[:255]
    return bytes([len(cut)]) + cut


def long(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


def tables(raw: bytes) -> Iterator[bytes]:
    """As a value, as a name, as both an array's and a table's value."""
    value = b"S" + long(raw)
    for name in (b"x-dead-letter-exchange", b"x-queue-type", b"x-expires", b"alternate-exchange"):
        yield long(short(name) + value)
    yield long(short(raw) + value)
    yield long(short(b"x-stream-offset") + b"A" + long(value))
    yield long(short(b"x-match") + b"F" + long(short(raw) + value))


def arguments(method: type[Frame], hostile: dict[str, bytes]) -> bytes:
    out, bits = b"", 0
    count = 0
    for name in method.attributes():
        kind = method.amqp_type(name)
        if kind == "bit":
            count += 1
            bits |= (name == "nowait") << (count - 1)
            continue
        if count:
            out, bits, count = out + bytes([bits]), 0, 0
        if name in hostile:
            out += hostile[name]
        elif kind == "shortstr":
            out += short(b"direct" if name == "exchange_type" else b"sound")
        elif kind == "longstr":
            out += long(b"sound")
        elif kind == "table":
            out += long(b"")
        else:
            out += struct.pack(FIXED[kind], 1)
    return out + (bytes([bits]) if count else b"")


def cases(method: type[Frame]) -> Iterator[bytes]:
    for raw in HOSTILE.values():
        for name in method.attributes():
            match method.amqp_type(name):
                case "shortstr":
                    yield arguments(method, {name: short(raw)})
                case "longstr":
                    yield arguments(method, {name: long(raw)})
                case "table":
                    for table in tables(raw):
                        yield arguments(method, {name: table})


def frame(channel: int, payload: bytes, kind: int = 1) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def say(broker: Broker, *frames: bytes) -> None:
    """On a connection of its own, up to the broker's last word."""
    client = Client(broker.address("amqp"))
    client.channel(1)
    client.raw(b"".join(frames) + frame(0, CLOSE))
    assert client.hung_up()
    client.drop()


def assert_serves(broker: Broker) -> None:
    assert broker.process.poll() is None, broker.lines[-20:]
    with Client(broker.address("amqp")) as client:
        channel = client.channel()
        queue = channel.declare()
        channel.publish(b"here", key=queue)
        assert channel.must_get(queue).body == b"here"
    assert not [line for line in broker.lines if " ERROR " in line]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("attacked") / "data") as broker:
        yield broker


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_no_string_of_a_method_harms_the_broker(attacked: Broker, method: type[Frame]) -> None:
    channel = 0 if method.name.startswith("Connection") else 1
    index = struct.pack(">I", method.index)
    for sent in cases(method):
        say(attacked, frame(channel, index + sent))
    assert_serves(attacked)


@pytest.mark.parametrize("name", PROPERTIES)
def test_no_property_of_a_message_harms_the_broker(attacked: Broker, name: str) -> None:
    flag = commands.Basic.Properties.flags[name]
    publish: Any = commands.Basic.Publish
    method = struct.pack(">I", publish.index) + arguments(
        publish, {"exchange": short(b""), "routing_key": short(b"sound")}
    )
    for raw in HOSTILE.values():
        header = struct.pack(">HHQH", 60, 0, 1, flag) + short(raw)
        say(attacked, frame(1, method), frame(1, header, 2), frame(1, b"x", 3))
    assert_serves(attacked)
