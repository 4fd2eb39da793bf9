"""DescribeTransactions, ListTransactions, DescribeProducers: open transactions and producers."""

from ottermq.kafka.api import Api
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error, KafkaError
from ottermq.kafka.linear_regex import BadPattern, Linear
from ottermq.kafka.offsets import log_of
from ottermq.kafka.pace import paced
from ottermq.kafka.request import Body, Handler, Request
from ottermq.kafka.transactions.transaction import STATES

AT_A_TIME = 16  # ids that are held against a pattern


def may_see(request: Request, id: str) -> bool:
    conn = request.conn
    return conn.allows_transaction("write", id) or conn.allows_transaction("read", id)


def may_see_topic(request: Request, name: str) -> bool:
    return request.conn.allows_topic("write", name) or request.conn.allows_topic("read", name)


def describe_transactions(kafka: KafkaContext, request: Request) -> Body:
    ids = request.body["transactional_ids"]
    return {"transaction_states": [_describe(kafka, request, id) for id in ids]}


def _describe(kafka: KafkaContext, request: Request, id: str) -> Body:
    if not may_see(request, id):
        return _unknown(id, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    now = kafka.transactions.find(id)
    if now is None:
        return _unknown(id, Error.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for place in sorted(now.partitions):
        if may_see_topic(request, place.topic):
            topics.setdefault(place.topic, []).append(place.partition)
    return {
        "error_code": Error.NONE,
        "transactional_id": id,
        "transaction_state": now.state,
        "transaction_timeout_ms": now.timeout_ms,
        "transaction_start_time_ms": now.started_ms,
        "producer_id": now.producer.id,
        "producer_epoch": now.producer.epoch,
        "topics": [{"topic": name, "partitions": each} for name, each in topics.items()],
    }


def _unknown(id: str, error: Error) -> Body:
    return {
        "error_code": error,
        "transactional_id": id,
        "transaction_state": "",
        "transaction_timeout_ms": -1,
        "transaction_start_time_ms": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "topics": [],
    }


async def list_transactions(kafka: KafkaContext, request: Request) -> Body:
    body = request.body
    pattern = _pattern(body["transactional_id_pattern"])
    states, producers = frozenset(body["state_filters"]), frozenset(body["producer_id_filters"])
    least = body["duration_filter"]
    now = kafka.store.now_ms()
    found = [
        each
        for each in kafka.transactions.all()
        if (not states or each.state in states)
        and (not producers or each.producer.id in producers)
        and (least < 0 or (each.started_ms >= 0 and now - each.started_ms >= least))
        and may_see(request, each.id)
    ]
    if pattern is not None:
        found = [each async for each in paced(found, AT_A_TIME) if pattern.matches(each.id)]
    return {
        "error_code": Error.NONE,
        "unknown_state_filters": sorted(states - STATES),
        "transaction_states": [
            {
                "transactional_id": each.id,
                "producer_id": each.producer.id,
                "transaction_state": each.state,
            }
            for each in found
        ],
    }


def _pattern(text: str | None) -> Linear | None:
    if not text:
        return None
    try:
        return Linear(text)
    except BadPattern as error:
        raise KafkaError(Error.INVALID_REGULAR_EXPRESSION, str(error)) from None


def describe_producers(kafka: KafkaContext, request: Request) -> Body:
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    _producers(kafka, request, topic["name"], index)
                    for index in topic["partition_indexes"]
                ],
            }
            for topic in request.body["topics"]
        ]
    }


def _producers(kafka: KafkaContext, request: Request, name: str, index: int) -> Body:
    found = log_of(kafka, request, name, index)
    if isinstance(found, Error):
        return {"partition_index": index, "error_code": found, "active_producers": []}
    return {
        "partition_index": index,
        "error_code": Error.NONE,
        "active_producers": [
            {
                "producer_id": each.producer_id,
                "producer_epoch": each.epoch,
                "last_sequence": each.last_sequence,
                "last_timestamp": each.last_timestamp,
                "coordinator_epoch": each.coordinator_epoch,
                "current_txn_start_offset": each.first_open,
            }
            for each in found.producers()
        ],
    }


HANDLERS: dict[Api, Handler] = {
    Api.DESCRIBE_TRANSACTIONS: describe_transactions,
    Api.LIST_TRANSACTIONS: list_transactions,
    Api.DESCRIBE_PRODUCERS: describe_producers,
}
