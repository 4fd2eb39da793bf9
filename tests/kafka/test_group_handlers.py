"""Group APIs as a client sees them, in every version."""

from pathlib import Path
from typing import Any

import pytest
import trio

from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from ottermq.kafka.groups import Committed, MemberIdentity, Place
from ottermq.kafka.request import Body
from ottermq.kafka.schema import MESSAGES
from tests.kafka.broker_harness import Harness, open_harness
from tests.kafka.test_groups import subscription

NOBODY = "^$"


def versions(api: Api) -> range:
    first, last = MESSAGES[api].versions
    return range(first, last + 1)


async def join(harness: Harness, member_id: str = "", **changes: Any) -> Body:
    version = changes.pop("version", -1)
    body = {
        "group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000,
        "member_id": member_id, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription("orders")}],
    }  # fmt: skip
    return await harness.ask(Api.JOIN_GROUP, body | changes, version=version)


async def member(harness: Harness, group: str = "g") -> Body:
    """In a stable group, alone."""
    told = await join(harness, group_id=group)
    assert told["error_code"] == Error.MEMBER_ID_REQUIRED
    joined = await join(harness, told["member_id"], group_id=group)
    assert joined["error_code"] == Error.NONE
    body = {
        "group_id": group,
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
        "assignments": [{"member_id": joined["member_id"], "assignment": b"all"}],
    }
    synced = await harness.ask(Api.SYNC_GROUP, body)
    assert (synced["error_code"], synced["assignment"]) == (Error.NONE, b"all")
    return joined


def offsets(offset: int, metadata: str | None = "", topic: str = "orders") -> list[Body]:
    partition = {
        "partition_index": 0, "committed_offset": offset, "committed_leader_epoch": 3,
        "committed_metadata": metadata,
    }  # fmt: skip
    return [{"name": topic, "partitions": [partition]}]


async def commit(harness: Harness, version: int = -1, **body: Any) -> int:
    asked = {"group_id": "g", "member_id": "", **body}
    if version in range(6):
        del asked["topics"][0]["partitions"][0]["committed_leader_epoch"]
    told = await harness.ask(Api.OFFSET_COMMIT, asked, version=version)
    [topic] = told["topics"]
    [partition] = topic["partitions"]
    return int(partition["error_code"])


async def fetch(harness: Harness, version: int, topic: str = "orders", **more: Any) -> Body:
    """The one partition's, wherever that version has it."""
    topics = [{"name": topic, "partition_indexes": [0]}]
    if version >= 8:
        body: Body = {"groups": [{"group_id": "g", "topics": topics}], **more}
        told = (await harness.ask(Api.OFFSET_FETCH, body, version=version))["groups"][0]
    else:
        body = {"group_id": "g", "topics": topics, **more}
        told = await harness.ask(Api.OFFSET_FETCH, body, version=version)
    partition: Body = told["topics"][0]["partitions"][0]
    return partition


@pytest.mark.parametrize("version", versions(Api.FIND_COORDINATOR))
async def test_the_coordinator_is_always_us(harness: Harness, version: int) -> None:
    if version >= 4:
        body: Body = {"key_type": 0, "coordinator_keys": ["g", "h"]}
        told = await harness.ask(Api.FIND_COORDINATOR, body, version=version)
        assert [each["key"] for each in told["coordinators"]] == ["g", "h"]
        found = told["coordinators"][0]
    else:
        body = {"key": "g"} if version == 0 else {"key": "g", "key_type": 1}
        found = await harness.ask(Api.FIND_COORDINATOR, body, version=version)
    assert found["error_code"] == Error.NONE
    assert (found["node_id"], found["host"], found["port"]) == (1, "127.0.0.1", 9092)


async def test_other_things_have_no_coordinator(harness: Harness) -> None:
    body = {"key_type": 2, "coordinator_keys": ["share"]}
    [found] = (await harness.ask(Api.FIND_COORDINATOR, body))["coordinators"]
    assert found["error_code"] == Error.INVALID_REQUEST


@pytest.mark.parametrize("version", versions(Api.JOIN_GROUP))
async def test_joining(harness: Harness, version: int) -> None:
    more: Body = {} if version >= 1 else {"rebalance_timeout_ms": -1}
    joined = await join(harness, version=version, **more)
    if version >= 4:
        assert joined["error_code"] == Error.MEMBER_ID_REQUIRED
        joined = await join(harness, joined["member_id"], version=version)
    assert joined["error_code"] == Error.NONE
    assert joined["leader"] == joined["member_id"]
    assert joined["protocol_name"] == "range"
    assert [each["metadata"] for each in joined["members"]] == [subscription("orders")]
    refused = await join(harness, group_id="", version=version)
    assert refused["error_code"] == Error.INVALID_GROUP_ID
    late = await join(harness, "nobody", version=version)
    assert late["error_code"] == Error.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions(Api.SYNC_GROUP))
async def test_syncing(harness: Harness, version: int) -> None:
    told = await join(harness, version=3)
    id = told["member_id"]
    body = {"group_id": "g", "generation_id": 1, "member_id": id, "assignments": [
        {"member_id": id, "assignment": b"x"}]}  # fmt: skip
    synced = await harness.ask(Api.SYNC_GROUP, body, version=version)
    assert (synced["error_code"], synced["assignment"]) == (Error.NONE, b"x")
    wrong = await harness.ask(Api.SYNC_GROUP, body | {"generation_id": 2}, version=version)
    assert wrong["error_code"] == Error.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", versions(Api.HEARTBEAT))
async def test_heartbeats(harness: Harness, version: int) -> None:
    joined = await member(harness)
    body = {"group_id": "g", "generation_id": 1, "member_id": joined["member_id"]}
    assert (await harness.ask(Api.HEARTBEAT, body, version=version))["error_code"] == Error.NONE
    wrong = body | {"generation_id": 7}
    told = await harness.ask(Api.HEARTBEAT, wrong, version=version)
    assert told["error_code"] == Error.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", versions(Api.LEAVE_GROUP))
async def test_leaving(harness: Harness, version: int) -> None:
    joined = await member(harness)
    id = joined["member_id"]
    if version < 3:
        body: Body = {"group_id": "g", "member_id": id}
        assert (await harness.ask(Api.LEAVE_GROUP, body, version=version))["error_code"] == 0
        again = await harness.ask(Api.LEAVE_GROUP, body, version=version)
        assert again["error_code"] == Error.UNKNOWN_MEMBER_ID
    else:
        body = {"group_id": "g", "members": [{"member_id": id}, {"member_id": "nobody"}]}
        told = await harness.ask(Api.LEAVE_GROUP, body, version=version)
        assert told["error_code"] == Error.NONE
        errors = [each["error_code"] for each in told["members"]]
        assert errors == [Error.NONE, Error.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("version", versions(Api.OFFSET_COMMIT))
async def test_committing(harness: Harness, version: int) -> None:
    await harness.topics.create("orders")
    assert await commit(harness, version, topics=offsets(42, "märchen")) == Error.NONE
    [found] = harness.context.groups.committed("g").values()
    assert (found.offset, found.metadata) == (42, "märchen")
    assert found.leader_epoch == (3 if version >= 6 else -1)


async def test_what_can_not_be_committed(harness: Harness) -> None:
    await harness.topics.create("orders")
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit(harness, topics=offsets(1, topic="nothing")) == unknown
    too_much = Error.OFFSET_METADATA_TOO_LARGE
    assert await commit(harness, topics=offsets(1, "x" * 5000)) == too_much
    assert await commit(harness, topics=offsets(1, None)) == Error.NONE
    assert await commit(harness, topics=offsets(1), group_id="") == Error.INVALID_GROUP_ID
    late = await commit(harness, topics=offsets(1), generation_id_or_member_epoch=7, member_id="x")
    assert late == Error.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions(Api.OFFSET_FETCH))
async def test_fetching_offsets(harness: Harness, version: int) -> None:
    await harness.topics.create("orders")
    await commit(harness, topics=offsets(42, "noted"))
    found = await fetch(harness, version)
    assert (found["committed_offset"], found["metadata"]) == (42, "noted")
    assert found["error_code"] == Error.NONE
    assert found["committed_leader_epoch"] == (3 if version >= 5 else -1)
    missing = await fetch(harness, version, topic="nothing")
    assert (missing["committed_offset"], missing["metadata"]) == (-1, "")
    assert missing["error_code"] == Error.NONE


@pytest.mark.parametrize("version", range(2, 10))
async def test_fetching_all_offsets(harness: Harness, version: int) -> None:
    await harness.topics.create("orders")
    await commit(harness, topics=offsets(42))
    body: Body = {"group_id": "g", "topics": None}
    if version >= 8:
        body = {"groups": [body, {"group_id": "other", "topics": None}]}
    told = await harness.ask(Api.OFFSET_FETCH, body, version=version)
    if version >= 8:
        assert told["groups"][1]["topics"] == []
        told = told["groups"][0]
    assert [each["name"] for each in told["topics"]] == ["orders"]


async def test_an_offset_that_a_transaction_holds_is_not_certain(harness: Harness) -> None:
    held = {Place("orders", 0): Committed(5)}
    await harness.context.groups.hold_offsets(1, "g", MemberIdentity(""), held)
    certain = await fetch(harness, 9, require_stable=True)
    assert certain["error_code"] == Error.UNSTABLE_OFFSET_COMMIT
    assert (await fetch(harness, 9))["committed_offset"] == -1


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_GROUPS))
async def test_describing(harness: Harness, version: int) -> None:
    joined = await member(harness)
    asked: Body = {"groups": ["g", "nothing"]}
    if version >= 3:
        asked["include_authorized_operations"] = True
    told = await harness.ask(Api.DESCRIBE_GROUPS, asked, version=version)
    group, nothing = told["groups"]
    assert (group["group_state"], group["protocol_type"]) == ("Stable", "consumer")
    assert group["protocol_data"] == "range"
    [only] = group["members"]
    assert only["member_id"] == joined["member_id"]
    assert only["client_id"] == "test" and only["client_host"] == "/127.0.0.1"
    assert only["member_assignment"] == b"all"
    assert only["member_metadata"] == subscription("orders")
    assert nothing["group_state"] == "Dead"
    missing = Error.GROUP_ID_NOT_FOUND if version >= 6 else Error.NONE
    assert nothing["error_code"] == missing
    if version >= 3:
        assert group["authorized_operations"] == 1 << 3 | 1 << 6 | 1 << 8


@pytest.mark.parametrize("version", versions(Api.LIST_GROUPS))
async def test_listing(harness: Harness, version: int) -> None:
    await member(harness)
    await harness.topics.create("orders")
    await commit(harness, topics=offsets(1), group_id="h")
    told = await harness.ask(Api.LIST_GROUPS, {}, version=version)
    assert {each["group_id"] for each in told["groups"]} == {"g", "h"}
    if version >= 4:
        asked: Body = {"states_filter": ["stable", "Dead"]}
        told = await harness.ask(Api.LIST_GROUPS, asked, version=version)
        [only] = told["groups"]
        assert (only["group_id"], only["group_state"]) == ("g", "Stable")
    if version >= 5:
        told = await harness.ask(Api.LIST_GROUPS, {"types_filter": ["consumer"]}, version=version)
        assert told["groups"] == []
        told = await harness.ask(Api.LIST_GROUPS, {"types_filter": ["Classic"]}, version=version)
        assert [each["group_type"] for each in told["groups"]] == ["classic"] * 2


@pytest.mark.parametrize("version", versions(Api.DELETE_GROUPS))
async def test_deleting(harness: Harness, version: int) -> None:
    await member(harness)
    await harness.topics.create("orders")
    await commit(harness, topics=offsets(1), group_id="h")
    body = {"groups_names": ["g", "h", "nothing"]}
    told = await harness.ask(Api.DELETE_GROUPS, body, version=version)
    assert [each["error_code"] for each in told["results"]] == [
        Error.NON_EMPTY_GROUP, Error.NONE, Error.GROUP_ID_NOT_FOUND,
    ]  # fmt: skip


async def test_deleting_offsets(harness: Harness) -> None:
    joined = await member(harness)
    await harness.topics.create("orders")
    await harness.topics.create("other")
    who = {"generation_id_or_member_epoch": 1, "member_id": joined["member_id"]}
    await commit(harness, topics=offsets(1), **who)
    await commit(harness, topics=offsets(1, topic="other"), **who)
    topics = [
        {"name": name, "partitions": [{"partition_index": 0}]} for name in ("orders", "other")
    ]
    told = await harness.ask(Api.OFFSET_DELETE, {"group_id": "g", "topics": topics})
    errors = [each["partitions"][0]["error_code"] for each in told["topics"]]
    assert errors == [Error.GROUP_SUBSCRIBED_TO_TOPIC, Error.NONE]
    assert (await fetch(harness, 5))["committed_offset"] == 1
    assert (await fetch(harness, 5, topic="other"))["committed_offset"] == -1
    told = await harness.ask(Api.OFFSET_DELETE, {"group_id": "nothing", "topics": topics})
    assert told["error_code"] == Error.GROUP_ID_NOT_FOUND


async def test_who_may_not_read_a_group_gets_nothing_of_it(harness: Harness) -> None:
    await member(harness)
    other = await harness.user("other", NOBODY, NOBODY, "^orders$")
    refused = Error.GROUP_AUTHORIZATION_FAILED
    body: Body = {"coordinator_keys": ["g"]}
    [found] = (await harness.ask(Api.FIND_COORDINATOR, body, user=other))["coordinators"]
    assert (found["error_code"], found["node_id"]) == (refused, -1)
    named = {"group_id": "g", "member_id": "x", "generation_id": 1}
    assert (await harness.ask(Api.HEARTBEAT, named, user=other))["error_code"] == refused
    body = {"group_id": "g", "members": [{"member_id": "x"}]}
    assert (await harness.ask(Api.LEAVE_GROUP, body, user=other))["error_code"] == refused
    body = named | {"assignments": []}
    assert (await harness.ask(Api.SYNC_GROUP, body, user=other))["error_code"] == refused
    body = {
        "group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 1, "member_id": "",
        "protocol_type": "consumer", "protocols": [],
    }  # fmt: skip
    assert (await harness.ask(Api.JOIN_GROUP, body, user=other))["error_code"] == refused
    body = {"group_id": "g", "member_id": "", "topics": offsets(1)}
    told = await harness.ask(Api.OFFSET_COMMIT, body, user=other)
    assert told["topics"][0]["partitions"][0]["error_code"] == refused
    topics = [{"name": "orders", "partition_indexes": [0]}]
    body = {"groups": [{"group_id": "g", "topics": topics}]}
    told = await harness.ask(Api.OFFSET_FETCH, body, user=other)
    assert told["groups"][0]["error_code"] == refused
    body = {"group_id": "g", "topics": topics}
    told = await harness.ask(Api.OFFSET_FETCH, body, user=other, version=1)
    assert told["topics"][0]["partitions"][0]["error_code"] == refused
    told = await harness.ask(Api.DESCRIBE_GROUPS, {"groups": ["g"]}, user=other)
    assert told["groups"][0]["error_code"] == refused
    assert (await harness.ask(Api.LIST_GROUPS, {}, user=other))["groups"] == []
    told = await harness.ask(Api.DELETE_GROUPS, {"groups_names": ["g"]}, user=other)
    assert told["results"][0]["error_code"] == refused
    told = await harness.ask(Api.OFFSET_DELETE, {"group_id": "g", "topics": []}, user=other)
    assert told["error_code"] == refused


async def test_who_may_not_read_a_topic_commits_nothing_for_it(harness: Harness) -> None:
    await harness.topics.create("orders")
    other = await harness.user("other", NOBODY, NOBODY, "^g$")
    body: Body = {"group_id": "g", "member_id": "", "topics": offsets(1)}
    told = await harness.ask(Api.OFFSET_COMMIT, body, user=other)
    refused = Error.TOPIC_AUTHORIZATION_FAILED
    assert told["topics"][0]["partitions"][0]["error_code"] == refused
    topics = [{"name": "orders", "partition_indexes": [0]}]
    body = {"groups": [{"group_id": "g", "topics": topics}]}
    told = await harness.ask(Api.OFFSET_FETCH, body, user=other)
    assert told["groups"][0]["topics"][0]["partitions"][0]["error_code"] == refused
    assert not harness.context.groups.committed("g")


async def test_offsets_go_with_a_topic_that_is_deleted(tmp_path: Path) -> None:
    async with open_harness(tmp_path / "data") as harness:
        await harness.topics.create("orders")
        await commit(harness, topics=offsets(5))
    # Nobody has asked for the topic since the start: its offsets must go all the same.
    async with open_harness(tmp_path / "data") as harness:
        assert (await fetch(harness, 9))["committed_offset"] == 5
        await harness.delete_queue("orders")
        with trio.fail_after(60):
            while (await fetch(harness, 9))["committed_offset"] != -1:  # noqa: ASYNC110
                await trio.sleep(0.01)
