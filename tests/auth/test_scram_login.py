"""SCRAM: logins in which nobody tells the password."""

import base64
import hashlib
import hmac
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottermq.auth import Auth, scram, scram_login
from ottermq.auth.scram_login import ScramLogin
from ottermq.errors import LoginRefused, Malformed, OtterError, codes_of
from tests.auth.auth_harness import Memory, new_auth, plain, rabbit_hash
from tests.auth.scram_client import ScramClient

HERE, THERE = "127.0.0.1", "192.0.2.1"
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


async def log_in(auth: Auth, client: ScramClient, peer: str = HERE) -> str:
    login = auth.users.challenge(client.mechanism, client.first())
    user, proof = await auth.users.finish(login, client.final(login.challenge), peer)
    assert proof == client.theirs
    return user.name


async def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    verifier = scram.derive("SCRAM-SHA-256", b"pencil", salt, 4096)
    hello = scram_login.hello("SCRAM-SHA-256", b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    challenge = f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    login = ScramLogin("SCRAM-SHA-256", "user", challenge, nonce, hello, verifier, _known=True)
    proof = f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert login.check(proof.encode()) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["anna", "a=b,c", "gü"])
async def test_who_knows_the_password_comes_in(mechanism: str, name: str) -> None:
    auth = new_auth()
    await auth.users.put(name, "s3cret")
    for header in ("n,,", "y,,"):
        client = ScramClient(mechanism, name, b"s3cret", header=header)
        assert await log_in(auth, client) == name


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_who_does_not_know_it_is_refused(mechanism: str) -> None:
    auth = new_auth()
    await auth.users.put("anna", "s3cret")
    with pytest.raises(LoginRefused) as caught:
        await log_in(auth, ScramClient(mechanism, "anna", b"wrong"))
    assert codes_of(caught.value).amqp == 403
    assert str(caught.value) == (
        f"Login was refused using authentication mechanism {mechanism}."
        " For details see the broker logfile."
    )


async def test_a_nonce_that_differs_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """librdkafka before 2.6.1 says its own nonce twice."""

    class Doubled(ScramClient):
        def final(self, challenge: bytes) -> bytes:
            nonce = challenge.decode().split(",")[0].removeprefix("r=")
            hash, header = "sha256", base64.b64encode(b"n,,").decode()
            said = dict(part.split("=", 1) for part in challenge.decode().split(","))
            salt, times = base64.b64decode(said["s"]), int(said["i"])
            salted = hashlib.pbkdf2_hmac(hash, self.password, salt, times)
            without = f"c={header},r={self.nonce}{nonce}"
            spoken = f"{self.bare},{challenge.decode()},{without}".encode()
            key = hmac.digest(salted, b"Client Key", hash)
            signature = hmac.digest(hashlib.new(hash, key).digest(), spoken, hash)
            proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
            return f"{without},p={base64.b64encode(proof).decode()}".encode()

    caplog.set_level(logging.WARNING, "ottermq")
    auth = new_auth()
    await auth.users.put("anna", "s3cret")
    with pytest.raises(LoginRefused):
        await log_in(auth, Doubled("SCRAM-SHA-256", "anna", b"s3cret"))
    [line] = caplog.messages
    assert "the nonce differs" in line and "librdkafka before 2.6.1" in line


async def test_nobody_learns_who_is_there() -> None:
    auth = new_auth()
    asked = [
        auth.users.challenge("SCRAM-SHA-256", ScramClient("", "nobody", b"").first())
        for _ in range(2)
    ]
    first, second = (login.challenge.split(b",") for login in asked)
    assert first[1:] == second[1:] and first[0] != second[0]
    assert first[2] == b"i=%d" % scram.ITERATIONS
    client = ScramClient("SCRAM-SHA-256", "nobody", b"")
    with pytest.raises(LoginRefused):
        await log_in(auth, client)


async def test_a_proof_is_worth_nothing_in_another_conversation() -> None:
    auth = new_auth()
    await auth.users.put("anna", "s3cret")
    client = ScramClient("SCRAM-SHA-256", "anna", b"s3cret")
    first = auth.users.challenge(client.mechanism, client.first())
    proof = client.final(first.challenge)
    second = auth.users.challenge(client.mechanism, client.first())
    with pytest.raises(LoginRefused):
        await auth.users.finish(second, proof, HERE)
    await auth.users.finish(first, proof, HERE)


async def test_a_password_that_changes_meanwhile_lets_nobody_in() -> None:
    auth = new_auth()
    await auth.users.put("anna", "s3cret")
    client = ScramClient("SCRAM-SHA-256", "anna", b"s3cret")
    login = auth.users.challenge(client.mechanism, client.first())
    await auth.users.put("anna", "other")
    with pytest.raises(LoginRefused):
        await auth.users.finish(login, client.final(login.challenge), HERE)


async def test_the_salt_of_a_user_nobody_knows_stays_over_starts() -> None:
    disk = Memory()
    salts = []
    for _ in range(2):
        auth = new_auth(disk)
        await auth.first_start()
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            login = auth.users.challenge(mechanism, b"n,,n=nobody,r=abc")
            salts.append(login.challenge.split(b",s=")[1])
    assert salts[:2] == salts[2:]
    assert salts[0] != salts[1]  # as with users that are there


async def test_guest_comes_in_from_this_machine_only() -> None:
    auth = new_auth()
    await auth.first_start()
    client = ScramClient("SCRAM-SHA-256", "guest", b"guest")
    assert await log_in(auth, client) == "guest"
    with pytest.raises(LoginRefused):
        await log_in(auth, client, THERE)


async def test_an_imported_hash_serves_scram_after_its_first_login_by_password() -> None:
    auth = new_auth()
    await auth.users.put_hashed("anna", rabbit_hash("s3cret"), None, None)
    client = ScramClient("SCRAM-SHA-256", "anna", b"s3cret")
    with pytest.raises(LoginRefused):
        await log_in(auth, client)
    await auth.users.authenticate("PLAIN", plain("anna", "s3cret"), HERE)
    assert await log_in(auth, client) == "anna"


@pytest.mark.parametrize(
    "first",
    [
        b"", b"n", b"n,,", b"n,,n=anna", b"n,,r=abc", b"n,,n=,r=abc", b"p=tls-unique,,n=anna,r=abc",
        b"n,a=root,n=anna,r=abc", b"n,,m=more,n=anna,r=abc", b"n,,n=\xff,r=abc", b"n,,anna,abc",
    ],
)  # fmt: skip
def test_what_is_no_first_word_is_a_syntax_error(first: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        scram_login.hello("SCRAM-SHA-256", first)
    assert codes_of(caught.value).amqp == 502


@given(st.binary(max_size=80), st.sampled_from(["", "c=biws,r=", "n,,n=a,r=b", "c=biws,r=x,p="]))
def test_any_bytes_are_refused_with_one_of_our_errors(noise: bytes, start: str) -> None:
    verifier = scram.Verifier("SCRAM-SHA-256", 4096, b"salt", b"k" * 32, b"k" * 32)
    hello = scram_login.hello("SCRAM-SHA-256", b"n,,n=a,r=b")
    login = scram_login.begin("SCRAM-SHA-256", hello, verifier, b"")
    with pytest.raises(OtterError):
        login.check(start.encode() + noise)
    try:
        scram_login.hello("SCRAM-SHA-256", start.encode() + noise)
    except Malformed:
        pass
