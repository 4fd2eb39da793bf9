"""From a method and a path to a handler, once the user may call it.

A path is cut at its slashes as it came, and each part is decoded then: names hold slashes. In a
pattern, {vhost} is a vhost that has to be there and to be the user's; other names in braces are the
handler's to look up.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from ottermq.admin.api.call import Call, bad_request, not_found
from ottermq.admin.messages import Problem, unauthorized

Handler = Callable[[Call], Any | Awaitable[Any]]
SMALL = 1 << 20
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Rule(Enum):
    """Which of RabbitMQ's tags a route needs."""

    OPEN = ""
    USER = "management"
    POLICYMAKER = "policymaker"
    MONITORING = "monitoring"
    ADMINISTRATOR = "administrator"


TAGS = {
    Rule.USER: frozenset({"management", "policymaker", "monitoring", "administrator"}),
    Rule.POLICYMAKER: frozenset({"policymaker", "administrator"}),
    Rule.MONITORING: frozenset({"monitoring", "administrator"}),
    Rule.ADMINISTRATOR: frozenset({"administrator"}),
}
REFUSALS = {
    Rule.USER: "Not management user",
    Rule.POLICYMAKER: "User not authorised to access object",
    Rule.MONITORING: "Not monitor user",
    Rule.ADMINISTRATOR: "Not administrator user",
}


class Route(NamedTuple):
    pattern: str
    rule: Rule = Rule.USER
    get: Handler | None = None
    put: Handler | None = None
    post: Handler | None = None
    delete: Handler | None = None
    writing: Rule | None = None  # of PUT, POST and DELETE, if it is another
    most: int = SMALL  # bytes of a body

    def handler(self, method: str) -> Handler | None:
        return {
            "GET": self.get, "HEAD": self.get, "PUT": self.put, "POST": self.post,
            "DELETE": self.delete,
        }.get(method)  # fmt: skip

    @property
    def allowed(self) -> str:
        names = ("HEAD", "GET", "PUT", "POST", "DELETE")
        return ", ".join([*(name for name in names if self.handler(name)), "OPTIONS"])

    def rule_of(self, method: str) -> Rule:
        reads = method in ("GET", "HEAD")
        return self.rule if reads or self.writing is None else self.writing


class Router:
    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes: dict[int, list[tuple[list[str], Route]]] = {}
        for route in routes:
            parts = route.pattern.split("/")
            self._routes.setdefault(len(parts), []).append((parts, route))
        for listed in self._routes.values():  # a word comes before a name
            listed.sort(key=lambda each: [part.startswith("{") for part in each[0]])

    def find(self, path: str) -> tuple[Route, dict[str, str]]:
        """path: below /api/. Problem: there is no such route."""
        raw = path.split("/")
        if raw[-1] == "" and len(raw) > 1:
            raw.pop()
        if len(raw) in self._routes:
            parts = [decoded(part) for part in raw]
            for wanted, route in self._routes[len(raw)]:
                found = _matched(wanted, parts)
                if found is not None:
                    return route, found
        raise not_found()


def decoded(part: str) -> str:
    if _BAD_ESCAPE.search(part):
        raise bad_request("a percent sign in the path stands for no character")
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise bad_request("the path isn't UTF-8") from None


def _matched(wanted: list[str], parts: list[str]) -> dict[str, str] | None:
    found = {}
    for want, part in zip(wanted, parts, strict=True):
        if want.startswith("{"):
            found[want[1:-1]] = part
        elif want != part:
            return None
    return found


def check_tags(rule: Rule, tags: Iterable[str]) -> None:
    if rule is not Rule.OPEN and TAGS[rule].isdisjoint(tags):
        raise unauthorized(REFUSALS[rule])


def check_vhost(call: Call, names: Mapping[str, str]) -> None:
    if "vhost" not in names:
        return
    if not (call.is_administrator or call.may_enter(call.vhost)):
        raise unauthorized("User not authorised to access virtual host")
    if call.vhost not in call.context.topology.vhosts:
        raise Problem(HTTPStatus.NOT_FOUND, "vhost_not_found", error="not_found")
