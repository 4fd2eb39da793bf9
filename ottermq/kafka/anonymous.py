"""Clients that don't log in: the user they act as, and the addresses they may come from.

They act as a user of their own, `anonymous`, which has no password and may create topics, produce
and consume in Kafka's vhost: a first client works on a new broker without any set-up. Such a
client comes from this machine only, and never has a tag, whatever tags its user has.

The user is made together with the default user, once in a data directory's life; in one that an
older version made, at the first start with this one. Where `guest` was deleted, or a definitions
file brought other users, nobody asked for a way in without a password, and there is none. A user
that was deleted doesn't come back.
"""

from collections.abc import Mapping
from dataclasses import replace

from ottermq.auth import Auth, Permission, User
from ottermq.auth.login_throttle import is_loopback
from ottermq.config import Config
from ottermq.config.schema import KafkaSettings
from ottermq.errors import StartupError
from ottermq.net.listeners import Bound

NAME = "anonymous"
MARK = "anonymous user"  # in auth_marks: it was made
OLD_NAME = "guest"  # the user of such clients before they had their own


async def make_user(auth: Auth, settings: KafkaSettings) -> None:
    if settings.anonymous_user != NAME:
        return
    if auth.database.read("SELECT 1 FROM auth_marks WHERE name = ?", (MARK,)):
        return
    users = auth.users
    if users.get(NAME) is None:
        if users.get(auth.settings.default_user) is None and users.get(OLD_NAME) is None:
            return
        await users.put(NAME)
        await auth.permissions.set(Permission(NAME, settings.vhost, ".*", ".*", ".*"))
    await auth.database.commit([("INSERT INTO auth_marks VALUES (?)", (MARK,))])


def user_of(auth: Auth, settings: KafkaSettings, host: str) -> User | None:
    """The user of a client from there that doesn't log in; None: it has to."""
    name = settings.anonymous_user
    if name is None or not auth.users.may_enter(name, host):
        return None
    if not is_loopback(host) and not settings.anonymous_network:
        return None
    user = auth.users.get(name)
    return None if user is None else replace(user, tags=())


def check_listeners(config: Config, bound: Mapping[str, Bound]) -> None:
    """StartupError: anybody in a network would be let in without a password, and nobody asked for
    that in so many words."""
    name = config.kafka.anonymous_user
    if name is None or config.kafka.anonymous_network:
        return
    if name in (config.auth.loopback_users or ()):
        return
    for listener in ("kafka", "kafkas"):
        if listener in bound and not all(is_loopback(host) for host in bound[listener].hosts):
            raise StartupError(
                f"listen.{listener} is open to a network, where clients that don't log in would act"
                f" as '{name}' (kafka.anonymous_user): put {name} into auth.loopback_users, or set"
                " kafka.anonymous_user: null, or ask for it with kafka.anonymous_network: true"
            )
