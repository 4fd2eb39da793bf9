"""Topics made, divided, emptied and removed by Kafka's clients.

A request names many topics, and each gets its own answer: an error of one doesn't touch the rest.
`validate_only` stops before the first step that would change something.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID

from ottermq.errors import AccessRefused, NotFound, OtterError, PreconditionFailed
from ottermq.kafka.api import Api
from ottermq.kafka.configs import BadValue
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error, KafkaError, error_of
from ottermq.kafka.offsets import partition_log
from ottermq.kafka.request import Body, Connection, Handler, Request
from ottermq.kafka.topics import MOST_PARTITIONS, IllegalName, Topic, TopicExists
from ottermq.storage.legal_holds import KAFKA_KEY as HOLD
from ottermq.wal import Log, LogError, RemovalReason

BY_DEFAULT = -1
HIGH_WATERMARK = -1
NO_ID = UUID(int=0)


def refusal(trouble: Exception) -> tuple[Error, str]:
    """The answer for a topic whose change failed."""
    match trouble:
        case KafkaError():
            return trouble.error, trouble.text or trouble.error.name
        case BadValue():
            return Error.INVALID_CONFIG, str(trouble)
        case TopicExists():
            return Error.TOPIC_ALREADY_EXISTS, str(trouble)
        case IllegalName():
            return Error.INVALID_TOPIC_EXCEPTION, str(trouble)
        case NotFound():
            return Error.UNKNOWN_TOPIC_OR_PARTITION, str(trouble)
        case AccessRefused():
            return Error.TOPIC_AUTHORIZATION_FAILED, str(trouble)
        case PreconditionFailed():
            return Error.POLICY_VIOLATION, str(trouble)
        case _:
            return error_of(trouble), str(trouble)


# -- made


async def create_topics(kafka: KafkaContext, request: Request) -> Body:
    asked = request.body["topics"]
    twice = {name for name, times in Counter(each["name"] for each in asked).items() if times > 1}
    answers: dict[str, Body] = {}
    for each in asked:
        name = each["name"]
        try:
            if name in twice:
                raise KafkaError(Error.INVALID_REQUEST, f"'{name}' is named more than once")
            answers[name] = await _create(kafka, request, each)
            if not request.body["validate_only"]:
                made = answers[name]["num_partitions"]
                request.audit("topic.create", name, partitions=made)
        except (KafkaError, BadValue, OtterError, LogError) as trouble:
            code, text = refusal(trouble)
            request.audit("topic.create", name, KafkaError(code))
            answers[name] = {"name": name, "error_code": code, "error_message": text}
    return {"topics": list(answers.values())}


async def _create(kafka: KafkaContext, request: Request, asked: Body) -> Body:
    name: str = asked["name"]
    if not request.conn.allows_topic("configure", name):
        raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED, f"'{name}' may not be made")
    partitions = _how_many(kafka, asked)
    values = {}
    for config in asked["configs"]:
        if config["value"] is None:
            raise BadValue(f"Null value not supported for topic configs: {config['name']}")
        values[config["name"]] = config["value"]
    kafka.configs.check(None, values)
    check_hold(request, {}, values)
    kafka.topics.check_new(name, partitions)
    check_limit(kafka, name, partitions)
    answer: Body = {
        "name": name, "error_message": None, "num_partitions": partitions, "replication_factor": 1,
    }  # fmt: skip
    if request.body["validate_only"]:
        return answer
    topic = await kafka.topics.create(name, partitions, values)
    answer["topic_id"] = topic.id
    answer["configs"] = [
        {"name": key, "value": found.value, "read_only": False, "config_source": found.source}
        for key, found in kafka.configs.effective(topic).items()
    ]
    return answer


def check_hold(request: Request, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """A legal hold is above the right to configure a topic: it is for administrators."""
    changes = before.get(HOLD, "false") != after.get(HOLD, "false")
    if changes and not request.conn.is_administrator:
        raise KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED, f"{HOLD} is for administrators")


def check_limit(kafka: KafkaContext, name: str, more: int) -> None:
    """PreconditionFailed: each partition is a queue, and the vhost may not have so many more."""
    vhost = kafka.settings.vhost
    now = len(kafka.topology.vhost(vhost).queues)
    kafka.auth.limits.check_queues(vhost, name, now + more - 1)


def _how_many(kafka: KafkaContext, asked: Body) -> int:
    partitions: int = asked["num_partitions"]
    assignments = asked["assignments"]
    if assignments:
        if partitions != BY_DEFAULT or asked["replication_factor"] != BY_DEFAULT:
            raise KafkaError(
                Error.INVALID_REQUEST, "partitions are either counted or assigned, not both"
            )
        _check_assignments(kafka, assignments)
        partitions = len(assignments)
    elif partitions == BY_DEFAULT:
        partitions = kafka.settings.default_partitions
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise KafkaError(Error.INVALID_PARTITIONS, f"a topic has 1 to {MOST_PARTITIONS} partitions")
    factor = asked["replication_factor"]
    if factor != BY_DEFAULT and (
        factor < 1 or (factor > 1 and not kafka.settings.any_replication_factor)
    ):
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor}: there is one broker"
            " (kafka.any_replication_factor: true takes any)",
        )
    return partitions


def _check_assignments(kafka: KafkaContext, assignments: Sequence[Body]) -> None:
    indexes = sorted(each["partition_index"] for each in assignments)
    if indexes != list(range(len(indexes))):
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, "partitions must count from 0 without a gap"
        )
    for each in assignments:
        check_replicas(kafka, each["broker_ids"])


def check_replicas(kafka: KafkaContext, brokers: Sequence[int]) -> None:
    if not brokers or len(set(brokers)) != len(brokers):
        raise KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, "each replica on a broker of its own")
    if kafka.settings.any_replication_factor:
        brokers = [each for each in brokers if each == kafka.node_id]
    if list(brokers) != [kafka.node_id]:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, f"the only broker is number {kafka.node_id}"
        )


# -- divided


async def create_partitions(kafka: KafkaContext, request: Request) -> Body:
    asked = request.body["topics"]
    twice = {name for name, times in Counter(each["name"] for each in asked).items() if times > 1}
    answers: dict[str, Body] = {}
    for each in asked:
        name = each["name"]
        try:
            if name in twice:
                raise KafkaError(Error.INVALID_REQUEST, f"'{name}' is named more than once")
            await _grow(kafka, request, each)
            answers[name] = {"name": name}
            if not request.body["validate_only"]:
                request.audit("topic.grow", name, partitions=each["count"])
        except (KafkaError, OtterError, LogError) as trouble:
            code, text = refusal(trouble)
            request.audit("topic.grow", name, KafkaError(code))
            answers[name] = {"name": name, "error_code": code, "error_message": text}
    return {"results": list(answers.values())}


async def _grow(kafka: KafkaContext, request: Request, asked: Body) -> None:
    name, count = asked["name"], asked["count"]
    topic = _existing(kafka, request, name)
    have = len(topic.partitions)
    if count <= have or count > MOST_PARTITIONS:
        raise KafkaError(
            Error.INVALID_PARTITIONS,
            f"topic '{name}' has {have} partitions: {count} would not be an increase"
            if count <= have
            else f"a topic has 1 to {MOST_PARTITIONS} partitions",
        )
    if not topic.is_stream:
        raise KafkaError(Error.INVALID_PARTITIONS, f"'{name}' is a work queue: it can't be divided")
    assignments = asked["assignments"]
    if assignments is not None:
        if len(assignments) != count - have:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT, f"{count - have} partitions are to be assigned"
            )
        for each in assignments:
            check_replicas(kafka, each["broker_ids"])
    check_limit(kafka, name, count - have)
    if not request.body["validate_only"]:
        await kafka.topics.grow(topic, count)


def _existing(kafka: KafkaContext, request: Request, name: str) -> Topic:
    """One that this client may change."""
    if not request.conn.allows_topic("configure", name):
        raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED, f"'{name}' may not be changed")
    topic: Topic | None = kafka.topics.find(name)
    if topic is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"no topic '{name}'")
    return topic


# -- removed


async def delete_topics(kafka: KafkaContext, request: Request) -> Body:
    asked = request.body["topics"] or [
        {"name": name, "topic_id": NO_ID} for name in request.body["topic_names"]
    ]
    answers = []
    for each in asked:
        name, id = each["name"], each["topic_id"]
        answer: Body = {"name": name, "topic_id": id}
        try:
            topic = _named(kafka, request, name, id)
            answer |= {"name": topic.name, "topic_id": topic.id}
            await kafka.topics.delete(topic.name)
            request.audit("topic.delete", topic.name)
        except (KafkaError, OtterError, LogError) as trouble:
            answer["error_code"], answer["error_message"] = refusal(trouble)
            request.audit("topic.delete", name or str(id), KafkaError(answer["error_code"]))
        answers.append(answer)
    return {"responses": answers}


def _named(kafka: KafkaContext, request: Request, name: str | None, id: UUID) -> Topic:
    if name is not None and id != NO_ID:
        raise KafkaError(Error.INVALID_REQUEST, "a topic is named by its name or its id, not both")
    if name is not None:
        return _existing(kafka, request, name)
    topic: Topic | None = kafka.topics.find_id(id)
    # Ids can be worked out: a client that may not see the topic doesn't learn its name.
    if topic is None or not is_seen(request.conn, topic.name):
        raise KafkaError(Error.UNKNOWN_TOPIC_ID, f"no topic with the id {id}")
    return _existing(kafka, request, topic.name)


def is_seen(conn: Connection, name: str) -> bool:
    """Any permission on a topic is enough to learn that it exists."""
    return any(conn.allows_topic(access, name) for access in ("configure", "read", "write"))


# -- emptied


async def delete_records(kafka: KafkaContext, request: Request) -> Body:
    topics, last = [], 0
    for asked in request.body["topics"]:
        name, partitions = asked["name"], []
        for each in asked["partitions"]:
            index = each["partition_index"]
            answer: Body = {"partition_index": index, "low_watermark": -1}
            try:
                log = _emptied(kafka, request, name, index)
                last = max(last, _trim(log, each["offset"]))
                answer["low_watermark"] = log.stat().start_offset
                request.audit("records.delete", f"{name}-{index}", before=each["offset"])
            except (KafkaError, LogError) as trouble:
                answer["error_code"] = error_of(trouble)
                request.audit("records.delete", f"{name}-{index}", trouble)
            partitions.append(answer)
        topics.append({"name": name, "partitions": partitions})
    await kafka.store.wait_durable(last)
    return {"topics": topics}


def _emptied(kafka: KafkaContext, request: Request, name: str, index: int) -> Log:
    if not request.conn.allows_topic("configure", name):
        raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED)
    found = partition_log(kafka, name, index)
    if isinstance(found, Error):
        raise KafkaError(found)
    if kafka.queues.holds.on_log(found):
        raise KafkaError(Error.POLICY_VIOLATION, f"'{name}' is under legal hold")
    return found


def _trim(log: Log, offset: int) -> int:
    """The sequence to wait for. Messages that AMQP consumers have not settled stay."""
    stat = log.stat()
    offset = stat.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= offset <= stat.high_watermark:
        raise KafkaError(Error.OFFSET_OUT_OF_RANGE)
    if log.has_cursor and offset > log.cursor().floor:
        raise KafkaError(Error.POLICY_VIOLATION)
    return log.trim(offset, RemovalReason.DELETE_RECORDS) if offset > stat.start_offset else 0


HANDLERS: dict[Api, Handler] = {
    Api.CREATE_TOPICS: create_topics,
    Api.DELETE_TOPICS: delete_topics,
    Api.CREATE_PARTITIONS: create_partitions,
    Api.DELETE_RECORDS: delete_records,
}
