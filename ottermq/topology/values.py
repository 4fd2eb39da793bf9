"""Field-table values as the topology sees them: their AMQP kind, their print, their identity.

Arguments arrive as Python's values. A number may remember how it was sent (`Byte`, `Long`); one
that doesn't, as after a restart, counts as `signedint` if it fits 32 bits and as `long` if not.
That shows in error texts only: RabbitMQ compares integers of all widths by value.
"""

import base64
import json
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

Table = Mapping[str, Any]
NONE: Table = {}


class Sent(int):
    """An integer as the client sent it."""

    kind = "long"


class Byte(Sent):
    kind = "byte"


class UnsignedByte(Sent):
    kind = "unsignedbyte"


class Short(Sent):
    kind = "short"


class UnsignedShort(Sent):
    kind = "unsignedshort"


class UnsignedInt(Sent):
    kind = "unsignedint"


class Long(Sent):
    kind = "long"


class Single(float):
    """A number of 32 bits with a point."""


def kind_of(value: object) -> str:
    """As RabbitMQ calls it."""
    match value:
        case None:
            return "void"
        case bool():
            return "bool"
        case Sent():
            return value.kind
        case int():
            return "signedint" if -(1 << 31) <= value < 1 << 31 else "long"
        case str() | bytes():
            return "longstr"
        case Single():
            return "float"
        case float():
            return "double"
        case Decimal():
            return "decimal"
        case datetime():
            return "timestamp"
        case bytearray():
            return "binary"
        case Mapping():
            return "table"
        case _:
            return "array"


def shown(value: object) -> str:
    """As RabbitMQ prints it: text as it is, the rest as Erlang would."""
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "undefined"
        case bytes() | bytearray():
            return value.decode("utf-8", "replace")
        case datetime():
            return str(int(value.timestamp()))
        case _:
            return str(value)


def binary(text: str) -> str:
    """As Erlang prints a text that it holds as bytes."""
    return f'<<"{text}">>' if text else "<<>>"


def frozen(value: object) -> Hashable:
    """Equal for what is the same value of the same kind, and hashable: 1, 1.0 and true differ."""
    match value:
        case Mapping():
            return ("table", frozenset((key, frozen(item)) for key, item in value.items()))
        case list() | tuple():
            return ("array", tuple(frozen(item) for item in value))
        case str():
            return value
        case bytes() | bytearray():
            return bytes(value)
        case Sent():
            return (int, int(value))
        case Single():
            return (float, float(value))
        case _:
            return (type(value), value)


def same(one: object, other: object) -> bool:
    return one is other or frozen(one) == frozen(other)


# -- JSON, for meta.db: what it has no word for is an object with one key that no table has

_TAG = "\0"


def dump(value: object) -> str:
    return json.dumps(value, default=_tagged, sort_keys=True, separators=(",", ":"))


def load(text: str) -> Any:
    return {} if text == "{}" else json.loads(text, object_hook=_untagged)


def _tagged(value: object) -> dict[str, list[str]]:
    match value:
        case bytearray():
            return {_TAG: ["binary", base64.b64encode(value).decode()]}
        case bytes():
            return {_TAG: ["bytes", base64.b64encode(value).decode()]}
        case Decimal():
            return {_TAG: ["decimal", str(value)]}
        case datetime():
            return {_TAG: ["timestamp", str(value.timestamp())]}
        case _:
            raise TypeError(f"not a field-table value: {value!r}")


def _untagged(table: dict[str, Any]) -> Any:
    if _TAG not in table:
        return table
    kind, text = table[_TAG]
    match kind:
        case "binary":
            return bytearray(base64.b64decode(text))
        case "bytes":
            return base64.b64decode(text)
        case "decimal":
            return Decimal(text)
        case _:
            return datetime.fromtimestamp(float(text), UTC)
