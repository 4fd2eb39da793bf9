"""Methods and field tables: bytes to values and back, whatever bytes they are."""

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import frame as pamqp_frame
from pamqp.commands import Basic, Connection, Queue

from ottermq.amqp.frames import (
    METHODS,
    Malformed,
    decode_method,
    encode_method,
    headers_of,
    name_of,
)
from ottermq.amqp.replies import Reply
from ottermq.amqp.tables import Malformed as MalformedTable
from ottermq.amqp.tables import read_table


def table(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack(">I", len(body)) + body


@pytest.mark.parametrize(
    "raw, value",
    [
        (b"t\x01", True),
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xfd", -3),
        (b"i\xff\xff\xff\xfd", 4294967293),
        (b"l" + struct.pack(">q", -4), -4),
        (b"f" + struct.pack(">f", 1.5), 1.5),
        (b"d" + struct.pack(">d", 2.5), 2.5),
        (b"D\x02" + struct.pack(">i", 314), Decimal("3.14")),
        (b"S\0\0\0\x03abc", "abc"),
        (b"S\0\0\0\x01\xff", b"\xff"),
        (b"x\0\0\0\x02\0\x01", bytearray(b"\0\x01")),
        (b"T" + struct.pack(">Q", 1767225600), datetime(2026, 1, 1, tzinfo=UTC)),
        (b"T" + struct.pack(">Q", 1 << 62), 1 << 62),
        (b"V", None),
        (b"A" + table(b"b\x01", b"V"), [1, None]),
        (b"F" + table(b"\x01at\0"), {"a": False}),
    ],
)
def test_every_kind_of_value_is_read(raw: bytes, value: Any) -> None:
    assert read_table(table(b"\x01k" + raw)) == ({"k": value}, 4 + 2 + len(raw))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0\0\0\x05",
        table(b"\x05k"),
        table(b"\x01k?"),
        table(b"\x01kS\0\0\0\xff"),
        table(b"\x01kI\0"),
        table(b"\x01\xfft\x01"),
    ],
)
def test_what_is_no_table_is_told(raw: bytes) -> None:
    with pytest.raises(MalformedTable):
        read_table(raw)


def test_a_thousand_tables_in_one_another_are_too_many() -> None:
    raw = table()
    for _ in range(1000):
        raw = table(b"\x01kF" + raw)
    with pytest.raises(MalformedTable, match="nested too deeply"):
        read_table(raw)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_method_or_malformed(payload: bytes) -> None:
    try:
        decode_method(payload)
    except Malformed:
        pass


@given(st.sampled_from(sorted(METHODS)), st.binary(max_size=100))
def test_any_arguments_are_read_or_malformed(index: int, arguments: bytes) -> None:
    try:
        decode_method(struct.pack(">I", index) + arguments)
    except Malformed:
        pass


@given(st.binary(max_size=100))
def test_any_properties_have_headers_or_none(raw: bytes) -> None:
    assert isinstance(headers_of(raw), dict)


def test_headers_are_found_behind_other_properties() -> None:
    properties = Basic.Properties(
        content_type="text/plain", content_encoding="utf-8", headers={"a": 1}, priority=3
    )
    assert headers_of(properties.marshal()) == {"a": 1}
    assert headers_of(Basic.Properties(priority=3).marshal()) == {}


def test_what_we_write_pamqp_reads() -> None:
    whole = encode_method(7, Queue.DeclareOk, "any name at all: ü", 3, 4)
    _, channel, ok = pamqp_frame.unmarshal(whole)
    assert channel == 7
    assert isinstance(ok, Queue.DeclareOk)
    assert (ok.queue, ok.message_count, ok.consumer_count) == ("any name at all: ü", 3, 4)


def test_bits_share_an_octet() -> None:
    asked = Queue.Declare(queue="q", durable=True, auto_delete=True, arguments={"x": 1})
    whole = pamqp_frame.marshal(asked, 1)
    found: Any = decode_method(whole[7:-1])
    assert (found.passive, found.durable, found.exclusive, found.auto_delete, found.nowait) == (
        False,
        True,
        False,
        True,
        False,
    )
    assert found.arguments == {"x": 1}


def test_methods_have_names() -> None:
    assert name_of(Queue.Declare.index) == "queue.declare"
    assert name_of(99 << 16 | 1) == "99.1"


def test_a_long_text_is_cut_to_what_fits() -> None:
    frame = Reply(404, "ü" * 200).close_connection()
    _, _, close = pamqp_frame.unmarshal(frame)
    assert isinstance(close, Connection.Close)
    assert len(close.reply_text.encode()) <= 255
    assert close.reply_text.endswith("...")
