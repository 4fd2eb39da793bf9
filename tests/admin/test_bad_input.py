"""Bad input is a 4xx with a reason: never a 500, never a traceback, and the broker goes on."""

import json
import random
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottermq.admin.api.answers import ROUTES
from tests.admin.api import GUEST, Api
from tests.brokers import PATIENCE, Broker

AUTHORIZATION = b"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"


@pytest.fixture(autouse=True)
def no_defect(shared: Broker) -> Iterator[None]:
    yield
    with Api(shared.address("admin")) as api:
        assert api.get("whoami")["name"] == "guest"
    assert not [line for line in shared.lines if " ERROR " in line or "Traceback" in line]


def refused(api: Api, method: str, path: str, body: Any = None) -> None:
    reply = api.ask(method, path, body)
    assert 400 <= reply.status < 500, (method, path, body, reply)
    assert set(reply.value) == {"error", "reason"} and reply.value["reason"]


PUTS = [
    "queues/%2F/bad",
    "exchanges/%2F/bad",
    "vhosts/bad",
    "users/bad",
    "permissions/%2F/guest",
    "topic-permissions/%2F/guest",
    "policies/%2F/bad",
    "operator-policies/%2F/bad",
    "parameters/shovel/%2F/bad",
    "global-parameters/bad",
    "vhost-limits/%2F/max-queues",
    "user-limits/guest/max-channels",
    "cluster-name",
]
NO_OBJECTS = [
    b"[",
    b"{",
    b"nope",
    b"[]",
    b'"text"',
    b"1",
    b"null",
    b'{"a":NaN}',
    b'{"a":1e999}',
    b'{"a":-Infinity}',
    b'{"a":"\\ud800"}',
    b'{"\\udfff":1}',
    b'{"a":"\xff\xfe"}',
    b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"a":' + b'{"b":' * 150 + b"1" + b"}" * 150 + b"}",
    b'{"a":' + b"9" * 5000 + b"}",
    b'{"a":99999999999999999999}',
    b"\x00",
]


@pytest.mark.parametrize("path", PUTS)
@pytest.mark.parametrize("body", NO_OBJECTS, ids=lambda body: repr(body[:14]))
def test_a_body_that_is_no_object_is_refused(api: Api, path: str, body: bytes) -> None:
    refused(api, "PUT", path, body)
    refused(api, "POST", "definitions", body)
    refused(api, "POST", "bindings/%2F/e/amq.fanout/e/amq.direct", body)


WRONG = [
    ("PUT", "queues/%2F/bad", {"durable": "yes"}),
    ("PUT", "queues/%2F/bad", {"durable": 1}),
    ("PUT", "queues/%2F/bad", {"arguments": "x"}),
    ("PUT", "queues/%2F/bad", {"arguments": [1]}),
    ("PUT", "queues/%2F/bad", {"arguments": {"x-max-length": -1}}),
    ("PUT", "queues/%2F/bad", {"arguments": {"x-max-length": 1.5}}),
    ("PUT", "queues/%2F/bad", {"arguments": {"x-queue-type": "lasagne"}}),
    ("PUT", "queues/%2F/bad", {"arguments": {"x-dead-letter-exchange": 7}}),
    ("PUT", "queues/%2F/bad", {"type": 5}),
    ("PUT", "queues/%2F/a%00b", {}),
    ("PUT", f"queues/%2F/{'q' * 300}", {}),
    ("PUT", "exchanges/%2F/bad", {"type": "nope"}),
    ("PUT", "exchanges/%2F/bad", {"type": 1}),
    ("PUT", "exchanges/%2F/a%00b", {}),
    ("PUT", f"exchanges/%2F/{'x' * 300}", {}),
    ("PUT", "exchanges/%2F/bad", {"arguments": {"alternate-exchange": 1}}),
    ("POST", "bindings/%2F/e/amq.fanout/e/amq.direct", {"routing_key": 1}),
    ("POST", "bindings/%2F/e/amq.fanout/e/amq.direct", {"routing_key": "k" * 300}),
    ("POST", "bindings/%2F/e/amq.fanout/e/amq.direct", {"arguments": 1}),
    ("PUT", "vhosts/a%00b", {}),
    ("PUT", "vhosts/bad", {"tags": 7}),
    ("PUT", "vhosts/bad", {"description": 7}),
    ("PUT", "vhosts/bad", {"default_queue_type": "nope"}),
    ("PUT", "users/bad", {"password": 1, "tags": ""}),
    ("PUT", "users/bad", {"password": "x", "tags": 7}),
    ("PUT", "users/bad", {"password": "x", "tags": [7]}),
    ("PUT", "users/bad", {"password": "a\u0000b", "tags": ""}),
    ("PUT", "users/bad", {"password_hash": "???", "tags": ""}),
    ("PUT", "users/bad", {"password_hash": "aaaa", "hashing_algorithm": "rot13", "tags": ""}),
    ("PUT", f"users/{'u' * 300}", {"password": "x", "tags": ""}),
    ("PUT", "users/a%00b", {"password": "x", "tags": ""}),
    ("POST", "users/bulk-delete", {"users": "guest"}),
    ("POST", "users/bulk-delete", {"users": [1]}),
    ("POST", "users/bulk-delete", {}),
    ("PUT", "permissions/%2F/guest", {"configure": 1, "write": "", "read": ""}),
    ("PUT", "permissions/%2F/guest", {"configure": "(", "write": "", "read": ""}),
    ("PUT", "policies/%2F/bad", {"pattern": 1, "definition": {"max-length": 1}}),
    ("PUT", "policies/%2F/bad", {"pattern": "x", "definition": 1}),
    ("PUT", "policies/%2F/bad", {"pattern": "x", "definition": {"max-length": "x"}}),
    ("PUT", "policies/%2F/bad", {"pattern": "x", "definition": {"max-length": 1}, "priority": []}),
    ("PUT", "policies/%2F/bad", {"pattern": "x", "definition": {"expires": 1}, "apply-to": "cats"}),
    ("PUT", "vhost-limits/%2F/max-queues", {"value": "many"}),
    ("PUT", "vhost-limits/%2F/max-queues", {"value": True}),
    ("PUT", "vhost-limits/%2F/max-queues", {"value": "--5"}),
    ("PUT", "vhost-limits/%2F/max-queues", {"value": "²"}),
    ("PUT", "user-limits/guest/max-channels", {"value": 1.5}),
    ("PUT", "cluster-name", {"name": 1}),
    ("POST", "definitions", {"queues": 1}),
    ("POST", "definitions", {"queues": [1]}),
    ("POST", "definitions", {"queus": []}),
    ("POST", "definitions", {"bindings": [{"vhost": "/", "source": "no", "destination": "no"}]}),
    ("POST", "definitions/%2F", [1]),
    ("GET", "health/checks/port-listener/x", None),
    ("GET", "health/checks/port-listener/999999", None),
]


@pytest.mark.parametrize(("method", "path", "body"), WRONG, ids=lambda part: str(part)[:40])
def test_a_field_of_the_wrong_kind_is_refused(
    api: Api, method: str, path: str, body: object
) -> None:
    refused(api, method, path, body)


@pytest.mark.parametrize(
    "path",
    [
        "queues/%2F/%ff",
        "queues/%2F/%zz",
        "queues/%2F/a%2",
        "queues/%",
        "queues/%2F/%ed%a0%80",
        "..",
        "../health",
        "queues/../users",
        "queues//x",
        "queues/%2F/x/y/z",
        "%00",
        "queues/%2F/%00",
        "connections/%00",
        "bindings/%2F/e/%00/q/%00",
        "bindings/%2F/x/a/q/b",
        "users/%00",
        "nodes/..",
        "queues?page=%ff",
        "queues?" + "&".join(f"a{number}=1" for number in range(200)),
    ],
)
def test_a_path_that_leads_nowhere_is_a_4xx(api: Api, path: str) -> None:
    refused(api, "GET", path)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(["", "true", "classic", "/", "a\x00b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    (
        "durable", "auto_delete", "internal", "arguments", "type", "tags", "password",
        "password_hash", "hashing_algorithm", "configure", "write", "read", "exchange", "pattern",
        "definition", "priority", "apply-to", "value", "name", "description", "users", "queues",
        "exchanges", "bindings", "policies", "permissions", "parameters", "vhosts", "routing_key",
        "default_queue_type", "metadata",
    )
)  # fmt: skip
TARGETS = [("PUT", path) for path in PUTS if path != "users/bad"] + [
    ("PUT", "users/fuzzed"),
    ("POST", "definitions"),
    ("POST", "definitions/%2F"),
    ("POST", "bindings/%2F/e/amq.topic/e/amq.fanout"),
    ("POST", "users/bulk-delete"),
]


def test_anything_in_any_field_is_taken_or_refused(shared: Broker) -> None:
    with Api(shared.address("admin")) as api:
        before = {path: api.get(path) for path in ("permissions/%2F/guest",)}

        @settings(max_examples=400)
        @given(st.sampled_from(TARGETS), st.dictionaries(FIELDS, JSON, max_size=6))
        def run(target: tuple[str, str], body: dict[str, Any]) -> None:
            method, path = target
            if "permissions" in path and "guest" in path:
                path = path.replace("guest", "anonymous")  # we want to go on
            reply = api.ask(method, path.replace("vhost-limits/%2F", "vhost-limits/bad"), body)
            assert reply.status < 500, (target, body, reply)
            if reply.status >= 400:
                assert set(reply.value) == {"error", "reason"}

        api.put("vhosts/bad")
        run()
        assert before == {path: api.get(path) for path in before}


NAMES = [
    "%2F", "q", "guest", "amq.topic", "amq.default", "nope", "%00", "a%20b", "1", "x" * 300, "~",
    "", "..", "days", "amqp", "shovel", "policy", "%C3%A9", "max-queues", "e", "%2Fa", "*", "+",
]  # fmt: skip
QUERIES = [
    "", "?page=1", "?columns=name,a.b", "?sort=name", "?name=x&page=1&use_regex=true",
    "?if-empty=true&if-unused=true", "?download=x", "?%00=%00", "?columns=....", "?sort=a.b.c",
]  # fmt: skip
BODIES: list[Any] = [
    None, {}, {"durable": True}, {"tags": "", "password": "x"}, {"value": 1}, {"value": {}},
    {"pattern": "q", "definition": {"max-length": 1}}, {"configure": "", "write": "", "read": ""},
    {"exchange": "amq.topic", "write": "", "read": ""}, {"type": "topic"}, {"routing_key": "x"},
    {"name": "x"}, {"users": ["nope"]}, {"queues": []}, {"routing_key": "q", "payload": "p"},
    {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}, b"[", b"\xff",
]  # fmt: skip


def test_a_walk_over_all_routes_meets_no_500(tmp_path: Path) -> None:
    chance = random.Random(7)
    with Broker(tmp_path / "data") as broker, Api(broker.address("admin")) as api:
        for _ in range(3000):
            route = chance.choice(ROUTES)
            methods = [name for name in ("GET", "PUT", "POST", "DELETE") if route.handler(name)]
            method = chance.choice(methods)
            path = re.sub(r"{\w+}", lambda _: chance.choice(NAMES), route.pattern)
            if method in ("PUT", "DELETE") and path.split("/")[0] in ("users", "permissions"):
                path = path.replace("guest", "ghost")  # we want to go on
            reply = api.ask(method, path + chance.choice(QUERIES), chance.choice(BODIES))
            failed = reply.status >= 500 and not path.startswith("health/checks")
            assert not failed, (method, path, reply)
        assert not [line for line in broker.lines if " ERROR " in line]


def raw(shared: Broker, sent: bytes) -> bytes:
    """What comes back until the broker closes the connection."""
    with socket.create_connection(shared.address("admin"), PATIENCE) as sock:
        try:
            sock.sendall(sent)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has had enough
        received = b""
        try:
            while part := sock.recv(65536):
                received += part
        except ConnectionResetError:
            pass
        return received


def head(path: str, *headers: bytes, method: str = "PUT") -> bytes:
    first = f"{method} /api/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n".encode()
    return first + b"".join(header + b"\r\n" for header in headers) + b"\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (head("whoami", *[b"X-%d: y" % number for number in range(2000)], method="GET"), b"431"),
        (head("whoami", b"X: " + b"y" * 20000, method="GET"), b"431"),
        (head("whoami?" + "x" * 20000, method="GET"), b"431"),
        (head("queues/%2F/bad", AUTHORIZATION[:-2], b"Content-Length: 99999999"), b"413"),
        (head("queues/%2F/bad", AUTHORIZATION[:-2], b"Content-Length: -1"), b"400"),
        (head("queues/%2F/bad", AUTHORIZATION[:-2], b"Content-Length: x"), b"400"),
        (
            head("queues/%2F/bad", AUTHORIZATION[:-2], b"Content-Length: 2", b"Content-Length: 3"),
            b"400",
        ),
        (head("queues/%2F/bad", AUTHORIZATION[:-2], b"Transfer-Encoding: gzip"), b"400"),
        (
            head("queues/%2F/bad", AUTHORIZATION[:-2], b"Transfer-Encoding: chunked")
            + b"zz\r\n{}\r\n0\r\n\r\n",
            b"400",
        ),
        (
            head("queues/%2F/bad", AUTHORIZATION[:-2], b"Transfer-Encoding: chunked")
            + b"%x\r\n" % (3 << 20)
            + b" " * (3 << 20),
            b"413",
        ),
        (head("whoami", b"Authorization: Basic ???", method="GET"), b"401"),
        (head("whoami", b"Authorization: Basic AAAA", method="GET"), b"401"),
        (head("whoami", b"Authorization: Basic AAA6OgA=", method="GET"), b"401"),
        (head("whoami", b"Authorization: Bearer x", method="GET"), b"401"),
        (head("whoami", AUTHORIZATION[:-2], AUTHORIZATION[:-2], method="GET"), b"400"),
        (b"GET /api/\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100, b"400"),
    ],
    ids=lambda part: repr(part[:50]),
)
def test_what_is_no_request_is_refused(shared: Broker, sent: bytes, status: bytes) -> None:
    assert raw(shared, sent).startswith(b"HTTP/1.1 " + status)


def test_a_stranger_s_body_is_not_read(shared: Broker) -> None:
    sent = head("definitions", b"Content-Length: 30000000", method="POST")
    assert raw(shared, sent).startswith(b"HTTP/1.1 401")


def test_a_chunked_body_is_a_body(shared: Broker, name: str) -> None:
    chunks = b'5\r\n{"dur\r\nc\r\nable": true}\r\n0\r\n\r\n'
    sent = head(f"queues/%2F/{name}", AUTHORIZATION[:-2], b"Transfer-Encoding: chunked") + chunks
    assert raw(shared, sent).startswith(b"HTTP/1.1 201")


def test_a_client_that_waits_to_go_on_is_told(shared: Broker, name: str) -> None:
    body = json.dumps({"durable": True}).encode()
    headers = (AUTHORIZATION[:-2], b"Expect: 100-continue", b"Content-Length: %d" % len(body))
    with socket.create_connection(shared.address("admin"), PATIENCE) as sock:
        sock.sendall(head(f"queues/%2F/{name}", *headers))
        assert sock.recv(100).startswith(b"HTTP/1.1 100 ")
        sock.sendall(body)
        assert sock.recv(100).startswith(b"HTTP/1.1 201 ")


def test_slow_bodies_keep_nobody_out(shared: Broker, login: Callable[..., Api]) -> None:
    """A hundred that never come, from somebody with a login: the oldest make room."""
    sent = head("queues/%2F/slow", AUTHORIZATION[:-2], b"Content-Length: 100")
    slow = []
    try:
        for _ in range(120):
            sock = socket.create_connection(shared.address("admin"), PATIENCE)
            sock.sendall(sent)
            slow.append(sock)
        for _ in range(5):
            assert login(GUEST).get("whoami")["name"] == "guest"
    finally:
        for sock in slow:
            sock.close()
