"""One request of the API, by a user who may make it. It is the caller of operations, too."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar

from ottermq import auditlog
from ottermq.admin.context import AdminContext
from ottermq.admin.messages import Answer, Problem
from ottermq.auth import User
from ottermq.definitions.fields import Item, Wrong

T = TypeVar("T")
Json = dict[str, Any]
DEEPEST = 100  # of what a body nests
MOST_NUMBER = (1 << 63) - 1
_NUMBER = re.compile(r"-?[0-9]{1,18}")

CREATED = Answer(HTTPStatus.CREATED)
DONE = Answer(HTTPStatus.NO_CONTENT)


@dataclass(frozen=True)
class Call:
    context: AdminContext
    user: User
    peer: str
    path: Mapping[str, str]  # the route's names, decoded
    fields: Mapping[str, str]  # of the query
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes = b""  # the body

    id = None  # it is no connection

    @property
    def vhost(self) -> str:
        return self.path.get("vhost", "")

    def whose(self) -> User:
        return self.user

    @property
    def is_administrator(self) -> bool:
        return self.user.is_administrator

    @property
    def sees_all(self) -> bool:
        """Of what belongs to no vhost, and of other users' connections."""
        return self.is_administrator or "monitoring" in self.user.tags

    def may_enter(self, vhost: str) -> bool:
        return self.context.auth.permissions.has_vhost(self.user, vhost)

    def flag(self, name: str) -> bool:
        return self.fields.get(name, "").lower() == "true"

    def audit(self, act: str, what: str, **details: object) -> None:
        """One line in the log, once it is done."""
        auditlog.record(
            act, user=self.user.name, peer=self.peer, what=what, result=auditlog.OK, **details
        )

    def body(self) -> "Body":
        """The object in the body; an empty one if there is none."""
        value = parse_json(self.raw) if self.raw.strip() else {}
        if not isinstance(value, dict):
            raise bad_request("not_json")
        return Body(value)


class Body(Item):
    """Tools send flags and numbers as text, too: rabbitmqadmin does."""

    def flag(self, name: str, default: bool) -> bool:
        value = self.fields.get(name)
        if value in ("true", "false"):
            return bool(value == "true")
        return self.get(name, bool, default)

    def number(self, name: str, default: int | None = None) -> int:
        value = self.fields.get(name)
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            value = self.fields[name] = int(value)
        number = self.get(name, int) if default is None else self.get(name, int, default)
        if abs(number) > MOST_NUMBER:
            raise Wrong(f"{name} is too large")
        return number


def bad_request(reason: str) -> Problem:
    return Problem(HTTPStatus.BAD_REQUEST, reason)


def not_found(reason: str = "Not Found") -> Problem:
    return Problem(HTTPStatus.NOT_FOUND, reason)


def existing(found: T | None) -> T:
    if found is None:
        raise not_found()
    return found


def parse_json(raw: bytes) -> Any:
    """Problem: it isn't JSON, or what none of our names and tables can hold."""
    try:
        value = json.loads(raw, parse_constant=_no_constant, parse_float=_finite)
        _check(value, 0)
    except (ValueError, RecursionError):
        raise bad_request("not_json") from None
    return value


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _check(value: Any, depth: int) -> None:
    """ValueError: a text that is no Unicode, a number beyond all of AMQP's, or a deep nest."""
    if depth > DEEPEST:
        raise ValueError("nested too deeply")
    match value:
        case str():
            value.encode()
        case bool():
            pass
        case int() if abs(value) > MOST_NUMBER:
            raise ValueError("a number is too large")
        case dict():
            for key, each in value.items():
                key.encode()
                _check(each, depth + 1)
        case list():
            for each in value:
                _check(each, depth + 1)
