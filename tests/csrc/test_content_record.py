"""An AMQP message as a record: it comes back as it was, and Kafka clients can read it too."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import (  # type: ignore[import-untyped,unused-ignore]
    DefaultRecordBatch,
)

from ottermq.wal.records import Batch
from tests.csrc.batches import Record, encode, raw_batch, raw_record, validate, varint, walk
from tests.csrc.contents import (
    NOW,
    SCRATCH,
    Message,
    batch_of,
    exact,
    parse,
    property_part,
    read_messages,
    read_properties,
    record,
    some_properties,
    span,
    template,
)
from tests.internals import ffi, lib

names = st.text(max_size=40).map(str.encode)
messages = st.lists(
    st.builds(
        Message,
        names,
        names,
        st.binary(max_size=200),
        some_properties.map(lambda some: property_part(**some)),
        timestamp=st.integers(NOW, NOW + 100_000),
    ),
    min_size=1,
    max_size=6,
)


def numbered(items: list[Message]) -> list[Message]:
    return [replace(item, offset=n) for n, item in enumerate(items)]


def headers_of(part: bytes, exchange: bytes = b"orders") -> list[tuple[str, bytes | None]]:
    """As a Kafka reader gets them."""
    batch = raw_batch(
        record(b"key", b"body", template(exchange, part)), 1, base_timestamp=NOW, max_timestamp=NOW
    )
    (found,) = walk(exact(batch), len(batch))[1]
    return list(found.headers)


# ---- there and back --------------------------------------------------------------------


@given(messages)
def test_a_message_comes_back_byte_for_byte(items: list[Message]) -> None:
    batch = batch_of(items)
    assert validate(exact(batch), len(batch)).result == lib.OM_OK
    assert read_messages(batch) == (lib.OM_END, numbered(items))


@given(messages)
def test_kafka_python_reads_key_body_and_time(items: list[Message]) -> None:
    found = list(DefaultRecordBatch(batch_of(items)))
    assert [(item.key, item.value, item.timestamp) for item in found] == [
        (item.routing_key, item.body, item.timestamp) for item in items
    ]
    assert all(item.headers[0][0] == "amqp" for item in found)


@given(messages)
def test_om_batch_encode_writes_the_same_record(items: list[Message]) -> None:
    """The template is nothing but headers: written one by one they give the same bytes."""
    batch = batch_of(items)
    status, found = walk(exact(batch), len(batch))
    assert status == lib.OM_END
    first = found[0].timestamp
    assert (
        encode(found)[61:]
        == raw_batch(
            b"".join(
                record(
                    item.routing_key,
                    item.body,
                    template(item.exchange, item.properties),
                    n,
                    item.timestamp - first,
                )
                for n, item in enumerate(items)
            ),
            len(items),
        )[61:]
    )


def test_the_broker_reads_it_as_any_other_record() -> None:
    part = property_part(content_type="text/plain", headers={"tenant": "acme"})
    batch = batch_of([Message(b"orders", b"eu.new", b"hello", part)])
    view = Batch(batch, 0, 0, 0, 0, NOW, NOW, -1, -1, -1, 1, 0)
    (found,) = view.records()
    assert (found.key, found.value, found.timestamp) == (b"eu.new", b"hello", NOW)
    assert dict(found.headers)[b"tenant"] == b"acme"


@given(messages, st.integers(0, 8))
def test_a_seek_steps_over_what_lies_before(items: list[Message], start: int) -> None:
    assert read_messages(batch_of(items), start) == (lib.OM_END, numbered(items)[start:])


def test_a_seek_into_a_gap_finds_what_comes_after_it() -> None:
    tail = template(b"", b"\0\0")
    records = [record(b"", b"%d" % n, tail, offset_delta=n) for n in (0, 3, 7)]
    batch = raw_batch(b"".join(records), 3, last_offset_delta=9, base_offset=100)
    assert [item.offset for item in read_messages(batch, 101)[1]] == [103, 107]
    assert [item.offset for item in read_messages(batch, 107)[1]] == [107]
    assert read_messages(batch, 108) == (lib.OM_END, [])


def test_a_body_that_comes_in_pieces_gets_its_room() -> None:
    tail = template(b"logs", b"\0\0")
    out = ffi.new("uint8_t[]", 1000)
    (key, a), (c_tail, b) = span(b"key"), span(tail)
    hole = ffi.new("om_span *", {"data": ffi.NULL, "len": 10})[0]
    where = ffi.new("size_t *")
    size = lib.om_content_record(out, 1000, 0, 0, key, hole, c_tail, where)
    ffi.buffer(out, 1000)[where[0] : where[0] + 10] = b"helloworld"
    assert bytes(ffi.buffer(out, size)) == record(b"key", b"helloworld", tail)
    assert lib.om_content_record(out, size - 1, 0, 0, key, hole, c_tail, where) == lib.OM_E_SHORT
    del a, b


@pytest.mark.parametrize("exchange", [b"", b"x" * 61, b"x" * 255])
def test_a_message_that_died_is_marked(exchange: bytes) -> None:
    made = exact(template(exchange, b"\x10\0\x02"))
    lib.om_content_mark_died(made)
    tail = bytes(ffi.buffer(made, len(made)))
    batch = raw_batch(record(b"k", b"body", tail), 1, base_timestamp=NOW, max_timestamp=NOW)
    (found,) = read_messages(batch)[1]
    assert found == Message(exchange, b"k", b"body", b"\x10\0\x02", died=True)


# ---- what Kafka readers see ------------------------------------------------------------


def test_readable_properties_and_string_headers_are_record_headers() -> None:
    part = property_part(
        content_type="application/json",
        correlation_id="c-1",
        message_id="m-1",
        delivery_mode=2,
        headers={"tenant": "acme", "retries": 3, "nested": {"a": "b"}, "zone": "eu"},
    )
    assert headers_of(part) == [
        ("amqp", b"\x01\x06orders" + part),
        ("content-type", b"application/json"),
        ("correlation-id", b"c-1"),
        ("message-id", b"m-1"),
        ("tenant", b"acme"),
        ("zone", b"eu"),
    ]


def test_names_that_look_like_ours_or_like_no_text_are_left_to_amqp_readers() -> None:
    table = b"".join(
        bytes([len(name)]) + name + b"S\0\0\0\x01v"
        for name in (
            b"amqp",
            b"amqp-x",
            b"",
            b"\xff\xfe",
            b"\xed\xa0\x80",
            b"fine",
            "ü€😀".encode(),
        )
    )
    part = b"\x20\0" + len(table).to_bytes(4, "big") + table
    assert [name for name, _ in headers_of(part)] == ["amqp", "fine", "ü€😀"]


def test_readable_headers_are_bounded() -> None:
    long = property_part(headers={"a": "x" * 3000, "b": "x" * 3000, "c": "x" * 900})
    assert [name for name, _ in headers_of(long)] == ["amqp", "a", "c"]
    many = property_part(headers={f"h{n:03}": "v" for n in range(200)})
    assert len(headers_of(many)) == 63


def test_an_exchange_name_over_255_bytes_is_refused() -> None:
    parsed = parse(b"\0\0")
    name, alive = span(b"x" * 256)
    out = ffi.new("uint8_t[]", 8000)
    assert lib.om_content_template(out, 8000, name, parsed.c) == lib.OM_E_INVALID
    del alive


# ---- records of Kafka producers --------------------------------------------------------

kafka_headers = st.lists(
    st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=60)), max_size=5
).map(tuple)


def foreign(item: Record, scratch: int = SCRATCH) -> tuple[Message, dict[str, Any]]:
    status, (found,) = read_messages(encode([item]), scratch=scratch)
    assert status == lib.OM_END
    assert found.foreign
    assert found.exchange == b""
    assert parse(found.properties).result == lib.OM_OK
    return found, read_properties(found.properties)


def as_amqp(value: bytes | None) -> str | bytearray | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return bytearray(value or b"")


@given(
    st.none() | st.text(max_size=60).map(str.encode),
    st.none() | st.binary(max_size=99),
    kafka_headers,
)
def test_a_kafka_record_reaches_an_amqp_reader(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    found, properties = foreign(Record(NOW, key, value, headers))
    assert found.routing_key == (key or b"")
    assert found.body == (value or b"")
    assert found.timestamp == NOW
    assert properties["delivery_mode"] == 2
    assert int(properties["timestamp"].timestamp()) == NOW // 1000
    tombstone = {"x-kafka-tombstone": True} if value is None else {}
    assert properties.get("headers", {}) == tombstone | {
        name: as_amqp(data) for name, data in headers
    }


@pytest.mark.parametrize("key", [b"\xff\0\x01", b"k" * 256])
def test_a_key_that_is_no_routing_key_is_a_header(key: bytes) -> None:
    found, properties = foreign(Record(NOW, key, b"v"))
    assert found.routing_key == b""
    assert properties["headers"] == {"x-kafka-key": as_amqp(key)}


def test_a_kafka_record_without_a_time_has_no_timestamp() -> None:
    _, properties = foreign(Record(-1, b"k", b"v"))
    assert properties == {"delivery_mode": 2}


def test_kafka_headers_that_find_no_room_are_left_out() -> None:
    item = Record(NOW, b"k", b"v", (("long", b"x" * 500), ("short", b"y"), ("n" * 256, b"z")))
    assert foreign(item, 64)[1]["headers"] == {"short": "y"}
    assert foreign(item)[1]["headers"] == {"long": "x" * 500, "short": "y"}
    status, found = read_messages(encode([item]), scratch=lib.OM_CONTENT_SCRATCH_MIN - 1)
    assert (status, found) == (lib.OM_E_SHORT, [])


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\x01",
        b"\x02\x00\x00\x00",
        b"\x01\x03ab\0\0",
        b"\x01\x00\x80\x00",
        b"\x01\x00\x20\x00\0\0\0\x09",
        b"\x01\x00\0\0\0",
    ],
)
def test_a_kafka_producer_can_not_pass_for_an_amqp_publisher(value: bytes | None) -> None:
    """A header of our name with bytes that would confuse a client stays a header."""
    _, properties = foreign(Record(NOW, b"k", b"v", (("amqp", value), ("a", b"b"))))
    assert properties["headers"] == {"amqp": as_amqp(value), "a": "b"}


def test_bad_properties_are_found_behind_good_ones() -> None:
    """Equal property bytes are checked once; others anew."""
    good = ("amqp", b"\x01\x00\x10\x00\x02")
    bad = ("amqp", b"\x01\x00\x80\x00\x02")
    batch = encode([Record(NOW, b"k", b"v", (header,)) for header in (good, good, bad, good)])
    status, found = read_messages(batch)
    assert status == lib.OM_END
    assert [item.foreign for item in found] == [False, False, True, False]


# ---- damage ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [
        raw_record(length=0),
        raw_record(length=200),
        raw_record(offset_delta=varint(-1)),
        raw_record(offset_delta=varint(5)),
        raw_record(key=varint(-2)),
        raw_record(value=varint(99)),
        raw_record(headers=varint(-1)),
        raw_record(headers=varint(2) + varint(1) + b"a" + varint(-1)),
        raw_record(headers=varint(1) + varint(-1) + varint(-1)),
        raw_record(headers=varint(0) + b"\0"),
    ],
)
def test_a_record_that_lies_about_its_lengths_is_corrupt(broken: bytes) -> None:
    assert read_messages(raw_batch(broken, 1)) == (lib.OM_E_CORRUPT, [])
    assert read_messages(raw_batch(b"", 0, last_offset_delta=3)) == (lib.OM_END, [])


def test_offsets_that_go_back_are_corrupt() -> None:
    tail = template(b"", b"\0\0")
    body = record(b"", b"", tail, offset_delta=1) + record(b"", b"", tail, offset_delta=1)
    batch = raw_batch(body, 2)
    status, found = read_messages(batch)
    assert status == lib.OM_E_CORRUPT
    assert len(found) == 1
    assert read_messages(batch, 5) == (lib.OM_E_CORRUPT, [])


def test_a_transaction_marker_is_no_message() -> None:
    marker = encode([Record(NOW, b"\0\0\0\x01", b"\0" * 6)], attributes=lib.OM_ATTR_CONTROL)
    assert read_messages(marker) == (lib.OM_END, [])


def test_a_compressed_batch_is_not_opened() -> None:
    assert read_messages(raw_batch(b"?" * 30, 1, attributes=1)) == (lib.OM_E_COMPRESSED, [])
