"""Strings that nobody would send, in every string argument of every method, in tables, headers,
properties and logins. Whatever the answer is: the broker lives, serves others, and nothing of it
was a mistake of our own.
"""

import itertools
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from pamqp import commands
from pamqp.base import Frame

from ottermq.topology.arguments import KNOWN, TYPES
from tests.amqp.wire import PROTOCOL_HEADER, Client, refused
from tests.brokers import PATIENCE, Broker

LONG = 40_000
HOSTILE = {
    "long": b"x" * LONG,
    "nul": b"a\0b",
    "not utf-8": b"\xff\xfe\x80",
    "empty": b"",
    "digits": b"9" * LONG,
    "line break": b"a\nINFO ready",
}
FIXED = {"octet": ">B", "short": ">H", "long": ">I", "longlong": ">Q", "timestamp": ">Q"}
CLOSE = bytes.fromhex("000a0032 00c8 00 00000000".replace(" ", ""))
QUEUES = [name.encode() for name in sorted(KNOWN)]
METHODS: list[type[Frame]] = [
    method for _, method in sorted(commands.INDEX_MAPPING.items()) if issubclass(method, Frame)
]
PROPERTIES = [
    name
    for name in commands.Basic.Properties.attributes()
    if commands.Basic.Properties.amqp_type(name) == "shortstr"
]


DECLARED = (commands.Queue.Declare, commands.Exchange.Declare)  # each by another name
_number = itertools.count()


def short(raw: bytes) -> bytes:
    cut = raw[:255]
    return bytes([len(cut)]) + cut


def long(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


def tables(raw: bytes) -> Iterator[bytes]:
    """As a value, as a name, as both an array's and a table's value."""
    value = b"S" + long(raw)
    for name in (*QUEUES, b"alternate-exchange", b"x-delayed-type", b"x-priority"):
        yield long(short(name) + value)
    yield long(short(raw) + value)
    yield long(short(b"x-stream-offset") + b"A" + long(value))
    yield long(short(b"x-match") + b"F" + long(short(raw) + value))


SET = ("nowait", "durable")  # what is on disk comes back at the next start


def arguments(method: type[Frame], hostile: dict[str, bytes]) -> bytes:
    out, bits = b"", 0
    count = 0
    for name in method.attributes():
        kind = method.amqp_type(name)
        if kind == "bit":
            count += 1
            bits |= (name in SET) << (count - 1)
            continue
        if count:
            out, bits, count = out + bytes([bits]), 0, 0
        if name in hostile:
            out += hostile[name]
        elif kind == "shortstr":
            own = b"sound%d" % next(_number) if method in DECLARED else b"sound"
            out += short(b"direct" if name == "exchange_type" else own)
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
        with Client(broker.address("amqp")) as client:
            client.channel().declare("sound", durable=True)
            client.channel().declare_exchange("sound", durable=True)
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


@pytest.mark.parametrize("number", [b"L" + b"\xff" * 8, b"l\x7f" + b"\xff" * 7, b"I\0\0\0\x01"])
@pytest.mark.parametrize("type", TYPES)
def test_no_number_of_an_argument_harms_the_broker(
    attacked: Broker, type: str, number: bytes
) -> None:
    declare: Any = commands.Queue.Declare
    kind = short(b"x-queue-type") + b"S" + long(type.encode())
    for name in QUEUES:
        table = long(kind + short(name) + number)
        payload = struct.pack(">I", declare.index) + arguments(declare, {"arguments": table})
        say(attacked, frame(1, payload))
    assert_serves(attacked)


def test_a_dead_letter_exchange_that_none_can_be_called_is_refused(attacked: Broker) -> None:
    """It was taken, and kept the broker from starting again."""
    with Client(attacked.address("amqp")) as client:
        for name in ("x-dead-letter-exchange", "x-dead-letter-routing-key"):
            wanted = {"x-dead-letter-exchange": "", name: "x" * 256}
            with refused(406):
                client.channel().declare("dead", wanted, durable=True)
            with refused(404):
                client.channel().look("dead")


# The broker acts on some of them itself; all go through an exchange that looks at headers, too.
NAMES = ("CC", "BCC", "x-delay", "x-death", "x-match", "x-stream-filter-value", "any")


def headers(raw: bytes) -> Iterator[bytes]:
    text = b"S" + long(raw)
    for name in NAMES:
        for value in (text, b"x" + long(raw), b"A" + long(text), b"F" + long(short(raw) + text)):
            yield long(short(name.encode()) + value)
    yield long(short(raw) + text)


@pytest.mark.parametrize("exchange", ["", "amq.headers", "delays"])
def test_no_header_of_a_message_harms_the_broker(attacked: Broker, exchange: str) -> None:
    with Client(attacked.address("amqp")) as client:
        channel = client.channel()
        channel.declare("headed")
        channel.declare_exchange(
            "delays", "x-delayed-message", arguments={"x-delayed-type": "direct"}
        )
        for bound in ("amq.headers", "delays"):
            channel.bind("headed", bound, "headed", {"x-match": "any", "any": "x"})
    publish: Any = commands.Basic.Publish
    method = struct.pack(">I", publish.index) + arguments(
        publish, {"exchange": short(exchange.encode()), "routing_key": short(b"headed")}
    )
    flag = commands.Basic.Properties.flags["headers"]
    for raw in HOSTILE.values():
        for table in headers(raw):
            header = struct.pack(">HHQH", 60, 0, 1, flag) + table
            say(attacked, frame(1, method), frame(1, header, 2), frame(1, b"x", 3))
    assert_serves(attacked)


@pytest.mark.parametrize("mechanism", [b"PLAIN", b"AMQPLAIN", b"EXTERNAL", b"SCRAM-SHA-256"])
def test_no_login_harms_the_broker(attacked: Broker, mechanism: bytes) -> None:
    start_ok: Any = commands.Connection.StartOk
    for raw in HOSTILE.values():
        for response in (
            raw,
            b"\0" + raw + b"\0" + raw,
            b"n,,n=" + raw + b",r=" + raw,
            short(b"LOGIN") + b"S" + long(raw) + short(b"PASSWORD") + b"S" + long(raw),
        ):
            with socket.create_connection(attacked.address("amqp"), PATIENCE) as stranger:
                stranger.sendall(PROTOCOL_HEADER)
                hostile = {"mechanism": short(mechanism), "response": long(response)}
                said = struct.pack(">I", start_ok.index) + arguments(start_ok, hostile)
                stranger.sendall(frame(0, said))
                stranger.recv(4096)
    assert_serves(attacked)


def test_what_they_left_keeps_no_start_from_serving(attacked: Broker) -> None:
    assert attacked.stop() == 0
    with Broker(attacked.data) as again:
        assert_serves(again)
