"""Messages published and got by the API, in RabbitMQ's forms."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.admin.api import Api
from tests.amqp.wire import Client
from tests.brokers import Broker

PLAIN = {"properties": {}, "payload": "hello", "payload_encoding": "string"}
GET = {"count": 5, "ackmode": "ack_requeue_false", "encoding": "auto"}


def publish(api: Api, key: str, exchange: str = "amq.default", **more: Any) -> Any:
    reply = api.post(f"exchanges/%2F/{exchange}/publish", {**PLAIN, "routing_key": key, **more})
    assert reply.status == 200, reply
    return reply.value


def got(api: Api, queue: str, **more: Any) -> Any:
    reply = api.post(f"queues/%2F/{queue}/get", {**GET, **more})
    assert reply.status == 200, reply
    return reply.value


def test_what_is_published_is_got_with_all_its_properties(
    shared: Broker, api: Api, name: str
) -> None:
    api.put(f"queues/%2F/{name}", {"durable": True})
    properties = {
        "delivery_mode": 2,
        "headers": {"a": 1, "b": [True, "x", None], "c": 1.5, "d": {"e": "f"}, "big": 1 << 40},
        "timestamp": 12345,
        "priority": 3,
        "content_type": "text/plain",
        "message_id": "é",
    }
    assert publish(api, name, properties=properties, payload="pö") == {"routed": True}
    (message,) = got(api, name)
    assert message == {
        "payload_bytes": 3,
        "redelivered": False,
        "exchange": "",
        "routing_key": name,
        "message_count": 0,
        "properties": properties,
        "payload": "pö",
        "payload_encoding": "string",
    }
    assert got(api, name) == []
    assert not any(" ERROR " in line for line in shared.lines)


def test_a_message_without_a_queue_is_not_routed(api: Api, name: str) -> None:
    assert publish(api, f"{name}-nowhere") == {"routed": False}
    api.put(f"exchanges/%2F/{name}", {"type": "fanout"})
    assert publish(api, "", name) == {"routed": False}
    api.put(f"queues/%2F/{name}")
    api.post(f"bindings/%2F/e/{name}/q/{name}")
    assert publish(api, "", name) == {"routed": True}
    (message,) = got(api, name)
    assert (message["exchange"], message["properties"]) == (name, [])


def test_bytes_come_and_go_as_base64(api: Api, name: str) -> None:
    api.put(f"queues/%2F/{name}")
    publish(api, name, payload="/wD+", payload_encoding="base64")
    publish(api, name, payload="text")
    binary, text = got(api, name)
    assert (binary["payload"], binary["payload_encoding"]) == ("/wD+", "base64")
    assert (text["payload"], text["payload_encoding"]) == ("text", "string")
    publish(api, name, payload="text")
    (cut,) = got(api, name, encoding="base64", truncate=2)
    assert (cut["payload"], cut["payload_bytes"]) == ("dGU=", 4)


def test_a_large_message_takes_many_frames(api: Api, name: str) -> None:
    api.put(f"queues/%2F/{name}", {"durable": True})
    payload = "0123456789abcdef" * (1 << 16)  # a MiB
    publish(api, name, payload=payload)
    (message,) = got(api, name)
    assert message["payload"] == payload


@pytest.mark.parametrize(
    ("mode", "left"),
    [
        ("ack_requeue_true", 3),
        ("reject_requeue_true", 3),
        ("ack_requeue_false", 1),
        ("reject_requeue_false", 1),
    ],
)
def test_each_mode_settles_what_was_got(api: Api, name: str, mode: str, left: int) -> None:
    api.put(f"queues/%2F/{name}-dead")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"}
    api.put(f"queues/%2F/{name}", {"arguments": dead})
    for number in range(3):
        publish(api, name, payload=str(number))
    first = got(api, name, count=2, ackmode=mode)
    assert [each["payload"] for each in first] == ["0", "1"]
    rest = got(api, name, count=9)
    assert len(rest) == left
    assert [each["redelivered"] for each in rest] == [True, True, False][3 - left :]
    buried = got(api, f"{name}-dead", count=9)
    assert len(buried) == (2 if mode == "reject_requeue_false" else 0)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("exchanges/%2F/nope/publish", {**PLAIN, "routing_key": "x"}),
        ("exchanges/%2F/amq.rabbitmq.trace/publish", {**PLAIN, "routing_key": "x"}),
        ("exchanges/%2F/amq.default/publish", PLAIN),
        ("exchanges/%2F/amq.default/publish", {**PLAIN, "routing_key": "x" * 300}),
        ("exchanges/%2F/amq.default/publish", {**PLAIN, "routing_key": "x", "payload": 1}),
        ("exchanges/%2F/amq.default/publish", {"routing_key": "x", "properties": {}}),
        (
            "exchanges/%2F/amq.default/publish",
            {**PLAIN, "routing_key": "x", "payload_encoding": "rot13"},
        ),
        (
            "exchanges/%2F/amq.default/publish",
            {**PLAIN, "routing_key": "x", "payload": "!!", "payload_encoding": "base64"},
        ),
        *(
            ("exchanges/%2F/amq.default/publish", {**PLAIN, "routing_key": "x", "properties": each})
            for each in (
                7,
                {"priority": "x"},
                {"priority": 300},
                {"priority": -1},
                {"delivery_mode": 7},
                {"headers": 1},
                {"headers": {"x" * 300: 1}},
                {"timestamp": 1 << 62},
                {"timestamp": -5},
                {"content_type": 1},
                {"content_type": "x" * 300},
                {"user_id": "somebody else"},
            )
        ),
        ("queues/%2F/nope/get", GET),
        ("queues/%2F/some/get", {}),
        ("queues/%2F/some/get", {**GET, "count": -1}),
        ("queues/%2F/some/get", {**GET, "count": 1 << 40}),
        ("queues/%2F/some/get", {**GET, "ackmode": "nope"}),
        ("queues/%2F/some/get", {**GET, "encoding": "nope"}),
        ("queues/%2F/some/get", {**GET, "truncate": -1}),
        ("queues/%2F/stream/get", GET),
    ],
    ids=lambda part: str(part)[-40:],
)
def test_what_can_t_be_published_or_got_is_refused(
    shared: Broker, api: Api, path: str, body: Any
) -> None:
    api.put("queues/%2F/some")
    api.put("queues/%2F/stream", {"durable": True, "type": "stream"})
    reply = api.post(path, body)
    assert 400 <= reply.status < 500 and reply.value["reason"], reply
    assert not any(" ERROR " in line for line in shared.lines)


def test_rights_count_as_in_amqp(
    shared: Broker, api: Api, login: Callable[..., Api], name: str
) -> None:
    api.put(f"queues/%2F/{name}")
    api.put(f"users/{name}", {"password": "p", "tags": "management"})
    api.put(f"permissions/%2F/{name}", {"configure": "", "write": "^nothing", "read": "^nothing"})
    own = login(f"{name}:p")
    body = {**PLAIN, "routing_key": name}
    assert own.post("exchanges/%2F/amq.default/publish", body).status == 401
    assert own.post(f"queues/%2F/{name}/get", GET).status == 401
    api.put(f"permissions/%2F/{name}", {"configure": "", "write": ".*", "read": ".*"})
    assert publish(own, name) == {"routed": True}
    assert len(got(own, name)) == 1
    shared.wait_for(f"connection opened listener=internal peer=127.0.0.1:0 user={name} ")


def test_our_own_client_is_not_shown_and_leaves_nothing(
    shared: Broker, api: Api, name: str
) -> None:
    api.put(f"queues/%2F/{name}")
    for _ in range(20):
        publish(api, name)
    assert len(got(api, name, count=100)) == 20
    assert [each for each in api.get("connections") if each["peer_port"] == 0] == []
    found = api.get(f"queues/%2F/{name}")
    assert (found["messages"], found["consumers"]) == (0, 0)


def test_an_exclusive_queue_is_its_connection_s(shared: Broker, api: Api, name: str) -> None:
    with Client(shared.address("amqp")) as client:
        client.channel().declare(name, exclusive=True)
        assert api.get(f"queues/%2F/{name}")["owner_pid_details"]["peer_port"]
        assert api.post(f"queues/%2F/{name}/get", GET).status == 400
        assert api.delete(f"queues/%2F/{name}") == 400
        assert api.delete(f"queues/%2F/{name}/contents") == 400


def test_in_an_alarm_a_publish_is_told_to_come_later(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", env={"OTTERMQ_WAL__LOW_SPACE_LIMIT": "1000TiB"}) as broker:
        with Api(broker.address("admin")) as api:
            broker.wait_for("no disk space")
            assert api.ask("GET", "health/checks/alarms").status == 503
            api.put("queues/%2F/q")
            path = "exchanges/%2F/amq.default/publish"
            reply = api.post(path, {**PLAIN, "routing_key": "q"})
            assert reply.status == 503 and reply.value["reason"]
