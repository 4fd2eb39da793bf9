"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn.

Permissions name a transactional id as they name a topic: write access is the right to use it.
"""

from collections.abc import Awaitable

from ottermq.kafka import ids
from ottermq.kafka.api import Api
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error, KafkaError
from ottermq.kafka.groups.member import MemberIdentity
from ottermq.kafka.groups.membership import refusal as group_refusal
from ottermq.kafka.groups.offset_commit import commit_answer, wanted_offsets
from ottermq.kafka.groups.records import Place
from ottermq.kafka.request import Body, Handler, Request
from ottermq.kafka.transactions.transaction import Producer

# Clients that speak an older version know no PRODUCER_FENCED.
FENCED_FROM = {
    Api.INIT_PRODUCER_ID: 4,
    Api.ADD_PARTITIONS_TO_TXN: 2,
    Api.ADD_OFFSETS_TO_TXN: 2,
    Api.END_TXN: 2,
}


def told(request: Request, error: Error) -> Error:
    """As this client can understand it."""
    if error is Error.PRODUCER_FENCED and request.version < FENCED_FROM.get(request.api, 1 << 15):
        return Error.INVALID_PRODUCER_EPOCH
    return error


async def outcome(request: Request, step: Awaitable[object]) -> Error:
    try:
        await step
    except KafkaError as error:
        return told(request, error.error)
    return Error.NONE


def refusal(request: Request, id: str) -> Error:
    if not id or not ids.fits(id):
        return Error.INVALID_REQUEST
    if not request.conn.allows_transaction("write", id):
        return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return Error.NONE


def producer_of(body: Body) -> Producer:
    return Producer(body["producer_id"], body["producer_epoch"])


async def init_producer_id(kafka: KafkaContext, request: Request) -> Body:
    body = request.body
    id = body["transactional_id"]
    if id is None:
        producer = await kafka.transactions.idempotent()
        return {"producer_id": producer.id, "producer_epoch": producer.epoch}
    refused = refusal(request, id)
    expected = producer_of(body) if body["producer_id"] >= 0 else None
    if (body["producer_id"] < 0) != (body["producer_epoch"] < 0):
        refused = Error.INVALID_REQUEST
    if refused is Error.NONE:
        try:
            producer = await kafka.transactions.begin(id, body["transaction_timeout_ms"], expected)
        except KafkaError as error:
            refused = told(request, error.error)
        else:
            return {"producer_id": producer.id, "producer_epoch": producer.epoch}
    return {"error_code": refused, "producer_id": -1, "producer_epoch": -1}


async def add_partitions(kafka: KafkaContext, request: Request) -> Body:
    body = request.body
    id = body["v3_and_below_transactional_id"]
    producer = Producer(body["v3_and_below_producer_id"], body["v3_and_below_producer_epoch"])
    wanted = [
        Place(topic["name"], index)
        for topic in body["v3_and_below_topics"]
        for index in topic["partitions"]
    ]
    others = refusal(request, id)
    errors: dict[Place, Error] = {}
    if others is Error.NONE:
        for place in wanted:
            error = _partition_error(kafka, request, place)
            if error is not Error.NONE:
                errors[place] = error
        if errors:  # all of them or none
            others = Error.OPERATION_NOT_ATTEMPTED
        else:
            others = await outcome(request, kafka.transactions.join(id, producer, wanted))
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {
                        "partition_index": index,
                        "partition_error_code": errors.get(Place(topic["name"], index), others),
                    }
                    for index in topic["partitions"]
                ],
            }
            for topic in body["v3_and_below_topics"]
        ]
    }


def _partition_error(kafka: KafkaContext, request: Request, place: Place) -> Error:
    if not request.conn.allows_topic("write", place.topic):
        return Error.TOPIC_AUTHORIZATION_FAILED
    topic = kafka.topics.find(place.topic)
    if topic is None or topic.partition(place.partition) is None:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    return Error.NONE


async def add_offsets(kafka: KafkaContext, request: Request) -> Body:
    body = request.body
    id, group = body["transactional_id"], body["group_id"]
    error = refusal(request, id) or group_refusal(request, group)
    if error is Error.NONE:
        joining = kafka.transactions.join(id, producer_of(body), groups=[group])
        error = await outcome(request, joining)
    return {"error_code": error}


async def commit_offsets(kafka: KafkaContext, request: Request) -> Body:
    body = request.body
    id, group, producer = body["transactional_id"], body["group_id"], producer_of(body)
    offsets, errors = wanted_offsets(kafka, request)
    others = refusal(request, id) or group_refusal(request, group)
    if others is Error.NONE:
        who = MemberIdentity(body["member_id"], body["generation_id"], body["group_instance_id"])
        try:
            with kafka.transactions.committing(id, producer, group):
                others = await kafka.groups.hold_offsets(producer.id, group, who, offsets)
        except KafkaError as error:
            others = told(request, error.error)
    return commit_answer(request, errors, others)


async def end(kafka: KafkaContext, request: Request) -> Body:
    body = request.body
    id = body["transactional_id"]
    error = refusal(request, id)
    if error is Error.NONE:
        ending = kafka.transactions.end(id, producer_of(body), body["committed"])
        error = await outcome(request, ending)
    return {"error_code": error}


HANDLERS: dict[Api, Handler] = {
    Api.INIT_PRODUCER_ID: init_producer_id,
    Api.ADD_PARTITIONS_TO_TXN: add_partitions,
    Api.ADD_OFFSETS_TO_TXN: add_offsets,
    Api.TXN_OFFSET_COMMIT: commit_offsets,
    Api.END_TXN: end,
}
