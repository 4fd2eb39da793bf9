"""Access checks of the admin port.

The Host header is checked: a page in a browser can give its own name our address (DNS rebinding)
and read what we answer. Its requests come by that name, so only addresses, `localhost`, this
machine's name and `admin.hosts` are taken. /health holds no secret, and a probe may use any name.
A page that asks for changes by a login that the browser remembers (CSRF) is told by its Origin.

Names of queues, topics and transactional ids are shown to users with the tag `monitoring` or
`administrator` (HTTP basic), or to everybody when `admin.names_need_login` is false. A request that
changes something takes an administrator in any case.
"""

import base64
import binascii
import ipaddress
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

import trio

from ottermq.admin.messages import Problem, Request
from ottermq.auth import User, Users
from ottermq.config.schema import AdminSettings
from ottermq.errors import AccessRefused, LoginRefused, Malformed

ADMINISTRATOR = "administrator"
TAGS = frozenset({ADMINISTRATOR, "monitoring"})
PATIENCE = 5.0  # seconds for a login
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:\s]+))(?::[0-9]{1,5})?")


@dataclass(frozen=True)
class Guard:
    users: Users
    settings: Callable[[], AdminSettings]
    listens_on: str = "localhost"

    def check_host(self, host: str | None) -> None:
        """Problem: that is no name of ours. None: HTTP/1.0, which no browser speaks."""
        if host is not None and not self._knows(host):
            why = "the Host header isn't a name of this broker: see admin.hosts"
            raise Problem(HTTPStatus.MISDIRECTED_REQUEST, why)

    def _knows(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        name = (match[1] or match[2]).lower().rstrip(".") if match else ""
        return _is_address(name) or name in self._names()

    def _names(self) -> set[str]:
        own = socket.gethostname().lower()
        more = (name.lower() for name in self.settings().hosts or ())
        return {"localhost", own, own.partition(".")[0], self.listens_on.lower(), *more}

    async def allows_names(self, authorization: str | None, peer: str) -> bool:
        """False: a login is needed, and there is none. LoginRefused: a wrong one. AccessRefused:
        one that isn't enough."""
        if authorization is None:
            return not self.settings().names_need_login
        user = await self.login(authorization, peer)
        if TAGS.isdisjoint(user.tags):
            raise AccessRefused(f"user '{user.name}' has neither tag: {', '.join(sorted(TAGS))}")
        return True

    async def administrator(self, authorization: str, peer: str) -> str:
        """The administrator who asks. LoginRefused, AccessRefused: not one."""
        user = await self.login(authorization, peer)
        if ADMINISTRATOR not in user.tags:
            raise AccessRefused(f"user '{user.name}' has no tag {ADMINISTRATOR}")
        return user.name

    async def login(self, authorization: str, peer: str) -> User:
        """LoginRefused: wrong, or not from there."""
        name, password = _credentials(authorization)
        with trio.move_on_after(PATIENCE):
            try:
                return await self.users.check_password(name, password, peer)
            except Malformed as error:
                raise LoginRefused("Basic", str(error)) from None
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "too many logins: try again")


def check_origin(request: Request) -> None:
    """A page in a browser may only ask for changes where it came from: it would use the login that
    the browser remembers for us. Browsers tell the origin of every such request, programs don't."""
    origin = request.header("origin")
    is_foreign = origin is not None and origin.partition("://")[2] != request.header("host")
    if is_foreign or request.header("sec-fetch-site") in ("cross-site", "same-site"):
        raise Problem(HTTPStatus.FORBIDDEN, "a page of another origin asks")


def _credentials(authorization: str) -> tuple[str, bytes]:
    scheme, _, encoded = authorization.partition(" ")
    try:
        text = base64.b64decode(encoded.strip(), validate=True)
        name, colon, password = text.partition(b":")
        if scheme.lower() != "basic" or not colon:
            raise ValueError
        return name.decode(), password
    except (binascii.Error, ValueError):
        raise LoginRefused("Basic", "not a name and a password") from None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
