"""How a message is written down: its fields in their order, and the versions that have them.

    field("topics", [field("name", "string"), field("partitions", ["int32"])], "2+", nullable="4+")

The type is a name ("int32", "string", "uuid", "records", …), a list for an array (of one type or
of structs) or a tuple for a struct. Versions are "2+", "2-7" or "3"; none means all that the
struct around it has. `nullable` is the same, or True. A field with a tag travels only in flexible
versions, and only when it isn't what it is by default. Names are those of Kafka's own definitions,
in snake_case.

Decoding gives a dict with every field in it, those that the version lacks by their default;
encoding takes the default for what a dict lacks and leaves out what the version has no place for.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ottermq.kafka.api import Api

NO_UUID = UUID(int=0)
LAST = 32767

PLAIN_DEFAULTS: dict[str, Any] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "int64": 0,
    "float64": 0.0,
    "uuid": NO_UUID,
    "string": "",
    "bytes": b"",
    "records": None,
}


@dataclass(frozen=True)
class Range:
    first: int = 0
    last: int = LAST

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


NEVER = Range(1, 0)
EVER = Range()


@dataclass(frozen=True)
class Field:
    name: str
    type: str  # of the value, or of an array's elements; "struct" when it has fields
    is_array: bool
    fields: tuple["Field", ...]
    versions: Range
    nullable: Range
    default: Any
    tag: int | None


@dataclass(frozen=True)
class Message:
    """A request and its response. Versions from `flexible` on have compact lengths and tags."""

    api: Api
    versions: tuple[int, int]
    flexible: int | None
    request: tuple[Field, ...]
    response: tuple[Field, ...]

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible


Type = str | list[str] | list[Field] | tuple[Field, ...]


def field(
    name: str,
    type: Type,
    versions: str = "0+",
    *,
    nullable: str | bool = False,
    default: Any = ...,
    tag: int | None = None,
) -> Field:
    is_array = isinstance(type, list)
    one = "struct"
    fields: tuple[Field, ...] = ()
    if isinstance(type, str):
        one = type
    elif isinstance(type[0], str):
        one = type[0]
    else:
        fields = tuple(each for each in type if isinstance(each, Field))
    if default is ...:
        default = () if is_array else {} if fields else PLAIN_DEFAULTS[one]
    if isinstance(nullable, bool):
        nulls = EVER if nullable else NEVER
    else:
        nulls = _range(nullable)
    return Field(name, one, is_array, fields, _range(versions), nulls, default, tag)


def _range(text: str) -> Range:
    if text.endswith("+"):
        return Range(int(text[:-1]))
    first, _, last = text.partition("-")
    return Range(int(first), int(last or first))
