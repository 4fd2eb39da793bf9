"""How a password is kept: never itself, only what it can be checked against.

New ones are kept as scrypt, written in the PHC form

    $scrypt$ln=14,r=8,p=1$<salt>$<hash>         (base64 without padding)

A RabbitMQ definitions file has base64(salt + H(salt + password)) with 4 bytes of salt and one
round of SHA-256, SHA-512 or MD5. Such a hash is taken as it is, for nobody knows the password
yet, and kept as scrypt from the first login on. So is a password that a Kafka client set: the
client sent only a SCRAM verifier of it.

Nothing here waits or remembers; all of it is slow on purpose. See password_cache.py.
"""

import base64
import binascii
import hashlib
import hmac
import os
import re
from dataclasses import dataclass

from ottermq.auth import scram
from ottermq.errors import InvalidRequest

SCRYPT = "scrypt"
# 16 MiB and about 50 ms: what OWASP asks for an interactive login, times one in parallelism.
COST, BLOCK, LANES = 14, 8, 1
MOST_COST = 17  # of a hash somebody imports: at most 128 MiB per check
SALT_SIZE, HASH_SIZE = 16, 32

RABBIT_SALT_SIZE = 4
RABBIT = {
    "rabbit_password_hashing_sha256": "sha256",
    "rabbit_password_hashing_sha512": "sha512",
    "rabbit_password_hashing_md5": "md5",
}

_PHC = re.compile(
    r"\$scrypt\$ln=([0-9]{1,2}),r=([0-9]{1,2}),p=([0-9])\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)"
)


@dataclass(frozen=True)
class Stored:
    """A hash and how it was made, in the words of a definitions file. Empty: no password."""

    algorithm: str
    hash: str

    @property
    def is_current(self) -> bool:
        return self.algorithm == SCRYPT

    def matches(self, password: bytes) -> bool:
        if not self.hash or not password:
            return False
        if self.algorithm == SCRYPT:
            cost, block, lanes, salt, expected = _read_scrypt(self.hash)
            found = _scrypt(password, salt, cost, block, lanes, len(expected))
        elif self.algorithm in scram.HASHES:
            known = scram.read(self.hash)
            assert known is not None
            expected = known.stored_key
            found = scram.derive(self.algorithm, password, known.salt, known.iterations).stored_key
        else:
            raw = base64.b64decode(self.hash)
            salt, expected = raw[:RABBIT_SALT_SIZE], raw[RABBIT_SALT_SIZE:]
            found = hashlib.new(RABBIT[self.algorithm], salt + password).digest()
        return hmac.compare_digest(found, expected)


NO_PASSWORD = Stored(SCRYPT, "")


def make(password: bytes) -> Stored:
    salt = os.urandom(SALT_SIZE)
    key = _scrypt(password, salt, COST, BLOCK, LANES, HASH_SIZE)
    numbers = f"ln={COST},r={BLOCK},p={LANES}"
    return Stored(SCRYPT, f"$scrypt${numbers}${_base64(salt)}${_base64(key)}")


def of_verifier(verifier: scram.Verifier) -> Stored:
    """For a password that was set by SCRAM: it was never sent, but it can be checked."""
    return Stored(verifier.mechanism, str(verifier))


def imported(hash: str, algorithm: str | None) -> Stored:
    """A definitions file's entry for a password; InvalidRequest if it can't be one.

    No algorithm is SHA-256, RabbitMQ's default since 3.6. An empty hash is no password: such a
    user comes in by certificate.
    """
    algorithm = algorithm or "rabbit_password_hashing_sha256"
    if algorithm != SCRYPT and algorithm not in RABBIT and algorithm not in scram.HASHES:
        raise InvalidRequest(f"unknown password hashing algorithm {algorithm}")
    if hash and not _is_sound(hash, algorithm):
        raise InvalidRequest(f"not a password hash of {algorithm}")
    return Stored(algorithm, hash) if hash else NO_PASSWORD


def _is_sound(hash: str, algorithm: str) -> bool:
    try:
        if algorithm == SCRYPT:
            cost, block, lanes, *_ = _read_scrypt(hash)
            return 1 <= cost <= MOST_COST and 1 <= block <= BLOCK and 1 <= lanes <= 4
        if algorithm in scram.HASHES:
            verifier = scram.read(hash)
            return verifier is not None and 1 <= verifier.iterations <= scram.MOST_ITERATIONS
        raw = base64.b64decode(hash, validate=True)
        return len(raw) == RABBIT_SALT_SIZE + hashlib.new(RABBIT[algorithm]).digest_size
    except (ValueError, binascii.Error):
        return False


def _scrypt(password: bytes, salt: bytes, cost: int, block: int, lanes: int, size: int) -> bytes:
    memory = 128 * block * ((1 << cost) + lanes + 2)
    return hashlib.scrypt(
        password, salt=salt, n=1 << cost, r=block, p=lanes, dklen=size, maxmem=2 * memory
    )


def _read_scrypt(text: str) -> tuple[int, int, int, bytes, bytes]:
    match = _PHC.fullmatch(text)
    if match is None:
        raise ValueError("not a scrypt hash")
    cost, block, lanes = int(match[1]), int(match[2]), int(match[3])
    return cost, block, lanes, _unbase64(match[4]), _unbase64(match[5])


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).rstrip(b"=").decode()


def _unbase64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4))
