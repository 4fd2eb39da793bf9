"""Settings of topics and of the broker, asked for and altered by Kafka's clients.

A topic's are configs.py's, all of them. The broker's (broker_configs.py) come from config.yaml and
can't be altered here.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum

from ottermq.errors import OtterError
from ottermq.kafka import broker_configs
from ottermq.kafka.admin import check_hold, is_seen, refusal
from ottermq.kafka.api import Api
from ottermq.kafka.configs import TOPIC_CONFIGS, BadValue, Source, Type
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error, KafkaError
from ottermq.kafka.pace import paced
from ottermq.kafka.request import Body, Handler, Request
from ottermq.kafka.topic_config_store import Effective
from ottermq.kafka.topics import Topic
from ottermq.storage.topic_retention import listed
from ottermq.wal import LogError

AT_A_TIME = 16  # topics, of some forty configs each


class Resource(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# -- asked for


async def describe_configs(kafka: KafkaContext, request: Request) -> Body:
    body = request.body
    results = []
    async for each in paced(body["resources"], AT_A_TIME):
        answer: Body = {
            "resource_type": each["resource_type"],
            "resource_name": each["resource_name"],
            "error_message": None,
            "configs": [],
        }
        try:
            found = _described(kafka, request, each["resource_type"], each["resource_name"])
            wanted = each["configuration_keys"]
            answer["configs"] = [
                _shown(config, body["include_synonyms"], body["include_documentation"])
                for config in found
                if wanted is None or config["name"] in wanted
            ]
        except KafkaError as trouble:
            answer["error_code"], answer["error_message"] = refusal(trouble)
        results.append(answer)
    return {"results": results}


def _described(kafka: KafkaContext, request: Request, type: int, name: str) -> Iterable[Body]:
    if type == Resource.TOPIC:
        conn = request.conn
        if not is_seen(conn, name):
            raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED, f"'{name}' may not be seen")
        return _of_topic(kafka, _topic(kafka, name))
    if type == Resource.BROKER:
        if not request.conn.is_administrator:
            raise KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED, "for administrators")
        if name not in ("", str(kafka.node_id)):
            raise KafkaError(Error.INVALID_REQUEST, f"the only broker is number {kafka.node_id}")
        return broker_configs.described(kafka, request.conn)
    raise KafkaError(Error.INVALID_REQUEST, f"there are no configs of {_type_name(type)} resources")


def _type_name(type: int) -> str:
    return Resource(type).name if type in list(Resource) else f"type {type}"


def _topic(kafka: KafkaContext, name: str) -> Topic:
    topic: Topic | None = kafka.topics.find(name)
    if topic is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"no topic '{name}'")
    return topic


def _of_topic(kafka: KafkaContext, topic: Topic) -> Iterable[Body]:
    found: Mapping[str, Effective] = kafka.configs.effective(topic)
    usual: Mapping[str, str] = kafka.configs.usual(topic)
    for name, config in TOPIC_CONFIGS.items():
        value, source = found[name].value, found[name].source
        synonyms = []
        if source is Source.DYNAMIC_TOPIC:
            synonyms.append({"name": name, "value": value, "source": source})
        if config.synonym is not None:
            default = {"name": config.synonym, "value": usual[name], "source": Source.DEFAULT}
            synonyms.append(default)
        yield {
            "name": name,
            "value": value,
            "config_source": source,
            "synonyms": synonyms,
            "config_type": config.type,
            "documentation": config.doc,
        }


def _shown(config: Body, synonyms: bool, documentation: bool) -> Body:
    return config | {
        "synonyms": config["synonyms"] if synonyms else [],
        "documentation": config["documentation"] if documentation else None,
    }


# -- altered


async def incremental_alter_configs(kafka: KafkaContext, request: Request) -> Body:
    return await _alter(kafka, request, _stepwise)


async def alter_configs(kafka: KafkaContext, request: Request) -> Body:
    return await _alter(kafka, request, _at_once)


Change = Callable[[Mapping[str, str], Mapping[str, str], Iterable[Body]], dict[str, str]]


async def _alter(kafka: KafkaContext, request: Request, change: Change) -> Body:
    answers = []
    for each in request.body["resources"]:
        type, name = each["resource_type"], each["resource_name"]
        answer: Body = {"resource_type": type, "resource_name": name, "error_message": None}
        try:
            topic = _alterable(kafka, request, type, name)
            # Nothing is awaited between these and the change that follows from them.
            now = {key: found.value for key, found in kafka.configs.effective(topic).items()}
            values = change(kafka.configs.altered(topic), now, each["configs"])
            kafka.configs.check(topic, values)
            check_hold(request, kafka.configs.altered(topic), values)
            if not request.body["validate_only"]:
                changed = _changed(kafka.configs.altered(topic), values)
                await kafka.configs.set(topic, values)
                request.audit("config.alter", name, configs=changed)
        except (KafkaError, BadValue, OtterError, LogError) as trouble:
            answer["error_code"], answer["error_message"] = refusal(trouble)
            request.audit("config.alter", name, KafkaError(answer["error_code"]))
        answers.append(answer)
    return {"responses": answers}


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """name=value of each that is another now; a name alone is as by default again."""
    names = sorted({*before, *after})
    return ",".join(
        f"{name}={after[name]}" if name in after else name
        for name in names
        if before.get(name) != after.get(name)
    )


def _alterable(kafka: KafkaContext, request: Request, type: int, name: str) -> Topic:
    if type == Resource.TOPIC:
        if not request.conn.allows_topic("configure", name):
            raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED, f"'{name}' may not be changed")
        return _topic(kafka, name)
    if type == Resource.BROKER:
        raise KafkaError(Error.INVALID_REQUEST, "the broker's settings are in its config.yaml")
    raise KafkaError(Error.INVALID_REQUEST, f"there are no configs of {_type_name(type)} resources")


def _at_once(
    before: Mapping[str, str], now: Mapping[str, str], asked: Iterable[Body]
) -> dict[str, str]:
    """Configs that aren't named go back to their default; so do those named without a value."""
    return {each["name"]: each["value"] for each in asked if each["value"] is not None}


def _stepwise(
    before: Mapping[str, str], now: Mapping[str, str], asked: Iterable[Body]
) -> dict[str, str]:
    values = dict(before)
    seen: set[str] = set()
    for each in asked:
        name, value = each["name"], each["value"]
        if name in seen:
            raise KafkaError(Error.INVALID_REQUEST, f"{name} is named more than once")
        seen.add(name)
        config = TOPIC_CONFIGS.get(name)
        if config is None:
            raise BadValue(f"Unknown topic config name: {name}")
        operation = each["config_operation"]
        if operation == Operation.DELETE:
            values.pop(name, None)
            continue
        if value is None:
            raise KafkaError(Error.INVALID_REQUEST, f"{name}: a value is missing")
        if operation == Operation.SET:
            values[name] = value
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            if config.type is not Type.LIST:
                raise BadValue(f"{name} is no list")
            values[name] = _changed_list(now[name], value, append=operation == Operation.APPEND)
        else:
            raise KafkaError(Error.INVALID_REQUEST, f"{name}: no operation {operation}")
    return values


def _changed_list(now: str, value: str, *, append: bool) -> str:
    parts, given = listed(now), listed(value)
    if append:
        return ",".join([*parts, *(part for part in given if part not in parts)])
    return ",".join(part for part in parts if part not in given)


HANDLERS: dict[Api, Handler] = {
    Api.DESCRIBE_CONFIGS: describe_configs,
    Api.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    Api.ALTER_CONFIGS: alter_configs,
}
