"""The client's half of SCRAM (RFC 5802), for tests: what a library would say."""

import base64
import hashlib
import hmac
from dataclasses import dataclass

from ottermq.auth.scram import HASHES


@dataclass
class ScramClient:
    mechanism: str
    user: str
    password: bytes
    nonce: str = "rOprNGfwEbeRWgbNEkqO"
    header: str = "n,,"

    @property
    def bare(self) -> str:
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self.nonce}"

    def first(self) -> bytes:
        return (self.header + self.bare).encode()

    def final(self, challenge: bytes) -> bytes:
        """Our proof; theirs is expected to be `self.theirs`."""
        hash = HASHES[self.mechanism]
        said = dict(part.split("=", 1) for part in challenge.decode().split(","))
        assert said["r"].startswith(self.nonce) and said["r"] != self.nonce
        salted = hashlib.pbkdf2_hmac(
            hash, self.password, base64.b64decode(said["s"]), int(said["i"])
        )
        without = f"c={base64.b64encode(self.header.encode()).decode()},r={said['r']}"
        spoken = f"{self.bare},{challenge.decode()},{without}".encode()
        key = hmac.digest(salted, b"Client Key", hash)
        signature = hmac.digest(hashlib.new(hash, key).digest(), spoken, hash)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", hash)
        self.theirs = b"v=" + base64.b64encode(hmac.digest(server_key, spoken, hash))
        return f"{without},p={base64.b64encode(proof).decode()}".encode()
