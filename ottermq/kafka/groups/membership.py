"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and FindCoordinator, which always finds us.

A user may take part in a group whose name its `read` permission matches.
"""

from collections.abc import Coroutine
from typing import Any

from ottermq.kafka import ids
from ottermq.kafka.api import Api
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error
from ottermq.kafka.groups.member import Joining, MemberIdentity
from ottermq.kafka.pace import LARGE, paced
from ottermq.kafka.request import Body, Handler, Request

LARGEST_METADATA = 1 << 20  # bytes: of all protocols that a member speaks
LARGEST_ASSIGNMENTS = 4 << 20  # bytes: a leader's, for all members


def find_coordinator(kafka: KafkaContext, request: Request) -> Body | Coroutine[Any, Any, Body]:
    if request.version < 4:
        only = _coordinator(kafka, request, request.body["key"])
        del only["key"]
        return only
    keys: list[str] = request.body["coordinator_keys"]
    if len(keys) > LARGE:
        return _find_many(kafka, request, keys)
    return {"coordinators": [_coordinator(kafka, request, key) for key in keys]}


async def _find_many(kafka: KafkaContext, request: Request, keys: list[str]) -> Body:
    found = [_coordinator(kafka, request, key) async for key in paced(keys)]
    return {"coordinators": found}


def _coordinator(kafka: KafkaContext, request: Request, key: str) -> Body:
    error, text = Error.NONE, None
    match request.body["key_type"]:
        case 0:  # a group
            if not ids.fits(key):
                error = Error.INVALID_GROUP_ID
            elif not request.conn.allows_group("read", key):
                error = Error.GROUP_AUTHORIZATION_FAILED
        case 1:  # a transactional id
            if not ids.fits(key):
                error = Error.INVALID_REQUEST
            elif not request.conn.allows_transaction("write", key):
                error = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        case kind:
            error, text = Error.INVALID_REQUEST, f"nothing coordinates keys of type {kind}"
    if error is not Error.NONE:
        nowhere = {"node_id": -1, "host": "", "port": -1}
        return {"key": key, "error_code": error, "error_message": text, **nowhere}
    address = request.conn.advertised
    here = {"node_id": kafka.node_id, "host": address.host, "port": address.port}
    return {"key": key, "error_code": Error.NONE, "error_message": None, **here}


async def join_group(kafka: KafkaContext, request: Request) -> Body:
    body, version = request.body, request.version
    refused = refusal(request, body["group_id"]) or _unfit(body)
    if refused is not Error.NONE:
        return {"error_code": refused, "member_id": body["member_id"], **_no_protocol(version)}
    session = body["session_timeout_ms"] / 1000
    wanted = Joining(
        member_id=body["member_id"],
        instance_id=body["group_instance_id"],
        client_id=(request.client_id or "")[: ids.LONGEST_CLIENT],
        client_host=f"/{request.conn.host}",
        session_timeout=session,
        # Before version 1 there was one time-out for both.
        rebalance_timeout=body["rebalance_timeout_ms"] / 1000 if version >= 1 else session,
        protocol_type=body["protocol_type"],
        protocols=tuple((each["name"], each["metadata"]) for each in body["protocols"]),
        needs_id=version >= 4,
        may_skip=version >= 9,
    )
    joined = await kafka.groups.join(body["group_id"], wanted)
    answer: Body = {
        "error_code": joined.error,
        "generation_id": joined.generation,
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {"member_id": id, "group_instance_id": instance_id, "metadata": metadata}
            for id, instance_id, metadata in joined.members
        ],
    }
    if joined.protocol is None:
        return answer | _no_protocol(version)
    return answer | {"protocol_type": joined.protocol_type, "protocol_name": joined.protocol}


def _unfit(body: Body) -> Error:
    """Is a part of it larger than what is kept of a member?"""
    if not ids.fits(body["group_instance_id"] or ""):
        return Error.INVALID_REQUEST
    protocols = body["protocols"]
    if not all(ids.fits(name) for name in (body["protocol_type"], *_names(protocols))):
        return Error.INCONSISTENT_GROUP_PROTOCOL
    if sum(len(each["metadata"]) for each in protocols) > LARGEST_METADATA:
        return Error.MESSAGE_TOO_LARGE
    return Error.NONE


def _names(protocols: list[Body]) -> list[str]:
    return [each["name"] for each in protocols]


def _no_protocol(version: int) -> Body:
    """Null could not be said at first."""
    return {"protocol_name": None if version >= 7 else ""}


async def sync_group(kafka: KafkaContext, request: Request) -> Body:
    body = request.body
    refused = refusal(request, body["group_id"])
    if sum(len(each["assignment"]) for each in body["assignments"]) > LARGEST_ASSIGNMENTS:
        refused = refused or Error.MESSAGE_TOO_LARGE
    if refused is not Error.NONE:
        return {"error_code": refused}
    synced = await kafka.groups.sync(
        body["group_id"],
        MemberIdentity(body["member_id"], body["generation_id"], body["group_instance_id"]),
        body["protocol_type"],
        body["protocol_name"],
        {each["member_id"]: each["assignment"] for each in body["assignments"]},
    )
    return {
        "error_code": synced.error,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


def heartbeat(kafka: KafkaContext, request: Request) -> Body:
    body = request.body
    refused = refusal(request, body["group_id"])
    if refused is not Error.NONE:
        return {"error_code": refused}
    who = MemberIdentity(body["member_id"], body["generation_id"], body["group_instance_id"])
    return {"error_code": kafka.groups.heartbeat(body["group_id"], who)}


def leave_group(kafka: KafkaContext, request: Request) -> Body:
    body = request.body
    refused = refusal(request, body["group_id"])
    if refused is not Error.NONE:
        return {"error_code": refused}
    if request.version < 3:
        [error] = kafka.groups.leave(body["group_id"], [MemberIdentity(body["member_id"])])
        return {"error_code": error}
    leaving = [
        MemberIdentity(each["member_id"], instance_id=each["group_instance_id"])
        for each in body["members"]
    ]
    errors = kafka.groups.leave(body["group_id"], leaving)
    return {
        "members": [
            {"member_id": who.member_id, "group_instance_id": who.instance_id, "error_code": error}
            for who, error in zip(leaving, errors, strict=True)
        ]
    }


def refusal(request: Request, group_id: str) -> Error:
    """Why this client may not take part in the group."""
    if not group_id or not ids.fits(group_id):
        return Error.INVALID_GROUP_ID
    allowed = request.conn.allows_group("read", group_id)
    return Error.NONE if allowed else Error.GROUP_AUTHORIZATION_FAILED


HANDLERS: dict[Api, Handler] = {
    Api.FIND_COORDINATOR: find_coordinator,
    Api.JOIN_GROUP: join_group,
    Api.SYNC_GROUP: sync_group,
    Api.HEARTBEAT: heartbeat,
    Api.LEAVE_GROUP: leave_group,
}
