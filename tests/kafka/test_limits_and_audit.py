"""What administrators' acts leave in the log; limits that hold for Kafka's clients, too."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from ottermq.kafka import codec
from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from tests.brokers import Broker
from tests.kafka.broker_harness import Harness
from tests.kafka.raw_client import Gone, RawClient
from tests.kafka.wire import Link

Start = Callable[..., Broker]
PEER = r"(\S+)"
OPENED = f" connection opened listener=kafka peer={PEER} user=guest"
CLOSED = f" connection closed listener=kafka peer={PEER} user=guest"


def new(name: str, partitions: int = 1, **configs: str) -> dict[str, Any]:
    values = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {
        "topics": [
            {
                "name": name, "num_partitions": partitions, "replication_factor": 1,
                "configs": values,
            }
        ],
        "timeout_ms": 1000,
    }  # fmt: skip


async def test_a_vhost_has_no_more_queues_than_it_may_whoever_makes_them(harness: Harness) -> None:
    await harness.auth.limits.set_vhost("/", "max-queues", 3)
    [told] = (await harness.ask(Api.CREATE_TOPICS, new("many", 4)))["topics"]
    assert told["error_code"] == Error.POLICY_VIOLATION
    [told] = (await harness.ask(Api.CREATE_TOPICS, new("few", 2)))["topics"]
    assert told["error_code"] == Error.NONE
    grown = {"topics": [{"name": "few", "count": 4, "assignments": None}], "timeout_ms": 1000}
    [told] = (await harness.ask(Api.CREATE_PARTITIONS, grown))["results"]
    assert told["error_code"] == Error.POLICY_VIOLATION
    assert len(harness.topology.vhost("/").queues) == 2


async def test_an_id_tells_no_name_to_who_may_not_see_the_topic(harness: Harness) -> None:
    [made] = (await harness.ask(Api.CREATE_TOPICS, new("layoffs-2027")))["topics"]
    stranger = await harness.user("stranger", "^x", "^x", "^x")
    asked = {"topics": [{"name": None, "topic_id": made["topic_id"]}], "timeout_ms": 1000}
    [told] = (await harness.ask(Api.DELETE_TOPICS, asked, user=stranger))["responses"]
    assert told["error_code"] == Error.UNKNOWN_TOPIC_ID
    assert "layoffs" not in str(told)


async def test_a_legal_hold_is_set_and_lifted_by_administrators_only(harness: Harness) -> None:
    somebody = await harness.user("somebody", ".*", ".*", ".*")
    [told] = (await harness.ask(Api.CREATE_TOPICS, new("a", legal_hold="true"), user=somebody))[
        "topics"
    ]
    assert told["error_code"] == Error.CLUSTER_AUTHORIZATION_FAILED
    [told] = (await harness.ask(Api.CREATE_TOPICS, new("a", legal_hold="true")))["topics"]
    assert told["error_code"] == Error.NONE
    for api, configs in (
        (
            Api.INCREMENTAL_ALTER_CONFIGS,
            [{"name": "legal.hold", "value": None, "config_operation": 1}],
        ),
        (
            Api.INCREMENTAL_ALTER_CONFIGS,
            [{"name": "legal.hold", "value": "false", "config_operation": 0}],
        ),
        (Api.ALTER_CONFIGS, [{"name": "retention.ms", "value": "100"}]),  # the rest as by default
    ):
        body = {"resources": [{"resource_type": 2, "resource_name": "a", "configs": configs}]}
        [told] = (await harness.ask(api, body, user=somebody))["responses"]
        assert told["error_code"] == Error.CLUSTER_AUTHORIZATION_FAILED
    configs = [{"name": "retention.ms", "value": "100", "config_operation": 0}]
    body = {"resources": [{"resource_type": 2, "resource_name": "a", "configs": configs}]}
    [told] = (await harness.ask(Api.INCREMENTAL_ALTER_CONFIGS, body, user=somebody))["responses"]
    assert told["error_code"] == Error.NONE


def test_each_administrative_act_is_a_line_with_who_from_where_what_and_its_result(
    start: Start,
) -> None:
    with start() as broker, Link(broker.address("kafka")) as link:
        link.log_in()
        link.create("orders", 2)
        trim = {"topics": [{"name": "orders", "partitions": [{"partition_index": 1, "offset": 0}]}]}
        link.ask(Api.DELETE_RECORDS, trim)
        config = {"name": "retention.ms", "value": "1000", "config_operation": 0}
        resource = {"resource_type": 2, "resource_name": "orders", "configs": [config]}
        link.ask(Api.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})
        acl = {
            "resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3,
            "principal": "User:anna", "host": "*", "operation": 3, "permission_type": 3,
        }  # fmt: skip
        link.ask(Api.CREATE_ACLS, {"creations": [acl]})
        found = {
            "resource_type_filter": 2, "resource_name_filter": "orders", "pattern_type_filter": 3,
            "principal_filter": "User:anna", "host_filter": None, "operation": 3,
            "permission_type": 3,
        }  # fmt: skip
        link.ask(Api.DELETE_ACLS, {"filters": [found]})
        secret = {
            "name": "anna", "mechanism": 1, "iterations": 4096, "salt": b"salt",
            "salted_password": b"x" * 32,
        }  # fmt: skip
        link.ask(Api.ALTER_USER_SCRAM_CREDENTIALS, {"upsertions": [secret], "deletions": []})
        quota = {
            "entity": [{"entity_type": "user", "entity_name": "anna"}],
            "ops": [{"key": "producer_byte_rate", "value": 1000.0}],
        }
        link.ask(Api.ALTER_CLIENT_QUOTAS, {"entries": [quota]})
        link.ask(Api.DELETE_GROUPS, {"groups_names": ["g"]})
        for name in ("orders", "missing"):
            link.ask(Api.DELETE_TOPICS, {"topics": [{"name": name}], "timeout_ms": 1000})
        who = f"user=guest peer={re.escape(link.name)}"
        for act, what in (
            ("topic.create", "what=orders result=ok listener=kafka partitions=2"),
            ("records.delete", "what=orders-1 result=ok"),
            ("config.alter", 'what=orders result=ok listener=kafka configs="retention.ms=1000"'),
            ("acl.grant", 'what="User:anna READ TOPIC orders LITERAL" result=ok'),
            ("acl.revoke", 'what="User:anna READ TOPIC orders LITERAL" result=ok .*revoked=1'),
            ("scram.set", "what=anna result=ok"),
            ("quota.set", "what=user:anna result=ok .*producer_byte_rate=1000.0"),
            ("group.delete", "what=g result=GROUP_ID_NOT_FOUND"),
            ("topic.delete", "what=orders result=ok"),
            ("topic.delete", "what=missing result=UNKNOWN_TOPIC_OR_PARTITION"),
        ):
            broker.wait_for(f"INFO audit act={act} {who} {what}")
        assert not any("salt" in line for line in broker.lines)


def test_who_leaves_during_its_login_is_not_counted(start: Start) -> None:
    with start() as broker:
        for _ in range(5):
            with RawClient(broker.address("kafka")) as raw_client:
                raw_client.ask(Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
                body = {"auth_bytes": b"\0guest\0guest"}
                raw_client.send(codec.encode_request(Api.SASL_AUTHENTICATE, 2, 7, "t", body))
        with RawClient(broker.address("kafka")) as raw_client:
            assert raw_client.log_in()["error_code"] == 0
            broker.wait_for(f"connection opened listener=kafka peer={raw_client.name}")
        broker.wait_for(f"connection closed listener=kafka peer={raw_client.name}")
        # A client that was let in may be counted out later than the last one.
        for peer in peers(broker, OPENED):
            broker.wait_for(CLOSED.replace(PEER, re.escape(peer)))
        assert peers(broker, CLOSED) <= peers(broker, OPENED)


def peers(broker: Broker, line: str) -> set[str]:
    return {found[1] for each in list(broker.lines) if (found := re.search(line, each))}


@pytest.mark.parametrize("vhost", ["other", "missing"])
def test_a_login_asks_for_the_vhost(start: Start, vhost: str) -> None:
    """guest has no permissions there, or it isn't there."""
    with start(OTTERMQ_KAFKA__VHOST=vhost, OTTERMQ_KAFKA__ANONYMOUS_USER="null") as broker:
        with RawClient(broker.address("kafka")) as raw_client:
            told = raw_client.log_in()
            assert told["error_code"] == Error.SASL_AUTHENTICATION_FAILED
            assert "vhost" in told["error_message"]
            with pytest.raises((Gone, ConnectionError)):
                raw_client.metadata()
