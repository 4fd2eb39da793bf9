"""Queues, exchanges, bindings, vhosts, users and the rest: made, seen, changed, deleted."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tests.admin.api import Api
from tests.amqp.wire import Client
from tests.brokers import Broker

EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


def test_a_queue_is_made_once_and_is_there_for_amqp(shared: Broker, api: Api, name: str) -> None:
    body = {"durable": True, "arguments": {"x-max-length": 7}}
    assert api.put(f"queues/%2F/{name}", body) == 201
    assert api.put(f"queues/%2F/{name}", body) == 204
    refused = api.ask("PUT", f"queues/%2F/{name}", {"durable": False})
    assert refused.status == 400 and "inequivalent arg 'durable'" in refused.value["reason"]
    with Client(shared.address("amqp")) as client:
        channel = client.channel()
        channel.declare(name, {"x-max-length": 7}, durable=True)
        channel.publish(b"one", name)
        channel.publish(b"two", name)
        channel.declare(name, {"x-max-length": 7}, durable=True)  # behind both
        found = api.get(f"queues/%2F/{name}")
        assert (found["messages"], found["messages_ready"], found["type"]) == (2, 2, "classic")
        assert found["message_stats"]["publish"] == 2
        assert found["arguments"] == {"x-max-length": 7, "x-queue-type": "classic"}
        assert api.delete(f"queues/%2F/{name}?if-empty=true") == 400
        assert api.delete(f"queues/%2F/{name}/contents") == 204
        assert api.get(f"queues/%2F/{name}")["messages"] == 0
    assert api.delete(f"queues/%2F/{name}?if-empty=true") == 204
    assert api.delete(f"queues/%2F/{name}") == 404
    shared.wait_for(f"audit act=queue.declare user=guest peer=127.0.0.1 what={name} ")
    shared.wait_for(f"audit act=queue.purge user=guest peer=127.0.0.1 what={name} ")
    shared.wait_for(f"audit act=queue.delete user=guest peer=127.0.0.1 what={name} ")


def test_arguments_of_any_kind_are_shown(shared: Broker, api: Api, name: str) -> None:
    odd = {
        "nan": float("nan"),
        "time": datetime(2026, 1, 2, tzinfo=UTC),
        "decimal": Decimal("1.5"),
        "bytes": bytearray(b"\xff\x00"),
        "nested": {"list": [True, None, 1 << 40, float("inf")]},
    }
    with Client(shared.address("amqp")) as client:
        client.channel().declare(name, odd)
        found = api.get(f"queues/%2F/{name}")["arguments"]
        assert found["nan"] is None and found["decimal"] == 1.5
        assert found["time"] == 1767312000
        assert found["nested"] == {"list": [True, None, 1 << 40, None]}
        assert found in [queue["arguments"] for queue in api.get("queues")]


@pytest.mark.parametrize("odd", ["a%2Fb", "a%3Fb", "a%20b", "%C3%B6tter", "a%25b", "..", "a+b"])
def test_names_are_decoded_part_by_part(api: Api, name: str, odd: str) -> None:
    assert api.put(f"queues/%2F/{name}{odd}/") == 201
    found = api.get(f"queues/%2F/{name}{odd}")
    assert api.get(f"queues/%2F/{name}{odd}/bindings/")[0]["destination"] == found["name"]
    assert api.delete(f"queues/%2F/{name}{odd}") == 204


def test_a_plus_may_stand_for_a_space(api: Api, name: str) -> None:
    assert api.put(f"queues/%2F/{name}%20x") == 201
    assert api.get(f"queues/%2F/{name}+x")["name"] == f"{name} x"


def test_flags_and_numbers_may_come_as_text(api: Api, name: str) -> None:
    assert api.put(f"queues/%2F/{name}", {"durable": "true", "auto_delete": "false"}) == 201
    assert api.get(f"queues/%2F/{name}?columns=durable,auto_delete") == {
        "durable": True,
        "auto_delete": False,
    }
    policy = {"pattern": f"^{name}$", "definition": {"max-length": 3}, "priority": "4"}
    assert api.put(f"policies/%2F/{name}", policy) == 201
    assert api.get(f"policies/%2F/{name}")["priority"] == 4


def test_an_exchange_is_made_seen_and_deleted(api: Api, name: str) -> None:
    assert api.put(f"exchanges/%2F/{name}", {"type": "topic", "durable": True}) == 201
    assert api.put(f"exchanges/%2F/{name}", {"type": "topic", "durable": True}) == 204
    assert api.put(f"exchanges/%2F/{name}", {"type": "fanout", "durable": True}) == 400
    found = api.get(f"exchanges/%2F/{name}")
    assert (found["type"], found["durable"], found["message_stats"]["publish_in"]) == (
        "topic",
        True,
        0,
    )
    assert api.get("exchanges/%2F/amq.default")["name"] == ""
    assert api.delete("exchanges/%2F/amq.topic") == 401
    assert api.delete(f"exchanges/%2F/{name}") == 204
    assert api.delete(f"exchanges/%2F/{name}") == 404


@pytest.mark.parametrize(
    ("binding", "key"),
    [
        ({}, "~"),
        ({"routing_key": "a b/#"}, "a+b%2F%23"),
        ({"routing_key": "a~b"}, "a%7Eb"),
        ({"routing_key": "k", "arguments": {"x": 1, "y": {"z": [True, "é"]}}}, None),
        ({"arguments": {"x-match": "all"}}, None),
        ({"routing_key": "\x00é"}, "%00%C3%A9"),
    ],
)
def test_a_binding_is_named_by_its_properties_key(
    api: Api, name: str, binding: dict[str, object], key: str | None
) -> None:
    api.put(f"exchanges/%2F/{name}", {"type": "direct"})
    api.put(f"queues/%2F/{name}")
    ends = f"bindings/%2F/e/{name}/q/{name}"
    made = api.post(ends, binding)
    assert made.status == 201
    last = made.headers["location"].split("/")[-1]
    (found,) = api.get(ends)
    assert api.get(f"{ends}/{last}") == found
    assert found["routing_key"] == binding.get("routing_key", "")
    assert found["arguments"] == binding.get("arguments", {})
    if key is not None:
        assert found["properties_key"] == key
    assert found in api.get("bindings") and found in api.get(f"queues/%2F/{name}/bindings")
    assert api.get(f"exchanges/%2F/{name}/bindings/source") == [found]
    assert api.delete(f"{ends}/nope") == 404
    assert api.delete(f"{ends}/{last}") == 204
    assert api.get(ends) == []


def test_exchanges_are_bound_to_exchanges(api: Api, name: str) -> None:
    api.put(f"exchanges/%2F/{name}", {"type": "direct"})
    assert api.post(f"bindings/%2F/e/{name}/e/amq.fanout", {"routing_key": "k"}).status == 201
    found = api.get("exchanges/%2F/amq.fanout/bindings/destination")
    assert [each["source"] for each in found if each["source"] == name] == [name]
    assert api.post(f"bindings/%2F/e/{name}/x/amq.fanout").status == 404
    assert api.post(f"bindings/%2F/e/amq.default/q/{name}").status in (401, 404)


def test_a_vhost_comes_with_its_maker_s_permissions_and_goes_with_all(api: Api, name: str) -> None:
    assert api.put(f"vhosts/{name}") == 201
    told = {"description": "a test", "tags": "a,b", "default_queue_type": "quorum"}
    assert api.put(f"vhosts/{name}", told) == 204
    found = api.get(f"vhosts/{name}")
    assert (found["description"], found["tags"], found["default_queue_type"]) == (
        "a test",
        ["a", "b"],
        "quorum",
    )
    assert api.get(f"vhosts/{name}/permissions") == [{"user": "guest", "vhost": name, **EVERYTHING}]
    assert api.put(f"queues/{name}/q", {"durable": True}) == 201
    assert api.get(f"queues/{name}/q")["type"] == "quorum"
    assert api.delete(f"vhosts/{name}") == 204
    assert api.ask("GET", f"queues/{name}").status == 404
    assert not [each for each in api.get("permissions") if each["vhost"] == name]


def test_users_come_by_password_or_hash_and_go(
    shared: Broker, api: Api, login: Callable[..., Api], name: str
) -> None:
    assert api.put(f"users/{name}", {"password": "one"}) == 400  # tags are needed
    assert api.put(f"users/{name}", {"password": "one", "tags": "management,custom"}) == 201
    assert login(f"{name}:one").get("whoami") == {"name": name, "tags": ["management", "custom"]}
    assert api.put(f"users/{name}", {"password": "two", "tags": ["monitoring"]}) == 204
    assert login(f"{name}:one").ask("GET", "whoami").status == 401
    assert login(f"{name}:two").get("whoami")["tags"] == ["monitoring"]
    hashed = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"  # RabbitMQ's for test12
    assert api.put(f"users/{name}h", {"password_hash": hashed, "tags": "management"}) == 201
    assert login(f"{name}h:test12").get("whoami")["name"] == f"{name}h"
    assert api.put(f"users/{name}h", {"password_hash": "no base64", "tags": ""}) == 400
    assert api.put(f"users/{name}h", {"password_hash": "", "tags": "management"}) == 204
    assert login(f"{name}h:test12").ask("GET", "whoami").status == 401
    assert {name, f"{name}h"} <= {user["name"] for user in api.get("users/without-permissions")}
    gone = {"users": [name, f"{name}h"]}
    assert api.post("users/bulk-delete", {"users": [name, "nobody!"]}).status == 400
    assert api.post("users/bulk-delete", gone).status == 204
    assert api.ask("GET", f"users/{name}").status == 404
    shared.wait_for(f"audit act=user.create user=guest peer=127.0.0.1 what={name} ")
    shared.wait_for(f"audit act=user.password user=guest peer=127.0.0.1 what={name} ")
    assert not any("two" in line for line in shared.lines if name in line)


def test_permissions_are_set_seen_and_taken_back(api: Api, name: str) -> None:
    api.put(f"users/{name}", {"password": "p", "tags": ""})
    place = f"permissions/%2F/{name}"
    assert api.put(place, EVERYTHING) == 201
    assert api.put(place, {**EVERYTHING, "read": "^a"}) == 204
    assert api.get(place) == {"user": name, "vhost": "/", **EVERYTHING, "read": "^a"}
    assert api.get(f"users/{name}/permissions") == [api.get(place)]
    assert api.put(place, {**EVERYTHING, "read": "("}) == 400
    assert api.put(f"permissions/nowhere/{name}", EVERYTHING) == 400
    topic = f"topic-permissions/%2F/{name}"
    assert api.put(topic, {"exchange": "amq.topic", "write": ".*", "read": "a"}) == 201
    assert api.get(topic) == [
        {"user": name, "vhost": "/", "exchange": "amq.topic", "write": ".*", "read": "a"}
    ]
    assert (api.delete(topic), api.delete(topic)) == (204, 404)
    assert (api.delete(place), api.delete(place)) == (204, 404)


def test_policies_change_the_queues_they_match(api: Api, name: str) -> None:
    api.put(f"queues/%2F/{name}")
    policy = {"pattern": f"^{name}", "definition": {"max-length": 10}, "apply-to": "queues"}
    assert api.put(f"policies/%2F/{name}", policy) == 201
    assert api.put(f"policies/%2F/{name}", policy) == 204
    operator = {"pattern": f"^{name}", "definition": {"max-length": 5}}
    assert api.put(f"operator-policies/%2F/{name}", operator) == 201
    found = api.get(f"queues/%2F/{name}")
    assert (found["policy"], found["operator_policy"]) == (name, name)
    assert found["effective_policy_definition"] == {"max-length": 5}
    for wrong in ({}, {"pattern": "("}, {"definition": {"nope": 1}}, {"priority": "high"}):
        broken = {**policy, **wrong} if wrong else {"pattern": "x"}
        assert api.put(f"policies/%2F/{name}2", broken) == 400
    dead = {"pattern": "x", "definition": {"dead-letter-exchange": "x"}}
    assert api.put(f"operator-policies/%2F/{name}2", dead) == 400
    assert api.delete(f"policies/%2F/{name}") == 204
    assert api.delete(f"operator-policies/%2F/{name}") == 204
    assert api.get(f"queues/%2F/{name}")["policy"] is None


def test_a_queue_under_legal_hold_stays(api: Api, name: str) -> None:
    api.put(f"queues/%2F/{name}", {"durable": True})
    policy = {"pattern": f"^{name}$", "definition": {"legal-hold": True}}
    assert api.put(f"policies/%2F/{name}", policy) == 201
    assert api.delete(f"queues/%2F/{name}") == 409
    assert api.delete(f"queues/%2F/{name}/contents") == 409
    assert api.delete(f"policies/%2F/{name}") == 204
    assert api.delete(f"queues/%2F/{name}") == 204


def test_parameters_are_kept_and_shown(api: Api, name: str) -> None:
    place = f"parameters/shovel/%2F/{name}"
    value = {"src-uri": "amqp://", "nested": {"list": [1, 2]}}
    assert api.put(place, {"value": value}) == 201
    assert api.put(place, {"value": value}) == 204
    assert api.get(place) == {"component": "shovel", "vhost": "/", "name": name, "value": value}
    for every in ("parameters", "parameters/shovel", "parameters/shovel/%2F"):
        assert api.get(place) in api.get(every)
    assert (api.delete(place), api.delete(place)) == (204, 404)
    upstream = {"value": {"uri": "amqp://"}}
    refused = api.ask("PUT", "parameters/federation-upstream/%2F/x", upstream)
    assert refused.status == 400 and "shovel" in refused.value["reason"]
    assert api.put("parameters/policy/%2F/x", {"value": {"pattern": "x"}}) == 400
    assert api.put(f"global-parameters/{name}", {"value": [1]}) == 201
    assert api.get(f"global-parameters/{name}") == {"name": name, "value": [1]}
    assert api.put(f"global-parameters/{name}", {}) == 400
    assert api.delete(f"global-parameters/{name}") == 204


def test_limits_are_set_and_lifted(api: Api, name: str) -> None:
    api.put(f"vhosts/{name}")
    assert api.put(f"vhost-limits/{name}/max-queues", {"value": 1}) == 204
    assert api.get(f"vhost-limits/{name}") == [{"vhost": name, "value": {"max-queues": 1}}]
    assert api.put(f"queues/{name}/one") == 201
    assert api.put(f"queues/{name}/two") == 400
    assert api.put(f"vhost-limits/{name}/max-cats", {"value": 1}) == 400
    assert api.put(f"vhost-limits/{name}/max-queues", {"value": 10**30}) == 400
    assert api.delete(f"vhost-limits/{name}/max-queues") == 204
    assert api.put(f"queues/{name}/two") == 201
    api.put(f"users/{name}", {"password": "p", "tags": ""})
    assert api.put(f"user-limits/{name}/max-channels", {"value": 3}) == 204
    assert api.get(f"users/{name}")["limits"] == {"max-channels": 3}
    assert api.get(f"user-limits/{name}") == [{"user": name, "value": {"max-channels": 3}}]
    assert api.delete(f"user-limits/{name}/max-channels") == 204
    assert api.get(f"user-limits/{name}") == []


def test_definitions_go_out_and_come_back(api: Api, name: str) -> None:
    api.put(f"vhosts/{name}")
    api.put(f"queues/{name}/q", {"durable": True})
    api.put(f"exchanges/{name}/x", {"type": "topic", "durable": True})
    api.post(f"bindings/{name}/e/x/q/q", {"routing_key": "#"})
    api.put(f"policies/{name}/p", {"pattern": "q", "definition": {"max-length": 1}})
    whole = api.get("definitions")
    for section in ("users", "permissions", "queues", "exchanges", "bindings", "policies"):
        assert whole[section], section
    told = api.ask("GET", f"definitions/{name}?download=my%22file.json")
    assert told.headers["content-disposition"] == 'attachment; filename="myfile.json"'
    assert [queue["name"] for queue in told.value["queues"]] == ["q"]
    assert "vhost" not in told.value["queues"][0] and "users" not in told.value
    api.put(f"vhosts/{name}2")
    assert api.post(f"definitions/{name}2", told.value).status == 204
    again = api.get(f"definitions/{name}2")
    for section in ("queues", "exchanges", "bindings"):
        assert again[section] == told.value[section], section
    assert again["policies"] == [{**told.value["policies"][0], "vhost": f"{name}2"}]
    assert api.post("definitions", whole).status == 204
    assert api.post("definitions", {"queues": [{"name": "no vhost"}]}).status == 400
    assert api.post("definitions", b"[").status == 400
    api.delete(f"vhosts/{name}2")
    api.delete(f"vhosts/{name}")


def test_definitions_come_from_a_browser_s_form(api: Api, name: str) -> None:
    queue = {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    form = (
        '--xyz\r\nContent-Disposition: form-data; name="file"; filename="d.json"\r\n'
        f"Content-Type: application/json\r\n\r\n{json.dumps({'queues': [queue]})}\r\n--xyz--\r\n"
    )
    kind = {"Content-Type": "multipart/form-data; boundary=xyz"}
    assert api.ask("POST", "definitions", form.encode(), kind).status == 204
    assert api.get(f"queues/%2F/{name}")["durable"]
    assert api.ask("POST", "definitions", b"--xyz--", kind).status == 400


def test_an_import_takes_nothing_back(api: Api, name: str) -> None:
    """A file that is loaded at each start does; one that is sent by the API is only added."""
    user = {"name": name, "password": "p", "tags": "management"}
    assert api.post("definitions", {"users": [user]}).status == 204
    assert api.post("definitions", {"users": []}).status == 204
    assert api.get(f"users/{name}")["tags"] == ["management"]
    assert api.get("users/guest")["tags"] == ["administrator"]
