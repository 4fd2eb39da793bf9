"""The JSON of a definitions file, checked: every mistake is reported, with its place.

    queues[3]: durable must be true or false, not "yes"

Unknown keys of an object are ignored, as RabbitMQ does: files from all its versions are loaded. A
section that RabbitMQ doesn't know is a slip of the pen and refused.
"""

import difflib
import json
from collections.abc import Callable
from typing import Any, TypeVar

from ottermq.definitions.records import (
    BindingRecord,
    Definitions,
    DefinitionsError,
    ExchangeRecord,
    GlobalParameterRecord,
    ParameterRecord,
    PermissionRecord,
    QueueRecord,
    TopicPermissionRecord,
    UserRecord,
    VHostRecord,
)
from ottermq.errors import InvalidRequest
from ottermq.topology.policy import Policy
from ottermq.topology.sql import OPERATOR_POLICY, POLICY
from ottermq.topology.topology import QUEUE_TYPE
from ottermq.topology.vhost import VHostOptions

T = TypeVar("T")
VHOST_LIMITS = "vhost-limits"
_KINDS: dict[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a number",
    dict: "an object",
    list: "a list",
}
_MISSING: Any = object()


class _Wrong(Exception):
    """One line."""


class _Item:
    """An object of the file, asked for its fields."""

    def __init__(self, fields: Any) -> None:
        if not isinstance(fields, dict):
            raise _Wrong(f"must be an object, not {_shown(fields)}")
        self.fields: dict[str, Any] = fields

    def get(self, name: str, kind: type[T], default: T = _MISSING) -> T:
        value = self.fields.get(name, _MISSING)
        if value is _MISSING or (value is None and default is not _MISSING):
            if default is _MISSING:
                raise _Wrong(f"{name} is missing")
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise _Wrong(f"{name} must be {_KINDS[kind]}, not {_shown(value)}")
        return value

    def text(self, name: str) -> str:
        return self.get(name, str)

    def maybe_text(self, name: str) -> str | None:
        return self.get(name, str, "") if self.fields.get(name) is not None else None

    def flag(self, name: str, default: bool) -> bool:
        return self.get(name, bool, default)

    def table(self, name: str) -> dict[str, Any]:
        """Old versions wrote an empty one as an empty list, and operator policies as pairs."""
        match self.fields.get(name):
            case list(pairs) if all(_is_pair(pair) for pair in pairs):
                return dict(pairs)
        return self.get(name, dict, {})

    def tags(self) -> tuple[str, ...]:
        """A list, or a text with commas as old versions had it."""
        tags = self.fields.get("tags") or []
        if isinstance(tags, str):
            tags = tags.split(",")
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise _Wrong(f"tags must be a list of texts, not {_shown(tags)}")
        return tuple(tag.strip() for tag in tags if tag.strip())

    def limits(self, name: str) -> dict[str, int]:
        limits = self.table(name)
        for key, most in limits.items():
            if not isinstance(most, int) or isinstance(most, bool):
                raise _Wrong(f"{name}: {key} must be a number, not {_shown(most)}")
        return limits


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def parse(text: str | bytes) -> Definitions:
    """DefinitionsError: all that is wrong with it."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DefinitionsError([f"not JSON: {error}"]) from None
    if not isinstance(whole, dict):
        raise DefinitionsError(["must be a JSON object"])
    errors = [_unknown(section) for section in whole if section not in KNOWN]
    found: dict[str, tuple[Any, ...]] = {}
    for section, read in _SECTIONS.items():
        found[section] = tuple(_read_all(whole, section, read, errors))
    if errors:
        raise DefinitionsError(errors)
    return _sorted_out(found, frozenset(whole))


def _unknown(section: str) -> str:
    near = difflib.get_close_matches(section, KNOWN, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_SECTIONS)}"
    return f"no section {_shown(section)}: {hint}"


def _read_all(
    whole: dict[str, Any], section: str, read: Callable[[_Item], T], errors: list[str]
) -> list[T]:
    listed = whole.get(section)
    if listed is None:
        return []
    if not isinstance(listed, list):
        errors.append(f"{section} must be a list, not {_shown(listed)}")
        return []
    records = []
    for at, fields in enumerate(listed):
        try:
            records.append(read(_Item(fields)))
        except (_Wrong, InvalidRequest) as error:
            errors.append(f"{section}[{at}]: {error}")
    return records


def _sorted_out(found: dict[str, tuple[Any, ...]], sections: frozenset[str]) -> Definitions:
    """Policies of operators and limits of vhosts come among the parameters."""
    parameters = found.pop("parameters")
    policies = [each for each in parameters if isinstance(each, Policy)]
    limits = [each for each in parameters if isinstance(each, VHostRecord)]
    plain = [each for each in parameters if isinstance(each, ParameterRecord)]
    return Definitions(
        users=found["users"],
        vhosts=(*found["vhosts"], *limits),
        permissions=found["permissions"],
        topic_permissions=found["topic_permissions"],
        parameters=tuple(plain),
        global_parameters=found["global_parameters"],
        policies=(*found["policies"], *policies),
        exchanges=found["exchanges"],
        queues=found["queues"],
        bindings=found["bindings"],
        sections=sections,
    )


# -- one reader per section


def _user(item: _Item) -> UserRecord:
    return UserRecord(
        name=item.text("name"),
        tags=item.tags(),
        password=item.maybe_text("password"),
        password_hash=item.maybe_text("password_hash"),
        hashing_algorithm=item.maybe_text("hashing_algorithm"),
        limits=item.limits("limits"),
    )


def _vhost(item: _Item) -> VHostRecord:
    metadata = _Item(item.table("metadata"))
    default = item.maybe_text("default_queue_type") or metadata.maybe_text("default_queue_type")
    options = VHostOptions(
        description=item.maybe_text("description") or metadata.maybe_text("description") or "",
        tags=item.tags() or metadata.tags(),
        default_queue_type=None if default in (None, "", "undefined") else default,
    )
    return VHostRecord(item.text("name"), options, {})


def _permission(item: _Item) -> PermissionRecord:
    return PermissionRecord(
        item.text("user"),
        item.text("vhost"),
        item.text("configure"),
        item.text("write"),
        item.text("read"),
    )


def _topic_permission(item: _Item) -> TopicPermissionRecord:
    return TopicPermissionRecord(
        item.text("user"),
        item.text("vhost"),
        item.text("exchange"),
        item.text("write"),
        item.text("read"),
    )


def _parameter(item: _Item) -> ParameterRecord | Policy | VHostRecord:
    component, vhost, name = item.text("component"), item.text("vhost"), item.text("name")
    if component in (POLICY, OPERATOR_POLICY):
        value = _Item(item.get("value", dict))
        return _policy_of(vhost, name, value, operator=component == OPERATOR_POLICY)
    if component == VHOST_LIMITS:
        return VHostRecord(vhost, VHostOptions(), item.limits("value"))
    if "value" not in item.fields:
        raise _Wrong("value is missing")
    return ParameterRecord(vhost, component, name, item.fields["value"])


def _global_parameter(item: _Item) -> GlobalParameterRecord:
    if "value" not in item.fields:
        raise _Wrong("value is missing")
    return GlobalParameterRecord(item.text("name"), item.fields["value"])


def _policy(item: _Item) -> Policy:
    return _policy_of(item.text("vhost"), item.text("name"), item, operator=False)


def _policy_of(vhost: str, name: str, item: _Item, *, operator: bool) -> Policy:
    return Policy(
        vhost=vhost,
        name=name,
        pattern=item.text("pattern"),
        definition=item.table("definition"),
        priority=item.get("priority", int, 0),
        apply_to=item.get("apply-to", str, "all"),
        operator=operator,
    )


def _exchange(item: _Item) -> ExchangeRecord:
    return ExchangeRecord(
        vhost=item.text("vhost"),
        name=item.text("name"),
        type=item.text("type"),
        durable=item.flag("durable", True),
        auto_delete=item.flag("auto_delete", False),
        internal=item.flag("internal", False),
        arguments=item.table("arguments"),
    )


def _queue(item: _Item) -> QueueRecord:
    arguments = item.table("arguments")
    type = item.maybe_text("type")
    if type and type != "classic":
        arguments = {QUEUE_TYPE: type, **arguments}
    return QueueRecord(
        vhost=item.text("vhost"),
        name=item.text("name"),
        durable=item.flag("durable", True),
        auto_delete=item.flag("auto_delete", False),
        arguments=arguments,
    )


def _binding(item: _Item) -> BindingRecord:
    kind = item.get("destination_type", str, "queue")
    if kind not in ("queue", "exchange"):
        raise _Wrong(f'destination_type must be queue or exchange, not "{kind}"')
    return BindingRecord(
        vhost=item.text("vhost"),
        source=item.text("source"),
        destination=item.text("destination"),
        to_exchange=kind == "exchange",
        key=item.get("routing_key", str, ""),
        arguments=item.table("arguments"),
    )


_SECTIONS: dict[str, Callable[[_Item], Any]] = {
    "users": _user,
    "vhosts": _vhost,
    "permissions": _permission,
    "topic_permissions": _topic_permission,
    "parameters": _parameter,
    "global_parameters": _global_parameter,
    "policies": _policy,
    "exchanges": _exchange,
    "queues": _queue,
    "bindings": _binding,
}
# What RabbitMQ writes beside them, of the broker or of the one vhost that was exported.
_HEADER = (
    "rabbit_version",
    "rabbitmq_version",
    "rabbitmq_definition_format",
    "product_name",
    "product_version",
    "original_cluster_name",
    "original_vhost_name",
    "explanation",
    "metadata",
    "description",
    "default_queue_type",
    "limits",
    "tags",
)
KNOWN = (*_SECTIONS, *_HEADER)
