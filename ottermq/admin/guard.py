"""Access checks of the admin port.

The Host header is checked: a page in a browser can give its own name our address (DNS rebinding)
and read what we answer. Its requests come by that name, so only addresses, `localhost`, this
machine's name and `admin.hosts` are taken. /health holds no secret, and a probe may use any name.

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

from ottermq.auth import User, Users
from ottermq.config.schema import AdminSettings
from ottermq.errors import AccessRefused, LoginRefused

ADMINISTRATOR = "administrator"
TAGS = frozenset({ADMINISTRATOR, "monitoring"})
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::[0-9]{1,5})?")


@dataclass(frozen=True)
class Guard:
    users: Users
    settings: Callable[[], AdminSettings]
    listens_on: str = "localhost"

    def knows(self, host: str | None) -> bool:
        """Is that a name of ours? None: HTTP/1.0, which no browser speaks."""
        if host is None:
            return True
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
        user = await self._login(authorization, peer)
        if TAGS.isdisjoint(user.tags):
            raise AccessRefused(f"user '{user.name}' has neither tag: {', '.join(sorted(TAGS))}")
        return True

    async def administrator(self, authorization: str, peer: str) -> str:
        """The administrator who asks. LoginRefused, AccessRefused: not one."""
        user = await self._login(authorization, peer)
        if ADMINISTRATOR not in user.tags:
            raise AccessRefused(f"user '{user.name}' has no tag {ADMINISTRATOR}")
        return user.name

    async def _login(self, authorization: str, peer: str) -> User:
        name, password = _credentials(authorization)
        return await self.users.check_password(name, password, peer)


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
