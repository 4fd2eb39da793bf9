"""OffsetCommit and OffsetFetch."""

from collections.abc import Iterable

from ottermq.kafka.api import Api
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error
from ottermq.kafka.groups.member import MemberIdentity
from ottermq.kafka.groups.membership import refusal
from ottermq.kafka.groups.records import Committed, Place
from ottermq.kafka.request import Body, Handler, Request

NOTHING = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
Wanted = dict[Place, Committed]


async def offset_commit(kafka: KafkaContext, request: Request) -> Body:
    body = request.body
    who = MemberIdentity(
        body["member_id"], body["generation_id_or_member_epoch"], body["group_instance_id"]
    )
    refused = refusal(request, body["group_id"])
    if refused is not Error.NONE:
        return commit_answer(request, {}, refused)
    offsets, errors = wanted_offsets(kafka, request)
    done = await kafka.groups.commit(body["group_id"], who, offsets)
    return commit_answer(request, errors, done)


def wanted_offsets(kafka: KafkaContext, request: Request) -> tuple[Wanted, dict[Place, Error]]:
    """The offsets of a commit, in a transaction or not, and the errors of those refused."""
    offsets: Wanted = {}
    errors: dict[Place, Error] = {}
    now = kafka.groups.now_ms()
    for topic in request.body["topics"]:
        name = topic["name"]
        refused = Error.NONE
        if not request.conn.allows_topic("read", name):
            refused = Error.TOPIC_AUTHORIZATION_FAILED
        found = kafka.topics.find(name) if refused is Error.NONE else None
        for each in topic["partitions"]:
            place = Place(name, each["partition_index"])
            metadata = each["committed_metadata"] or ""
            if refused is not Error.NONE:
                errors[place] = refused
            elif found is None or found.partition(place.partition) is None:
                errors[place] = Error.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata.encode()) > kafka.groups.settings.offset_metadata_max:
                errors[place] = Error.OFFSET_METADATA_TOO_LARGE
            else:
                offset, epoch = each["committed_offset"], each["committed_leader_epoch"]
                offsets[place] = Committed(offset, epoch, metadata, now)
    return offsets, errors


def commit_answer(request: Request, errors: dict[Place, Error], others: Error) -> Body:
    """others: the result of those that have no error of their own."""
    topics = []
    for topic in request.body["topics"]:
        partitions = []
        for each in topic["partitions"]:
            index = each["partition_index"]
            error = errors.get(Place(topic["name"], index), others)
            partitions.append({"partition_index": index, "error_code": error})
        topics.append({"name": topic["name"], "partitions": partitions})
    return {"topics": topics}


def offset_fetch(kafka: KafkaContext, request: Request) -> Body:
    body = request.body
    if request.version >= 8:
        return {"groups": [_fetch(kafka, request, each) for each in body["groups"]]}
    told = _fetch(kafka, request, body)
    del told["group_id"]
    if request.version < 2 and told["error_code"]:
        # There was no place for it yet but beside each partition.
        told["topics"] = _failed(body["topics"], told["error_code"])
    return told


def _fetch(kafka: KafkaContext, request: Request, wanted: Body) -> Body:
    id = wanted["group_id"]
    refused = refusal(request, id)
    if refused is not Error.NONE:
        return {"group_id": id, "error_code": refused, "topics": []}
    committed = kafka.groups.committed(id)
    if wanted["topics"] is None:
        topics: dict[str, list[int]] = {}
        for place in committed:
            if request.conn.allows_topic("read", place.topic):
                topics.setdefault(place.topic, []).append(place.partition)
        asked = sorted(topics.items())
    else:
        asked = [(each["name"], each["partition_indexes"]) for each in wanted["topics"]]
    told = [_fetch_topic(kafka, request, id, *each) for each in asked]
    return {"group_id": id, "error_code": Error.NONE, "topics": told}


def _fetch_topic(
    kafka: KafkaContext, request: Request, id: str, name: str, partitions: Iterable[int]
) -> Body:
    allowed = request.conn.allows_topic("read", name)
    committed = kafka.groups.committed(id)
    told = []
    for index in partitions:
        place = Place(name, index)
        found = committed.get(place)
        if not allowed:
            answer = NOTHING | {"error_code": Error.TOPIC_AUTHORIZATION_FAILED}
        elif request.body["require_stable"] and kafka.groups.is_held(id, place):
            answer = NOTHING | {"error_code": Error.UNSTABLE_OFFSET_COMMIT}
        elif found is None:
            answer = NOTHING | {"error_code": Error.NONE}
        else:
            answer = {
                "committed_offset": found.offset,
                "committed_leader_epoch": found.leader_epoch,
                "metadata": found.metadata,
                "error_code": Error.NONE,
            }
        told.append({"partition_index": index, **answer})
    return {"name": name, "partitions": told}


def _failed(topics: Iterable[Body], error: Error) -> list[Body]:
    return [
        {
            "name": each["name"],
            "partitions": [
                {"partition_index": index, "error_code": error, **NOTHING}
                for index in each["partition_indexes"]
            ],
        }
        for each in topics
    ]


HANDLERS: dict[Api, Handler] = {
    Api.OFFSET_COMMIT: offset_commit,
    Api.OFFSET_FETCH: offset_fetch,
}
