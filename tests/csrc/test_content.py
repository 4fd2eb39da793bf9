"""A message's properties: what pamqp writes is read, and what no client would write is refused."""

import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pamqp import encode

from ottermq.amqp.frames import headers_of
from tests.csrc.contents import (
    TEXTS,
    exact,
    from_span,
    names,
    parse,
    property_part,
    some_properties,
    span,
    tables,
    values,
)
from tests.fuzz import odd_tables
from tests.internals import ffi, lib

FLAGS = {
    "headers": 0x2000,
    "delivery_mode": 0x1000,
    "content_type": 0x8000,
    "cluster_id": 0x0004,
}


def refused(part: bytes) -> bool:
    return bool(parse(part).result == lib.OM_E_CORRUPT)


def headers_part(table: bytes) -> bytes:
    return struct.pack(">HI", FLAGS["headers"], len(table)) + table


def entry(value: bytes, name: bytes = b"k") -> bytes:
    return bytes([len(name)]) + name + value


def table_of(content: dict[str, Any]) -> bytes:
    return encode.field_table(content)[4:]


def get(table: bytes, name: bytes) -> tuple[int, Any]:
    field = ffi.new("om_field *")
    alive = exact(table)
    result = lib.om_table_get(alive, len(table), name, field)
    if result != lib.OM_OK:
        return result, None
    return result, (chr(field.type), from_span(field.value))


# ---- against pamqp ---------------------------------------------------------------------


@given(some_properties)
def test_what_pamqp_writes_is_read(properties: dict[str, Any]) -> None:
    parsed = parse(property_part(**properties))
    assert parsed.result == lib.OM_OK
    for name in TEXTS:
        expected = properties.get("message_type" if name == "type" else name)
        assert from_span(getattr(parsed.c, name)) == (
            None if expected is None else expected.encode()
        ), name
    assert parsed.c.delivery_mode == properties.get("delivery_mode", 0)
    assert parsed.c.priority == properties.get("priority", 0)
    when = properties.get("timestamp")
    assert parsed.c.timestamp == (int(when.timestamp()) if when else 0)
    headers = properties.get("headers")
    assert from_span(parsed.c.headers) == (None if headers is None else table_of(headers))


@given(some_properties, st.data())
def test_a_property_part_that_is_cut_or_too_long_is_refused(
    properties: dict[str, Any], data: st.DataObject
) -> None:
    part = property_part(**properties)
    assert refused(part[: data.draw(st.integers(0, len(part) - 1))])
    assert refused(part + data.draw(st.binary(min_size=1, max_size=4)))


@given(st.binary(max_size=200))
def test_no_bytes_at_all_can_lead_outside_them(part: bytes) -> None:
    parse(part)
    parse(headers_part(part))


@given(tables, names, values)
def test_an_entry_is_found_by_its_name(table: dict[str, Any], name: str, value: Any) -> None:
    encoded = table_of({**table, name: value})
    kind, *rest = encode.encode_table_value(value)
    found, field = get(encoded, name.encode())
    assert found == lib.OM_OK
    assert field[0] == chr(kind)
    assert field[1] == bytes(rest)[4 if chr(kind) in "SxAF" else 0 :]


@given(tables, names)
def test_a_name_that_is_not_there_is_not_found(table: dict[str, Any], name: str) -> None:
    without = {key: value for key, value in table.items() if key != name}
    assert get(table_of(without), name.encode()) == (lib.OM_END, None)


def test_absent_headers_have_no_entries() -> None:
    field = ffi.new("om_field *")
    assert lib.om_table_get(ffi.NULL, 2**64 - 1, b"x-match", field) == lib.OM_END


# ---- flags -----------------------------------------------------------------------------


def test_no_properties_are_two_zero_bytes() -> None:
    parsed = parse(b"\0\0")
    assert parsed.result == lib.OM_OK
    assert parsed.c.flags == 0
    assert parsed.c.headers.len == -1


def test_a_further_flags_word_may_follow_but_announces_nothing() -> None:
    part = struct.pack(">HHHB", FLAGS["delivery_mode"] | 1, 1, 0, 2)
    parsed = parse(part)
    assert parsed.result == lib.OM_OK
    assert parsed.c.delivery_mode == 2
    assert parsed.c.flags == FLAGS["delivery_mode"]
    assert refused(struct.pack(">HHB", FLAGS["delivery_mode"] | 1, 0x8000, 2))
    assert refused(struct.pack(">HH", 1, 1))
    assert refused(struct.pack(">H", 1))


def test_a_property_nobody_defined_is_refused() -> None:
    assert refused(struct.pack(">H", 2))


def test_an_empty_text_is_there_all_the_same() -> None:
    parsed = parse(struct.pack(">HB", FLAGS["cluster_id"], 0))
    assert parsed.result == lib.OM_OK
    assert from_span(parsed.c.cluster_id) == b""


# ---- tables ----------------------------------------------------------------------------

SIZES = {"t": 1, "b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "f": 4, "D": 5}
SIZES |= {"l": 8, "L": 8, "d": 8, "T": 8, "V": 0}


@pytest.mark.parametrize("kind", SIZES)
def test_each_type_has_its_size(kind: str) -> None:
    good = entry(kind.encode() + bytes(SIZES[kind]))
    assert parse(headers_part(good)).result == lib.OM_OK
    assert parse(headers_part(good + good)).result == lib.OM_OK
    if SIZES[kind]:
        assert refused(headers_part(good[:-1]))
    assert refused(headers_part(good + b"\0"))


@pytest.mark.parametrize("kind", ["S", "x", "A", "F"])
def test_a_long_value_must_end_within_the_table(kind: str) -> None:
    for length, data in [(1, b""), (2**31, b"abc"), (2**32 - 1, b"abc"), (4, b"abc")]:
        assert refused(headers_part(entry(kind.encode() + struct.pack(">I", length) + data)))
    assert parse(headers_part(entry(kind.encode() + bytes(4)))).result == lib.OM_OK


@pytest.mark.parametrize("kind", [0, *b"ZzUgh@", 0xFF])
def test_a_type_nobody_knows_is_refused(kind: int) -> None:
    assert refused(headers_part(entry(bytes([kind]) + bytes(8))))


def test_a_nested_value_may_not_reach_out_of_its_table() -> None:
    inner = entry(b"S" + struct.pack(">I", 6) + b"abc")
    table = entry(b"F" + struct.pack(">I", len(inner)) + inner) + entry(b"V")
    assert refused(headers_part(table))


def nested(depth: int, kind: bytes) -> bytes:
    """A table that many levels deep, itself the first."""
    table = b""
    for _ in range(depth - 1):
        value = kind + struct.pack(">I", len(table)) + table
        table = value if kind == b"A" else entry(value)
    return entry(table) if kind == b"A" and table else table


@pytest.mark.parametrize("kind", [b"F", b"A"])
def test_tables_lie_in_each_other_only_so_deep(kind: bytes) -> None:
    assert parse(headers_part(nested(lib.OM_TABLE_DEPTH, kind))).result == lib.OM_OK
    assert refused(headers_part(nested(lib.OM_TABLE_DEPTH + 1, kind)))
    assert refused(headers_part(nested(1000, kind)))
    assert refused(headers_part(nested(20_000, kind)))


@pytest.mark.parametrize(
    ("kind", "data", "number"),
    [
        ("b", b"\xff", -1),
        ("B", b"\xff", 255),
        ("s", b"\xff\xfe", -2),
        ("u", b"\xff\xfe", 65534),
        ("I", b"\x80\0\0\0", -(2**31)),
        ("i", b"\x80\0\0\0", 2**31),
        ("l", b"\x80" + bytes(7), -(2**63)),
        ("L", bytes(7) + b"\x07", 7),
    ],
)
def test_every_integer_type_is_a_number(kind: str, data: bytes, number: int) -> None:
    value, alive = span(data)
    field = ffi.new("om_field *", {"type": ord(kind), "value": value})
    out = ffi.new("int64_t *")
    assert lib.om_field_integer(field, out) == lib.OM_OK
    assert out[0] == number
    field.type = ord("S")
    assert lib.om_field_integer(field, out) == lib.OM_E_INVALID
    del alive


# ---- CC and BCC ------------------------------------------------------------------------


def copies(headers: dict[str, Any] | None) -> tuple[int, list[str] | None, list[str] | None]:
    parsed = parse(property_part(headers=headers) if headers is not None else b"\0\0")
    cc, bcc = ffi.new("om_span *"), ffi.new("om_span *")
    result = lib.om_properties_copies(parsed.c, cc, bcc)
    return result, keys(cc), keys(bcc)


def keys(array: Any) -> list[str] | None:
    if array.len < 0:
        return None
    field, at, found = ffi.new("om_field *"), ffi.new("size_t *"), []
    while lib.om_array_next(array.data, array.len, at, field) == lib.OM_OK:
        if chr(field.type) == "S":
            found.append(bytes(ffi.buffer(field.value.data, field.value.len)).decode())
    return found


def test_further_routing_keys_are_found() -> None:
    assert copies(None) == (lib.OM_OK, None, None)
    assert copies({"cc": ["x"], "C": ["x"]}) == (lib.OM_OK, None, None)
    assert copies({"CC": ["a", "b"], "x": 1}) == (lib.OM_OK, ["a", "b"], None)
    assert copies({"CC": [], "BCC": ["c", 7]}) == (lib.OM_OK, [], ["c"])


@pytest.mark.parametrize("table", odd_tables.tables().values(), ids=odd_tables.tables())
def test_python_and_c_see_the_same_in_odd_tables(table: bytes) -> None:
    part = headers_part(table)
    parsed = parse(part)
    cc, bcc, delay = ffi.new("om_span *"), ffi.new("om_span *"), ffi.new("int64_t *")
    valid = lib.om_properties_copies(parsed.c, cc, bcc) == lib.OM_OK
    headers = headers_of(part)
    lists = [name in headers and isinstance(headers[name], list) for name in ("CC", "BCC")]
    assert lists == [cc.len >= 0, bcc.len >= 0]
    assert valid == all(isinstance(headers.get(name, []), list) for name in ("CC", "BCC"))
    for name, array in (("CC", cc), ("BCC", bcc)):
        if array.len >= 0:
            assert keys(array) == [key for key in headers[name] if isinstance(key, str)]
    if lib.om_delay_ms(parsed.c, delay) == lib.OM_OK:
        assert int(headers["x-delay"]) == delay[0]


@pytest.mark.parametrize("wrong", ["a", 7, None, {"a": "b"}])
def test_further_routing_keys_that_are_no_array_are_refused(wrong: Any) -> None:
    assert copies({"CC": wrong})[0] == lib.OM_E_INVALID
    assert copies({"CC": ["fine"], "BCC": wrong})[0] == lib.OM_E_INVALID


# ---- expiration ------------------------------------------------------------------------


def expiration(text: bytes | None) -> int | None:
    value, alive = span(text)
    out = ffi.new("int64_t *", -7)
    result = lib.om_expiration_ms(value, out)
    del alive
    assert result in (lib.OM_OK, lib.OM_E_INVALID)
    return out[0] if result == lib.OM_OK else None


TEN_YEARS_MS = 315_360_000_000


@given(st.integers(0, TEN_YEARS_MS))
@example(TEN_YEARS_MS)
def test_an_expiration_is_a_decimal_number_of_up_to_ten_years(number: int) -> None:
    assert expiration(str(number).encode()) == number
    assert expiration(b"000" + str(number).encode()) == number
    assert expiration(b"+" + str(number).encode()) == number
    assert expiration(b"-" + str(number).encode()) == (None if number else 0)


@pytest.mark.parametrize(
    "text",
    [
        None,
        b"",
        b" 1",
        b"1 ",
        b"+",
        b"-",
        b"+-1",
        b"1.5",
        b"0x10",
        b"1e3",
        b"315360000001",
        b"9" * 255,
    ],
)
def test_any_other_expiration_is_refused(text: bytes | None) -> None:
    assert expiration(text) is None
