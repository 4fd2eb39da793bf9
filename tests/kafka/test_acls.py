"""Kafka's ACLs and our permissions are two ways to say the same."""

from typing import Any

import pytest

from ottermq.auth import Grants, Permission, User
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
from tests.kafka.broker_harness import Harness

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


def test_operations_are_named_one_by_one_and_are_all_to_who_asks_for_all() -> None:
    entry = Permission("anna", "/", "^a$", "^a$", "^a$|^b$")
    acls = list(acls_of(entry))
    assert {acl.resource for acl in acls} == {Resource.TOPIC}
    of_a = {acl.operation for acl in acls if acl.name == "a"}
    assert {Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE} < of_a
    assert Operation.ALL not in of_a
    of_b = {acl.operation for acl in acls if acl.name == "b"}
    assert of_b == {Operation.READ, Operation.DESCRIBE}
    assert [(acl.name, acl.operation) for acl in acls_of(entry, as_all=True)] == [
        ("a", Operation.ALL)
    ]


async def revoke(harness: Harness, **more: Any) -> int:
    answer = await harness.ask(Api.DELETE_ACLS, {"filters": [wanted(**more)]})
    [result] = answer["filter_results"]
    assert result["error_code"] == Error.NONE
    return len(result["matching_acls"])


@pytest.mark.parametrize("how", ["one by one", "all at once"])
async def test_a_revoked_read_is_revoked(harness: Harness, anna: User, how: str) -> None:
    if how == "all at once":
        await create(harness, creation(Operation.ALL))
    else:
        await create(harness, *map(creation, (Operation.READ, Operation.WRITE, Operation.CREATE)))
    assert await revoke(harness, operation=Operation.READ, resource_name_filter="orders") == 1
    assert granted(harness) == ("^orders$", "^orders$", "")
    await create(harness, creation(Operation.READ))
    assert await revoke(harness, operation=Operation.ALL, resource_name_filter="orders") == 1
    assert granted(harness) == ("", "", "")


async def test_an_acl_for_a_group_or_a_transactional_id_opens_no_topic(
    harness: Harness, anna: User
) -> None:
    await harness.queue("secret")
    await create(
        harness,
        creation(Operation.READ, "*", resource_type=Resource.GROUP),
        creation(Operation.WRITE, "*", resource_type=Resource.TRANSACTIONAL_ID),
        creation(Operation.READ, "orders"),
    )
    assert granted(harness) == ("", "", "^orders$")
    for type, key in ((0, "any-group"), (1, "any-id")):
        body = {"key_type": type, "coordinator_keys": [key]}
        [told] = (await harness.ask(Api.FIND_COORDINATOR, body, user=anna))["coordinators"]
        assert told["error_code"] == Error.NONE
    begun = {"transactional_id": "mine", "transaction_timeout_ms": 1000, "producer_id": -1}
    told = await harness.ask(Api.INIT_PRODUCER_ID, begun | {"producer_epoch": -1}, user=anna)
    assert told["error_code"] == Error.NONE
    part = {"partition_index": 0, "timestamp": -1}
    asked = {"topics": [{"name": "secret", "partitions": [part]}]}
    [topic] = (await harness.ask(Api.LIST_OFFSETS, asked, user=anna))["topics"]
    assert topic["partitions"][0]["error_code"] == Error.TOPIC_AUTHORIZATION_FAILED
    assert await revoke(harness, resource_type_filter=Resource.GROUP) == 1
    [told] = (
        await harness.ask(
            Api.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["any-group"]}, user=anna
        )
    )["coordinators"]
    assert told["error_code"] == Error.GROUP_AUTHORIZATION_FAILED
    assert granted(harness) == ("", "", "^orders$")


async def test_acls_for_who_is_no_user_yet_are_kept(harness: Harness) -> None:
    assert await create(
        harness,
        creation(Operation.READ),
        creation(Operation.READ, "g", resource_type=Resource.GROUP),
    ) == [Error.NONE, Error.NONE]
    assert {name for name, _ in await describe(harness, principal_filter="User:anna")} == {
        "orders",
        "g",
    }
    anna = await harness.auth.users.put("anna")
    assert harness.auth.permissions.allows(anna, "/", "read", "queue", "orders")
    again = Grants(harness.db, harness.auth.changes)  # as the next start reads them
    assert again.allows("anna", "/", "GROUP", "g", ("READ",))
    await harness.auth.delete_user("anna")
    assert await describe(harness, principal_filter="User:anna") == []


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


async def create(
    harness: Harness, *creations: dict[str, Any], user: User | None = None
) -> list[Error]:
    answer = await harness.ask(Api.CREATE_ACLS, {"creations": creations}, user=user)
    return [Error(each["error_code"]) for each in answer["results"]]


async def describe(harness: Harness, **more: Any) -> list[tuple[str, int]]:
    answer = await harness.ask(Api.DESCRIBE_ACLS, wanted(**more))
    return [
        (resource["resource_name"], acl["operation"])
        for resource in answer["resources"]
        for acl in resource["acls"]
    ]


def granted(harness: Harness) -> tuple[str, str, str]:
    [entry] = harness.auth.permissions.entries("anna", "/")
    return entry.configure, entry.write, entry.read


@pytest.fixture
async def anna(harness: Harness) -> User:
    return await harness.auth.users.put("anna")


async def test_an_acl_is_granted_described_and_taken_away(harness: Harness, anna: User) -> None:
    assert await create(harness, creation(Operation.READ), creation(Operation.WRITE, "clicks")) == [
        Error.NONE,
        Error.NONE,
    ]
    assert granted(harness) == ("", "^clicks$", "^orders$")
    assert harness.auth.permissions.allows(anna, "/", "read", "queue", "orders")
    assert not harness.auth.permissions.allows(anna, "/", "read", "queue", "orders2")
    of_orders = await describe(
        harness, resource_type_filter=Resource.TOPIC, resource_name_filter="orders"
    )
    assert of_orders == [("orders", Operation.READ), ("orders", Operation.DESCRIBE)]
    answer = await harness.ask(
        Api.DELETE_ACLS, {"filters": [wanted(resource_name_filter="orders")]}
    )
    [result] = answer["filter_results"]
    assert {acl["operation"] for acl in result["matching_acls"]} == {
        Operation.READ,
        Operation.DESCRIBE,
    }
    assert granted(harness) == ("", "^clicks$", "")


async def test_a_filter_by_what_would_match_finds_prefixes_and_wildcards(
    harness: Harness, anna: User
) -> None:
    await create(
        harness,
        creation(Operation.READ, "orders"),
        creation(Operation.READ, "ord", resource_pattern_type=PREFIXED),
        creation(Operation.READ, "*"),
        creation(Operation.READ, "other"),
    )
    found = await describe(
        harness,
        resource_type_filter=Resource.TOPIC,
        resource_name_filter="orders",
        pattern_type_filter=Pattern.MATCH,
        operation=Operation.READ,
        principal_filter="User:anna",
    )
    assert sorted(name for name, _ in found) == ["*", "ord", "orders"]
    assert harness.auth.permissions.allows(anna, "/", "read", "queue", "anything")


async def test_what_our_permissions_cannot_say_is_refused(harness: Harness, anna: User) -> None:
    refused = [
        creation(Operation.READ, permission_type=DENY),
        creation(Operation.READ, host="10.0.0.1"),
        creation(Operation.READ, principal="User:*"),
        creation(Operation.READ, principal="User:" + "x" * 256),
        creation(Operation.READ, principal="Group:anna"),
        creation(Operation.ALTER, resource_type=Resource.CLUSTER),
        creation(Operation.CLUSTER_ACTION),
        creation(Operation.READ, resource_pattern_type=Pattern.MATCH),
        creation(Operation.READ, ""),
    ]
    assert await create(harness, *refused) == [Error.INVALID_REQUEST] * len(refused)
    assert harness.auth.permissions.entries("anna") == []
    assert await create(
        harness,
        creation(Operation.IDEMPOTENT_WRITE, "kafka-cluster", resource_type=Resource.CLUSTER),
    ) == [Error.NONE]


async def test_only_administrators_see_and_change_acls(harness: Harness, anna: User) -> None:
    refused = Error.CLUSTER_AUTHORIZATION_FAILED
    assert await create(harness, creation(Operation.READ), user=anna) == [refused]
    answer = await harness.ask(Api.DELETE_ACLS, {"filters": [wanted()]}, user=anna)
    assert answer["filter_results"][0]["error_code"] == refused
