"""Headers set, replaced and taken out; all else stays, byte for byte."""

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.csrc.contents import (
    Parsed,
    exact,
    names,
    parse,
    property_part,
    read_properties,
    some_properties,
    span,
    values,
)
from tests.internals import ffi, lib

TABLE_LENGTH = 4
Extra = tuple[str, str | int | bool | None]


def rewritten(parsed: Parsed, bound: int, write: Any) -> bytes:
    """What `write` makes of it, in the room that was said to be enough and in less."""
    assert parsed.result == lib.OM_OK
    out = ffi.new("uint8_t[]", bound)
    size = write(out, bound)
    assert 2 <= size <= bound
    fitting = ffi.new("uint8_t[]", size + TABLE_LENGTH)
    assert write(fitting, size + TABLE_LENGTH) == size
    for less in {0, 1, 2, size // 2, size - 1}:
        assert less >= size or write(fitting, less) == lib.OM_E_SHORT
    part = bytes(ffi.buffer(out, size))
    assert parse(part).result == lib.OM_OK
    return part


def headers_with(part: bytes, *extras: Extra) -> bytes:
    parsed = parse(part)
    alive: list[Any] = []
    array = ffi.new("om_extra[]", len(extras))
    for target, (name, value) in zip(array, extras, strict=True):
        alive.append(ffi.new("char[]", name.encode()))
        target.name = alive[-1]
        if value is None:
            target.type = 0
        elif isinstance(value, str):
            target.type = ord("S")
            target.text, text = span(value.encode())
            alive.append(text)
        else:
            target.type = ord("t" if isinstance(value, bool) else "l")
            target.number = value
    bound = lib.om_headers_bound(parsed.c, array, len(extras))
    return rewritten(
        parsed,
        bound,
        lambda out, cap: lib.om_headers_with(out, cap, parsed.c, array, len(extras)),
    )


def headers_without(part: bytes, gone: Sequence[str]) -> bytes:
    parsed = parse(part)
    alive = [ffi.new("char[]", name.encode()) for name in gone]
    array = ffi.new("char *[]", alive)
    return rewritten(
        parsed,
        len(part) + 4,
        lambda out, cap: lib.om_headers_without(out, cap, parsed.c, array, len(gone)),
    )


def delayed(part: bytes) -> bytes:
    parsed = parse(part)
    return rewritten(
        parsed, len(part) + 16, lambda out, cap: lib.om_headers_delayed(out, cap, parsed.c)
    )


def without(properties: dict[str, Any], *gone: str) -> dict[str, Any]:
    headers = {
        key: value for key, value in properties.get("headers", {}).items() if key not in gone
    }
    rest = {key: value for key, value in properties.items() if key != "headers"}
    return {**rest, "headers": headers} if headers else rest


extras = st.lists(
    st.tuples(
        st.sampled_from(["x-delivery-count", "x-acquired-count", "x-stream-offset"]) | names,
        st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.text(max_size=20) | st.none(),
    ),
    max_size=4,
    unique_by=lambda extra: extra[0],
)


@given(some_properties, extras)
def test_headers_are_set_and_the_rest_stays(properties: dict[str, Any], new: list[Extra]) -> None:
    part = property_part(**properties)
    expected = without(read_properties(part), *(name for name, _ in new))
    added = {name: value for name, value in new if value is not None}
    if added:
        expected["headers"] = {**expected.get("headers", {}), **added}
    assert read_properties(headers_with(part, *new)) == expected


@given(some_properties, names, values, st.integers(0, 2**63 - 1))
def test_a_header_that_was_there_is_replaced(
    properties: dict[str, Any], name: str, value: Any, number: int
) -> None:
    headers = {**properties.get("headers", {}), name: value}
    part = property_part(**{**properties, "headers": headers})
    found = read_properties(headers_with(part, (name, number)))
    assert found["headers"] == {**read_properties(part)["headers"], name: number}


@given(some_properties, st.data())
def test_headers_are_taken_out(properties: dict[str, Any], data: st.DataObject) -> None:
    part = property_part(**properties)
    there = st.sampled_from([*properties.get("headers", {}), "BCC"])
    gone = data.draw(st.lists(there, max_size=3))
    assert read_properties(headers_without(part, gone)) == without(read_properties(part), *gone)


@given(some_properties)
def test_what_stays_keeps_its_bytes(properties: dict[str, Any]) -> None:
    part = property_part(**properties)
    if properties.get("headers") != {}:
        assert headers_without(part, ["no such header"]) == part
        assert headers_with(part) == part
        assert delayed(part) == part


def test_all_entries_of_a_name_go() -> None:
    table = b"\x03BCCV\x01aV\x03BCCt\x01"
    part = b"\x20\0" + struct.pack(">I", len(table)) + table
    assert headers_without(part, ["BCC"]) == b"\x20\0\0\0\0\x03\x01aV"
    assert headers_without(part, ["BCC", "a"]) == b"\0\0"


def test_further_flags_words_are_not_kept() -> None:
    part = struct.pack(">HHHB", 0x1000 | 1, 1, 0, 2)
    assert headers_without(part, []) == struct.pack(">HB", 0x1000, 2)


def test_a_type_that_can_not_be_set_is_refused() -> None:
    parsed = parse(b"\0\0")
    name = ffi.new("char[]", b"x")
    extra = ffi.new("om_extra *", {"name": name, "type": ord("F")})
    out = exact(bytes(99))
    assert lib.om_headers_with(out, 99, parsed.c, extra, 1) == lib.OM_E_INVALID


# ---- x-delay ---------------------------------------------------------------------------


def long(number: int) -> bytes:
    return b"l" + number.to_bytes(8, "big", signed=True)


def delay_of(part: bytes) -> int | None:
    out = ffi.new("int64_t *")
    parsed = parse(part)  # it holds the bytes that C looks at
    result = lib.om_delay_ms(parsed.c, out)
    assert result in (lib.OM_OK, lib.OM_END)
    return out[0] if result == lib.OM_OK else None


def part_with(delay: bytes) -> bytes:
    table = b"\x01aV\x07x-delay" + delay + b"\x01zV"
    return struct.pack(">HI", 0x3000, len(table)) + table + b"\x02"


@pytest.mark.parametrize(
    ("value", "delay"),
    [
        (b"b\x05", 5),
        (b"B\xff", 255),
        (b"s\x03\xe8", 1000),
        (b"I\0\0\x13\x88", 5000),
        (b"i\xff\xff\xff\xff", 2**32 - 1),
        (long(5000), 5000),
        (b"S\0\0\0\x045000", 5000),
        (b"f" + struct.pack(">f", 1500.75), 1500),
        (b"d" + struct.pack(">d", 1500.75), 1500),
    ],
)
def test_a_delay_is_a_number_of_any_type_and_negative_once_it_is_over(
    value: bytes, delay: int
) -> None:
    assert delay_of(part_with(value)) == delay
    assert delayed(part_with(value)) == part_with(long(-delay))
    assert delay_of(part_with(long(-delay))) == -delay


@pytest.mark.parametrize(
    "value",
    [
        b"V",
        b"t\x01",
        b"S\0\0\0\0",
        b"S\0\0\0\x025s",
        b"S\0\0\0\x14" + b"9" * 20,
        b"d" + struct.pack(">d", float("nan")),
        b"d" + struct.pack(">d", float("inf")),
        b"d" + struct.pack(">d", 1e30),
    ],
)
def test_what_is_no_number_is_no_delay(value: bytes) -> None:
    assert delay_of(part_with(value)) is None
    assert delayed(part_with(value)) == part_with(value)


def test_of_many_delays_the_first_counts_and_the_message_still_fits() -> None:
    """Each of them grew on its way: those that no longer fitted in cost the message."""
    more = b"\x07x-delayb\x01" * 20
    assert delay_of(part_with(b"b\x05" + more)) == 5
    assert delayed(part_with(b"b\x05" + more)) == part_with(long(-5) + more)
    assert delayed(part_with(b"V" + more)) == part_with(b"V" + more)


def test_a_message_without_the_header_has_no_delay() -> None:
    assert delay_of(b"\0\0") is None
    assert delayed(b"\0\0") == b"\0\0"


@pytest.mark.parametrize("value", [long(0), long(-7), b"s\xff\xff"])
def test_a_delay_that_is_over_stays_as_it_is(value: bytes) -> None:
    assert delayed(part_with(value)) == part_with(value)
