"""Message bodies made up by the tables: what hypothesis sends through the codec."""

from typing import Any

from hypothesis import strategies as st

from ottermq.kafka.api import Api
from ottermq.kafka.codec import TAGS
from ottermq.kafka.request import Body
from ottermq.kafka.schema import MESSAGES, Field

PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.uuids(),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    "bytes": st.binary(max_size=20),
    "records": st.none() | st.binary(max_size=20),
}
VERSIONS = [
    (api, version)
    for api, message in sorted(MESSAGES.items())
    for version in range(message.versions[0], message.versions[1] + 1)
]
UNKNOWN_TAGS = st.dictionaries(st.integers(100, 2**32 - 1), st.binary(max_size=5), max_size=2)


def bodies(api: Api, version: int, response: bool) -> st.SearchStrategy[Body]:
    message = MESSAGES[api]
    fields = message.response if response else message.request
    return structs(fields, version, message.is_flexible(version))


def structs(fields: tuple[Field, ...], version: int, flexible: bool) -> st.SearchStrategy[Body]:
    here = {
        field.name: values(field, version, flexible)
        for field in fields
        if version in field.versions
    }
    strategy: st.SearchStrategy[Body] = st.fixed_dictionaries(here)
    if flexible:
        tagged = st.tuples(strategy, UNKNOWN_TAGS)
        strategy = tagged.map(lambda pair: {**pair[0], TAGS: pair[1]} if pair[1] else pair[0])
    return strategy


def values(field: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    one = structs(field.fields, version, flexible) if field.fields else PLAIN[field.type]
    if field.is_array:
        one = st.lists(one, max_size=3)
    return st.none() | one if version in field.nullable else one


def without_defaults(body: Any, example: Any) -> Any:
    """`body` with the fields that `example` has: decoding adds those that the version lacks."""
    if isinstance(body, dict) and isinstance(example, dict):
        return {name: without_defaults(body[name], value) for name, value in example.items()}
    if isinstance(body, list) and isinstance(example, list) and len(body) == len(example):
        return [without_defaults(*pair) for pair in zip(body, example, strict=True)]
    return body
