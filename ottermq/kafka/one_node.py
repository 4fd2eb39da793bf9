"""Requests about a cluster of many nodes, answered as a cluster of a single node.

It leads every partition, holds the only replica of each in the only directory there is, and is the
only voter of a quorum of one. So an election is never needed, a reassignment to this node is done
before it begins, and one to another node can't be.
"""

from collections.abc import Callable
from typing import Any

from ottermq.kafka.admin import check_replicas, is_seen, refusal
from ottermq.kafka.api import Api
from ottermq.kafka.config_admin import Resource
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error, KafkaError
from ottermq.kafka.logdirs import log_dir
from ottermq.kafka.pace import paced
from ottermq.kafka.request import Body, Handler, Request

PREFERRED, UNCLEAN = 0, 1  # kinds of elections
METADATA_LOG = "__cluster_metadata"
CONTROLLER = "CONTROLLER"  # its listener's usual name


def _check_administrator(request: Request) -> None:
    if not request.conn.is_administrator:
        raise KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED, "for administrators")


def _check_partition(kafka: KafkaContext, name: str, index: int) -> None:
    topic = kafka.topics.find(name)
    if topic is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"no topic '{name}'")
    if topic.partition(index) is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"no partition {name}-{index}")


def _outcome(check: Callable[..., None], *about: Any) -> Body:
    try:
        check(*about)
    except KafkaError as trouble:
        code, text = refusal(trouble)
        return {"error_code": code, "error_message": text}
    return {"error_code": Error.NONE, "error_message": None}


def _audit(request: Request, act: str, name: str, outcomes: list[Body]) -> None:
    """One line per topic, with its first error."""
    codes = [each["error_code"] for each in outcomes if each["error_code"] != Error.NONE]
    trouble = KafkaError(codes[0]) if codes else None
    request.audit(act, name, trouble, partitions=len(outcomes))


# -- leaders


async def elect_leaders(kafka: KafkaContext, request: Request) -> Body:
    body = request.body
    if body["election_type"] not in (PREFERRED, UNCLEAN):
        raise KafkaError(Error.INVALID_REQUEST)
    allowed = _outcome(_check_administrator, request)
    results = []
    # The answer lists only partitions whose leader isn't the wanted one: none.
    async for each in paced(body["topic_partitions"] or []):
        name = each["topic"]
        found = [
            {"partition_id": index, **_outcome(_elect, kafka, request, name, index)}
            for index in each["partitions"]
        ]
        _audit(request, "leader.elect", name, found)
        results.append({"topic": name, "partition_result": found})
    return {"error_code": allowed["error_code"], "replica_election_results": results}


def _elect(kafka: KafkaContext, request: Request, name: str, index: int) -> None:
    _check_administrator(request)
    _check_partition(kafka, name, index)
    raise KafkaError(Error.ELECTION_NOT_NEEDED, "the only broker leads it already")


# -- replicas


async def alter_partition_reassignments(kafka: KafkaContext, request: Request) -> Body:
    _check_administrator(request)
    may_change = request.body["allow_replication_factor_change"]
    responses = []
    async for each in paced(request.body["topics"]):
        name = each["name"]
        found = [
            {
                "partition_index": part["partition_index"],
                **_outcome(_reassign, kafka, name, part, may_change),
            }
            for part in each["partitions"]
        ]
        _audit(request, "partition.reassign", name, found)
        responses.append({"name": name, "partitions": found})
    return {"allow_replication_factor_change": may_change, "responses": responses}


def _reassign(kafka: KafkaContext, name: str, asked: Body, may_change: bool) -> None:
    _check_partition(kafka, name, asked["partition_index"])
    replicas = asked["replicas"]
    if replicas is None:
        raise KafkaError(Error.NO_REASSIGNMENT_IN_PROGRESS, "there is none to cancel")
    check_replicas(kafka, replicas)
    if len(replicas) > 1 and not may_change:
        raise KafkaError(Error.INVALID_REPLICATION_FACTOR, "it has one replica")


def list_partition_reassignments(kafka: KafkaContext, request: Request) -> Body:
    return {"topics": []}


async def alter_replica_log_dirs(kafka: KafkaContext, request: Request) -> Body:
    results: dict[str, list[Body]] = {}
    moves = [(dir["path"], topic) for dir in request.body["dirs"] for topic in dir["topics"]]
    async for path, topic in paced(moves):
        name, found = topic["name"], []
        for index in topic["partitions"]:
            outcome = _outcome(_move, kafka, request, path, name, index)
            found.append({"partition_index": index, "error_code": outcome["error_code"]})
        _audit(request, "replica.move", name, found)
        results.setdefault(name, []).extend(found)
    return {
        "results": [{"topic_name": name, "partitions": found} for name, found in results.items()]
    }


def _move(kafka: KafkaContext, request: Request, path: str, name: str, index: int) -> None:
    _check_administrator(request)
    if path != log_dir(kafka):
        raise KafkaError(Error.LOG_DIR_NOT_FOUND)
    topic = kafka.topics.find(name)
    if topic is None or topic.partition(index) is None:
        raise KafkaError(Error.REPLICA_NOT_AVAILABLE)


# -- the cluster


def describe_quorum(kafka: KafkaContext, request: Request) -> Body:
    """There is no log of metadata (it is in meta.db), so it begins and ends at 0."""
    where = request.conn.advertised
    listener = {"name": CONTROLLER, "host": where.host, "port": where.port}
    return {
        "topics": [
            {
                "topic_name": each["topic_name"],
                "partitions": [
                    _quorum(kafka, each["topic_name"], part["partition_index"])
                    for part in each["partitions"]
                ],
            }
            for each in request.body["topics"]
        ],
        "nodes": [{"node_id": kafka.node_id, "listeners": [listener]}],
    }


def _quorum(kafka: KafkaContext, name: str, index: int) -> Body:
    if (name, index) != (METADATA_LOG, 0):
        return {"partition_index": index, "error_code": Error.UNKNOWN_TOPIC_OR_PARTITION}
    now = kafka.store.now_ms()
    voter = {
        "replica_id": kafka.node_id,
        "log_end_offset": 0,
        "last_fetch_timestamp": now,
        "last_caught_up_timestamp": now,
    }
    return {"partition_index": index, "leader_id": kafka.node_id, "current_voters": [voter]}


def update_features(kafka: KafkaContext, request: Request) -> Body:
    """We announce none, so there is none to be raised, lowered or removed."""
    _check_administrator(request)
    asked = [each["feature"] for each in request.body["feature_updates"]]
    if not asked:
        return {}
    outcome = {
        "error_code": Error.INVALID_UPDATE_VERSION,
        "error_message": f"this broker has no feature '{asked[0]}', nor any other to update",
    }
    request.audit("feature.update", asked[0], KafkaError(Error.INVALID_UPDATE_VERSION))
    return {**outcome, "results": [{"feature": name, **outcome} for name in asked]}


def list_config_resources(kafka: KafkaContext, request: Request) -> Body:
    _check_administrator(request)
    asked = request.body["resource_types"] or list(Resource)
    if any(type not in list(Resource) for type in asked):
        raise KafkaError(Error.UNSUPPORTED_VERSION)
    if request.version == 0:  # it asks for those of clients' metrics only
        return {"config_resources": []}
    found = []
    if Resource.BROKER in asked:
        found.append((Resource.BROKER, str(kafka.node_id)))
    if Resource.TOPIC in asked:
        names = (topic.name for topic in kafka.topics.all())
        found += [(Resource.TOPIC, name) for name in names if is_seen(request.conn, name)]
    return {
        "config_resources": [{"resource_type": type, "resource_name": name} for type, name in found]
    }


HANDLERS: dict[Api, Handler] = {
    Api.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs,
    Api.ELECT_LEADERS: elect_leaders,
    Api.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    Api.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    Api.DESCRIBE_QUORUM: describe_quorum,
    Api.UPDATE_FEATURES: update_features,
    Api.LIST_CONFIG_RESOURCES: list_config_resources,
}
