r"""Kafka's ACLs as our permissions, and our permissions as ACLs.

A user has three expressions here, for what it may configure, write and read. An ACL for a topic is
an alternative in one of them: `^orders$`, `^team\.` for a prefix, `.*` for all. Expressions that
were written by hand hold whatever else; those alternatives are left alone, and aren't shown.

| Kafka's operation                                            | ours      |
|--------------------------------------------------------------|-----------|
| READ                                                         | read      |
| WRITE                                                        | write     |
| CREATE, DELETE, ALTER, ALTER_CONFIGS, DESCRIBE_CONFIGS       | configure |
| DESCRIBE                                                     | any of it |
| ALL                                                          | all three |

The mapping is coarser than Kafka's ACLs: a user who may create may delete. There is no deny and no
host. An ACL that our permissions can't express is refused, never granted in a wider form than this
table says.

ACLs are shown as single operations, never as ALL (which a request for ALL matches): each of them
can be taken back alone. To take back one of CREATE, DELETE, ALTER … takes back all of `configure`.

ACLs for groups and transactional ids are kept as they are (auth/grants.py) and open no topics.
Their principal need not be a user yet, as in Kafka.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from ottermq.auth import Access, Grant, Permission
from ottermq.errors import OtterError
from ottermq.kafka import ids
from ottermq.kafka.api import Api
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error, KafkaError, error_of
from ottermq.kafka.request import Body, Handler, Request
from ottermq.wal import LogError


class Resource(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Pattern(IntEnum):
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


ANY_PERMISSION, DENY, ALLOW = 1, 2, 3
WILDCARD = "*"
PRINCIPAL = "User:"
ACCESSES: Final[tuple[Access, ...]] = ("configure", "write", "read")
# What an operation on a resource takes; none: it is implied, and granting it changes nothing.
OPERATIONS: Final[dict[Resource, dict[Operation, tuple[Access, ...]]]] = {
    Resource.TOPIC: {
        Operation.READ: ("read",),
        Operation.WRITE: ("write",),
        Operation.CREATE: ("configure",),
        Operation.DELETE: ("configure",),
        Operation.ALTER: ("configure",),
        Operation.ALTER_CONFIGS: ("configure",),
        Operation.DESCRIBE_CONFIGS: ("configure",),
        Operation.DESCRIBE: (),
        Operation.ALL: ACCESSES,
    },
}
# The operations that can be granted on resources without permissions.
GRANTED: Final[dict[Resource, tuple[Operation, ...]]] = {
    Resource.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.ALL),
    Resource.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.ALL),
}
LONGEST_USER = 255  # bytes, as AMQP's


@dataclass(frozen=True)
class Acl:
    resource: Resource
    name: str
    pattern: Pattern
    user: str
    operation: Operation

    @property
    def place(self) -> Body:
        """Its resource, as answers name it."""
        return {
            "resource_type": self.resource,
            "resource_name": self.name,
            "pattern_type": self.pattern,
        }

    @property
    def entry(self) -> Body:
        """Who may do what."""
        return {
            "principal": PRINCIPAL + self.user,
            "host": WILDCARD,
            "operation": self.operation,
            "permission_type": ALLOW,
        }


# -- expressions and their alternatives

Name = tuple[Pattern, str]
# Escaped letters and digits are classes, anchors and references, not themselves.
_PLAIN = r"((?:[^\\^$.|?*+()\[\]{}]|\\[^a-zA-Z0-9])+)"
_LITERAL = re.compile(rf"\^{_PLAIN}\$")
_PREFIX = re.compile(rf"\^{_PLAIN}(?:\.\*)?")
EVERYTHING = (".*", "^.*", "^.*$", ".*$")


def alternatives(expression: str) -> list[str]:
    """The parts between its outermost bars."""
    parts, depth, begin, at = [], 0, 0, 0
    while at < len(expression):
        char = expression[at]
        if char == "\\":
            at += 1
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "|" and depth == 0:
            parts.append(expression[begin:at])
            begin = at + 1
        at += 1
    parts.append(expression[begin:])
    return [part for part in parts if part]


def name_of(alternative: str) -> Name | None:
    """The pattern of names, in Kafka's terms; None: Kafka has no such pattern."""
    if alternative in EVERYTHING:
        return Pattern.LITERAL, WILDCARD
    literal = _LITERAL.fullmatch(alternative)
    if literal:
        return Pattern.LITERAL, _unescaped(literal[1])
    prefix = _PREFIX.fullmatch(alternative)
    return (Pattern.PREFIXED, _unescaped(prefix[1])) if prefix else None


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def alternative_of(name: Name) -> str:
    pattern, text = name
    if pattern is Pattern.LITERAL:
        return ".*" if text == WILDCARD else f"^{re.escape(text)}$"
    return f"^{re.escape(text)}"


def with_name(expression: str, name: Name) -> str:
    parts = alternatives(expression)
    if any(name_of(part) == name for part in parts):
        return expression
    return "|".join([*parts, alternative_of(name)])


def without_name(expression: str, name: Name) -> str:
    return "|".join(part for part in alternatives(expression) if name_of(part) != name)


# -- what there is


def acls_of(permission: Permission, as_all: bool = False) -> Iterable[Acl]:
    """All that a user's permissions come to, operation by operation; or those that are ALL."""
    names: dict[Name, set[Access]] = {}
    for access in ACCESSES:
        for part in alternatives(getattr(permission, access)):
            name = name_of(part)
            if name is not None:
                names.setdefault(name, set()).add(access)
    for (pattern, text), granted in names.items():
        for operation in _granted(granted, as_all):
            yield Acl(Resource.TOPIC, text, pattern, permission.user, operation)


def _granted(granted: set[Access], as_all: bool) -> list[Operation]:
    if as_all:
        return [Operation.ALL] if granted.issuperset(ACCESSES) else []
    found = [each for each, takes in OPERATIONS[Resource.TOPIC].items() if granted & {*takes}]
    return [*(each for each in found if each is not Operation.ALL), Operation.DESCRIBE]


def _of_grant(grant: Grant) -> Acl:
    return Acl(
        Resource[grant.resource],
        grant.name,
        Pattern[grant.pattern],
        grant.user,
        Operation[grant.operation],
    )


def _as_grant(acl: Acl, vhost: str) -> Grant:
    return Grant(acl.user, vhost, acl.resource.name, acl.name, acl.pattern.name, acl.operation.name)


def _matching(kafka: KafkaContext, asked: Body) -> list[Acl]:
    """A filter: whatever isn't given fits all."""
    if asked["permission_type"] == DENY or asked["host_filter"] not in (None, WILDCARD):
        return []
    vhost, as_all = kafka.settings.vhost, asked["operation"] == Operation.ALL
    entries = kafka.auth.permissions.entries(vhost=vhost)
    found = [acl for entry in entries for acl in acls_of(entry, as_all)]
    found += [_of_grant(grant) for grant in kafka.auth.grants.entries(vhost)]
    return [acl for acl in found if _fits(acl, asked)]


def _fits(acl: Acl, asked: Body) -> bool:
    return (
        asked["resource_type_filter"] in (Resource.ANY, acl.resource)
        and asked["operation"] in (Operation.ANY, acl.operation)
        and asked["principal_filter"] in (None, PRINCIPAL + acl.user)
        and _names_fit(acl, asked["resource_name_filter"], asked["pattern_type_filter"])
    )


def _names_fit(acl: Acl, name: str | None, pattern: int) -> bool:
    if pattern in (Pattern.LITERAL, Pattern.PREFIXED) and pattern != acl.pattern:
        return False
    if name is None or name == acl.name:
        return True
    if pattern != Pattern.MATCH:
        return False
    # All that would apply to a topic of that name.
    return acl.name == WILDCARD or (acl.pattern is Pattern.PREFIXED and name.startswith(acl.name))


# -- handlers


def describe_acls(kafka: KafkaContext, request: Request) -> Body:
    _check_administrator(request)
    found: dict[tuple[Resource, str, Pattern], list[Acl]] = {}
    for acl in _matching(kafka, request.body):
        found.setdefault((acl.resource, acl.name, acl.pattern), []).append(acl)
    return {
        "resources": [
            {**acls[0].place, "acls": [acl.entry for acl in acls]} for acls in found.values()
        ]
    }


async def create_acls(kafka: KafkaContext, request: Request) -> Body:
    results = []
    for asked in request.body["creations"]:
        answer: Body = {"error_message": None}
        trouble: Exception | None = None
        try:
            _check_administrator(request)
            await _grant(kafka, asked)
        except (KafkaError, OtterError, LogError) as error:
            trouble = error
            answer = {"error_code": error_of(error), "error_message": _text(error)}
        request.audit("acl.grant", _said(asked), trouble)
        results.append(answer)
    return {"results": results}


async def _grant(kafka: KafkaContext, asked: Body) -> None:
    if asked["permission_type"] != ALLOW:
        raise KafkaError(Error.INVALID_REQUEST, "nothing can be denied here, only not be granted")
    if asked["host"] != WILDCARD:
        raise KafkaError(Error.INVALID_REQUEST, "permissions don't ask where a user comes from")
    if asked["resource_type"] == Resource.CLUSTER:
        if asked["operation"] in (Operation.IDEMPOTENT_WRITE, Operation.DESCRIBE):
            return  # everybody may
        raise KafkaError(
            Error.INVALID_REQUEST,
            "what concerns the whole cluster is for users tagged administrator",
        )
    _check_operation(asked["resource_type"], asked["operation"])
    if asked["resource_pattern_type"] not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise KafkaError(Error.INVALID_REQUEST, "a name is literal or a prefix")
    if not asked["resource_name"]:
        raise KafkaError(Error.INVALID_REQUEST, "a resource needs a name")
    if not ids.fits(asked["resource_name"]):
        raise KafkaError(Error.INVALID_REQUEST, "a resource's name is too long")
    acl = Acl(
        Resource(asked["resource_type"]),
        asked["resource_name"],
        Pattern(asked["resource_pattern_type"]),
        _user(asked["principal"]),
        Operation(asked["operation"]),
    )
    if acl.resource in GRANTED:
        await kafka.auth.grants.add(_as_grant(acl, kafka.settings.vhost))
        return
    name: Name = (acl.pattern, acl.name)
    now = _permission(kafka, acl.user)
    takes = OPERATIONS[acl.resource][acl.operation]
    changed = {access: with_name(getattr(now, access), name) for access in takes}
    if changed:
        await kafka.auth.permissions.set(replace(now, **changed), for_nobody=True)


def _check_operation(resource: int, operation: int) -> None:
    try:
        kind = Resource(resource)
        known = Operation(operation) in (GRANTED.get(kind) or tuple(OPERATIONS[kind]))
    except (KeyError, ValueError):
        known = False
    if not known:
        raise KafkaError(
            Error.INVALID_REQUEST, f"no operation {operation} on resources of type {resource}"
        )


def _user(principal: str) -> str:
    name = principal.removeprefix(PRINCIPAL)
    if not principal.startswith(PRINCIPAL) or not name or "\0" in name:
        raise KafkaError(Error.INVALID_REQUEST, f"{principal!r} is no principal: User:name is")
    if name == WILDCARD:
        raise KafkaError(Error.INVALID_REQUEST, "nothing can be granted to everybody")
    if len(name.encode()) > LONGEST_USER:
        raise KafkaError(Error.INVALID_REQUEST, "a principal's name is too long")
    return name


def _said(asked: Body) -> str:
    """An ACL, or a filter, in a line of the log."""
    is_filter = "principal_filter" in asked
    parts = (
        asked["principal_filter" if is_filter else "principal"] or "anybody",
        _label(Operation, asked["operation"]),
        _label(Resource, asked["resource_type_filter" if is_filter else "resource_type"]),
        asked["resource_name_filter" if is_filter else "resource_name"] or "any",
        _label(Pattern, asked["pattern_type_filter" if is_filter else "resource_pattern_type"]),
    )
    return " ".join(parts)


def _label(kind: type[IntEnum], value: int) -> str:
    return kind(value).name if value in kind._value2member_map_ else str(value)


def _permission(kafka: KafkaContext, user: str) -> Permission:
    found = kafka.auth.permissions.entries(user, kafka.settings.vhost)
    return found[0] if found else Permission(user, kafka.settings.vhost, "", "", "")


async def delete_acls(kafka: KafkaContext, request: Request) -> Body:
    return {
        "filter_results": [
            await _delete(kafka, request, asked) for asked in request.body["filters"]
        ]
    }


async def _revoke(kafka: KafkaContext, acl: Acl) -> None:
    if acl.resource in GRANTED:
        await kafka.auth.grants.remove(_as_grant(acl, kafka.settings.vhost))
        return
    now = _permission(kafka, acl.user)
    name: Name = (acl.pattern, acl.name)
    changed = {
        access: without_name(getattr(now, access), name)
        for access in OPERATIONS[acl.resource][acl.operation]
    }
    if changed:
        await kafka.auth.permissions.set(replace(now, **changed), for_nobody=True)


async def _delete(kafka: KafkaContext, request: Request, asked: Body) -> Body:
    try:
        _check_administrator(request)
        gone = _matching(kafka, asked)
        for acl in gone:
            await _revoke(kafka, acl)
        request.audit("acl.revoke", _said(asked), revoked=len(gone))
    except (KafkaError, OtterError, LogError) as error:
        request.audit("acl.revoke", _said(asked), error)
        return {"error_code": error_of(error), "error_message": _text(error), "matching_acls": []}
    return {"error_message": None, "matching_acls": [{**acl.place, **acl.entry} for acl in gone]}


def _check_administrator(request: Request) -> None:
    if not request.conn.is_administrator:
        raise KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED, "for administrators")


def _text(error: Exception) -> str:
    return (error.text or error.error.name) if isinstance(error, KafkaError) else str(error)


HANDLERS: dict[Api, Handler] = {
    Api.DESCRIBE_ACLS: describe_acls,
    Api.CREATE_ACLS: create_acls,
    Api.DELETE_ACLS: delete_acls,
}
