"""SCRAM credentials that Kafka's clients set: a login by them works, and by nothing else."""

import hashlib
from typing import Any

import pytest

from ottermq.auth import open_auth, scram
from ottermq.errors import LoginRefused
from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error, KafkaError
from tests.kafka.broker_harness import Harness

SHA_256, SHA_512 = 1, 2


def upsertion(name: str, mechanism: int = SHA_256, **more: Any) -> dict[str, Any]:
    hash = {SHA_256: "sha256", SHA_512: "sha512"}.get(mechanism, "sha256")
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": hashlib.pbkdf2_hmac(hash, b"secret", b"salt", 4096),
        **more,
    }


async def alter(
    harness: Harness, upsertions: list[Any] | None = None, deletions: list[Any] | None = None
) -> dict[str, Error]:
    body = {"upsertions": upsertions or [], "deletions": deletions or []}
    answer = await harness.ask(Api.ALTER_USER_SCRAM_CREDENTIALS, body)
    return {each["user"]: Error(each["error_code"]) for each in answer["results"]}


async def describe(harness: Harness, *names: str) -> dict[str, Any]:
    users = [{"name": name} for name in names] or None
    answer = await harness.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": users})
    return {
        each["user"]: Error(each["error_code"])
        or [(info["mechanism"], info["iterations"]) for info in each["credential_infos"]]
        for each in answer["results"]
    }


async def test_a_salted_password_is_as_good_as_the_password(harness: Harness) -> None:
    assert await alter(harness, [upsertion("anna"), upsertion("bob", SHA_512)]) == {
        "anna": Error.NONE,
        "bob": Error.NONE,
    }
    verifier = harness.auth.users.existing("anna").secrets.verifier("SCRAM-SHA-256")
    assert verifier == scram.derive("SCRAM-SHA-256", b"secret", b"salt", 4096)
    assert await describe(harness, "anna", "bob") == {
        "anna": [(SHA_256, 4096)],
        "bob": [(SHA_512, 4096)],
    }


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
async def test_a_new_credential_is_the_password_everywhere(
    harness: Harness, mechanism: int
) -> None:
    users = harness.auth.users
    await users.put("anna", "password")
    await users.check_password("anna", "password", "10.0.0.1")
    await alter(harness, [upsertion("anna", mechanism)])
    secrets = users.existing("anna").secrets
    assert [secrets.verifier(name) is not None for name in scram.HASHES] == [
        mechanism == SHA_256,
        mechanism == SHA_512,
    ]
    with pytest.raises(LoginRefused):  # by PLAIN, as AMQP and Kafka have it
        await users.check_password("anna", "password", "10.0.0.1")
    await users.check_password("anna", "secret", "10.0.0.2")
    secrets = users.existing("anna").secrets  # now that it is known, all of it
    assert secrets.stored.is_current
    assert None not in [secrets.verifier(name) for name in scram.HASHES]
    await users.check_password("anna", "secret", "10.0.0.2")


async def test_both_mechanisms_can_be_set_at_once_and_outlive_a_start(harness: Harness) -> None:
    await alter(harness, [upsertion("anna"), upsertion("anna", SHA_512)])
    again = open_auth(harness.db, harness.auth.settings).users
    assert again.existing("anna") == harness.auth.users.existing("anna")
    assert await describe(harness, "anna") == {"anna": [(SHA_256, 4096), (SHA_512, 4096)]}
    await again.check_password("anna", "secret", "10.0.0.2")


async def test_credentials_go_one_by_one(harness: Harness) -> None:
    await alter(harness, [upsertion("anna"), upsertion("anna", SHA_512)])
    assert await alter(harness, deletions=[{"name": "anna", "mechanism": SHA_256}]) == {
        "anna": Error.NONE
    }
    assert await describe(harness, "anna") == {"anna": [(SHA_512, 4096)]}
    assert await alter(harness, deletions=[{"name": "anna", "mechanism": SHA_256}]) == {
        "anna": Error.RESOURCE_NOT_FOUND
    }
    assert "anna" in await describe(harness)


async def test_what_cannot_be_is_refused_user_by_user(harness: Harness) -> None:
    assert await alter(
        harness,
        [
            upsertion("few", iterations=4095),
            upsertion("many", iterations=16385),
            upsertion("odd", 9),
            upsertion(""),
            upsertion("empty", salted_password=b""),
            upsertion("twice"),
            upsertion("twice"),
            upsertion("good"),
        ],
    ) == {
        "few": Error.UNACCEPTABLE_CREDENTIAL,
        "many": Error.UNACCEPTABLE_CREDENTIAL,
        "odd": Error.UNSUPPORTED_SASL_MECHANISM,
        "": Error.UNACCEPTABLE_CREDENTIAL,
        "empty": Error.UNACCEPTABLE_CREDENTIAL,
        "twice": Error.DUPLICATE_RESOURCE,
        "good": Error.NONE,
    }
    assert harness.auth.users.get("twice") is None
    assert await describe(harness, "none", "good", "good") == {
        "none": Error.RESOURCE_NOT_FOUND,
        "good": Error.DUPLICATE_RESOURCE,
    }


async def test_credentials_are_for_administrators(harness: Harness) -> None:
    anna = await harness.auth.users.put("anna")
    with pytest.raises(KafkaError):
        await harness.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None}, user=anna)
    body = {"upsertions": [upsertion("anna")], "deletions": []}
    answer = await harness.ask(Api.ALTER_USER_SCRAM_CREDENTIALS, body, user=anna)
    assert answer["results"][0]["error_code"] == Error.CLUSTER_AUTHORIZATION_FAILED
