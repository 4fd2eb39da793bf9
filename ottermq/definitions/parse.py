"""The JSON of a definitions file, checked: every mistake is reported, with its place.

    queues[3]: durable must be true or false, not "yes"

Unknown keys of an object are ignored, as RabbitMQ does: files from all its versions are loaded. A
section that RabbitMQ doesn't know is a slip of the pen and refused.
"""

import difflib
import json
from collections.abc import Callable
from typing import Any, TypeVar

from ottermq.definitions.fields import Item, Wrong, shown
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


def parse(text: str | bytes) -> Definitions:
    """DefinitionsError: all that is wrong with it."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DefinitionsError([f"not JSON: {error}"]) from None
    return read(whole)


def read(whole: Any) -> Definitions:
    """The same from JSON that was decoded already."""
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
    return f"no section {shown(section)}: {hint}"


def _read_all(
    whole: dict[str, Any], section: str, read: Callable[[Item], T], errors: list[str]
) -> list[T]:
    listed = whole.get(section)
    if listed is None:
        return []
    if not isinstance(listed, list):
        errors.append(f"{section} must be a list, not {shown(listed)}")
        return []
    records = []
    for at, fields in enumerate(listed):
        try:
            records.append(read(Item(fields)))
        except (Wrong, InvalidRequest) as error:
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


def user_of(item: Item) -> UserRecord:
    return UserRecord(
        name=item.text("name"),
        tags=item.tags(),
        password=item.maybe_text("password"),
        password_hash=item.maybe_text("password_hash"),
        hashing_algorithm=item.maybe_text("hashing_algorithm"),
        limits=item.limits("limits"),
    )


def vhost_of(item: Item) -> VHostRecord:
    metadata = Item(item.table("metadata"))
    default = item.maybe_text("default_queue_type") or metadata.maybe_text("default_queue_type")
    options = VHostOptions(
        description=item.maybe_text("description") or metadata.maybe_text("description") or "",
        tags=item.tags() or metadata.tags(),
        default_queue_type=None if default in (None, "", "undefined") else default,
    )
    return VHostRecord(item.text("name"), options, {})


def _permission(item: Item) -> PermissionRecord:
    return PermissionRecord(
        item.text("user"),
        item.text("vhost"),
        item.text("configure"),
        item.text("write"),
        item.text("read"),
    )


def _topic_permission(item: Item) -> TopicPermissionRecord:
    return TopicPermissionRecord(
        item.text("user"),
        item.text("vhost"),
        item.text("exchange"),
        item.text("write"),
        item.text("read"),
    )


def _parameter(item: Item) -> ParameterRecord | Policy | VHostRecord:
    component, vhost, name = item.text("component"), item.text("vhost"), item.text("name")
    if component in (POLICY, OPERATOR_POLICY):
        value = Item(item.get("value", dict))
        return policy_of(vhost, name, value, operator=component == OPERATOR_POLICY)
    if component == VHOST_LIMITS:
        return VHostRecord(vhost, VHostOptions(), item.limits("value"))
    if "value" not in item.fields:
        raise Wrong("value is missing")
    return ParameterRecord(vhost, component, name, item.fields["value"])


def _global_parameter(item: Item) -> GlobalParameterRecord:
    if "value" not in item.fields:
        raise Wrong("value is missing")
    return GlobalParameterRecord(item.text("name"), item.fields["value"])


def _policy(item: Item) -> Policy:
    return policy_of(item.text("vhost"), item.text("name"), item, operator=False)


def policy_of(vhost: str, name: str, item: Item, *, operator: bool) -> Policy:
    return Policy(
        vhost=vhost,
        name=name,
        pattern=item.text("pattern"),
        definition=item.table("definition"),
        priority=item.get("priority", int, 0),
        apply_to=item.get("apply-to", str, "all"),
        operator=operator,
    )


def _exchange(item: Item) -> ExchangeRecord:
    return ExchangeRecord(
        vhost=item.text("vhost"),
        name=item.text("name"),
        type=item.text("type"),
        durable=item.flag("durable", True),
        auto_delete=item.flag("auto_delete", False),
        internal=item.flag("internal", False),
        arguments=item.table("arguments"),
    )


def _queue(item: Item) -> QueueRecord:
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


def _binding(item: Item) -> BindingRecord:
    kind = item.get("destination_type", str, "queue")
    if kind not in ("queue", "exchange"):
        raise Wrong(f'destination_type must be queue or exchange, not "{kind}"')
    return BindingRecord(
        vhost=item.text("vhost"),
        source=item.text("source"),
        destination=item.text("destination"),
        to_exchange=kind == "exchange",
        key=item.get("routing_key", str, ""),
        arguments=item.table("arguments"),
    )


_SECTIONS: dict[str, Callable[[Item], Any]] = {
    "users": user_of,
    "vhosts": vhost_of,
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
