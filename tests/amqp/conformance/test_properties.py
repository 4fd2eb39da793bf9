"""Properties and field tables come out as they went in, whatever kinds of values they hold."""

import datetime
import decimal
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from pamqp import header
from pamqp.commands import Basic, Queue

from tests.amqp.wire import Address, Channel, Client, Refused, refused
from tests.examples import examples

Connect = Callable[..., Client]
Unique = Callable[[str], str]

WHEN = datetime.datetime(2024, 2, 29, 12, 34, 56, tzinfo=datetime.UTC)
EVERY_PROPERTY: dict[str, Any] = {
    "content_type": "application/json",
    "content_encoding": "gzip",
    "headers": {"a": 1},
    "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "c-1",
    "reply_to": "answers",
    "expiration": "60000",
    "message_id": "m-1",
    "timestamp": WHEN,
    "message_type": "order.created",
    "user_id": "guest",
    "app_id": "shop",
}


def test_every_property_arrives_as_it_was_sent(channel: Channel) -> None:
    queue = channel.declare()
    channel.publish(b"x", key=queue, **EVERY_PROPERTY)
    got = channel.must_get(queue).properties
    assert {name: getattr(got, name) for name in EVERY_PROPERTY} == EVERY_PROPERTY


@pytest.mark.parametrize("name", EVERY_PROPERTY)
def test_a_property_alone_arrives_alone(channel: Channel, name: str) -> None:
    queue = channel.declare()
    channel.publish(b"x", key=queue, **{name: EVERY_PROPERTY[name]})
    got = channel.must_get(queue).properties
    assert {key: getattr(got, key) for key in EVERY_PROPERTY if getattr(got, key)} == {
        name: EVERY_PROPERTY[name]
    }


def test_no_properties_at_all_arrive_as_none(channel: Channel) -> None:
    queue = channel.declare()
    channel.publish(b"x", key=queue)
    got = channel.must_get(queue).properties
    assert not any(getattr(got, name) for name in EVERY_PROPERTY)


def sent_raw(channel: Channel, properties: bytes, flags: int) -> bytes:
    """The property bytes that come back for those that were sent."""
    queue = channel.declare()
    channel.send(Basic.Publish(routing_key=queue))
    payload = struct.pack(">HHQH", 60, 0, 0, flags) + properties
    channel.client.raw(struct.pack(">BHI", 2, 1, len(payload)) + payload + b"\xce")
    assert channel.becomes(queue, 1)
    seen: list[bytes] = []
    original = header.ContentHeader.unmarshal

    def keep(self: header.ContentHeader, data: bytes) -> None:
        seen.append(data)
        original(self, data)

    header.ContentHeader.unmarshal = keep  # type: ignore[method-assign]
    try:
        assert channel.get(queue)
    finally:
        header.ContentHeader.unmarshal = original  # type: ignore[method-assign]
    return seen[0][12:]


KINDS = {
    "boolean": b"t\x01",
    "signed byte": b"b\xff",
    "unsigned byte": b"B\xff",
    "short": b"s\x80\x00",
    "unsigned short": b"u\xff\xff",
    "int": b"I\x80\x00\x00\x00",
    "unsigned int": b"i\xff\xff\xff\xff",
    "long": b"l" + b"\x80" + bytes(7),
    "float": b"f" + struct.pack(">f", 1.5),
    "double": b"d" + struct.pack(">d", -0.1),
    "decimal": b"D\x02" + struct.pack(">i", 12345),
    "string": b"S\x00\x00\x00\x05\xc3\xa9abc",
    "string that is not text": b"S\x00\x00\x00\x03\xff\x00\xfe",
    "empty string": b"S\x00\x00\x00\x00",
    "bytes": b"x\x00\x00\x00\x04\x00\xff\x01\xfe",
    "timestamp": b"T" + struct.pack(">Q", 1709210096),
    "void": b"V",
    "array": b"A\x00\x00\x00\x08" + b"t\x00" + b"S\x00\x00\x00\x01a",
    "empty array": b"A\x00\x00\x00\x00",
    "table": b"F\x00\x00\x00\x04" + b"\x01kt\x01",
    "empty table": b"F\x00\x00\x00\x00",
    "array of tables of arrays": b"A\x00\x00\x00\x0d" + b"F\x00\x00\x00\x08" + b"\x01a"
    b"A\x00\x00\x00\x01V",
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_header_value_arrives_byte_for_byte(channel: Channel, kind: str) -> None:
    table = b"\x01k" + KINDS[kind]
    properties = struct.pack(">I", len(table)) + table
    assert sent_raw(channel, properties, 1 << 13) == struct.pack(">H", 1 << 13) + properties


def test_headers_keep_their_order_and_their_doubles(channel: Channel) -> None:
    table = b"\x01bt\x01" + b"\x01at\x00" + b"\x01bt\x00"
    properties = struct.pack(">I", len(table)) + table
    assert sent_raw(channel, properties, 1 << 13).endswith(properties)


VALUES = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-(2**63), 2**63 - 1)
    | some.text(max_size=20)
    | some.floats(allow_nan=False, allow_infinity=False, width=32)
    | some.binary(max_size=20).map(bytearray)
    | some.decimals(min_value=-1000, max_value=1000, places=3)
    | some.datetimes(
        min_value=datetime.datetime(1970, 1, 2), max_value=datetime.datetime(2100, 1, 1)
    ).map(lambda when: when.replace(microsecond=0, tzinfo=datetime.UTC)),
    lambda inner: (
        some.lists(inner, max_size=4) | some.dictionaries(some.text("abc.-", max_size=5), inner)
    ),
    max_leaves=15,
)


@settings(deadline=None, max_examples=examples(60))
@given(headers=some.dictionaries(some.text("abcdef", min_size=1, max_size=8), VALUES, max_size=6))
def test_any_headers_arrive_as_they_were_sent(
    amqp_address: Address, headers: dict[str, Any]
) -> None:
    with Client(amqp_address) as client:
        channel = client.channel()
        queue = channel.declare()
        channel.publish(b"x", key=queue, headers=headers)
        wanted = Basic.Properties(headers=headers).marshal()
        assert channel.must_get(queue).properties.marshal() == wanted


def test_queue_arguments_may_hold_every_kind_of_value(channel: Channel) -> None:
    arguments = {
        "nested": {"deeper": {"list": [1, "two", None, {"three": 3.5}]}},
        "when": WHEN,
        "price": decimal.Decimal("9.99"),
        "raw": bytearray(b"\x00\xff"),
        "none": None,
        "big": 2**62,
    }
    assert channel.declare("", arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_queue_arguments_may_hold_any_kind(channel: Channel, kind: str) -> None:
    table = b"\x01k" + KINDS[kind]
    method = struct.pack(">HHH", 50, 10, 0) + b"\x00\x04" + struct.pack(">I", len(table)) + table
    channel.client.raw(struct.pack(">BHI", 1, 1, len(method)) + method + b"\xce")
    assert channel.expect(Queue.DeclareOk).queue


# -- user-id, expiration, CC and BCC


def test_another_users_id_is_406(channel: Channel) -> None:
    text = (
        "PRECONDITION_FAILED - user_id property set to 'somebody' but authenticated user was"
        " 'guest'"
    )
    with refused(406, text):
        channel.publish(b"x", key="nobody", user_id="somebody")
        channel.round_trip()


@pytest.mark.parametrize("expiration", ["soon", " 7", "-1", "1.5", "315360000001"])
def test_an_expiration_that_is_no_number_is_406(channel: Channel, expiration: str) -> None:
    told = f"PRECONDITION_FAILED - invalid expiration '{expiration}'"
    with pytest.raises(Refused, match=told) as no:
        channel.publish(b"x", key="nobody", expiration=expiration)
        channel.round_trip()
    assert (no.value.code, no.value.connection) == (406, False)


@pytest.mark.parametrize("expiration", ["315360000000", "+5000000000", "007"])
def test_an_expiration_of_up_to_ten_years_is_taken(channel: Channel, expiration: str) -> None:
    queue = channel.declare()
    channel.publish(b"x", key=queue, expiration=expiration)
    assert channel.must_get(queue).properties.expiration == expiration


def test_cc_and_bcc_route_to_more_queues(channel: Channel) -> None:
    to, cc, bcc = channel.declare(), channel.declare(), channel.declare()
    channel.publish(b"x", key=to, headers={"CC": [cc], "BCC": [bcc], "a": 1})
    for queue in (to, cc, bcc):
        message = channel.must_get(queue)
        assert message.headers == {"CC": [cc], "a": 1}  # BCC is taken out
        assert message.key == to


@pytest.mark.parametrize("mode", ["plain", "tx"])
def test_a_returned_message_does_not_tell_bcc_either(channel: Channel, mode: str) -> None:
    if mode == "tx":
        channel.tx_select()
    channel.publish(
        b"x", key="nobody", mandatory=True, headers={"CC": ["no"], "BCC": ["one"], "a": 1}
    )
    if mode == "tx":
        channel.tx_commit()
    assert channel.returned().headers == {"CC": ["no"], "a": 1}


def test_cc_works_with_any_exchange_and_delivers_once(channel: Channel, unique: Unique) -> None:
    exchange = channel.declare_exchange(unique("x"), "topic")
    queue, other = channel.declare(), channel.declare()
    channel.bind(queue, exchange, "a.#")
    channel.bind(other, exchange, "b")
    channel.publish(b"x", key="a.1", exchange=exchange, headers={"CC": ["a.2", "b"]})
    assert channel.becomes(queue, 1)
    assert channel.becomes(other, 1)


@pytest.mark.parametrize("copies", ["CC", "BCC"])
def test_cc_and_bcc_that_are_no_lists_are_406(channel: Channel, copies: str) -> None:
    text = (
        f'PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,"{copies}",longstr}}'
    )
    with refused(406, text):
        channel.publish(b"x", key="nobody", headers={copies: "not-a-list"})
        channel.round_trip()


def test_a_message_keeps_its_properties_when_redelivered(channel: Channel) -> None:
    queue = channel.declare()
    channel.publish(b"x", key=queue, **EVERY_PROPERTY)
    first = channel.must_get(queue, no_ack=False)
    channel.nack(first.tag)
    second = channel.must_get(queue)
    assert second.properties.marshal() == first.properties.marshal()


@pytest.mark.parametrize("size", [1000, 60_000, 130_000])
def test_headers_may_be_as_large_as_a_frame(channel: Channel, size: int) -> None:
    queue = channel.declare()
    channel.publish(b"x", key=queue, headers={"big": "x" * size})
    assert channel.must_get(queue).headers == {"big": "x" * size}
