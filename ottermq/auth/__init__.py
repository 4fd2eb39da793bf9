"""Logins and rights: users, passwords, permissions, limits.

    auth = open_auth(database, settings)                # reads what meta.db holds
    await auth.first_start()                            # guest, if nobody was ever made

    offered = auth.users.mechanisms(certificate)        # "PLAIN AMQPLAIN …", connection.start
    user = await auth.users.authenticate(mechanism, response, peer_host, certificate)
    login = auth.users.challenge("SCRAM-SHA-256", first_word)    # or in two rounds:
    user, proof = await auth.users.finish(login, last_word, peer_host)
    auth.permissions.check_vhost(user, vhost, exists=…) # connection.open
    auth.limits.connection_opened(user, vhost)          # … and connection_closed() at its end
    auth.limits.channel_opened(user, open_now, channel_max)  # … and channel_closed()
    auth.limits.check_queues(vhost, queue_name, queues_now)  # before a new queue is made
    auth.permissions.check(user, vhost, "configure", "queue", name)
    auth.permissions.check(user, vhost, "write", "exchange", "")   # asked as amq.default
    if auth.permissions.has_topic_permissions(user, vhost, exchange):  # topic exchanges only
        auth.permissions.check_topic(user, vhost, exchange, "write", routing_key)

Each check returns, or raises a class of `ottermq.errors` that its CODES table knows: the text is
RabbitMQ's without the reply's name in front (the AMQP server writes "ACCESS_REFUSED - " before it).

| raised            | AMQP | when                                                             |
|-------------------|------|------------------------------------------------------------------|
| LoginRefused      | 403  | wrong user or password, or not from there; the text names the    |
|                   |      | mechanism and no more, `reason` is for the log (written here)     |
| UnknownMechanism  | 503  | the client chose what wasn't offered                             |
| Malformed         | 502  | the response isn't what the mechanism says                       |
| NotAllowed        | 530  | the vhost isn't there or isn't theirs; a limit is reached        |
| AccessRefused     | 403  | no permission for that queue, exchange or topic                  |
| PreconditionFailed| 406  | the vhost has as many queues as it may                           |

`auth.on_change(callback)` reports each Change, after it is on disk and in force. Caches of
permissions are dropped by `change.user` and `change.vhost` (None: all). Connections of
`change.user` are closed (320 CONNECTION_FORCED) when `change.closing` holds a text: a user that
was deleted, a password that changed.

passwords.py       scrypt for ours, RabbitMQ's salted hashes for imported ones
scram.py           verifiers for SCRAM-SHA-256 and -512
scram_login.py     the exchange of a login by one of them, no I/O
password_cache.py  hashing off the main thread; a password seen once is known by its HMAC
sasl.py            PLAIN, AMQPLAIN, EXTERNAL: bytes to credentials, no I/O
login_throttle.py  failed logins make the next ones wait, by user and address
places.py          turns at the hashing threads, address by address
refusals.py        refused logins in the log, without filling it
strangers.py       ends of connections that never said hello, likewise
line_limit.py      how: a few lines per address, then one per second
users.py           the users and how one logs in
permissions.py     configure, write, read by regular expression; topics
grants.py          Kafka's groups and transactional ids
limits.py          connections, channels, queues
defined.py         grants of definitions files, which the next one may take back
changes.py         listeners of changes
database.py        the part of meta.db that is auth's
"""

from dataclasses import dataclass

from ottermq import auditlog
from ottermq.auth.changes import Change, Changes, Listener
from ottermq.auth.database import SCHEMA, Database
from ottermq.auth.defined import Defined
from ottermq.auth.grants import Grant, Grants
from ottermq.auth.limits import Limits
from ottermq.auth.permissions import Access, Kind, Permission, Permissions, TopicPermission
from ottermq.auth.users import User, Users
from ottermq.config.schema import AuthSettings

__all__ = [
    "Access",
    "Auth",
    "Change",
    "Database",
    "Grant",
    "Grants",
    "Kind",
    "Limits",
    "Permission",
    "Permissions",
    "TopicPermission",
    "User",
    "Users",
    "open_auth",
]

DEFAULT_VHOST = "/"


@dataclass(frozen=True)
class Auth:
    users: Users
    permissions: Permissions
    limits: Limits
    grants: Grants
    changes: Changes
    database: Database
    settings: AuthSettings
    defined: Defined

    def on_change(self, callback: Listener) -> None:
        self.changes.listen(callback)

    async def first_start(self) -> None:
        """Make the default user, once in a data directory's life.

        Not when users are there already: a definitions file that was loaded before this names
        the users its author wants, and guest with a known password isn't one of them. Nor again
        after somebody deleted it.
        """
        await self.users.keep_nobody()
        if self.database.read("SELECT 1 FROM auth_marks WHERE name = 'first start'"):
            return
        if not self.users.all():
            name = self.settings.default_user
            await self.users.put(name, self.settings.default_password, ("administrator",))
            auditlog.record("user.create", user=None, peer="first start", what=name)
            await self.permissions.set(Permission(name, DEFAULT_VHOST, ".*", ".*", ".*"))
        await self.database.commit([("INSERT INTO auth_marks VALUES ('first start')", ())])

    async def delete_user(self, name: str) -> bool:
        """The user and all that is its own. False: there is none."""
        return await self.users.delete(
            name,
            [
                *self.permissions.forget_user(name),
                *self.limits.forget_user(name),
                *self.grants.forget_user(name),
            ],
        )

    async def delete_vhost(self, vhost: str) -> None:
        """Delete the grants in a vhost that is gone (`queues.delete_vhost`); one made anew begins
        without any."""
        await self.permissions.clear_vhost(vhost)
        await self.limits.clear_vhost(vhost)


def open_auth(database: Database, settings: AuthSettings) -> Auth:
    database.define(SCHEMA)
    changes = Changes()
    users = Users(database, settings, changes)
    permissions = Permissions(database, users, changes)
    limits = Limits(database, users, changes)
    grants = Grants(database, changes)
    return Auth(users, permissions, limits, grants, changes, database, settings, Defined(database))
