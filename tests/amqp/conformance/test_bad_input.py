"""Bad input: each kind gets the right code, or a closed connection, and nobody else notices."""

import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from pamqp import header
from pamqp.body import ContentBody
from pamqp.commands import Basic, Connection, Queue

from tests.amqp.wire import PROTOCOL_HEADER, Address, Channel, Client, Gone, Refused
from tests.brokers import Broker
from tests.conftest import OTHER

Connect = Callable[..., Client]


def frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def content_header(size: int, class_id: int = 60, weight: int = 0, flags: int = 0) -> bytes:
    return frame(2, 1, struct.pack(">HHQH", class_id, weight, size, flags))


def declare(name: bytes, table: bytes = b"\0\0\0\0") -> bytes:
    """queue.declare, exclusive, with a name and arguments that may be anything."""
    return frame(1, 1, struct.pack(">HHH", 50, 10, 0) + name + b"\x04" + table)


def nested(depth: int) -> bytes:
    table = b""
    for _ in range(depth):
        table = b"\x01aF" + struct.pack(">I", len(table)) + table
    return struct.pack(">I", len(table)) + table


@pytest.fixture(autouse=True)
def witness(amqp_address: Address) -> Iterator[None]:
    """Another connection that goes on publishing and consuming while a test misbehaves."""
    client = Client(amqp_address)
    channel = client.channel()
    queue = channel.declare()
    channel.consume(queue, no_ack=True)
    done = threading.Event()
    served: list[float] = []

    def live() -> None:
        while not done.is_set():
            started = time.monotonic()
            channel.publish(b"still here", key=queue)
            channel.delivery()
            served.append(time.monotonic() - started)
            done.wait(0.005)

    thread = threading.Thread(target=live)
    thread.start()
    yield
    done.set()
    thread.join()
    client.drop()
    assert served


def ends_with(channel: Channel, code: int, text: str, method: tuple[int, int] = (0, 0)) -> None:
    """The connection ends with this code, these words, and this method as the one to blame."""
    no = channel.refusal()
    assert (no.code, no.text, no.method, no.connection) == (code, text, method, True)


# -- frames


def test_a_frame_larger_than_frame_max_is_501(channel: Channel) -> None:
    channel.client.raw(struct.pack(">BHI", 3, 1, 140_000) + bytes(1000))
    ends_with(
        channel,
        501,
        "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,140000,131064}",
    )


def test_a_frame_of_two_gigabytes_is_501_before_it_is_there(channel: Channel) -> None:
    channel.client.raw(struct.pack(">BHI", 3, 1, 1 << 31))
    ends_with(
        channel,
        501,
        "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,2147483648,131064}",
    )


def test_a_wrong_frame_end_is_501(channel: Channel) -> None:
    channel.client.raw(frame(1, 1, struct.pack(">HHIHB", 60, 10, 0, 0, 0), end=b"\x00"))
    ends_with(
        channel,
        501,
        "FRAME_ERROR - type 1, all octets = <<0,60,0,10,0,0,0,0,0,0,0>>:"
        " {invalid_frame_end_marker,0}",
    )


@pytest.mark.parametrize(
    ("kind", "payload", "told"),
    [
        (7, b"abc", 'all octets = <<"abc">>'),
        (9, b"\x1bA\b\v\f\n\r\t", r'all octets = <<"\eA\b\v\f\n\r\t">>'),
        (9, b'"\\', r'all octets = <<"\"\\">>'),
        (9, b"\x7fA", "all octets = <<127,65>>"),
        (9, bytes(range(100, 120)), 'first 16 octets = <<"defghijklmnopqrs">>'),
        (255, b"", "all octets = <<>>"),
        (1, b"\0", "all octets = <<0>>"),  # a method frame without a method
        (1, b"", "all octets = <<>>"),
        (2, b"\0\x3c\0\0", "all octets = <<0,60,0,0>>"),  # a header without a size
        (8, b"abc", 'all octets = <<"abc">>'),  # a heartbeat with a load
    ],
)
def test_a_frame_that_is_none_is_501(
    channel: Channel, kind: int, payload: bytes, told: str
) -> None:
    channel.client.raw(frame(kind, 1, payload))
    ends_with(channel, 501, f"FRAME_ERROR - type {kind}, {told}: unknown_frame")


@pytest.mark.parametrize("method", [(60, 999), (99, 10), (0, 0)])
def test_an_unknown_method_ends_the_connection(channel: Channel, method: tuple[int, int]) -> None:
    channel.client.raw(frame(1, 1, struct.pack(">HH", *method)))
    with pytest.raises((Gone, Refused)) as ending:
        channel.wait(lambda item: False)
    no = ending.value
    if isinstance(no, Refused):  # RabbitMQ hangs up
        told = (503, "COMMAND_INVALID - unimplemented method", method, True)
        assert (no.code, no.text, no.method, no.connection) == told


@pytest.mark.parametrize(
    ("method", "arguments", "told"),
    [
        ((60, 10), b"\0", "<<0>>"),  # qos, consumed by Python
        ((60, 10), bytes(7) + b"abc", "<<0,0,0,0,0,0,0,97,98,99>>"),
        ((60, 40), b"", "<<>>"),  # publish, ack, nack, reject: by C
        ((60, 40), b"\0\0\x05ab", "<<0,0,5,97,98>>"),
        ((60, 40), b"\0\0\0\0\0zz", "<<0,0,0,0,0,122,122>>"),
        ((60, 80), b"\0\0", "<<0,0>>"),
        ((60, 80), struct.pack(">QB", 1, 0) + b"zz", "<<0,0,0,0,0,0,0,1,0,122,122>>"),
        ((60, 120), b"\0\0", "<<0,0>>"),
        ((60, 90), b"\0\0", "<<0,0>>"),
        ((60, 70), b"\0\0", "<<0,0>>"),
    ],
)
def test_a_method_cut_short_or_with_bytes_after_it_is_501(
    channel: Channel, method: tuple[int, int], arguments: bytes, told: str
) -> None:
    channel.client.raw(frame(1, 1, struct.pack(">HH", *method) + arguments))
    ends_with(channel, 501, f"FRAME_ERROR - cannot decode {told}", method)


# -- content


NO_HEADER = (
    "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead"
)
NO_BODY = "UNEXPECTED_FRAME - expected content body, got non content body frame instead"
NO_METHOD = "UNEXPECTED_FRAME - expected method frame, got non method frame instead"
PUBLISH = (60, 40)


def test_a_body_without_header_is_505(channel: Channel) -> None:
    channel.send(Basic.Publish(routing_key="x"))
    channel.send(ContentBody(b"x"))
    ends_with(channel, 505, NO_HEADER, PUBLISH)


def test_a_method_instead_of_the_header_is_505(channel: Channel) -> None:
    channel.send(Basic.Publish(routing_key="x"))
    channel.send(Basic.Qos())
    ends_with(channel, 505, NO_HEADER, PUBLISH)


@pytest.mark.parametrize("intruder", [Basic.Qos(), header.ContentHeader(0, 5, Basic.Properties())])
def test_anything_but_a_body_where_one_is_due_is_505(channel: Channel, intruder: Basic.Qos) -> None:
    channel.send(Basic.Publish(routing_key="x"))
    channel.send(header.ContentHeader(0, 5, Basic.Properties()))
    channel.send(intruder)
    ends_with(channel, 505, NO_BODY, PUBLISH)


@pytest.mark.parametrize(
    "stray", [ContentBody(b"x"), header.ContentHeader(0, 5, Basic.Properties())]
)
def test_content_out_of_the_blue_is_505(channel: Channel, stray: ContentBody) -> None:
    channel.send(stray)
    ends_with(channel, 505, NO_METHOD)


def test_a_header_of_another_class_is_505(channel: Channel) -> None:
    channel.send(Basic.Publish(routing_key="x"))
    channel.client.raw(content_header(5, class_id=50))
    told = NO_HEADER.replace("non content header frame", "one for class 50")
    ends_with(channel, 505, told, PUBLISH)


def test_a_header_with_a_weight_is_505(channel: Channel) -> None:
    channel.send(Basic.Publish(routing_key="x"))
    channel.client.raw(content_header(0, weight=1))
    ends_with(channel, 505, NO_HEADER, PUBLISH)


@pytest.mark.parametrize("number", [0, 1, 5])
def test_content_where_no_channel_is_open_is_505(connect: Connect, number: int) -> None:
    channel = connect().channel(2)  # 0 is the connection's, 1 and 5 are nobody's
    channel.client.raw(frame(3, number, b"abc"))
    told = 'UNEXPECTED_FRAME - type 3, all octets = <<"abc">>'
    ends_with(channel, 505, NO_METHOD if number else told)


def test_more_body_than_the_header_said_is_501(channel: Channel) -> None:
    queue = channel.declare()
    channel.send(Basic.Publish(routing_key=queue))
    channel.send(header.ContentHeader(0, 5, Basic.Properties()))
    channel.send(ContentBody(b"123456"))
    if OTHER:  # RabbitMQ notices when something else than a body comes
        channel.send(Queue.Declare(queue=queue, passive=True))
        ends_with(channel, 505, NO_BODY, PUBLISH)
    else:
        told = "FRAME_ERROR - a body of more than the 5 bytes its header told"
        ends_with(channel, 501, told, PUBLISH)


def test_less_body_than_the_header_said_is_waited_for(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    queue = other.declare()
    channel.send(Basic.Publish(routing_key=queue))
    channel.send(header.ContentHeader(0, 5, Basic.Properties()))
    channel.send(ContentBody(b"123"))
    other.round_trip()
    assert other.count(queue) == 0
    channel.send(ContentBody(b"45"))
    assert other.must_get(queue).body == b"12345"


def test_a_body_frame_may_be_empty(channel: Channel) -> None:
    queue = channel.declare()
    channel.send(Basic.Publish(routing_key=queue))
    channel.send(header.ContentHeader(0, 5, Basic.Properties()))
    channel.client.raw(frame(3, 1, b""))
    channel.send(ContentBody(b"12345"))
    assert channel.must_get(queue).body == b"12345"


@pytest.mark.ottermq_only("RabbitMQ 4.x tells before the body comes, 3.10 after it")
@pytest.mark.parametrize("size", [(128 << 20) + 1, 1 << 62, (1 << 64) - 1])
def test_a_message_over_max_message_size_is_406(channel: Channel, size: int) -> None:
    channel.send(Basic.Publish(routing_key="x"))
    channel.client.raw(content_header(size))
    no = channel.refusal()
    told = f"message size {size} is larger than configured max size {128 << 20}"
    assert (no.code, no.text, no.connection) == (406, f"PRECONDITION_FAILED - {told}", False)


def test_property_flags_without_properties_end_the_connection(channel: Channel) -> None:
    channel.send(Basic.Publish(routing_key="x"))
    channel.client.raw(content_header(0, flags=0xFFFC))
    if OTHER:
        ends_with(channel, 541, "INTERNAL_ERROR")
    else:
        ends_with(channel, 502, "SYNTAX_ERROR - properties that can't be read", PUBLISH)


def test_heartbeats_on_a_channel_are_505(channel: Channel) -> None:
    channel.client.raw(frame(8, 1, b""))
    ends_with(channel, 505, "UNEXPECTED_FRAME - type 8, all octets = <<>>")


def test_sixty_five_thousand_channels_at_once_end_the_connection(client: Client) -> None:
    opens = b"".join(frame(1, number, struct.pack(">HHB", 20, 10, 0)) for number in range(1, 65536))

    def send() -> None:
        try:
            client.raw(opens)
        except OSError:
            pass

    for number in range(1, 65536):
        client.channels[number] = Channel(client, number)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        no = client.refusal()
        assert (no.code, no.connection) == (530, True)
        assert no.text.startswith("NOT_ALLOWED - number of channels opened (2047) has reached")
    finally:
        client.drop()
        sender.join()


# -- tables and strings


def test_a_table_nested_a_thousand_deep_harms_nobody(channel: Channel) -> None:
    channel.client.raw(declare(b"\x00", nested(1000)))
    try:
        assert channel.expect(Queue.DeclareOk).queue
    except Refused as no:
        assert no.code in (501, 502)


def test_a_table_nested_twenty_thousand_deep_harms_nobody(channel: Channel) -> None:
    channel.client.raw(declare(b"\x00", nested(18_000)))
    try:
        assert channel.expect(Queue.DeclareOk).queue
    except (Refused, Gone):
        pass


def test_headers_nested_a_thousand_deep_harm_nobody(client: Client) -> None:
    channel = client.channel()
    queue = channel.declare()
    channel.send(Basic.Publish(routing_key=queue))
    properties = struct.pack(">HHQH", 60, 0, 0, 1 << 13) + nested(1000)
    client.raw(frame(2, 1, properties))
    try:
        channel.round_trip()
    except Refused as no:
        assert no.code in (501, 502)


@pytest.mark.parametrize(
    "table",
    [
        b"\x00\x00\x00\xff" + b"abc",  # longer than the frame
        b"\x00\x00\x00\x03" + b"\x01aZ",  # a kind that is none
        b"\x00\x00\x00\x03" + b"\x05aZ",  # a name longer than the table
        b"\x00\x00\x00\x07" + b"\x01aS\x00\x00\xff\xff",  # a string longer than the table
        b"\xff\xff\xff\xff",
    ],
)
def test_a_broken_table_ends_the_connection(channel: Channel, table: bytes) -> None:
    channel.client.raw(declare(b"\x01x", table))
    with pytest.raises((Gone, Refused)) as ending:
        channel.wait(lambda item: False)
    no = ending.value
    if isinstance(no, Refused):  # some of them make RabbitMQ hang up
        told = ",".join(map(str, b"\0\0\x01x\x04" + table))
        expected = (501, f"FRAME_ERROR - cannot decode <<{told}>>", (50, 10), True)
        assert (no.code, no.text, no.method, no.connection) == expected


def test_a_short_string_of_ten_thousand_bytes_is_no_short_string(channel: Channel) -> None:
    # its length byte says 16; what follows is taken for flags and a table, and does not fit
    channel.client.raw(declare(bytes([10_000 & 0xFF]) + b"n" * 10_000))
    told = "FRAME_ERROR - cannot decode <<0,0,16" + ",110" * 100
    ends_with(channel, 501, told[:252] + "...", (50, 10))


def test_a_name_that_is_not_utf_8_is_501(channel: Channel) -> None:
    channel.client.raw(declare(b"\x02\xff\xfe"))
    told = "FRAME_ERROR - Malformed UTF-8 in shortstr"
    ends_with(channel, 501, told, (0, 0) if OTHER else (50, 10))


# -- slow and insistent strangers


def test_slowloris_handshakes_time_out(amqp_address: Address, start: Callable[..., Broker]) -> None:
    if OTHER:
        slowloris(amqp_address)
        return
    with start(OTTERMQ_AMQP__HANDSHAKE_TIMEOUT="1s") as broker:
        slowloris(broker.address("amqp"))


def slowloris(address: Address) -> None:
    silent, half, started, dripping = (Client(address, open=False) for _ in range(4))
    half.raw(PROTOCOL_HEADER[:4])
    started.raw(PROTOCOL_HEADER)
    started.expect(Connection.Start)
    dripping.raw(PROTOCOL_HEADER)
    dripping.expect(Connection.Start)
    limit = time.monotonic() + 20
    with pytest.raises((OSError, Gone)):  # a byte now and then doesn't help
        for byte in struct.pack(">BHI", 1, 0, 4000) + bytes(4000):
            assert time.monotonic() < limit
            dripping.raw(bytes([byte]))
            dripping.pass_time(0.1)
    for client in (silent, half, started):
        assert client.hung_up()
        client.drop()
    dripping.drop()


@pytest.mark.ottermq_only("RabbitMQ waits as long at every failure, we longer at each")
def test_guessing_passwords_gets_slow(start: Callable[..., Broker]) -> None:
    with start() as broker:
        address = broker.address("amqp")
        times = []
        for _ in range(9):
            before = time.monotonic()
            with pytest.raises((Gone, Refused)):
                Client(address, user="brute", password="guess")
            times.append(time.monotonic() - before)
        assert sum(times[6:]) > 0.3
        Client(address).close()  # the honest user is still let in


def test_random_bytes_get_our_header_and_are_closed(connect: Connect) -> None:
    for seed in range(20):
        client = connect(open=False)
        client.raw(bytes((seed * 37 + i * 101) % 256 for i in range(64)))
        assert client.hung_up()


def test_random_bytes_after_the_handshake_end_the_connection(connect: Connect) -> None:
    for seed in range(20):
        client = connect()
        client.raw(bytes((seed * 37 + i * 101 + 9) % 256 for i in range(4096)) + bytes(300_000))
        with pytest.raises((Refused, Gone)):
            client.wait(lambda: None)
        client.drop()
