"""How passwords are kept: ours, RabbitMQ's, and what SCRAM needs."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottermq.auth import passwords, scram
from ottermq.errors import InvalidRequest
from tests.auth.auth_harness import rabbit_hash


def test_a_password_matches_its_hash_and_no_other_does() -> None:
    stored = passwords.make("grüße".encode())
    assert stored.is_current and "grüße" not in stored.hash
    assert stored.matches("grüße".encode())
    assert not stored.matches(b"other") and not stored.matches(b"")


def test_the_same_password_is_kept_differently_each_time() -> None:
    assert passwords.make(b"secret") != passwords.make(b"secret")


def test_a_password_that_was_cleared_matches_nothing() -> None:
    for attempt in (b"", b"x"):
        assert not passwords.NO_PASSWORD.matches(attempt)


@pytest.mark.parametrize("algorithm", sorted(passwords.RABBIT))
def test_rabbitmqs_hashes_are_checked_as_rabbitmq_does(algorithm: str) -> None:
    stored = passwords.imported(rabbit_hash("secret", algorithm), algorithm)
    assert stored.matches(b"secret") and not stored.matches(b"Secret")
    assert not stored.is_current


def test_a_hash_that_rabbitmqs_documentation_shows_is_taken() -> None:
    """The example of "Credentials and Passwords": salt 908D C60A, password test12."""
    stored = passwords.imported("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", None)
    assert stored.algorithm == "rabbit_password_hashing_sha256"
    assert stored.matches(b"test12")


def test_our_own_hash_can_be_exported_and_imported() -> None:
    stored = passwords.make(b"secret")
    assert passwords.imported(stored.hash, stored.algorithm) == stored


def test_an_empty_hash_is_no_password_whatever_the_algorithm() -> None:
    assert passwords.imported("", "rabbit_password_hashing_md5") == passwords.NO_PASSWORD


@pytest.mark.parametrize(
    ("hash", "algorithm"),
    [
        ("AAAA", "rabbit_password_hashing_sha256"),
        ("not base64!", "rabbit_password_hashing_sha256"),
        (rabbit_hash("x", "rabbit_password_hashing_sha512"), "rabbit_password_hashing_sha256"),
        ("$scrypt$ln=30,r=8,p=1$AAAA$AAAA", "scrypt"),  # 1 TiB of memory
        ("$scrypt$ln=0,r=8,p=1$AAAA$AAAA", "scrypt"),
        ("$scrypt$ln=14,r=8,p=1$AAAAA$AAAA", "scrypt"),  # no base64 has that length
        ("", "rabbit_password_hashing_sha1"),
    ],
)
def test_a_hash_that_can_not_be_one_is_refused(hash: str, algorithm: str) -> None:
    with pytest.raises(InvalidRequest):
        passwords.imported(hash, algorithm)


@given(st.text(max_size=100), st.sampled_from([*passwords.RABBIT, "scrypt"]))
def test_any_text_is_a_hash_or_refused(text: str, algorithm: str) -> None:
    try:
        passwords.imported(text, algorithm)
    except InvalidRequest:
        pass


# -- SCRAM


@pytest.mark.parametrize("mechanism", sorted(scram.HASHES))
def test_a_verifier_checks_a_clients_proof_and_proves_the_server(mechanism: str) -> None:
    """The client's side of RFC 5802, from the password and what a server sends of it."""
    hash, verifier = scram.HASHES[mechanism], scram.make(mechanism, b"pencil")
    salted = hashlib.pbkdf2_hmac(hash, b"pencil", verifier.salt, verifier.iterations)
    client_key = hmac.digest(salted, b"Client Key", hash)
    message = b"n=user,r=abc,r=abcdef,s=...,i=8192,c=biws,r=abcdef"
    stored = hashlib.new(hash, client_key).digest()
    signature = hmac.digest(stored, message, hash)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))

    expected = hmac.digest(verifier.stored_key, message, hash)
    recovered = bytes(a ^ b for a, b in zip(proof, expected, strict=True))
    assert hashlib.new(hash, recovered).digest() == verifier.stored_key
    assert verifier.server_key == hmac.digest(salted, b"Server Key", hash)


def test_the_keys_are_those_of_the_rfcs_example() -> None:
    """RFC 7677, section 3: user "user", password "pencil"."""
    salt, rounds = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, rounds)
    verifier = scram.derive("SCRAM-SHA-256", b"pencil", salt, rounds)
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    server = hmac.digest(verifier.server_key, message, "sha256")
    assert base64.b64encode(server) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert verifier.server_key == hmac.digest(salted, b"Server Key", "sha256")


def test_a_verifier_reads_back_as_it_was_written() -> None:
    verifier = scram.make("SCRAM-SHA-512", b"secret")
    assert scram.read(str(verifier)) == verifier
    assert scram.read("") is None
