"""Methods to bytes and back, by pamqp's tables of classes, fields and types.

Its own marshalling checks what the specification forbids (names, reserved fields) and what
RabbitMQ and its clients allow each other all the same; so the fields are walked here.
"""

import struct
from typing import Any

from pamqp import commands, encode
from pamqp.base import Frame

from ottermq.amqp import tables

FRAME_END = b"\xce"
TOLD = 256  # bytes of arguments that can't be decoded
_HEAD = struct.Struct(">BHI")
_IDS = struct.Struct(">I")

Method = type[Frame]
METHODS: dict[int, Method] = commands.INDEX_MAPPING
LAYOUTS = {
    index: [(name, method.amqp_type(name)) for name in method.attributes()]
    for index, method in METHODS.items()
}


class Malformed(ValueError):
    """Arguments that can't be those of that method."""


def encode_method(channel: int, method: Method, *values: Any) -> bytes:
    """The whole frame. `values`: all of its fields, in order."""
    payload = _fields(method, values)
    return _HEAD.pack(1, channel, len(payload)) + payload + FRAME_END


def _fields(method: Method, values: tuple[Any, ...]) -> bytes:
    out = [_IDS.pack(method.index)]
    bits = 0
    held = 0  # bits gathered for the octet they share
    for (_, kind), value in zip(LAYOUTS[method.index], values, strict=True):
        if kind == "bit":
            bits |= bool(value) << held
            held += 1
            continue
        if held:
            out.append(bytes([bits]))
            bits = held = 0
        if kind == "longstr" and isinstance(value, bytes):
            out.append(_IDS.pack(len(value)) + value)
        else:
            out.append(encode.by_type(value, kind))
    if held:
        out.append(bytes([bits]))
    return b"".join(out)


def decode_method(payload: bytes) -> Frame | None:
    """A method with its fields; long strings stay bytes. None: there is no such method."""
    try:
        (index,) = _IDS.unpack_from(payload)
        method = METHODS.get(index)
        if method is None:
            return None
        frame = method.__new__(method)  # its __init__ would check our fields' defaults
        at = 4
        bit = 0
        for name, kind in LAYOUTS[index]:
            if kind == "bit":
                setattr(frame, name, bool(payload[at] >> bit & 1))
                bit += 1
                continue
            if bit:
                at, bit = at + 1, 0
            value, at = _read(kind, payload, at)
            setattr(frame, name, value)
        if at + (bit > 0) != len(payload):
            raise Malformed
        return frame
    except UnicodeDecodeError:
        raise Malformed("Malformed UTF-8 in shortstr") from None
    except (struct.error, IndexError, Malformed, tables.Malformed):
        # As Erlang writes them; of a long one, more than a reply has room for.
        told = ",".join(map(str, payload[4 : 4 + TOLD]))
        raise Malformed(f"cannot decode <<{told}>>") from None


def _read(kind: str, data: bytes, at: int) -> tuple[Any, int]:
    if kind == "shortstr":
        end = at + 1 + data[at]
        if end > len(data):
            raise Malformed
        return data[at + 1 : end].decode(), end
    if kind == "table":
        return tables.read_table(data, at)
    if kind == "longstr":
        end = at + 4 + _IDS.unpack_from(data, at)[0]
        if end > len(data):
            raise Malformed
        return data[at + 4 : end], end
    number = _NUMBERS[kind]
    return number.unpack_from(data, at)[0], at + number.size


_NUMBERS = {
    "octet": struct.Struct(">B"),
    "short": struct.Struct(">H"),
    "long": struct.Struct(">I"),
    "longlong": struct.Struct(">Q"),
}


def name_of(index: int) -> str:
    """`queue.declare`, for logs."""
    method = METHODS.get(index)
    return method.name.lower() if method else f"{index >> 16}.{index & 0xFFFF}"


_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS, _MORE_FLAGS = 1 << 15, 1 << 14, 1 << 13, 1


def headers_of(properties: bytes) -> tables.Table:
    """The headers in a content header's flags and values; none when they can't be read."""
    try:
        flags = more = int.from_bytes(properties[:2], "big")
        at = 2
        while more & _MORE_FLAGS:
            more = int.from_bytes(properties[at : at + 2], "big")
            at += 2
        for short_string in (_CONTENT_TYPE, _CONTENT_ENCODING):
            if flags & short_string:
                at += 1 + properties[at]
        return tables.read_table(properties, at, any_names=True)[0] if flags & _HEADERS else {}
    except (IndexError, tables.Malformed):
        return {}
