"""Checking passwords without waiting for them: threads for the work, a memory for the result.

A check costs 50 ms and 16 MiB by design. A thousand connections a second can't pay that each,
and need not: a password that was right once is remembered as its HMAC under a key that was drawn
at random when the process began. Memory read by a stranger gives neither the password nor anything
to test guesses against without that key. A changed password is forgotten at once.

At most half of the cores hash at a time: messages flow on while strangers try passwords.
"""

import hmac
import os
from dataclasses import dataclass

import trio

from ottermq.auth import passwords, scram
from ottermq.auth.passwords import Stored


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


class Verified:
    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._known: dict[str, tuple[Stored, bytes]] = {}  # one a user, at most
        self._threads = trio.CapacityLimiter(max(1, (os.cpu_count() or 1) // 2))
        # Checked when there is no such user, so that the answer takes as long as for one.
        self._nobody = passwords.Stored(
            passwords.SCRYPT, "$scrypt$ln=14,r=8,p=1$AAAAAAAAAAAAAAAAAAAAAA$" + "A" * 43
        )

    def is_known(self, user: str, stored: Stored, password: bytes) -> bool:
        held, proof = self._known.get(user, (None, b""))
        return held == stored and hmac.compare_digest(proof, self._proof(user, password))

    async def check(self, user: str, stored: Stored | None, password: bytes) -> bool:
        """Whether that is the password. stored is None for a user nobody knows."""
        against = self._nobody if stored is None or not stored.hash else stored
        if self.is_known(user, against, password):
            return True
        async with self._threads:
            # While we waited for a thread another connection of the same user may have been
            # through: hundreds that come at once cost one hash.
            if self.is_known(user, against, password):
                return True
            # The place is ours already: the thread itself must not ask for one.
            right = await trio.to_thread.run_sync(
                against.matches, password, limiter=trio.CapacityLimiter(1)
            )
            if right and against is stored:
                self.remember(user, stored, password)
        return right and against is stored

    async def make(self, password: bytes) -> Secrets:
        def work() -> Secrets:
            return Secrets(
                passwords.make(password),
                scram.make("SCRAM-SHA-256", password),
                scram.make("SCRAM-SHA-512", password),
            )

        return await trio.to_thread.run_sync(work, limiter=self._threads)

    def remember(self, user: str, stored: Stored, password: bytes) -> None:
        self._known[user] = (stored, self._proof(user, password))

    def forget(self, user: str) -> None:
        self._known.pop(user, None)

    def _proof(self, user: str, password: bytes) -> bytes:
        name = user.encode()
        return hmac.digest(self._key, len(name).to_bytes(4, "big") + name + password, "sha256")
