"""Who may ask what: tags, vhosts, logins, and requests that a page in a browser could send."""

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.admin.api import Api
from tests.brokers import Broker

TAGS = ("none", "management", "policymaker", "monitoring", "administrator")
# What RabbitMQ answers these: `management` alone may enter the vhost /, nobody but guest may v1.
MATRIX = """
    overview                     401 200 200 200 200
    whoami                       401 200 200 200 200
    nodes                        401 401 401 200 200
    vhosts                       401 200 200 200 200
    vhosts/%2F                   401 401 401 401 200
    users                        401 401 401 401 200
    users/guest                  401 401 401 401 200
    users/guest/permissions      401 401 401 401 200
    permissions                  401 401 401 401 200
    permissions/%2F/guest        401 401 401 401 200
    topic-permissions            401 401 401 401 200
    queues                       401 200 200 200 200
    queues/%2F                   401 200 401 401 200
    queues/v1                    401 401 401 401 200
    queues/nowhere               401 401 401 401 404
    queues/%2F/q1                401 200 401 401 200
    queues/%2F/q1/bindings       401 200 401 401 200
    exchanges                    401 200 200 200 200
    exchanges/%2F                401 200 401 401 200
    exchanges/v1                 401 401 401 401 200
    bindings                     401 200 200 200 200
    connections                  401 200 200 200 200
    channels                     401 200 200 200 200
    consumers                    401 200 200 200 200
    policies                     401 200 200 200 200
    policies/%2F                 401 200 401 401 200
    operator-policies            401 200 200 200 200
    parameters                   401 401 200 401 200
    parameters/shovel            401 401 200 401 200
    global-parameters            401 401 200 401 200
    vhost-limits                 401 200 200 200 200
    user-limits                  401 200 200 200 200
    definitions                  401 401 401 401 200
    definitions/%2F              401 401 401 401 200
    cluster-name                 401 200 200 200 200
    extensions                   401 200 200 200 200
    auth                         200 200 200 200 200
    feature-flags                401 401 401 401 200
    health/checks/alarms         401 200 200 200 200
    healthchecks/node            401 200 200 200 200
    nope                         404 404 404 404 404
"""
ROWS = [line.split() for line in MATRIX.strip().splitlines()]
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("access") / "data") as running:
        with Api(running.address("admin")) as api:
            for tag in TAGS:
                api.put(f"users/{tag}", {"password": "p", "tags": tag})
            api.put("vhosts/v1")
            api.put("permissions/%2F/management", EVERYTHING)
            api.put("queues/%2F/q1", {"durable": True})
            api.put("queues/v1/hidden", {"durable": True})
        yield running


@pytest.fixture
def ask(broker: Broker) -> Iterator[Callable[..., Api]]:
    opened: list[Api] = []

    def another(who: str | None) -> Api:
        login = f"{who}:p" if who in TAGS else who
        opened.append(Api(broker.address("admin"), login))
        return opened[-1]

    yield another
    for api in opened:
        api.close()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_tag_opens_what_rabbitmq_s_does(ask: Callable[..., Api], row: list[str]) -> None:
    path, *statuses = row
    found = [ask(tag).ask("GET", path).status for tag in TAGS]
    assert found == [int(status) for status in statuses]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_stranger_is_asked_for_a_login(ask: Callable[..., Api], row: list[str]) -> None:
    reply = ask(None).ask("GET", row[0])
    if row[0] == "auth":
        assert reply.status == 200
    else:
        assert reply.status == 401
        assert reply.headers["www-authenticate"].startswith("Basic realm=")
        assert reply.value["error"] == "not_authorized"


def test_lists_hold_what_may_be_entered(ask: Callable[..., Api]) -> None:
    def seen(who: str, path: str, key: str = "name") -> set[str]:
        return {each[key] for each in ask(who).get(path)}

    assert seen("management", "queues") == {"q1"}
    assert seen("administrator", "queues") == {"q1", "hidden"}
    assert seen("monitoring", "queues") == set()
    assert seen("management", "vhosts") == {"/"}
    assert seen("monitoring", "vhosts") == {"/", "v1"}
    assert seen("policymaker", "vhosts") == set()
    assert seen("management", "bindings", "destination") == {"q1"}
    totals = {who: ask(who).get("overview")["object_totals"]["queues"] for who in TAGS[1:]}
    assert totals == {"management": 1, "policymaker": 0, "monitoring": 0, "administrator": 2}


WRITES: list[tuple[str, str, Any]] = [
    ("PUT", "queues/%2F/new", {}),
    ("DELETE", "queues/%2F/q1", None),
    ("DELETE", "queues/%2F/q1/contents", None),
    ("PUT", "exchanges/%2F/new", {}),
    ("POST", "bindings/%2F/e/amq.fanout/q/q1", {}),
    ("PUT", "policies/%2F/new", {"pattern": "x", "definition": {"max-length": 1}}),
    ("PUT", "operator-policies/%2F/new", {"pattern": "x", "definition": {"max-length": 1}}),
    ("PUT", "parameters/shovel/%2F/new", {"value": {}}),
    ("PUT", "vhosts/new", {}),
    ("DELETE", "vhosts/%2F", None),
    ("PUT", "users/new", {"password": "p", "tags": "administrator"}),
    ("PUT", "users/management", {"password": "p", "tags": "administrator"}),
    ("DELETE", "users/guest", None),
    ("POST", "users/bulk-delete", {"users": ["guest"]}),
    ("PUT", "permissions/%2F/none", EVERYTHING),
    ("PUT", "topic-permissions/%2F/none", {"exchange": "x", "write": "", "read": ""}),
    ("PUT", "vhost-limits/%2F/max-queues", {"value": 0}),
    ("PUT", "user-limits/guest/max-channels", {"value": 0}),
    ("PUT", "cluster-name", {"name": "x"}),
    ("PUT", "global-parameters/x", {"value": 1}),
    ("POST", "definitions", {"users": []}),
    ("POST", "definitions/%2F", {"queues": []}),
    ("POST", "rebalance/queues", {}),
]


@pytest.mark.parametrize(("method", "path", "body"), WRITES, ids=lambda part: str(part)[:30])
def test_no_one_but_its_users_changes_anything(
    ask: Callable[..., Api], method: str, path: str, body: object
) -> None:
    for who in (None, "none", "monitoring"):
        assert ask(who).ask(method, path, body).status == 401, who
    if path.split("/")[0] not in ("queues", "exchanges", "bindings"):
        assert ask("management").ask(method, path, body).status == 401


def test_a_refused_change_is_in_the_audit_log(broker: Broker, ask: Callable[..., Api]) -> None:
    assert ask("monitoring").ask("DELETE", "users/guest").status == 401
    broker.wait_for(
        r"audit act=api.refuse user=monitoring peer=127.0.0.1 what=\"DELETE /api/users/guest\""
        r" result=\"Not administrator user\""
    )


def test_an_administrator_without_permission_sees_a_queue_and_changes_none(
    ask: Callable[..., Api],
) -> None:
    assert ask("administrator").ask("GET", "queues/v1/hidden").status == 200
    for method, path in (
        ("PUT", "queues/v1/new"),
        ("DELETE", "queues/v1/hidden"),
        ("DELETE", "queues/v1/hidden/contents"),
    ):
        reply = ask("administrator").ask(method, path)
        assert (reply.status, reply.value["error"]) == (401, "not_authorised")


def test_hashes_are_shown_to_administrators_alone(ask: Callable[..., Api]) -> None:
    assert ask("administrator").get("users/guest")["password_hash"]
    for who in ("management", "policymaker", "monitoring"):
        for path in ("whoami", "overview", "user-limits", "connections"):
            assert b"scrypt" not in repr(ask(who).ask("GET", path).value).encode()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 204),
        ({"Origin": "http://{host}"}, 204),
        ({"Origin": "https://{host}"}, 204),
        ({"Origin": "http://evil.example.org"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": "http://{host}.evil.example.org"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://{host}"}, 204),
    ],
)
def test_a_foreign_page_changes_nothing(
    broker: Broker, ask: Callable[..., Api], headers: dict[str, str], status: int
) -> None:
    host = "{}:{}".format(*broker.address("admin"))
    sent = {name: value.format(host=host) for name, value in headers.items()}
    api = ask("guest:guest")
    assert api.ask("PUT", "cluster-name", {"name": "mine"}, sent).status == status
    reply = api.ask("GET", "whoami", headers=sent)
    assert reply.status == 200
    assert not [name for name in reply.headers if name.startswith("access-control")]


def test_a_foreign_name_isn_t_answered(ask: Callable[..., Api]) -> None:
    reply = ask("guest:guest").ask("GET", "whoami", headers={"Host": "evil.example.org"})
    assert reply.status == 421


def test_guessing_is_slowed_down_here_too(broker: Broker, ask: Callable[..., Api]) -> None:
    """Five are free, for people mistype; the next ones wait."""
    ask("guest:guest").put("users/guessed", {"password": "p", "tags": "management"})
    began = time.monotonic()
    for _ in range(8):
        assert ask("guessed:wrong").ask("GET", "whoami").status == 401
    assert time.monotonic() - began > 0.2
    broker.wait_for(r"WARNING login refused peer=127.0.0.1 mechanism=PLAIN .* user=guessed")


def test_loopback_users_come_from_here_only(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # sends nothing: it only finds the way
        except OSError:
            pytest.skip("this machine has no network")
        own = sock.getsockname()[0]
    with Broker(tmp_path / "data", "--admin", "0.0.0.0:0") as broker:
        port = broker.address("admin")[1]
        with Api((own, port)) as api:
            assert api.ask("GET", "whoami").status == 401
        with Api(("127.0.0.1", port)) as api:
            assert api.ask("GET", "whoami").status == 200
