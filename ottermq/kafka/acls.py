r"""Kafka's ACLs as our permissions, and our permissions as ACLs.

A user has three expressions here, for what it may configure, write and read. An ACL for a name is
an alternative in one of them: `^orders$`, `^team\.` for a prefix, `.*` for all. Expressions that
were written by hand hold whatever else; those alternatives are left alone, and aren't shown.

| Kafka's operation                                            | ours      |
|--------------------------------------------------------------|-----------|
| READ                                                         | read      |
| WRITE                                                        | write     |
| CREATE, DELETE, ALTER, ALTER_CONFIGS, DESCRIBE_CONFIGS       | configure |
| DESCRIBE                                                     | any of it |
| ALL                                                          | all three |

It is coarser than Kafka's: topics, groups and transactional ids of the same name are one, and who
may create may delete. Nothing can be denied, and a host can't be told apart. What can't be said
here is refused, never granted in a wider form than this table says.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from ottermq.auth import Access, Permission
from ottermq.errors import OtterError
from ottermq.kafka import ids
from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error, KafkaError, error_of
from ottermq.kafka.request import Body, Handler, Request
from ottermq.kafka.room import Room
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
    Resource.GROUP: {
        Operation.READ: ("read",),
        Operation.DELETE: ("configure",),
        Operation.DESCRIBE: (),
        Operation.ALL: ACCESSES,
    },
    Resource.TRANSACTIONAL_ID: {
        Operation.WRITE: ("write",),
        Operation.DESCRIBE: (),
        Operation.ALL: ACCESSES,
    },
}


@dataclass(frozen=True)
class Acl:
    resource: Resource
    name: str
    pattern: Pattern
    user: str
    operation: Operation

    @property
    def place(self) -> Body:
        """What it is about, as answers say it."""
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
    """Which names it stands for, in Kafka's words; None: they have none for it."""
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


def acls_of(permission: Permission) -> Iterable[Acl]:
    """All that a user's permissions come to."""
    names: dict[Name, set[Access]] = {}
    for access in ACCESSES:
        for part in alternatives(getattr(permission, access)):
            name = name_of(part)
            if name is not None:
                names.setdefault(name, set()).add(access)
    for (pattern, text), granted in names.items():
        for resource, operations in OPERATIONS.items():
            for operation in _granted(operations, granted):
                yield Acl(resource, text, pattern, permission.user, operation)


def _granted(
    operations: dict[Operation, tuple[Access, ...]], granted: set[Access]
) -> list[Operation]:
    if granted.issuperset(ACCESSES):
        return [Operation.ALL]
    found = [each for each, takes in operations.items() if takes and granted.issuperset(takes)]
    return [*found, Operation.DESCRIBE] if found else []


def _matching(kafka: Room, asked: Body) -> list[Acl]:
    """A filter: whatever isn't given fits all."""
    if asked["permission_type"] == DENY or asked["host_filter"] not in (None, WILDCARD):
        return []
    entries = kafka.auth.permissions.entries(vhost=kafka.settings.vhost)
    return [acl for entry in entries for acl in acls_of(entry) if _fits(acl, asked)]


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


def describe_acls(kafka: Room, request: Request) -> Body:
    _check_administrator(request)
    found: dict[tuple[Resource, str, Pattern], list[Acl]] = {}
    for acl in _matching(kafka, request.body):
        found.setdefault((acl.resource, acl.name, acl.pattern), []).append(acl)
    return {
        "resources": [
            {**acls[0].place, "acls": [acl.entry for acl in acls]} for acls in found.values()
        ]
    }


async def create_acls(kafka: Room, request: Request) -> Body:
    results = []
    for asked in request.body["creations"]:
        answer: Body = {"error_message": None}
        try:
            _check_administrator(request)
            await _grant(kafka, asked)
        except (KafkaError, OtterError, LogError) as error:
            answer = {"error_code": error_of(error), "error_message": _text(error)}
        results.append(answer)
    return {"results": results}


async def _grant(kafka: Room, asked: Body) -> None:
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
    takes = _takes(asked["resource_type"], asked["operation"])
    if asked["resource_pattern_type"] not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise KafkaError(Error.INVALID_REQUEST, "a name is literal or a prefix")
    if not asked["resource_name"]:
        raise KafkaError(Error.INVALID_REQUEST, "a resource needs a name")
    if not ids.fits(asked["resource_name"]):
        raise KafkaError(Error.INVALID_REQUEST, "a resource's name is too long")
    user = _user(kafka, asked["principal"])
    name: Name = (Pattern(asked["resource_pattern_type"]), asked["resource_name"])
    now = _permission(kafka, user)
    changed = {access: with_name(getattr(now, access), name) for access in takes}
    await kafka.auth.permissions.set(replace(now, **changed))


def _takes(resource: int, operation: int) -> tuple[Access, ...]:
    try:
        return OPERATIONS[Resource(resource)][Operation(operation)]
    except (KeyError, ValueError):
        raise KafkaError(
            Error.INVALID_REQUEST, f"no operation {operation} on resources of type {resource}"
        ) from None


def _user(kafka: Room, principal: str) -> str:
    name = principal.removeprefix(PRINCIPAL)
    if not principal.startswith(PRINCIPAL) or kafka.auth.users.get(name) is None:
        raise KafkaError(Error.INVALID_REQUEST, f"there is no {principal}")
    return name


def _permission(kafka: Room, user: str) -> Permission:
    found = kafka.auth.permissions.entries(user, kafka.settings.vhost)
    return found[0] if found else Permission(user, kafka.settings.vhost, "", "", "")


async def delete_acls(kafka: Room, request: Request) -> Body:
    return {
        "filter_results": [
            await _delete(kafka, request, asked) for asked in request.body["filters"]
        ]
    }


async def _delete(kafka: Room, request: Request, asked: Body) -> Body:
    try:
        _check_administrator(request)
        gone = _matching(kafka, asked)
        for acl in gone:
            now = _permission(kafka, acl.user)
            name: Name = (acl.pattern, acl.name)
            changed = {
                access: without_name(getattr(now, access), name)
                for access in OPERATIONS[acl.resource][acl.operation]
            }
            await kafka.auth.permissions.set(replace(now, **changed))
    except (KafkaError, OtterError, LogError) as error:
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
