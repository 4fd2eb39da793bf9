"""AMQP properties and messages for tests: made and read by pamqp, carried through the C core."""

import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from tests.csrc.batches import raw_batch
from tests.internals import ffi, lib

NOW = 1_700_000_000_000
SCRATCH = 4096
TEXTS = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "type",
    "user_id",
    "app_id",
)
"""All but cluster_id, which pamqp wants empty."""

letters = st.characters(codec="utf-8", exclude_characters="\0")
names = st.text(letters, min_size=1, max_size=30)
seconds = st.integers(0, 2**32 - 1)
times = seconds.map(lambda value: datetime.fromtimestamp(value, tz=UTC))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(width=32, allow_nan=False)
    | st.integers(-(2**31), 2**31 - 1).map(lambda value: Decimal(value).scaleb(-3))
    | st.text(max_size=80)
    | st.binary(max_size=80).map(bytearray)
    | times
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
tables = st.dictionaries(names, values, max_size=6)
some_properties = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(
            [name if name != "type" else "message_type" for name in TEXTS],
            st.text(min_size=1, max_size=60),
        ),
        "headers": tables,
        "delivery_mode": st.sampled_from([1, 2]),
        "priority": st.integers(0, 255),
        "timestamp": times,
    },
)


def property_part(**properties: Any) -> bytes:
    """Flags and values, as pamqp writes them into a content header frame."""
    return ContentHeader(properties=Basic.Properties(**properties)).marshal()[12:]


def read_properties(part: bytes) -> dict[str, Any]:
    """What a client would see: only what is there."""
    header = ContentHeader()
    header.unmarshal(struct.pack(">HHQ", 60, 0, 0) + part)
    return {
        name: value for name, value in dict(header.properties).items() if value not in (None, "")
    }


def exact(data: bytes) -> Any:
    """The bytes in memory of exactly their size, so that a sanitizer sees a read past them."""
    copy = ffi.new("uint8_t[]", len(data))
    ffi.memmove(copy, data, len(data))
    return copy


def span(data: bytes | None) -> tuple[Any, Any]:
    """An om_span, and what must stay alive for it."""
    if data is None:
        return ffi.new("om_span *", {"data": ffi.NULL, "len": -1})[0], None
    alive = exact(data)
    return ffi.new("om_span *", {"data": alive, "len": len(data)})[0], alive


def from_span(value: Any) -> bytes | None:
    return None if value.len < 0 else bytes(ffi.buffer(value.data, value.len))


@dataclass
class Parsed:
    """An om_properties, with the bytes it points into."""

    result: int
    c: Any
    alive: Any


def parse(part: bytes) -> Parsed:
    alive = exact(part)
    properties = ffi.new("om_properties *")
    return Parsed(lib.om_properties_parse(alive, len(part), properties), properties, alive)


def template(exchange: bytes, part: bytes) -> bytes:
    """The record's headers, made in a buffer of exactly the size they need."""
    parsed = parse(part)
    assert parsed.result == lib.OM_OK
    name, alive = span(exchange)
    bound = lib.om_content_headers_bound(name, parsed.c)
    out = ffi.new("uint8_t[]", bound)
    size = lib.om_content_template(out, bound, name, parsed.c)
    assert 0 < size <= bound
    fitting = ffi.new("uint8_t[]", size)
    assert lib.om_content_template(fitting, size, name, parsed.c) == size
    assert lib.om_content_template(fitting, size - 1, name, parsed.c) == lib.OM_E_SHORT
    del alive
    return bytes(ffi.buffer(out, size))


def record(
    key: bytes, body: bytes, tail: bytes, offset_delta: int = 0, time_delta: int = 0
) -> bytes:
    """A record of a batch, its length first."""
    cap = lib.OM_CONTENT_RECORD_OVERHEAD + len(key) + len(body) + len(tail)
    out = ffi.new("uint8_t[]", cap)
    (c_key, a), (c_body, b), (c_tail, c) = span(key), span(body), span(tail)
    size = lib.om_content_record(
        out, cap, time_delta, offset_delta, c_key, c_body, c_tail, ffi.NULL
    )
    assert 0 < size <= cap
    del a, b, c
    return bytes(ffi.buffer(out, size))


@dataclass(frozen=True)
class Message:
    exchange: bytes
    routing_key: bytes
    body: bytes
    properties: bytes
    offset: int = 0
    timestamp: int = NOW
    foreign: bool = False
    died: bool = False


def batch_of(messages: list[Message]) -> bytes:
    """A batch as the data plane writes it: templates behind keys and bodies."""
    records = [
        record(
            message.routing_key,
            message.body,
            template(message.exchange, message.properties),
            offset_delta=n,
            time_delta=message.timestamp - NOW,
        )
        for n, message in enumerate(messages)
    ]
    newest = max((message.timestamp for message in messages), default=NOW)
    return raw_batch(b"".join(records), len(records), base_timestamp=NOW, max_timestamp=newest)


def read_messages(
    batch: bytes, start: int = 0, scratch: int = SCRATCH
) -> tuple[int, list[Message]]:
    """How om_content_next ended, and the messages before that."""
    alive = exact(batch)
    room = ffi.new("uint8_t[]", scratch)
    iterator = ffi.new("om_content_iter *")
    content = ffi.new("om_content *")
    found: list[Message] = []
    result: int = lib.om_content_iter_init(iterator, alive, len(batch), room, scratch)
    if result == lib.OM_OK and start:
        result = lib.om_content_seek(iterator, start)
    while result == lib.OM_OK:
        result = lib.om_content_next(iterator, content)
        if result == lib.OM_OK:
            found.append(_from_c(content))
    return result, found


def _from_c(content: Any) -> Message:
    fields = (content.exchange, content.routing_key, content.body, content.properties)
    exchange, routing_key, body, properties = (from_span(field) for field in fields)
    assert exchange is not None and routing_key is not None
    assert body is not None and properties is not None
    return Message(
        exchange,
        routing_key,
        body,
        properties,
        content.offset,
        content.timestamp,
        bool(content.foreign),
        bool(content.died),
    )
