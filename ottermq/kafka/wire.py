"""The protocol's primitive types: reading them from untrusted bytes, writing them.

A reader checks each length and each count against the bytes that are left before it takes or
reserves anything, so a request can't cost much more memory than it has bytes. `budget` bounds the
elements of all arrays together: an element of one byte becomes an object of hundreds.

Lengths of strings, bytes and arrays come in two shapes: fixed (int16 or int32, -1 is null) and
compact (an unsigned varint of the length + 1, 0 is null).
"""

import struct
from uuid import UUID

from ottermq.errors import Malformed

MOST_ELEMENTS = 100_000
LONGEST_STRING = 32767  # bytes; compact lengths could say more, and Kafka refuses it, too

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_FLOAT64 = struct.Struct(">d")


class TooMany(Malformed):
    """Well-formed so far, but it has more elements than we take."""


class Reader:
    """Over one message; struct.error and UnicodeDecodeError leave it too and mean the same as
    Malformed: the caller (codec.py) makes one of them all."""

    __slots__ = ("at", "budget", "data", "end")

    def __init__(self, data: bytes, at: int = 0, budget: int = MOST_ELEMENTS) -> None:
        self.data = data
        self.at = at
        self.end = len(data)
        self.budget = budget

    @property
    def left(self) -> int:
        return self.end - self.at

    def boolean(self) -> bool:
        return self.int8() != 0

    def int8(self) -> int:
        value: int = _INT8.unpack_from(self.data, self.at)[0]
        self.at += 1
        return value

    def int16(self) -> int:
        value: int = _INT16.unpack_from(self.data, self.at)[0]
        self.at += 2
        return value

    def uint16(self) -> int:
        value: int = _UINT16.unpack_from(self.data, self.at)[0]
        self.at += 2
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack_from(self.data, self.at)[0]
        self.at += 4
        return value

    def int64(self) -> int:
        value: int = _INT64.unpack_from(self.data, self.at)[0]
        self.at += 8
        return value

    def float64(self) -> float:
        value: float = _FLOAT64.unpack_from(self.data, self.at)[0]
        self.at += 8
        return value

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            if self.at >= self.end:
                raise Malformed("cut short in a varint")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise Malformed("a varint of more than five bytes")
        if value >> 32:
            raise Malformed("a varint of more than 32 bits")
        return value

    def uuid(self) -> UUID:
        return UUID(bytes=self.take(16))

    def take(self, length: int) -> bytes:
        at = self.at
        if not 0 <= length <= self.end - at:
            raise Malformed(f"{length} bytes announced, {self.left} left")
        self.at = at + length
        return self.data[at : at + length]

    # -- lengths; -1: null

    def compact_length(self) -> int:
        return self.uvarint() - 1

    def compact_string_length(self) -> int:
        length = self.compact_length()
        if length > LONGEST_STRING:
            raise Malformed(f"a string of {length} bytes")
        return length

    def string(self) -> str:
        return str(self.take(self.int16()), "utf-8")

    def compact_string(self) -> str:
        return str(self.take(self.compact_string_length()), "utf-8")

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length == -1 else str(self.take(length), "utf-8")

    def compact_nullable_string(self) -> str | None:
        length = self.compact_string_length()
        return None if length == -1 else str(self.take(length), "utf-8")

    def octets(self) -> bytes:
        return self.take(self.int32())

    def compact_octets(self) -> bytes:
        return self.take(self.compact_length())

    def nullable_octets(self) -> bytes | None:
        length = self.int32()
        return None if length == -1 else self.take(length)

    def compact_nullable_octets(self) -> bytes | None:
        length = self.compact_length()
        return None if length == -1 else self.take(length)

    def allow(self, count: int, least: int) -> None:
        """An array of so many elements, each of `least` bytes or more, may be read."""
        if not 0 <= count <= self.left // least:
            raise Malformed(f"{count} elements announced, {self.left} bytes left")
        self.budget -= count
        if self.budget < 0:
            raise TooMany("more elements than a request may have")

    def tags(self) -> dict[int, bytes]:
        """Tagged fields in their raw form: each tag once, in rising order."""
        count = self.uvarint()
        self.allow(count, 2)
        found = {}
        last = -1
        for _ in range(count):
            tag = self.uvarint()
            if tag <= last:
                raise Malformed("tagged fields out of order")
            found[tag] = self.take(self.uvarint())
            last = tag
        return found


class Writer(bytearray):
    """Bytes that grow. What is out of a type's range is our own mistake: struct.error."""

    def boolean(self, value: bool) -> None:
        self.append(1 if value else 0)

    def int8(self, value: int) -> None:
        self += _INT8.pack(value)

    def int16(self, value: int) -> None:
        self += _INT16.pack(value)

    def uint16(self, value: int) -> None:
        self += _UINT16.pack(value)

    def int32(self, value: int) -> None:
        self += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self += _INT64.pack(value)

    def float64(self, value: float) -> None:
        self += _FLOAT64.pack(value)

    def uvarint(self, value: int) -> None:
        while value > 0x7F:
            self.append(value & 0x7F | 0x80)
            value >>= 7
        self.append(value)

    def uuid(self, value: UUID) -> None:
        self += value.bytes

    def string(self, value: str) -> None:
        raw = value.encode()
        self += _INT16.pack(len(raw))
        self += raw

    def compact_string(self, value: str) -> None:
        raw = value.encode()
        self.uvarint(len(raw) + 1)
        self += raw

    def nullable_string(self, value: str | None) -> None:
        if value is None:
            self += b"\xff\xff"
        else:
            self.string(value)

    def compact_nullable_string(self, value: str | None) -> None:
        if value is None:
            self.append(0)
        else:
            self.compact_string(value)

    def octets(self, value: bytes) -> None:
        self += _INT32.pack(len(value))
        self += value

    def compact_octets(self, value: bytes) -> None:
        self.uvarint(len(value) + 1)
        self += value

    def nullable_octets(self, value: bytes | None) -> None:
        if value is None:
            self += b"\xff\xff\xff\xff"
        else:
            self.octets(value)

    def compact_nullable_octets(self, value: bytes | None) -> None:
        if value is None:
            self.append(0)
        else:
            self.compact_octets(value)

    def tags(self, found: dict[int, bytes]) -> None:
        self.uvarint(len(found))
        for tag in sorted(found):
            self.uvarint(tag)
            self.uvarint(len(found[tag]))
            self += found[tag]
