"""Quotas: who shares one, how long those who passed it keep away."""

from pathlib import Path
from typing import Any

import pytest

from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from ottermq.kafka.quotas import ANY, CONSUME, DEFAULT, EXACT, PRODUCE, Bucket, Entity
from tests.kafka.broker_harness import Harness, open_harness

ANNA: Entity = (("user", "anna"),)


def test_a_second_of_the_rate_may_be_moved_at_once() -> None:
    bucket = Bucket(rate=100, level=100, at=0)
    assert bucket.take(100, 0) == 0
    assert bucket.take(50, 0) == 0.5
    assert bucket.take(0, 0.5) == 0
    assert bucket.take(100, 10) == 0


async def alter(harness: Harness, entity: dict[str, str | None], **ops: float | None) -> Error:
    entry = {
        "entity": [{"entity_type": type, "entity_name": name} for type, name in entity.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in ops.items()
        ],
    }
    answer = await harness.ask(Api.ALTER_CLIENT_QUOTAS, {"entries": [entry]})
    return Error(answer["entries"][0]["error_code"])


async def describe(
    harness: Harness, *components: tuple[str, int, str | None], strict: bool
) -> list[Any]:
    body = {
        "components": [
            {"entity_type": type, "match_type": how, "match": name}
            for type, how, name in components
        ],
        "strict": strict,
    }
    answer = await harness.ask(Api.DESCRIBE_CLIENT_QUOTAS, body)
    return [
        {part["entity_type"]: part["entity_name"] for part in entry["entity"]}
        for entry in answer["entries"]
    ]


async def test_the_most_specific_quota_counts(harness: Harness) -> None:
    quotas = harness.context.quotas
    await alter(harness, {"client-id": None}, producer_byte_rate=1)
    assert quotas.of("anna", "app", PRODUCE) == ((("client-id", "app"),), 1)
    assert quotas.of("anna", None, PRODUCE) == ((("client-id", None),), 1)
    await alter(harness, {"user": None}, producer_byte_rate=2)
    assert quotas.of("anna", "app", PRODUCE) == ((("user", "anna"),), 2)
    await alter(harness, {"user": "anna"}, producer_byte_rate=3)
    assert quotas.of("anna", "app", PRODUCE) == (ANNA, 3)
    await alter(harness, {"user": "anna", "client-id": "app"}, producer_byte_rate=4)
    assert quotas.of("anna", "app", PRODUCE) == ((("user", "anna"), ("client-id", "app")), 4)
    assert quotas.of("anna", "other", PRODUCE) == (ANNA, 3)
    assert quotas.of("anna", "app", CONSUME) is None


async def test_quotas_are_described_by_filters(harness: Harness) -> None:
    entities: list[dict[str, str | None]] = [
        {"user": "anna"}, {"user": None}, {"user": "anna", "client-id": "app"},
    ]  # fmt: skip
    for entity in entities:
        await alter(harness, entity, consumer_byte_rate=1000)
    assert await describe(harness, ("user", EXACT, "anna"), strict=True) == [{"user": "anna"}]
    assert len(await describe(harness, ("user", EXACT, "anna"), strict=False)) == 2
    assert await describe(harness, ("user", DEFAULT, None), strict=False) == [{"user": None}]
    assert len(await describe(harness, ("user", ANY, None), strict=False)) == 3
    assert len(await describe(harness, strict=False)) == 3


async def test_quotas_last_until_they_are_removed(tmp_path: Path) -> None:
    async with open_harness(tmp_path / "data") as harness:
        await alter(harness, {"user": "anna"}, producer_byte_rate=1000, consumer_byte_rate=2000)
        await alter(harness, {"user": "anna"}, consumer_byte_rate=None)
        await alter(harness, {"user": "gone"}, consumer_byte_rate=1)
        await alter(harness, {"user": "gone"}, consumer_byte_rate=None)
    async with open_harness(tmp_path / "data") as harness:
        assert harness.context.quotas.values == {ANNA: {PRODUCE: 1000}}


@pytest.mark.parametrize(
    "entity, ops",
    [
        ({"planet": "mars"}, {"producer_byte_rate": 1}),
        ({}, {"producer_byte_rate": 1}),
        ({"user": ""}, {"producer_byte_rate": 1}),
        ({"user": "anna"}, {"hats": 1}),
        ({"user": "anna"}, {"producer_byte_rate": -1}),
        ({"user": "anna"}, {"request_percentage": 50}),
        ({"user": "anna"}, {"controller_mutation_rate": 10}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 10}),
    ],
)
async def test_what_is_no_quota_is_refused(harness: Harness, entity: Any, ops: Any) -> None:
    assert await alter(harness, entity, **ops) is Error.INVALID_REQUEST
    assert harness.context.quotas.values == {}


async def test_a_quota_that_is_not_enforced_is_refused_in_so_many_words(harness: Harness) -> None:
    entry = {
        "entity": [{"entity_type": "user", "entity_name": "anna"}],
        "ops": [{"key": "request_percentage", "value": 50.0, "remove": False}],
    }
    [told] = (await harness.ask(Api.ALTER_CLIENT_QUOTAS, {"entries": [entry]}))["entries"]
    assert told["error_code"] == Error.INVALID_REQUEST
    assert told["error_message"].startswith("request_percentage isn't enforced here")


async def test_one_from_before_can_be_removed(harness: Harness) -> None:
    await harness.context.quotas.set(ANNA, {"request_percentage": 50.0})
    assert await alter(harness, {"user": "anna"}, request_percentage=None) is Error.NONE
    assert harness.context.quotas.values == {}


async def test_there_are_no_quotas_of_addresses(harness: Harness) -> None:
    await alter(harness, {"user": "anna"}, producer_byte_rate=1)
    for strict in (False, True):
        assert await describe(harness, ("ip", ANY, None), strict=strict) == []


async def test_quotas_are_for_administrators(harness: Harness) -> None:
    anna = await harness.auth.users.put("anna")
    entry = {"entity": [{"entity_type": "user", "entity_name": "anna"}], "ops": []}
    answer = await harness.ask(Api.ALTER_CLIENT_QUOTAS, {"entries": [entry]}, user=anna)
    assert answer["entries"][0]["error_code"] == Error.CLUSTER_AUTHORIZATION_FAILED
