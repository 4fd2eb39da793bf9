"""Beside RabbitMQ: the same requests to both management APIs. The same status codes; each key of
theirs in ours, with a value of the same type.

Debian's RabbitMQ is 3.10. What differs on purpose stands in the tables, with the reason.
"""

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perf import rabbitmq
from perf.rabbitmq import RabbitMQ
from perf.served import free_port
from tests.admin.api import Api
from tests.amqp.wire import Client
from tests.brokers import Broker

pytestmark = pytest.mark.skipif(
    not rabbitmq.installed(), reason="Debian's rabbitmq-server isn't installed"
)

# Method, path and body; what one leaves the next one finds.
REQUESTS = """
PUT queues/%2F/q1 '{"durable":true,"arguments":{"x-max-length":10}}'
PUT queues/%2F/q1 '{"durable":true,"arguments":{"x-max-length":10}}'
PUT queues/%2F/q1 '{"durable":false}'
PUT queues/%2F/q2 '{}'
PUT queues/%2F/q3
PUT queues/%2F/q4 '{"durable":"yes"}'
PUT queues/%2F/q4 '{"arguments":{"x-max-length":-1}}'
PUT queues/%2F/q4 'nojson'
PUT queues/%2F/q4 '[]'
PUT queues/nope/q4 '{}'
PUT queues/%2F/amq.x '{}'
PUT queues/%2F/a%2Fb%3F%20c '{}'
GET queues/%2F/a%2Fb%3F%20c
DELETE queues/%2F/a%2Fb%3F%20c
PUT exchanges/%2F/x1 '{"type":"topic","durable":true}'
PUT exchanges/%2F/x1 '{"type":"topic","durable":true}'
PUT exchanges/%2F/x1 '{"type":"direct","durable":true}'
PUT exchanges/%2F/x2 '{}'
PUT exchanges/%2F/x2 '{"type":"nope"}'
PUT exchanges/%2F/amq.default '{}'
POST bindings/%2F/e/x1/q/q1 '{"routing_key":"a b#","arguments":{"k":1}}'
POST bindings/%2F/e/x1/q/q1 '{}'
POST bindings/%2F/e/x1/q/nope '{}'
POST bindings/%2F/e/nope/q/q1 '{}'
POST bindings/%2F/e/x1/e/amq.fanout '{"routing_key":"x~y"}'
GET bindings
GET bindings/%2F
GET bindings/%2F/e/x1/q/q1
GET bindings/%2F/e/x1/q/q1/~
GET bindings/%2F/e/x1/q/q1/nope
GET bindings/%2F/e/x1/e/amq.fanout/x%257Ey
GET bindings/%2F/e/amq.default/q/q1
DELETE bindings/%2F/e/x1/q/q1/nope
DELETE bindings/%2F/e/x1/q/q1/~
GET exchanges
GET exchanges/%2F
GET exchanges/%2F/x1
GET exchanges/%2F/amq.default
GET exchanges/%2F/nope
GET exchanges/%2F/x1/bindings/source
GET exchanges/%2F/amq.fanout/bindings/destination
GET queues
GET queues/%2F
GET queues/%2F/q1
GET queues/%2F/q1/bindings
GET queues/%2F/nope
GET queues?page=1&page_size=501
GET queues?page=0
GET queues?page=9
GET queues?page_size=5
GET queues?page=1&name=Q&columns=name,vhost
GET queues?page=1&name=%28&use_regex=true
GET queues?page=a
GET queues?page=1&page_size=0
POST exchanges/%2F/amq.default/publish '{"properties":{},"routing_key":"q3",PAYLOAD}'
POST exchanges/%2F/amq.default/publish '{"properties":{},"routing_key":"no",PAYLOAD}'
POST exchanges/%2F/nope/publish '{"properties":{},"routing_key":"q3",PAYLOAD}'
POST exchanges/%2F/amq.default/publish '{"properties":{},"routing_key":"q3"}'
POST queues/%2F/q3/get '{"count":1,"ackmode":"ack_requeue_true","encoding":"auto"}'
POST queues/%2F/q3/get '{"count":"2","ackmode":"ack_requeue_false","encoding":"base64"}'
POST queues/%2F/q3/get '{"count":1,"ackmode":"ack_requeue_true","encoding":"nope"}'
POST queues/%2F/q3/get '{}'
POST queues/%2F/nope/get '{"count":1,"ackmode":"ack_requeue_true","encoding":"auto"}'
DELETE queues/%2F/q1/contents
DELETE queues/%2F/nope/contents
DELETE queues/%2F/nope
DELETE exchanges/%2F/amq.topic
DELETE exchanges/%2F/amq.default
DELETE exchanges/%2F/nope
GET nope
DELETE overview
PUT vhosts/v1
PUT vhosts/v1 '{"description":"d","tags":"a,b"}'
GET vhosts/v1
GET vhosts
GET vhosts/nope
DELETE vhosts/nope
GET permissions
PUT users/u1 '{"tags":""}'
PUT users/u2 '{"password":"x"}'
PUT users/u3 '{"password_hash":"nohash","tags":""}'
PUT users/u4 '{"password_hash":"","tags":["a"]}'
PUT users/u4 '{"password":"","tags":["a"]}'
PUT users/u6 '{"password":"x","tags":"management"}'
PUT users/u6 '{"password":"y","tags":"management"}'
PUT users/u9
GET users
GET users/u6
GET users/nope
GET users/without-permissions
DELETE users/nope
PUT permissions/%2F/u6 '{"configure":".*","write":".*"}'
PUT permissions/%2F/u6 '{"configure":".*","write":".*","read":".*"}'
PUT permissions/%2F/u6 '{"configure":".*","write":".*","read":".*"}'
PUT permissions/%2F/nobody '{"configure":".*","write":".*","read":".*"}'
PUT permissions/nope/u6 '{"configure":".*","write":".*","read":".*"}'
PUT permissions/%2F/u6 '{"configure":"(","write":".*","read":".*"}'
GET permissions/%2F/u4
GET permissions/%2F/u6
DELETE permissions/%2F/u4
GET vhosts/v1/permissions
GET vhosts/nope/permissions
GET users/u6/permissions
GET users/nope/permissions
PUT topic-permissions/%2F/u6 '{"exchange":"amq.topic","write":".*","read":"a"}'
PUT topic-permissions/%2F/u6 '{"exchange":"amq.topic","write":".*","read":"b"}'
GET topic-permissions/%2F/u6
GET topic-permissions/%2F/u6/amq.topic
GET topic-permissions
GET users/u6/topic-permissions
GET vhosts/%2F/topic-permissions
DELETE topic-permissions/%2F/u6
DELETE topic-permissions/%2F/u6
GET topic-permissions/%2F/u6
PUT policies/%2F/p1 '{"pattern":"^q","definition":{"max-length":10}}'
PUT policies/%2F/p1 '{"pattern":"^q","definition":{"max-length":11},"priority":3}'
PUT policies/%2F/p2 '{"pattern":"(","definition":{"max-length":11}}'
PUT policies/%2F/p2 '{"pattern":"a","definition":{"nope":11}}'
PUT policies/%2F/p2 '{"definition":{"nope":11}}'
PUT policies/%2F/p2 '{"pattern":"a","definition":{}}'
GET policies
GET policies/%2F
GET policies/%2F/p1
GET policies/%2F/nope
DELETE policies/%2F/nope
PUT operator-policies/%2F/o1 '{"pattern":"^q","definition":{"max-length":5}}'
PUT operator-policies/%2F/o2 '{"pattern":"^q","definition":{"dead-letter-exchange":"x"}}'
GET operator-policies/%2F
GET operator-policies/%2F/o1
GET parameters
GET parameters/nope
GET parameters/policy/%2F
GET parameters/operator_policy
PUT global-parameters/g '{"value":{"a":1}}'
PUT global-parameters/g '{}'
GET global-parameters/g
GET global-parameters/nope
DELETE global-parameters/g
DELETE global-parameters/nope
PUT vhost-limits/v1/max-queues '{"value":100}'
PUT vhost-limits/v1/nope '{"value":100}'
PUT vhost-limits/v1/max-queues '{"value":"x"}'
PUT vhost-limits/v1/max-queues '{}'
GET vhost-limits
GET vhost-limits/v1
GET parameters/vhost-limits
DELETE vhost-limits/v1/max-queues
PUT user-limits/u4/max-channels '{"value":3}'
PUT user-limits/u4/nope '{"value":3}'
PUT user-limits/nope/max-channels '{"value":3}'
GET user-limits
GET user-limits/u4
GET user-limits/guest
DELETE user-limits/u4/max-channels
PUT cluster-name '{"name":"n"}'
GET cluster-name
GET definitions
GET definitions/%2F
POST definitions '{"vhosts":[{"name":"v2"}],"queues":[]}'
POST definitions '{"queues":[{"name":"dq"}]}'
POST definitions/%2F '{"policies":[],"queues":[]}'
POST definitions '['
GET health/checks/alarms
GET health/checks/local-alarms
GET health/checks/port-listener/1
GET health/checks/port-listener/x
GET health/checks/protocol-listener/amqp
GET health/checks/protocol-listener/nope
GET health/checks/certificate-expiration/1/days
GET health/checks/certificate-expiration/1/weeks
GET health/checks/certificate-expiration/1/nope
GET health/checks/certificate-expiration/x/days
GET health/checks/virtual-hosts
GET health/checks/node-is-quorum-critical
GET health/checks/node-is-mirror-sync-critical
GET aliveness-test/%2F
GET healthchecks/node
GET feature-flags
GET extensions
GET auth
GET whoami
GET overview
GET nodes
GET connections
GET vhosts/%2F/connections
GET connections/username/guest
GET connections/nope
DELETE connections/nope
GET channels
GET vhosts/%2F/channels
GET channels/nope
GET consumers
GET consumers/%2F
PUT feature-flags/quorum_queue/enable '{}'
PUT feature-flags/nope/enable '{}'
POST rebalance/queues
POST users/bulk-delete '{"users":["u1","nope"]}'
POST users/bulk-delete '{"users":["u4"]}'
DELETE users/u6
DELETE users/u6
DELETE policies/%2F/p1
DELETE operator-policies/%2F/o1
DELETE queues/%2F/q2?if-empty=true
DELETE exchanges/%2F/x1
DELETE vhosts/v1
HEAD queues/%2F
OPTIONS queues/%2F/q3
"""

PAYLOAD = '"payload":"p","payload_encoding":"string"'

# A path's first word; its keys that we leave out, and why.
LEFT_OUT = {
    "nodes": (
        {
            "contexts", "ra_open_file_metrics", "metrics_gc_queue_length", "io_seek_count",
            "io_seek_avg_time", "io_reopen_count", "mnesia_ram_tx_count", "mnesia_disk_tx_count",
            "msg_store_read_count", "msg_store_write_count", "queue_index_read_count",
            "queue_index_write_count",
        },
        "the insides of Erlang, Mnesia and RabbitMQ's message store",
    ),
    "overview": ({"contexts"}, "no plugins with pages of their own"),
    "extensions": ({"javascript"}, "the same"),
    "queues": ({"backing_queue_status"}, "the insides of RabbitMQ's queues"),
    "channels": ({"garbage_collection", "message_stats"}, "Erlang's; nobody counts by channel yet"),
    "connections": ({"garbage_collection"}, "Erlang's"),
}  # fmt: skip
# Objects whose keys are a user's or a machine's own.
OPAQUE = {
    "arguments", "definition", "value", "client_properties", "effective_policy_definition",
    "cluster_state", "socket_opts", "garbage_collection", "limits", "applications",
}  # fmt: skip
# Types that a value may have instead: a figure that is whole, a thing that isn't there.
NUMBERS = {"int", "float"}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Api]]:
    """Ours and theirs, each with a client that consumes."""
    folder: Path = tmp_path_factory.mktemp("both")
    port = free_port()
    listen = (
        f"management.tcp.port = {port}",
        "management.tcp.ip = 127.0.0.1",
        "collect_statistics_interval = 1000",
    )
    rabbit = RabbitMQ(folder / "rabbit", *listen, plugins=("rabbitmq_management",))
    with rabbit, Broker(folder / "data") as broker:
        with (
            Client(rabbit.address) as theirs,
            Client(broker.address("amqp")) as ours,
            Api(broker.address("admin")) as our_api,
            Api(("127.0.0.1", port)) as their_api,
        ):
            for client in (ours, theirs):
                channel = client.channel()
                channel.declare("consumed", durable=True)
                channel.consume("consumed")
            yield our_api, their_api
        os.killpg(rabbit.group, signal.SIGKILL)  # to stop takes it as long as to start


def types(value: Any, place: str = "") -> dict[str, str]:
    """Each key below, and the type of its value."""
    found: dict[str, str] = {}
    if isinstance(value, dict):
        for key, each in value.items():
            found[f"{place}.{key}"] = type(each).__name__
            if key not in OPAQUE:
                found |= types(each, f"{place}.{key}")
    elif isinstance(value, list):
        for each in value:
            found |= types(each, place)
    return found


def is_left_out(path: str, key: str) -> bool:
    names, _ = LEFT_OUT.get(path.split("/")[0].split("?")[0], (set(), ""))
    return any(part.removesuffix("_details") in names for part in key.split("."))


def differences(path: str, ours: Any, theirs: Any) -> list[str]:
    mine, wanted = types(ours), types(theirs)
    found = []
    for key, kind in wanted.items():
        if is_left_out(path, key):
            continue
        if key not in mine:
            found.append(f"{key} is missing")
        elif mine[key] != kind and "NoneType" not in (mine[key], kind):
            if not {mine[key], kind} <= NUMBERS:
                found.append(f"{key} is of {mine[key]}, not {kind}")
    return found


def test_the_same_requests_have_the_same_answers(both: tuple[Api, Api]) -> None:
    our_api, their_api = both
    wrong: list[str] = []
    for line in REQUESTS.strip().splitlines():
        method, path, *rest = shlex.split(line.replace("PAYLOAD", PAYLOAD))
        body = rest[0].encode() if rest else None
        ours, theirs = (api.ask(method, path, body) for api in both)
        if ours.status != theirs.status:
            wrong.append(f"{line}: {ours.status}, not {theirs.status}: {ours.value}")
        elif ours.status < 400:
            wrong += (f"{line}: {each}" for each in differences(path, ours.value, theirs.value))
        elif ours.value is not None and theirs.value is not None:
            if set(ours.value) != set(theirs.value):
                wrong.append(f"{line}: {ours.value} and {theirs.value}")
    assert not wrong, "\n".join(wrong)


def test_definitions_of_theirs_load_into_ours_and_back(both: tuple[Api, Api]) -> None:
    ours, theirs = both
    definitions = theirs.get("definitions")
    assert ours.post("definitions", definitions).status == 204
    assert {queue["name"] for queue in definitions["queues"] if queue["durable"]} <= {
        queue["name"] for queue in ours.get("definitions")["queues"]
    }
    back = ours.get("definitions")
    back["users"] = []  # they don't know scrypt
    back["permissions"] = [each for each in back["permissions"] if each["user"] == "guest"]
    reply = theirs.post("definitions", back)
    assert reply.status == 204, reply
