"""A login by SCRAM (RFC 5802): both sides prove that they know the password, neither sends it.

    client                                     server
    n,,n=user,r=abc                       →
                                          ←    r=abcXYZ,s=salt,i=8192          ScramLogin.challenge
    c=biws,r=abcXYZ,p=proof               →
                                          ←    v=signature                     ScramLogin.check

The proof is ClientKey XOR HMAC(StoredKey, all messages so far): it takes the password to make it,
and it is worth nothing in another login. No I/O here: AMQP carries the messages in
connection.secure and secure-ok, Kafka in SaslAuthenticate.

A login for an unknown user gets a challenge, too, with a salt that stays the same: nobody can find
out by trying which users there are.
"""

import base64
import binascii
import hashlib
import hmac
import os
from dataclasses import dataclass

from ottermq.auth import scram
from ottermq.auth.scram import Verifier
from ottermq.errors import LoginRefused, Malformed

_NONCE_SIZE = 18


@dataclass(frozen=True)
class Hello:
    """The client's first word."""

    user: str
    nonce: str
    header: bytes  # which channel binding, on whose behalf: repeated in its last word
    bare: bytes  # what is proved with it


@dataclass(frozen=True)
class ScramLogin:
    """A login under way: the challenge is out, the proof isn't in."""

    mechanism: str
    user: str
    challenge: bytes
    nonce: str
    _hello: Hello
    _verifier: Verifier
    _known: bool

    def is_against(self, verifier: Verifier | None) -> bool:
        """Is that still what the proof was checked against?"""
        return verifier == self._verifier

    def check(self, proof: bytes) -> bytes:
        """Our own proof, for the client. LoginRefused: it doesn't know the password."""
        without, _, encoded = proof.rpartition(b",p=")
        said = _attributes(without, self.mechanism)
        if said.get("c") != base64.b64encode(self._hello.header).decode():
            raise Malformed(f"{self.mechanism} response invalid")
        hash = scram.HASHES[self.mechanism]
        spoken = b",".join((self._hello.bare, self.challenge, without))
        signature = hmac.digest(self._verifier.stored_key, spoken, hash)
        key = _xor(_decoded(encoded, self.mechanism), signature)
        right = hmac.compare_digest(hashlib.new(hash, key).digest(), self._verifier.stored_key)
        if not (right and self._known):
            raise LoginRefused(self.mechanism, f"user '{self.user}' - invalid credentials")
        if (nonce := said.get("r", "")) != self.nonce:
            raise LoginRefused(self.mechanism, f"user '{self.user}' - {self._odd(nonce)}")
        ours = hmac.digest(self._verifier.server_key, spoken, hash)
        return b"v=" + base64.b64encode(ours)

    def _odd(self, nonce: str) -> str:
        """Why a proof that is right doesn't count; for the log."""
        if nonce == self._hello.nonce + self.nonce:
            return (
                "the nonce differs: the client's own comes twice, as from librdkafka before 2.6.1,"
                " which needs an update (or SASL PLAIN)"
            )
        return "the nonce differs from the one in our challenge"


def hello(mechanism: str, first: bytes) -> Hello:
    binding, _, rest = first.partition(b",")
    behalf, comma, bare = rest.partition(b",")
    said = _attributes(bare, mechanism)
    user, nonce = said.get("n", ""), said.get("r", "")
    # No channel binding is offered, so none can be asked for; m= is a must that nobody knows yet.
    if binding not in (b"n", b"y") or not (comma and user and nonce) or "m" in said:
        raise Malformed(f"{mechanism} response invalid")
    name = user.replace("=2C", ",").replace("=3D", "=")
    if behalf not in (b"", b"a=" + user.encode()):
        raise Malformed(f"{mechanism} response invalid")
    return Hello(name, nonce, binding + b"," + behalf + b",", bare)


def begin(mechanism: str, hello: Hello, verifier: Verifier | None, nobody: bytes) -> ScramLogin:
    """verifier: None when there is no such user, or none that SCRAM could let in. nobody: the seed
    of the salts of those; the same over all starts."""
    against = verifier or _nobody(mechanism, hello.user, nobody)
    nonce = hello.nonce + base64.b64encode(os.urandom(_NONCE_SIZE)).decode()
    salt = base64.b64encode(against.salt).decode()
    challenge = f"r={nonce},s={salt},i={against.iterations}".encode()
    return ScramLogin(
        mechanism, hello.user, challenge, nonce, hello, against, _known=verifier is not None
    )


def _nobody(mechanism: str, name: str, nobody: bytes) -> Verifier:
    # Users have a salt for each mechanism.
    salt = hmac.digest(nobody, f"{mechanism} {name}".encode(), "sha256")[: scram.SALT_SIZE]
    key = hmac.digest(nobody, salt, scram.HASHES[mechanism])
    return Verifier(mechanism, scram.ITERATIONS, salt, key, key)


def _attributes(text: bytes, mechanism: str) -> dict[str, str]:
    try:
        return dict(part.split("=", 1) for part in text.decode().split(","))
    except ValueError:  # not UTF-8, or without a =
        raise Malformed(f"{mechanism} response invalid") from None


def _decoded(text: bytes, mechanism: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise Malformed(f"{mechanism} response invalid") from None


def _xor(one: bytes, other: bytes) -> bytes:
    """As long as the shorter; a proof of the wrong length proves nothing."""
    return bytes(a ^ b for a, b in zip(one, other, strict=False))
