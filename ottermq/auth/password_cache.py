"""Checking passwords without waiting for them: threads for the work, a memory for the result.

A check costs 50 ms and 16 MiB by design. A thousand connections a second can't pay that each,
and need not: a password that was right once is remembered as its HMAC under a key that was drawn
at random when the process began. An attacker who reads the memory gets neither the password nor,
without that key, anything to test guesses against. A changed password is forgotten at once.

At most half of the cores hash at a time: messages flow on while attackers try passwords. Logins
wait by address (places.py), and hundreds with the same password at once cost one hash.

Each check costs the same, whether there is such a user or not and however its password is kept: the
time of an answer doesn't show which names exist.
"""

import hmac
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import trio

from ottermq.auth import passwords, scram
from ottermq.auth.passwords import Stored
from ottermq.auth.places import OURSELVES, Places, there

T = TypeVar("T")


@dataclass(frozen=True)
class Secrets:
    """All that is kept of one password."""

    stored: Stored
    scram_sha_256: scram.Verifier | None
    scram_sha_512: scram.Verifier | None
    # The imported hash that a login upgraded: the same definitions file, loaded again at the next
    # start, is no new password.
    origin: Stored | None = None

    def verifier(self, mechanism: str) -> scram.Verifier | None:
        return self.scram_sha_256 if mechanism == "SCRAM-SHA-256" else self.scram_sha_512


NO_SECRETS = Secrets(passwords.NO_PASSWORD, None, None)


@dataclass(eq=False)
class Check:
    """One under way."""

    done: trio.Event = field(default_factory=trio.Event)
    right: bool | None = None  # None: not known yet, or nobody could look


class PasswordCache:
    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._known: dict[str, tuple[Stored, bytes]] = {}  # one per user, at most
        self._under_way: dict[tuple[str, Stored, bytes], Check] = {}
        self.places = Places(max(1, (os.cpu_count() or 1) // 2))
        # Checked when there is no such user, or one whose hash is quick.
        self._nobody = passwords.Stored(
            passwords.SCRYPT, "$scrypt$ln=14,r=8,p=1$AAAAAAAAAAAAAAAAAAAAAA$" + "A" * 43
        )

    def is_known(self, user: str, stored: Stored | None, password: bytes) -> bool:
        held, proof = self._known.get(user, (None, b""))
        return (
            stored is not None
            and held == stored
            and hmac.compare_digest(proof, self._proof(user, password))
        )

    def under_way(self, user: str, stored: Stored | None, password: bytes) -> Check | None:
        """The same question, asked by somebody else just now."""
        return self._under_way.get(self._question(user, stored, password))

    async def check(
        self,
        user: str,
        stored: Stored | None,
        password: bytes,
        address: str = OURSELVES,
        is_there: Callable[[], bool] = there,
    ) -> bool:
        """Whether that is the password. stored is None for an unknown user. NoPlace: too many
        checks from that address wait, or the client has left."""
        if self.is_known(user, stored, password):
            return True
        question = self._question(user, stored, password)
        check = self._under_way.setdefault(question, Check())
        try:
            async with self.places.place(address, is_there):
                # While we waited another connection of the same user may have been through.
                right = self.is_known(user, stored, password)
                if not right:
                    right = await _in_thread(self._matches, stored, password)
                if right and stored is not None:
                    self.remember(user, stored, password)
                check.right = right
        finally:
            if self._under_way.get(question) is check:
                del self._under_way[question]
            check.done.set()
        return right

    def _matches(self, stored: Stored | None, password: bytes) -> bool:
        if stored is None or not stored.hash:
            self._nobody.matches(password)
            return False
        if not stored.is_current:
            self._nobody.matches(password)
        return stored.matches(password)

    async def make(self, password: bytes) -> Secrets:
        def work() -> Secrets:
            return Secrets(
                passwords.make(password),
                scram.make("SCRAM-SHA-256", password),
                scram.make("SCRAM-SHA-512", password),
            )

        async with self.places.place(OURSELVES):
            return await _in_thread(work)

    def remember(self, user: str, stored: Stored, password: bytes) -> None:
        self._known[user] = (stored, self._proof(user, password))

    def forget(self, user: str) -> None:
        self._known.pop(user, None)

    def _question(
        self, user: str, stored: Stored | None, password: bytes
    ) -> tuple[str, Stored, bytes]:
        return user, stored or self._nobody, self._proof(user, password)

    def _proof(self, user: str, password: bytes) -> bytes:
        name = user.encode()
        return hmac.digest(self._key, len(name).to_bytes(4, "big") + name + password, "sha256")


async def _in_thread(work: Callable[..., T], *arguments: object) -> T:
    """The place is ours already: the thread itself must not ask for one."""
    return await trio.to_thread.run_sync(work, *arguments, limiter=trio.CapacityLimiter(1))
