"""Field tables: the bytes of a client's arguments and headers to Python's values.

pamqp decodes them too, but copies the rest of the table at each entry and follows any depth of
nesting: 128 KiB of small entries, or a thousand tables in one another, would hold up every other
connection's control methods. This reads each byte once and stops at a depth no client needs.

A name may come more than once: the first of them counts, as in RabbitMQ and as in C (table.c),
which decides by the same headers. Names that are not UTF-8 are bytes to C and RabbitMQ, so that a
message may have them; an argument may not.

| wire | Python            | wire  | Python                                      |
|------|-------------------|-------|---------------------------------------------|
| t    | bool              | S     | str; bytes when it isn't UTF-8              |
| I    | int               | x     | bytearray                                   |
| b B s u i l L | int that knows how it was sent (topology/values.py)        |
| f d  | float             | T     | datetime; int when no datetime can hold it  |
| D    | Decimal           | F A V | dict, list, None                            |
"""

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from ottermq.topology import values

DEPTH = 100
Table = dict[str, Any]
Reader = Callable[[bytes, int, int], tuple[Any, int]]  # (data, at, depth) → value, where it ends


class Malformed(ValueError):
    """Bytes that are no field table."""


def read_table(data: bytes, at: int = 0, any_names: bool = False) -> tuple[Table, int]:
    """The table that stands there, and where it ends. With `any_names` those that are no UTF-8
    come with surrogates, else they are refused."""
    try:
        table, end = _table(data, at, 0)
        if not any_names:
            _check_names(table)
        return table, end
    except (struct.error, KeyError, IndexError, UnicodeError) as error:
        raise Malformed(f"field table: {error}") from None


def _check_names(value: Any) -> None:
    if isinstance(value, dict):
        for name, inside in value.items():
            name.encode()
            _check_names(inside)
    elif isinstance(value, list):
        for inside in value:
            _check_names(inside)


def _number(layout: str, kind: Callable[[Any], Any] = int) -> Reader:
    number = struct.Struct(layout)
    return lambda data, at, _: (kind(number.unpack_from(data, at)[0]), at + number.size)


_LENGTH = struct.Struct(">I")


def _span(data: bytes, at: int) -> tuple[int, int]:
    """Start and end of a value that has its length before it."""
    start = at + 4
    end = start + _LENGTH.unpack_from(data, at)[0]
    if end > len(data):
        raise Malformed("field table: cut short")
    return start, end


def _table(data: bytes, at: int, depth: int) -> tuple[Table, int]:
    if depth > DEPTH:
        raise Malformed("field table: nested too deeply")
    at, end = _span(data, at)
    found: Table = {}
    while at < end:
        key_end = at + 1 + data[at]
        key = data[at + 1 : key_end].decode(errors="surrogateescape")
        value, at = _VALUES[data[key_end]](data, key_end + 1, depth + 1)
        found.setdefault(key, value)
    if at != end:
        raise Malformed("field table: an entry beyond its end")
    return found, end


def _array(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    if depth > DEPTH:
        raise Malformed("field table: nested too deeply")
    at, end = _span(data, at)
    found = []
    while at < end:
        value, at = _VALUES[data[at]](data, at + 1, depth + 1)
        found.append(value)
    if at != end:
        raise Malformed("field table: an entry beyond its end")
    return found, end


def _text(data: bytes, at: int, _: int) -> tuple[str | bytes, int]:
    start, end = _span(data, at)
    raw = data[start:end]
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        return raw, end


def _binary(data: bytes, at: int, _: int) -> tuple[bytearray, int]:
    start, end = _span(data, at)
    return bytearray(data[start:end]), end


def _timestamp(data: bytes, at: int, _: int) -> tuple[datetime | int, int]:
    (seconds,) = struct.unpack_from(">Q", data, at)
    try:
        return datetime.fromtimestamp(seconds, UTC), at + 8
    except (OverflowError, ValueError, OSError):
        return seconds, at + 8


def _decimal(data: bytes, at: int, _: int) -> tuple[Decimal, int]:
    scale, digits = struct.unpack_from(">Bi", data, at)
    return Decimal(digits).scaleb(-scale), at + 5


def _bool(data: bytes, at: int, _: int) -> tuple[bool, int]:
    return data[at] != 0, at + 1


_VALUES: dict[int, Reader] = {
    ord(kind): reader
    for kind, reader in {
        "t": _bool,
        "b": _number(">b", values.Byte),
        "B": _number(">B", values.UnsignedByte),
        "s": _number(">h", values.Short),
        "u": _number(">H", values.UnsignedShort),
        "I": _number(">i"),
        "i": _number(">I", values.UnsignedInt),
        "l": _number(">q", values.Long),
        "L": _number(">q", values.Long),
        "f": _number(">f", values.Single),
        "d": _number(">d", float),
        "D": _decimal,
        "S": _text,
        "A": _array,
        "T": _timestamp,
        "F": _table,
        "V": lambda _, at, __: (None, at),
        "x": _binary,
    }.items()
}
