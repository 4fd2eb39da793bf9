"""Metadata, DescribeCluster, DescribeTopicPartitions: one broker, and the topics it has.

Clients ask for metadata again and again, and a thousand partitions take milliseconds to write
down: an answer is kept, encoded, until a topic or a permission changes. Answers that name unknown
topics, or many topics, are not kept: made-up names must not fill our memory.
"""

from collections.abc import Iterable

from ottermq.auth import Access
from ottermq.errors import OtterError
from ottermq.kafka import codec
from ottermq.kafka.admin import check_limit, refusal
from ottermq.kafka.api import Api
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error, KafkaError
from ottermq.kafka.pace import LARGE, paced
from ottermq.kafka.request import Answer, Body, Connection, Handler, Request
from ottermq.kafka.schema import NO_UUID
from ottermq.kafka.topics import Topic, TopicExists, is_legal
from ottermq.wal import LogError

NOT_ASKED = -(2**31)
# org.apache.kafka.common.acl.AclOperation, as bits; beside each, the permission that it takes here.
OPERATIONS: dict[int, Access] = {
    3: "read",  # READ
    4: "write",  # WRITE
    5: "configure",  # CREATE
    6: "configure",  # DELETE
    7: "configure",  # ALTER
    10: "configure",  # DESCRIBE_CONFIGS
    11: "configure",  # ALTER_CONFIGS
}
DESCRIBE = 1 << 8
CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
ANYBODY_OPERATIONS = sum(1 << bit for bit in (8, 12))  # DESCRIBE, IDEMPOTENT_WRITE
BROKERS, CONTROLLERS = 1, 2  # endpoint types
WORTH_KEEPING = 100  # topics that were asked for by name: more of them are no two clients' question


def metadata(kafka: KafkaContext, request: Request) -> Answer:
    asked: list[Body] = request.body["topics"] or []
    missing = [name for each in asked if (name := each["name"]) and not kafka.topics.find(name)]
    if missing and kafka.settings.auto_create and request.body["allow_auto_topic_creation"]:
        return _create_first(kafka, request, missing)
    if len(asked) > LARGE:
        return _many(kafka, request)
    return _metadata(kafka, request, {})


async def _many(kafka: KafkaContext, request: Request) -> bytes:
    wants, version = request.body["include_topic_authorized_operations"], request.version
    asked = request.body["topics"]
    topics = [_asked(kafka, request.conn, each, wants, version, {}) async for each in paced(asked)]
    return _encoded(kafka, request, topics)


async def _create_first(kafka: KafkaContext, request: Request, missing: list[str]) -> bytes:
    errors = {name: await _create(kafka, request, name) for name in missing}
    return _metadata(kafka, request, {name: error for name, error in errors.items() if error})


def _metadata(kafka: KafkaContext, request: Request, errors: dict[str, Error]) -> bytes:
    conn, body, version = request.conn, request.body, request.version
    asked: list[Body] | None = body["topics"]
    if not asked and version == 0:
        asked = None
    wants_cluster = body["include_cluster_authorized_operations"]
    wants_topics = body["include_topic_authorized_operations"]
    named = None if asked is None else tuple((each["name"], each["topic_id"]) for each in asked)
    state = (kafka.topics.version, kafka.permissions_version)
    key = (version, conn.advertised, conn.whose().name, wants_cluster, wants_topics, named)
    kept = None if errors else kafka.responses.find(state, key)
    if kept is not None:
        return kept
    if asked is None:
        topics = [
            _topic(conn, topic, wants_topics)
            for topic in kafka.topics.all()
            if operations(conn, topic.name)
        ]
    else:
        topics = [_asked(kafka, conn, each, wants_topics, version, errors) for each in asked]
    answer = _encoded(kafka, request, topics)
    if asked is None or (len(asked) <= WORTH_KEEPING and not any(map(_failed, topics))):
        kafka.responses.keep(state, key, answer)
    return answer


def _encoded(kafka: KafkaContext, request: Request, topics: list[Body]) -> bytes:
    conn, wants_cluster = request.conn, request.body["include_cluster_authorized_operations"]
    return codec.encode_body(
        Api.METADATA,
        request.version,
        {
            "brokers": [{"node_id": kafka.node_id, **_address(conn)}],
            "cluster_id": kafka.cluster_id,
            "controller_id": kafka.node_id,
            "topics": topics,
            "cluster_authorized_operations": _of_cluster(conn) if wants_cluster else NOT_ASKED,
        },
    )


def _failed(topic: Body) -> bool:
    return bool(topic.get("error_code"))


async def _create(kafka: KafkaContext, request: Request, name: str) -> Error:
    """NONE: it is there now."""
    conn, partitions = request.conn, kafka.settings.default_partitions
    if not conn.allows_topic("configure", name):
        # A client that may know that it isn't there gets that answer.
        known = operations(conn, name)
        return Error.UNKNOWN_TOPIC_OR_PARTITION if known else Error.TOPIC_AUTHORIZATION_FAILED
    try:
        kafka.topics.check_new(name, partitions)
        check_limit(kafka, name, partitions)
        await kafka.topics.create(name, partitions)
    except TopicExists:  # made by somebody else meanwhile, or a part of another topic
        return Error.NONE if kafka.topics.find(name) else Error.INVALID_TOPIC_EXCEPTION
    except (OtterError, LogError) as error:
        code, _ = refusal(error)
        if is_legal(name):
            request.audit("topic.create", name, KafkaError(code))
        return code if is_legal(name) else Error.INVALID_TOPIC_EXCEPTION
    request.audit("topic.create", name, partitions=partitions)
    return Error.NONE


def _asked(
    kafka: KafkaContext,
    conn: Connection,
    wanted: Body,
    wants_operations: bool,
    version: int,
    errors: dict[str, Error],
) -> Body:
    name: str | None = wanted["name"]
    if name is None:
        topic = kafka.topics.find_id(wanted["topic_id"])
        if topic is None or not operations(conn, topic.name):
            unnamed = None if version >= 12 else ""
            id = wanted["topic_id"]
            return {"error_code": Error.UNKNOWN_TOPIC_ID, "name": unnamed, "topic_id": id}
        return _topic(conn, topic, wants_operations)
    failed = errors.get(name, Error.NONE)
    if failed is Error.NONE:
        failed = _refusal(conn, name)
    topic = kafka.topics.find(name) if failed is Error.NONE else None
    if topic is None:
        failed = failed or Error.UNKNOWN_TOPIC_OR_PARTITION
        return {"error_code": failed, "name": name, "topic_id": NO_UUID}
    return _topic(conn, topic, wants_operations)


def _refusal(conn: Connection, name: str) -> Error:
    if not is_legal(name):
        return Error.INVALID_TOPIC_EXCEPTION
    return Error.NONE if operations(conn, name) else Error.TOPIC_AUTHORIZATION_FAILED


def _topic(conn: Connection, topic: Topic, wants_operations: bool) -> Body:
    return {
        "name": topic.name,
        "topic_id": topic.id,
        "partitions": partitions_of(conn.context, topic),
        "topic_authorized_operations": operations(conn, topic.name)
        if wants_operations
        else NOT_ASKED,
    }


def partitions_of(
    kafka: KafkaContext, topic: Topic, first: int = 0, last: int | None = None
) -> list[Body]:
    here = [kafka.node_id]
    return [
        {
            "partition_index": index,
            "leader_id": kafka.node_id,
            "leader_epoch": partition.log.stat().leader_epoch,
            "replica_nodes": here,
            "isr_nodes": here,
        }
        for index, partition in enumerate(topic.partitions[first:last], first)
    ]


def operations(conn: Connection, name: str) -> int:
    """The client's rights on a topic, as bits; 0: not even to know of it."""
    allowed = {access for access in set(OPERATIONS.values()) if conn.allows_topic(access, name)}
    bits = sum(1 << bit for bit, access in OPERATIONS.items() if access in allowed)
    return bits | DESCRIBE if bits else 0


def _of_cluster(conn: Connection) -> int:
    return CLUSTER_OPERATIONS if conn.is_administrator else ANYBODY_OPERATIONS


def _address(conn: Connection) -> Body:
    address = conn.advertised
    return {"host": address.host, "port": address.port}


def describe_cluster(kafka: KafkaContext, request: Request) -> Body:
    if request.body["endpoint_type"] == CONTROLLERS:
        text = "the controller has no listener of its own"
        return {"error_code": Error.MISMATCHED_ENDPOINT_TYPE, "error_message": text}
    if request.body["endpoint_type"] != BROKERS:
        return {"error_code": Error.UNSUPPORTED_ENDPOINT_TYPE}
    wants = request.body["include_cluster_authorized_operations"]
    return {
        "cluster_id": kafka.cluster_id,
        "controller_id": kafka.node_id,
        "brokers": [{"broker_id": kafka.node_id, **_address(request.conn)}],
        "cluster_authorized_operations": _of_cluster(request.conn) if wants else NOT_ASKED,
    }


MOST_PARTITIONS = 2000  # described at a time


# The Java client can't take a null here, whatever the protocol allows.
NO_FORMER_LEADERS: Body = {"eligible_leader_replicas": [], "last_known_elr": []}


def describe_topic_partitions(kafka: KafkaContext, request: Request) -> Body:
    """Page by page: a cursor names the topic and the partition that come next."""
    conn, body = request.conn, request.body
    cursor = body["cursor"] or {"topic_name": "", "partition_index": 0}
    left = min(max(body["response_partition_limit"], 1), MOST_PARTITIONS)
    told: list[Body] = []
    for name in _names(kafka, conn, body["topics"]):
        if name < cursor["topic_name"]:
            continue
        if left <= 0:
            return {"topics": told, "next_cursor": {"topic_name": name, "partition_index": 0}}
        failed = _refusal(conn, name)
        topic = kafka.topics.find(name) if failed is Error.NONE else None
        if topic is None:
            failed = failed or Error.UNKNOWN_TOPIC_OR_PARTITION
            told.append({"error_code": failed, "name": name})
            continue
        first = cursor["partition_index"] if name == cursor["topic_name"] else 0
        found = partitions_of(kafka, topic, max(first, 0), max(first, 0) + left)
        partitions = [each | NO_FORMER_LEADERS for each in found]
        left -= len(partitions)
        told.append(
            {
                "name": name,
                "topic_id": topic.id,
                "partitions": partitions,
                "topic_authorized_operations": operations(conn, name),
            }
        )
        following = max(first, 0) + len(partitions)
        if following < len(topic.partitions):
            return {
                "topics": told,
                "next_cursor": {"topic_name": name, "partition_index": following},
            }
    return {"topics": told}


def _names(kafka: KafkaContext, conn: Connection, asked: Iterable[Body]) -> list[str]:
    """In order; none asked for: all that the client may know of."""
    if asked:
        return sorted({each["name"] for each in asked})
    return [topic.name for topic in kafka.topics.all() if operations(conn, topic.name)]


HANDLERS: dict[Api, Handler] = {
    Api.METADATA: metadata,
    Api.DESCRIBE_CLUSTER: describe_cluster,
    Api.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
}
