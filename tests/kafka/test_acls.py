"""Kafka's ACLs and our permissions are two ways to say the same."""

from typing import Any

import pytest

from ottermq.auth import Permission, User
from ottermq.kafka.acls import (
    ALLOW,
    DENY,
    Operation,
    Pattern,
    Resource,
    acls_of,
    alternatives,
    name_of,
    with_name,
    without_name,
)
from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from tests.kafka.rooms import House

LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED


@pytest.mark.parametrize(
    "expression, parts",
    [
        ("", []),
        ("^a$", ["^a$"]),
        ("^a$|^b", ["^a$", "^b"]),
        ("(a|b)|[|]", ["(a|b)", "[|]"]),
        (r"a\|b|c", [r"a\|b", "c"]),
    ],
)
def test_an_expression_is_made_of_alternatives(expression: str, parts: list[str]) -> None:
    assert alternatives(expression) == parts


@pytest.mark.parametrize(
    "alternative, name",
    [
        ("^orders$", (LITERAL, "orders")),
        (r"^team\.orders\-1$", (LITERAL, "team.orders-1")),
        ("^team", (PREFIXED, "team")),
        ("^team.*", (PREFIXED, "team")),
        (".*", (LITERAL, "*")),
        (r"^a\w$", None),
        (r"^a\d", None),
        ("orders", None),
        ("^(a|b)$", None),
        ("^a.c$", None),
        ("^$", None),
    ],
)
def test_some_alternatives_have_a_name_in_kafka(alternative: str, name: Any) -> None:
    assert name_of(alternative) == name


def test_names_come_and_go_beside_what_was_written_by_hand() -> None:
    by_hand = r"^x\d+$|(a|b)"
    grown = with_name(with_name(by_hand, (LITERAL, "a.b")), (PREFIXED, "team-"))
    assert grown == r"^x\d+$|(a|b)|^a\.b$|^team\-"
    assert with_name(grown, (LITERAL, "a.b")) == grown
    assert without_name(without_name(grown, (LITERAL, "a.b")), (PREFIXED, "team-")) == by_hand
    assert without_name("^a$", (LITERAL, "a")) == ""


def test_all_three_are_all_and_fewer_are_named() -> None:
    acls = list(acls_of(Permission("anna", "/", "^a$", "^a$", "^a$|^b$")))
    of_a = {(acl.resource, acl.operation) for acl in acls if acl.name == "a"}
    assert of_a == {
        (Resource.TOPIC, Operation.ALL),
        (Resource.GROUP, Operation.ALL),
        (Resource.TRANSACTIONAL_ID, Operation.ALL),
    }
    of_b = {(acl.resource, acl.operation) for acl in acls if acl.name == "b"}
    assert of_b == {
        (Resource.TOPIC, Operation.READ),
        (Resource.TOPIC, Operation.DESCRIBE),
        (Resource.GROUP, Operation.READ),
        (Resource.GROUP, Operation.DESCRIBE),
    }


def creation(operation: Operation, name: str = "orders", **more: Any) -> dict[str, Any]:
    return {
        "resource_type": Resource.TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:anna",
        "host": "*",
        "operation": operation,
        "permission_type": ALLOW,
        **more,
    }


def wanted(**more: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": Resource.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": Pattern.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": 1,
        **more,
    }


async def create(house: House, *creations: dict[str, Any], user: User | None = None) -> list[Error]:
    answer = await house.ask(Api.CREATE_ACLS, {"creations": creations}, user=user)
    return [Error(each["error_code"]) for each in answer["results"]]


async def describe(house: House, **more: Any) -> list[tuple[str, int]]:
    answer = await house.ask(Api.DESCRIBE_ACLS, wanted(**more))
    return [
        (resource["resource_name"], acl["operation"])
        for resource in answer["resources"]
        for acl in resource["acls"]
    ]


def granted(house: House) -> tuple[str, str, str]:
    [entry] = house.auth.permissions.entries("anna", "/")
    return entry.configure, entry.write, entry.read


@pytest.fixture
async def anna(house: House) -> User:
    return await house.auth.users.put("anna")


async def test_an_acl_is_granted_described_and_taken_away(house: House, anna: User) -> None:
    assert await create(house, creation(Operation.READ), creation(Operation.WRITE, "clicks")) == [
        Error.NONE,
        Error.NONE,
    ]
    assert granted(house) == ("", "^clicks$", "^orders$")
    assert house.auth.permissions.allows(anna, "/", "read", "queue", "orders")
    assert not house.auth.permissions.allows(anna, "/", "read", "queue", "orders2")
    of_orders = await describe(
        house, resource_type_filter=Resource.TOPIC, resource_name_filter="orders"
    )
    assert of_orders == [("orders", Operation.READ), ("orders", Operation.DESCRIBE)]
    answer = await house.ask(Api.DELETE_ACLS, {"filters": [wanted(resource_name_filter="orders")]})
    [result] = answer["filter_results"]
    assert {acl["operation"] for acl in result["matching_acls"]} == {
        Operation.READ,
        Operation.DESCRIBE,
    }
    assert granted(house) == ("", "^clicks$", "")


async def test_a_filter_by_what_would_match_finds_prefixes_and_wildcards(
    house: House, anna: User
) -> None:
    await create(
        house,
        creation(Operation.READ, "orders"),
        creation(Operation.READ, "ord", resource_pattern_type=PREFIXED),
        creation(Operation.READ, "*"),
        creation(Operation.READ, "other"),
    )
    found = await describe(
        house,
        resource_type_filter=Resource.TOPIC,
        resource_name_filter="orders",
        pattern_type_filter=Pattern.MATCH,
        operation=Operation.READ,
        principal_filter="User:anna",
    )
    assert sorted(name for name, _ in found) == ["*", "ord", "orders"]
    assert house.auth.permissions.allows(anna, "/", "read", "queue", "anything")


async def test_what_our_permissions_cannot_say_is_refused(house: House, anna: User) -> None:
    refused = [
        creation(Operation.READ, permission_type=DENY),
        creation(Operation.READ, host="10.0.0.1"),
        creation(Operation.READ, principal="User:nobody"),
        creation(Operation.READ, principal="Group:anna"),
        creation(Operation.ALTER, resource_type=Resource.CLUSTER),
        creation(Operation.CLUSTER_ACTION),
        creation(Operation.READ, resource_pattern_type=Pattern.MATCH),
        creation(Operation.READ, ""),
    ]
    assert await create(house, *refused) == [Error.INVALID_REQUEST] * len(refused)
    assert house.auth.permissions.entries("anna") == []
    assert await create(
        house, creation(Operation.IDEMPOTENT_WRITE, "kafka-cluster", resource_type=Resource.CLUSTER)
    ) == [Error.NONE]


async def test_only_administrators_see_and_change_acls(house: House, anna: User) -> None:
    refused = Error.CLUSTER_AUTHORIZATION_FAILED
    assert await create(house, creation(Operation.READ), user=anna) == [refused]
    answer = await house.ask(Api.DELETE_ACLS, {"filters": [wanted()]}, user=anna)
    assert answer["filter_results"][0]["error_code"] == refused
