"""SCRAM's verifiers, made when a password is set (RFC 5802, 7677).

SCRAM never sends the password, so no verifier can be made at a login: one is kept for each hash
from the start. A verifier is enough to check a login, and not enough to log in:

    SaltedPassword = PBKDF2(password, salt, iterations)
    StoredKey = H(HMAC(SaltedPassword, "Client Key"))
    ServerKey = HMAC(SaltedPassword, "Server Key")

Written as SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>, the way PostgreSQL does.
"""

import base64
import hashlib
import hmac
import os
from dataclasses import dataclass

# Kafka's clients take 4,096 and up; its own tools allow at most 16,384.
ITERATIONS = 8192
MOST_ITERATIONS = 16384
SALT_SIZE = 16
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


@dataclass(frozen=True)
class Verifier:
    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __str__(self) -> str:
        salt, stored, server = (
            base64.b64encode(part).decode()
            for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"{self.mechanism}${self.iterations}:{salt}${stored}:{server}"


def make(mechanism: str, password: bytes) -> Verifier:
    return derive(mechanism, password, os.urandom(SALT_SIZE), ITERATIONS)


def derive(mechanism: str, password: bytes, salt: bytes, iterations: int) -> Verifier:
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations)
    return from_salted(mechanism, salted, salt, iterations)


def from_salted(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Verifier:
    """For callers that know the salted password only."""
    hash = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", hash)
    return Verifier(
        mechanism,
        iterations,
        salt,
        stored_key=hashlib.new(hash, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", hash),
    )


def read(text: str) -> Verifier | None:
    """A verifier as it was written; empty: there is none yet."""
    if not text:
        return None
    mechanism, numbers, keys = text.split("$")
    iterations, salt = numbers.split(":")
    stored, server = keys.split(":")
    return Verifier(
        mechanism, int(iterations), *(base64.b64decode(part) for part in (salt, stored, server))
    )
