"""The users, and how one of them logs in.

All users are in memory; a change is on disk first. A User is a snapshot: its holder asks
permissions by its name, and these end the moment the user is deleted.
"""

import dataclasses
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from ottermq import eventlog
from ottermq.auth import login_throttle, passwords, sasl, scram, scram_login
from ottermq.auth.changes import Change, Changes
from ottermq.auth.database import Database, Statement
from ottermq.auth.login_throttle import LoginThrottle
from ottermq.auth.password_cache import NO_SECRETS, PasswordCache, Secrets
from ottermq.auth.places import NoPlace, there
from ottermq.auth.refusals import Refusals
from ottermq.auth.scram_login import ScramLogin
from ottermq.config.schema import AuthSettings
from ottermq.errors import InvalidRequest, LoginRefused, NotFound
from ottermq.topology.names import has_control
from ottermq.wal import LogError

SHA_256, SHA_512 = scram.HASHES
LONGEST_NAME = 255  # of a short string, which carries it in AMQP


class NotLookedAt(LoginRefused):
    """Turned away before anybody knew whether the password is right."""


@dataclass(frozen=True)
class User:
    name: str
    tags: tuple[str, ...] = ()
    secrets: Secrets = field(default=NO_SECRETS, repr=False)

    @property
    def is_administrator(self) -> bool:
        return "administrator" in self.tags


class Users:
    def __init__(self, database: Database, settings: AuthSettings, changes: Changes) -> None:
        self._database = database
        self._changes = changes
        self._verified = PasswordCache()
        self._delays = LoginThrottle()
        self._refusals = Refusals()
        # What SCRAM's salts of users are made of that aren't there; kept by `keep_nobody`.
        kept = database.read("SELECT value FROM auth_secrets WHERE name = 'nobody'")
        self.nobody = bytes.fromhex(kept[0][0]) if kept else os.urandom(32)
        self.loopback_only = frozenset(settings.loopback_users or ())
        self._users = {row[0]: _from_row(*row) for row in database.read(_SELECT)}

    def get(self, name: str) -> User | None:
        return self._users.get(name)

    def existing(self, name: str) -> User:
        if name not in self._users:
            raise NotFound(f"no user '{name}'")
        return self._users[name]

    def all(self) -> list[User]:
        return sorted(self._users.values(), key=lambda user: user.name)

    # -- logging in

    def mechanisms(self, certificate: str | None = None) -> str:
        """For connection.start. certificate: the name in it, if the TLS layer verified one."""
        return sasl.offered(certificate)

    async def authenticate(
        self,
        mechanism: str,
        response: bytes,
        peer: str,
        certificate: str | None = None,
        is_there: Callable[[], bool] = there,
    ) -> User:
        """The user; peer is the address it comes from. is_there: nobody looks at the password of
        a client that has left. See the package for the errors."""
        user = None
        try:
            credentials = sasl.read(mechanism, response, certificate)
            user = credentials.user
            return await self._login(mechanism, credentials, peer, is_there)
        except LoginRefused as refusal:
            self._refusals.tell(mechanism, peer, refusal, user)
            raise

    def challenge(self, mechanism: str, first: bytes) -> ScramLogin:
        """SCRAM: the client's first word, and with `login.challenge` our answer to it."""
        hello = scram_login.hello(mechanism, first)
        user = self._users.get(hello.user)
        return scram_login.begin(
            mechanism, hello, user.secrets.verifier(mechanism) if user else None, self.nobody
        )

    async def finish(self, login: ScramLogin, last: bytes, peer: str) -> tuple[User, bytes]:
        """Its final message: returns the user, and our proof that we know the password, too."""
        try:
            async with self._turn(login.mechanism, login.user, peer):
                proof = login.check(last)
                user = self._users.get(login.user)
                self._check_place(login.mechanism, login.user, peer)
                if user is None or not login.is_against(user.secrets.verifier(login.mechanism)):
                    raise LoginRefused(login.mechanism, f"user '{login.user}' changed meanwhile")
        except LoginRefused as refusal:
            self._refusals.tell(login.mechanism, peer, refusal, login.user)
            raise
        return user, proof

    def may_enter(self, name: str, peer: str) -> bool:
        """May a user of that name come from there?"""
        return name not in self.loopback_only or login_throttle.is_loopback(peer)

    async def check_password(self, name: str, password: str | bytes, peer: str) -> User:
        """The same for protocols other than AMQP: HTTP, Kafka's SASL/PLAIN."""
        raw = password.encode() if isinstance(password, str) else password
        return await self.authenticate("PLAIN", b"\0" + name.encode() + b"\0" + raw, peer)

    async def _login(
        self,
        mechanism: str,
        credentials: sasl.Credentials,
        peer: str,
        is_there: Callable[[], bool],
    ) -> User:
        name, password = credentials.user, credentials.password
        user = self._users.get(name)
        right: bool | None = None
        if password is not None:
            right = await self._answer_under_way(user, name, password)
        if right is None:
            right = await self._look_at(mechanism, credentials, peer, is_there)
        self._check_place(mechanism, name, peer)
        # The password may have been changed while the old one was checked.
        if not right or user is None or self._users.get(name) is not user:
            raise LoginRefused(mechanism, f"user '{name}' - invalid credentials")
        if password is not None and not user.secrets.stored.is_current:
            user = await self._upgrade(user, password)
        return user

    async def _answer_under_way(self, user: User | None, name: str, password: bytes) -> bool | None:
        """The result of the same password from another login just now: hundreds that come at once
        cost one hash, and to try one password twice is no second guess. None: there is none."""
        stored = user.secrets.stored if user else None
        while check := self._verified.under_way(name, stored, password):
            await check.done.wait()
            if check.right is not None:
                return check.right
        return None

    async def _look_at(
        self,
        mechanism: str,
        credentials: sasl.Credentials,
        peer: str,
        is_there: Callable[[], bool],
    ) -> bool:
        name, password = credentials.user, credentials.password
        user = self._users.get(name)
        if password is None:  # a certificate, which TLS has verified
            async with self._turn(mechanism, name, peer):
                if user is None:
                    raise LoginRefused(mechanism, f"user '{name}' - invalid credentials")
            return True
        stored = user.secrets.stored if user else None
        known = self._verified.is_known(name, stored, password)
        async with self._turn(mechanism, name, peer, known=known):
            address = login_throttle.network(peer)
            try:
                right = await self._verified.check(name, stored, password, address, is_there)
            except NoPlace as error:
                raise NotLookedAt(mechanism, str(error)) from None
            if not right:
                self._check_place(mechanism, name, peer)
                raise LoginRefused(mechanism, f"user '{name}' - invalid credentials")
        return True

    @asynccontextmanager
    async def _turn(
        self, mechanism: str, name: str, peer: str, *, known: bool = False
    ) -> AsyncIterator[None]:
        """Wait for it; a LoginRefused in here is a failure that makes the next ones wait longer."""
        wait = self._delays.turn(peer, name, known=known)
        if wait is None:
            raise LoginRefused(mechanism, f"user '{name}' - too many failed logins from there")
        is_failure = False
        try:
            if wait:
                await trio.sleep(wait)
            yield
        except LoginRefused as refusal:
            is_failure = not isinstance(refusal, NotLookedAt)
            raise
        finally:
            if is_failure:
                self._delays.failed(peer, name)
            else:
                self._delays.right(peer, name)

    def _check_place(self, mechanism: str, name: str, peer: str) -> None:
        if not self.may_enter(name, peer):
            raise LoginRefused(mechanism, f"user '{name}' can only connect via localhost")

    async def _upgrade(self, user: User, password: bytes) -> User:
        """An imported hash gives way to ours, now that the password is known. This is no Change."""
        fresh = await self._verified.make(password)
        secrets = dataclasses.replace(fresh, origin=user.secrets.stored)
        async with self._changes.one_at_a_time:
            if self._users.get(user.name) is not user:  # another login, or a change, was first
                return self._users.get(user.name) or user
            upgraded = dataclasses.replace(user, secrets=secrets)
            try:
                await self._database.commit([_upsert(upgraded)])
            except LogError as error:
                # A full disk is no reason to refuse a right password: its user may empty it.
                eventlog.warning("password hash not upgraded", user=user.name, reason=error)
                return user
            self._users[user.name] = upgraded
            self._verified.remember(user.name, secrets.stored, password)
        return upgraded

    async def keep_nobody(self) -> None:
        """A salt that changes with each start would show that there is no such user."""
        sql = "INSERT OR IGNORE INTO auth_secrets VALUES ('nobody', ?)"
        if not self._database.read("SELECT 1 FROM auth_secrets WHERE name = 'nobody'"):
            await self._database.commit([(sql, (self.nobody.hex(),))])

    # -- changing them

    async def put(
        self, name: str, password: str | bytes | None = None, tags: Sequence[str] | None = None
    ) -> User:
        """Make a user or change one; what is None stays as it is, and the same is no change."""
        secrets = None
        if password is not None:
            raw = password.encode() if isinstance(password, str) else password
            if not raw:
                raise InvalidRequest(f"user '{name}': a password can't be blank")
            if b"\0" in raw:
                raise InvalidRequest(f"user '{name}': a password can't hold a NUL")
            old = self._users.get(name)
            if old is None or not await self._verified.check(name, old.secrets.stored, raw):
                secrets = await self._verified.make(raw)
            elif not old.secrets.stored.is_current:
                await self._upgrade(old, raw)
        return await self._put(name, secrets, tags)

    async def put_hashed(
        self, name: str, password_hash: str, algorithm: str | None, tags: Sequence[str] | None
    ) -> User:
        """The same from a definitions file. A file loaded at each start changes nothing twice."""
        return await self._put(
            name, Secrets(passwords.imported(password_hash, algorithm), None, None), tags
        )

    async def clear_password(self, name: str) -> None:
        """From now on only a certificate lets that user in."""
        self.existing(name)
        await self._put(name, NO_SECRETS, None)

    async def set_verifiers(self, name: str, wanted: Mapping[str, scram.Verifier | None]) -> None:
        """A new password of which only SCRAM's verifiers are known, by mechanism: it takes the old
        one's place everywhere. PLAIN is checked against one of them, and its first login makes the
        rest. None: no longer by that mechanism. A user that isn't there yet is made."""
        _check_name(name)
        async with self._changes.one_at_a_time:
            old = self._users.get(name) or User(name)
            secrets = _with_verifiers(old.secrets, wanted)
            user = dataclasses.replace(old, secrets=secrets)
            await self._database.commit([_upsert(user)])
            self._users[name] = user
            self._verified.forget(name)
        closing = (
            f"the credentials of user '{name}' were changed" if old.secrets != NO_SECRETS else None
        )
        self._changes.tell(Change(user=name, closing=closing))

    async def set_tags(self, name: str, tags: Sequence[str]) -> None:
        self.existing(name)
        await self._put(name, None, tags)

    async def delete(self, name: str, with_it: Sequence[Statement] = ()) -> bool:
        """False: there is none. with_it: what else goes in the same transaction."""
        async with self._changes.one_at_a_time:
            if name not in self._users:
                return False
            gone: Statement = ("DELETE FROM users WHERE name = ?", (name,))
            await self._database.commit([gone, *with_it])
            del self._users[name]
            self._verified.forget(name)
        self._changes.tell(Change(name, closing=f"user '{name}' was deleted", deleted=True))
        return True

    async def _put(self, name: str, secrets: Secrets | None, tags: Sequence[str] | None) -> User:
        _check_name(name)
        async with self._changes.one_at_a_time:
            old = self._users.get(name)
            if old and secrets and secrets.stored in (old.secrets.stored, old.secrets.origin):
                secrets = None
            user = User(
                name,
                tuple(tags) if tags is not None else old.tags if old else (),
                secrets or (old.secrets if old else NO_SECRETS),
            )
            if user == old:
                return old
            await self._database.commit([_upsert(user)])
            self._users[name] = user
            if secrets is not None:
                self._verified.forget(name)
        closing = None
        if old is not None and secrets is not None:
            closing = f"the password of user '{name}' was changed"
        elif old is not None and not set(old.tags) <= set(user.tags):
            # Connections know the tags of their login.
            closing = f"tags were taken from user '{name}'"
        self._changes.tell(Change(user=name, closing=closing))
        return user


def _with_verifiers(old: Secrets, wanted: Mapping[str, scram.Verifier | None]) -> Secrets:
    new = {mechanism: each for mechanism, each in wanted.items() if each is not None}
    if new:
        strongest = new[max(new)]
        return Secrets(passwords.of_verifier(strongest), new.get(SHA_256), new.get(SHA_512))
    kept = {each: old.verifier(each) for each in scram.HASHES if each not in wanted}
    # What PLAIN was checked against goes with the mechanism that it came by.
    stored = passwords.NO_PASSWORD if old.stored.algorithm in wanted else old.stored
    return Secrets(stored, kept.get(SHA_256), kept.get(SHA_512), old.origin)


def _check_name(name: str) -> None:
    if not name or len(name.encode()) > LONGEST_NAME or has_control(name):
        raise InvalidRequest("a user's name has 1 to 255 bytes and no control characters")


_SELECT = """SELECT name, tags, hashing_algorithm, password_hash, scram_sha_256, scram_sha_512,
             imported_algorithm, imported_hash FROM users"""


def _from_row(
    name: str, tags: str, algorithm: str, hash: str, sha256: str, sha512: str, *origin: str
) -> User:
    secrets = Secrets(
        passwords.Stored(algorithm, hash),
        scram.read(sha256),
        scram.read(sha512),
        passwords.Stored(*origin) if any(origin) else None,
    )
    return User(name, tuple(json.loads(tags)), secrets)


def _upsert(user: User) -> Statement:
    secrets = user.secrets
    origin = secrets.origin or passwords.Stored("", "")
    return (
        "REPLACE INTO users VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            user.name,
            json.dumps(user.tags),
            secrets.stored.algorithm,
            secrets.stored.hash,
            str(secrets.scram_sha_256 or ""),
            str(secrets.scram_sha_512 or ""),
            origin.algorithm,
            origin.hash,
        ),
    )
