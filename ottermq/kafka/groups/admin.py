"""Looking at groups and removing them: DescribeGroups, ListGroups, DeleteGroups, OffsetDelete.

To look takes the `read` permission on a group's name, to delete `configure`.
"""

from ottermq.kafka.api import Api
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error, KafkaError
from ottermq.kafka.groups.coordinator import Entry
from ottermq.kafka.groups.group import State
from ottermq.kafka.groups.membership import refusal
from ottermq.kafka.groups.records import Place
from ottermq.kafka.request import Body, Connection, Handler, Request

CLASSIC = "classic"
# org.apache.kafka.common.acl.AclOperation, as bits
READ, DELETE, DESCRIBE = 1 << 3, 1 << 6, 1 << 8


def describe_groups(kafka: KafkaContext, request: Request) -> Body:
    return {"groups": [_describe(kafka, request, id) for id in request.body["groups"]]}


def _describe(kafka: KafkaContext, request: Request, id: str) -> Body:
    told: Body = {"group_id": id, "group_state": State.DEAD.value}
    refused = refusal(request, id)
    if refused is not Error.NONE:
        return told | {"error_code": refused}
    if request.body["include_authorized_operations"]:
        told["authorized_operations"] = _operations(request.conn, id)
    entry: Entry | None = kafka.groups.find(id)
    if entry is None:
        if request.version >= 6:
            text = f"Group {id} not found."
            return told | {"error_code": Error.GROUP_ID_NOT_FOUND, "error_message": text}
        return told
    group = entry.group
    stable = group.state is State.STABLE
    return told | {
        "group_state": group.state.value,
        "protocol_type": group.roster.protocol_type or "",
        # The chosen protocol and the assignments count only once all members have them.
        "protocol_data": group.protocol or "" if stable else "",
        "members": [
            {
                "member_id": member.id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol) if stable else b"",
                "member_assignment": member.assignment if stable else b"",
            }
            for member in group.roster
        ],
    }


def _operations(conn: Connection, id: str) -> int:
    bits = READ | DESCRIBE if conn.allows_group("read", id) else 0
    return bits | (DELETE if conn.allows_group("configure", id) else 0)


def list_groups(kafka: KafkaContext, request: Request) -> Body:
    """Those that the client may look at."""
    states = {state.lower() for state in request.body["states_filter"]}
    types = {type.lower() for type in request.body["types_filter"]}
    if types and CLASSIC not in types:
        return {"groups": []}
    return {
        "groups": [
            {
                "group_id": entry.id,
                "protocol_type": entry.group.roster.protocol_type or "",
                "group_state": entry.group.state.value,
                "group_type": CLASSIC,
            }
            for entry in kafka.groups
            if (not states or entry.group.state.value.lower() in states)
            and request.conn.allows_group("read", entry.id)
        ]
    }


async def delete_groups(kafka: KafkaContext, request: Request) -> Body:
    results = []
    for id in dict.fromkeys(request.body["groups_names"]):
        if not request.conn.allows_group("configure", id):
            error = Error.GROUP_AUTHORIZATION_FAILED
        else:
            error = await kafka.groups.delete(id)
        request.audit("group.delete", id, KafkaError(error) if error else None)
        results.append({"group_id": id, "error_code": error})
    return {"results": results}


async def offset_delete(kafka: KafkaContext, request: Request) -> Body:
    id = request.body["group_id"]
    if not request.conn.allows_group("configure", id):
        return {"error_code": Error.GROUP_AUTHORIZATION_FAILED}
    entry: Entry | None = kafka.groups.find(id)
    if entry is None:
        return {"error_code": Error.GROUP_ID_NOT_FOUND}
    empty = entry.group.state is State.EMPTY
    wanted = set() if empty else entry.subscribed()
    if wanted is None:  # members of another kind than consumers: nobody knows what they need
        return {"error_code": Error.NON_EMPTY_GROUP}
    gone, topics = [], []
    for topic in request.body["topics"]:
        name, partitions = topic["name"], []
        for each in topic["partitions"]:
            index = each["partition_index"]
            if not request.conn.allows_topic("read", name):
                error = Error.TOPIC_AUTHORIZATION_FAILED
            elif name in wanted:
                error = Error.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                error = Error.NONE
                gone.append(Place(name, index))
            partitions.append({"partition_index": index, "error_code": error})
        topics.append({"name": name, "partitions": partitions})
    failed = await kafka.groups.delete_offsets(id, gone)
    trouble = KafkaError(failed) if failed else None
    request.audit("group.delete-offsets", id, trouble, partitions=len(gone))
    return {"error_code": failed} if failed is not Error.NONE else {"topics": topics}


HANDLERS: dict[Api, Handler] = {
    Api.DESCRIBE_GROUPS: describe_groups,
    Api.LIST_GROUPS: list_groups,
    Api.DELETE_GROUPS: delete_groups,
    Api.OFFSET_DELETE: offset_delete,
}
