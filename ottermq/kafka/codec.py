"""Messages to dicts and back, by the tables in schema/: each table and version is compiled once
into a reader and a writer, on first use.

    request = decode_request(conn, payload)      # payload: without its size
    answer = encode_response(request, body)      # answer: whole, with its size

Bytes from the wire raise Malformed, or TooLarge when a message has more than we take;
UnknownVersion is for an API or a version without a table.

A struct is a dict of its fields. Unknown tagged fields are kept, raw, under TAGS and written
again.
"""

import struct
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from ottermq.errors import Malformed
from ottermq.kafka.api import Api
from ottermq.kafka.request import Body, Connection, Request
from ottermq.kafka.schema import MESSAGES, Field
from ottermq.kafka.wire import MOST_ELEMENTS, Reader, TooMany, Writer

TAGS = "_tags"
Read = Callable[[Reader], Any]
Write = Callable[[Writer, Any], None]

# Of all arrays of a request together, where each costs a look at permissions or a page of answer;
# others have MOST_ELEMENTS.
NAMES = 10_000
ELEMENTS: dict[Api, int] = {
    Api.FIND_COORDINATOR: NAMES,
    Api.DESCRIBE_CONFIGS: NAMES,
    Api.ALTER_CONFIGS: NAMES,
    Api.INCREMENTAL_ALTER_CONFIGS: NAMES,
    Api.DESCRIBE_GROUPS: NAMES,
    Api.LIST_GROUPS: NAMES,
    Api.DELETE_GROUPS: NAMES,
    Api.LEAVE_GROUP: NAMES,
    Api.SYNC_GROUP: NAMES,
    Api.JOIN_GROUP: 1000,
    Api.CREATE_ACLS: NAMES,
    Api.DELETE_ACLS: NAMES,
    Api.DELETE_TOPICS: NAMES,
    Api.DESCRIBE_TRANSACTIONS: NAMES,
    Api.LIST_TRANSACTIONS: NAMES,
    Api.DESCRIBE_CLIENT_QUOTAS: NAMES,
    Api.ALTER_CLIENT_QUOTAS: NAMES,
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: NAMES,
    Api.ALTER_USER_SCRAM_CREDENTIALS: NAMES,
    Api.ALTER_REPLICA_LOG_DIRS: NAMES,
    Api.ELECT_LEADERS: NAMES,
    Api.ALTER_PARTITION_REASSIGNMENTS: NAMES,
    Api.LIST_PARTITION_REASSIGNMENTS: NAMES,
    Api.DESCRIBE_QUORUM: NAMES,
    Api.UPDATE_FEATURES: NAMES,
    Api.LIST_CONFIG_RESOURCES: NAMES,
}
LONGEST_TEXT = 1000  # characters of an error's
FIXED_SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8, "float64": 8, "uuid": 16
}  # fmt: skip


class UnknownVersion(Exception):
    """Well-formed as far as its header, which is all we can read of it."""

    def __init__(self, api: int, version: int, correlation: int, client_id: str | None) -> None:
        super().__init__(f"API {api} version {version}")
        self.api = api
        self.version = version
        self.correlation = correlation
        self.client_id = client_id


class TooLarge(Malformed):
    """A request of more elements than are taken at a time; what is known of it is its header."""

    def __init__(self, request: Request) -> None:
        super().__init__(f"more than {ELEMENTS.get(request.api, MOST_ELEMENTS)} elements")
        self.request = request


def decode_request(conn: Connection, payload: bytes) -> Request:
    reader = Reader(payload)
    try:
        api, version, correlation = reader.int16(), reader.int16(), reader.int32()
        client_id = reader.nullable_string()
        if not is_known(api, version):
            raise UnknownVersion(api, version, correlation, client_id)
        message = MESSAGES[Api(api)]
        reader.budget = ELEMENTS.get(message.api, MOST_ELEMENTS)
        if message.is_flexible(version):
            reader.tags()
        body = reader_of(message.api, version, False)(reader)
    except TooMany:
        raise TooLarge(Request(conn, message.api, version, correlation, client_id, {})) from None
    except (struct.error, UnicodeDecodeError) as error:
        raise Malformed(f"request: {error}") from None
    return Request(conn, message.api, version, correlation, client_id, body)


def encode_response(request: Request, body: Body | bytes) -> bytes:
    return encode_answer(request.api, request.version, request.correlation, body)


def encode_answer(api: Api, version: int, correlation: int, body: Body | bytes) -> bytes:
    writer = Writer(4)
    writer.int32(correlation)
    # The header of ApiVersions has no tags in any version: a client that gets one doesn't know yet
    # which version we speak.
    if MESSAGES[api].is_flexible(version) and api is not Api.API_VERSIONS:
        writer.uvarint(0)
    if isinstance(body, bytes):
        writer += body
    else:
        writer_of(api, version, True)(writer, body)
    return _sized(writer)


def encode_body(api: Api, version: int, body: Body) -> bytes:
    """Of a response, for the response cache."""
    writer = Writer()
    writer_of(api, version, True)(writer, body)
    return bytes(writer)


def encode_request(
    api: Api, version: int, correlation: int, client_id: str | None, body: Body
) -> bytes:
    """As a client does."""
    writer = Writer(4)
    writer.int16(api)
    writer.int16(version)
    writer.int32(correlation)
    writer.nullable_string(client_id)
    if MESSAGES[api].is_flexible(version):
        writer.uvarint(0)
    writer_of(api, version, False)(writer, body)
    return _sized(writer)


def decode_response(api: Api, version: int, payload: bytes) -> tuple[int, Body]:
    """As a client does: the correlation id and the body."""
    reader = Reader(payload)
    try:
        correlation = reader.int32()
        if MESSAGES[api].is_flexible(version) and api is not Api.API_VERSIONS:
            reader.tags()
        body: Body = reader_of(api, version, True)(reader)
    except (struct.error, UnicodeDecodeError) as error:
        raise Malformed(f"response: {error}") from None
    return correlation, body


def is_known(api: int, version: int) -> bool:
    """Is there a table for it?"""
    if api not in MESSAGES:
        return False
    first, last = MESSAGES[Api(api)].versions
    return first <= version <= last


def has_error_code(api: Api, version: int) -> bool:
    """Can a response say in one place that the whole request failed?"""
    return any(
        field.name == "error_code" and version in field.versions for field in MESSAGES[api].response
    )


def error_body(api: Api, version: int, code: int, text: str | None = None) -> Body:
    """A response that says just that."""
    body: Body = {"error_code": code}
    if any(field.name == "error_message" for field in MESSAGES[api].response):
        body["error_message"] = text
    return body


def _sized(writer: Writer) -> bytes:
    writer[:4] = (len(writer) - 4).to_bytes(4, "big")
    return bytes(writer)


# -- compiling


@cache
def reader_of(api: Api, version: int, response: bool) -> Read:
    message = MESSAGES[api]
    fields = message.response if response else message.request
    return _struct_reader(fields, version, message.is_flexible(version))


@cache
def writer_of(api: Api, version: int, response: bool) -> Write:
    message = MESSAGES[api]
    fields = message.response if response else message.request
    return _struct_writer(fields, version, message.is_flexible(version))


def _struct_reader(fields: tuple[Field, ...], version: int, flexible: bool) -> Read:
    steps = []
    defaults: list[tuple[str, Any]] = []  # of what isn't there, and can't be changed
    made = []  # and of what can
    tagged = {}
    for field in fields:
        if version in field.versions and field.tag is None:
            steps.append((field.name, _value_reader(field, version, flexible)))
            continue
        if version in field.versions and field.tag is not None:
            tagged[field.tag] = field.name, _value_reader(field, version, flexible)
        default = _default(field)
        if isinstance(default, list | dict):
            made.append(field)
        else:
            defaults.append((field.name, default))

    def read(reader: Reader) -> Body:
        body = dict(defaults)
        for each in made:
            body[each.name] = _default(each)
        for name, value in steps:
            body[name] = value(reader)
        if flexible:
            unknown = {}
            for tag, raw in reader.tags().items():
                if tag in tagged:
                    name, value = tagged[tag]
                    inner = Reader(raw)
                    inner.budget = reader.budget
                    body[name] = value(inner)
                    reader.budget = inner.budget
                else:
                    unknown[tag] = raw
            if unknown:
                body[TAGS] = unknown
        return body

    return read


def _value_reader(field: Field, version: int, flexible: bool) -> Read:
    nullable = version in field.nullable
    if not field.is_array:
        if not field.fields:
            read: Read = getattr(Reader, _method(field.type, nullable, flexible))
            return read
        inner = _struct_reader(field.fields, version, flexible)
        return _nullable_struct_reader(inner) if nullable else inner
    if field.fields:
        one = _struct_reader(field.fields, version, flexible)
    else:
        one = getattr(Reader, _method(field.type, False, flexible))
    return _array_reader(one, _least(field, version, flexible), nullable, flexible)


def _nullable_struct_reader(inner: Read) -> Read:
    return lambda reader: None if reader.int8() < 0 else inner(reader)


def _array_reader(one: Read, least: int, nullable: bool, flexible: bool) -> Read:
    length: Read = Reader.compact_length if flexible else Reader.int32

    def read(reader: Reader) -> list[Any] | None:
        count = length(reader)
        if count == -1 and nullable:
            return None
        reader.allow(count, least)
        return [one(reader) for _ in range(count)]

    return read


def _struct_writer(fields: tuple[Field, ...], version: int, flexible: bool) -> Write:
    known = {field.name for field in fields} | {TAGS}
    here = [field for field in fields if version in field.versions]
    steps = [
        (field.name, _default(field), _value_writer(field, version, flexible))
        for field in here
        if field.tag is None
    ]
    tagged = [
        (field.tag, field.name, _default(field), _value_writer(field, version, flexible))
        for field in here
        if field.tag is not None
    ]

    def write(writer: Writer, body: Body) -> None:
        if not known.issuperset(body):
            raise KeyError(f"no such field: {', '.join(sorted(body.keys() - known))}")
        for name, default, value in steps:
            value(writer, body.get(name, default))
        if flexible:
            tags: dict[int, bytes] = dict(body.get(TAGS, ()))
            for tag, name, default, value in tagged:
                wanted = body.get(name, default)
                if not _same(wanted, default):
                    inner = Writer()
                    value(inner, wanted)
                    tags[tag] = bytes(inner)
            writer.tags(tags)

    return write


def _same(value: Any, default: Any) -> bool:
    """A tagged field that is as by default isn't sent."""
    if isinstance(default, dict) and isinstance(value, dict):
        return all(_same(value.get(name, each), each) for name, each in default.items())
    return bool(value == default) or (isinstance(default, list) and value is not None and not value)


def _value_writer(field: Field, version: int, flexible: bool) -> Write:
    nullable = version in field.nullable
    if not field.is_array:
        if not field.fields:
            write: Write = getattr(Writer, _method(field.type, nullable, flexible))
            return _text_writer(write) if field.name == "error_message" else write
        inner = _struct_writer(field.fields, version, flexible)
        return _nullable_struct_writer(inner) if nullable else inner
    if field.fields:
        one = _struct_writer(field.fields, version, flexible)
    else:
        one = getattr(Writer, _method(field.type, False, flexible))
    return _array_writer(one, nullable, flexible)


def _text_writer(write: Write) -> Write:
    """An error text may quote a client's bytes, and be longer than a string can be."""
    return lambda writer, text: write(writer, text if text is None else text[:LONGEST_TEXT])


def _nullable_struct_writer(inner: Write) -> Write:
    def write(writer: Writer, value: Body | None) -> None:
        writer.int8(-1 if value is None else 1)
        if value is not None:
            inner(writer, value)

    return write


def _array_writer(one: Write, nullable: bool, flexible: bool) -> Write:
    def write(writer: Writer, value: Iterable[Any] | None) -> None:
        if value is None:
            if not nullable:
                raise TypeError("None for an array that can't be null")
            count = -1
        else:
            value = list(value)
            count = len(value)
        if flexible:
            writer.uvarint(count + 1)
        else:
            writer.int32(count)
        for each in value or ():
            one(writer, each)

    return write


def _method(type: str, nullable: bool, flexible: bool) -> str:
    """The name of the Reader's and the Writer's method for a type that isn't a struct."""
    if type == "bool":
        return "boolean"
    if type not in ("string", "bytes", "records"):
        return type
    # Records are always nullable: an empty answer of a fetch is null in some brokers' answers.
    name = "string" if type == "string" else "octets"
    name = f"nullable_{name}" if nullable or type == "records" else name
    return f"compact_{name}" if flexible else name


def _least(field: Field, version: int, flexible: bool) -> int:
    """The fewest bytes that one element of that array can have."""
    return max(_least_of(field, version, flexible, element=True), 1)


def _least_of(field: Field, version: int, flexible: bool, element: bool = False) -> int:
    if field.is_array and not element:
        return 1 if flexible else 4
    if field.fields:
        if version in field.nullable and not element:
            return 1
        inner = (f for f in field.fields if version in f.versions and f.tag is None)
        return sum(_least_of(each, version, flexible) for each in inner) + flexible
    if field.type in FIXED_SIZES:
        return FIXED_SIZES[field.type]
    return 1 if flexible else 2 if field.type == "string" else 4


def _default(field: Field) -> Any:
    if field.default == () and field.is_array:
        return []
    if field.default == {} and field.fields:
        return {each.name: _default(each) for each in field.fields}
    return field.default
