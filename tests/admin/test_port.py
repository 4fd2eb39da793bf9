"""The admin port of a real broker: heard among silent ones, by our names only, names by login."""

import base64
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import PATIENCE, Broker, run

USERS = [
    {"name": "watch", "password": "w", "tags": "monitoring"},
    {"name": "nobody", "password": "n", "tags": ""},
    {"name": "guest", "password": "guest", "tags": "administrator"},
]
EVERYTHING = {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
HIDDEN, METRICS = "/kafka/hidden", "/metrics"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("admin")
    definitions = folder / "definitions.json"
    queues = [{"name": "not for kafka!", "vhost": "/"}]
    definitions.write_text(
        json.dumps({"users": USERS, "permissions": [EVERYTHING], "queues": queues})
    )
    env = {
        "OTTERMQ_ADMIN__HOSTS": "broker.example.org",
        "OTTERMQ_LISTEN__HEALTH": "127.0.0.1:0",
        "OTTERMQ_LOG__LEVEL": "debug",
    }
    with Broker(folder / "data", "--definitions", str(definitions), env=env) as running:
        yield running


def ask(
    address: tuple[str, int], page: str, login: str | None = None, host: str | None = None
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(*address, timeout=PATIENCE)
    try:
        headers = {"Host": host} if host else {}
        if login:
            headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        connection.request("GET", page, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_silent_connections_keep_no_probe_out(broker: Broker) -> None:
    """300 of them, three times as many as may wait: the longest silent ones go."""
    address = broker.address("admin")
    silent = [socket.create_connection(address, PATIENCE) for _ in range(300)]
    try:
        for _ in range(10):
            assert ask(address, "/health") == (200, '{"status":"ok"}')
        silent[0].settimeout(PATIENCE)
        assert silent[0].recv(100) == b""  # it was shown out, and the newest wasn't
        silent[-1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        silent[-1].settimeout(PATIENCE)
        assert silent[-1].recv(100).startswith(b"HTTP/1.1 200")
    finally:
        for sock in silent:
            sock.close()


def test_names_need_a_login_with_a_tag(broker: Broker) -> None:
    address = broker.address("admin")
    assert ask(address, HIDDEN)[0] == 401
    assert ask(address, HIDDEN, "watch:wrong")[0] == 401
    assert ask(address, HIDDEN, "nobody:n")[0] == 403
    for login in ("watch:w", "guest:guest"):
        status, body = ask(address, HIDDEN, login)
        assert (status, json.loads(body)) == (200, {"queues": ["not for kafka!"]})


def test_counts_are_for_everybody_and_names_are_not(broker: Broker) -> None:
    address, named = broker.address("admin"), "ottermq_kafka_transaction_holds_seconds"
    status, text = ask(address, METRICS)
    assert status == 200 and "ottermq_queues 1\n" in text and named not in text
    status, text = ask(address, METRICS, "watch:w")
    assert status == 200 and named in text
    assert ask(address, METRICS, "watch:wrong")[0] == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:15672", 200),
        ("127.0.0.1:15672", 200),
        ("[::1]:15672", 200),
        ("10.1.2.3", 200),
        ("BROKER.example.org:15672", 200),
        (socket.gethostname(), 200),
        ("evil.example.org", 421),
        ("evil.example.org:15672", 421),
        ("localhost.evil.example.org", 421),
        ("127.0.0.1.evil.example.org", 421),
    ],
)
def test_a_request_by_a_foreign_name_is_not_answered(
    broker: Broker, host: str, status: int
) -> None:
    assert ask(broker.address("admin"), METRICS, host=host)[0] == status
    assert ask(broker.address("admin"), "/health", host=host)[0] == 200


def test_a_port_for_probes_knows_nothing_else(broker: Broker) -> None:
    ready = broker.wait_for(r" ready .* health=(\S+):([0-9]+) ")
    address = ready[1], int(ready[2])
    assert ask(address, "/health")[0] == 200
    assert ask(address, METRICS)[0] == 404
    assert ask(address, HIDDEN, "guest:guest")[0] == 404


def test_the_command_logs_in(broker: Broker) -> None:
    where = ("kafka", "hidden", "--admin", "{}:{}".format(*broker.address("admin")))
    done = run(*where)  # as the configuration's default user
    assert (done.returncode, done.stdout) == (0, "not for kafka!\n")
    done = run(*where, "--user", "watch", env={"OTTERMQ_PASSWORD": "w"})
    assert (done.returncode, done.stdout) == (0, "not for kafka!\n")
    done = run(*where, "--user", "nobody", env={"OTTERMQ_PASSWORD": "n"})
    assert (done.returncode, done.stdout) == (1, "")
    assert "user 'nobody' has neither tag" in done.stderr and done.stderr.count("\n") == 1
    done = run(*where, "--user", "watch", env={"OTTERMQ_PASSWORD": "no"})
    assert (done.returncode, done.stdout) == (1, "")
    assert "wrong name or password" in done.stderr and done.stderr.count("\n") == 1


def test_names_may_be_opened_to_everybody(tmp_path: Path) -> None:
    env = {"OTTERMQ_ADMIN__NAMES_NEED_LOGIN": "false"}
    with Broker(tmp_path / "data", env=env) as broker:
        assert ask(broker.address("admin"), HIDDEN) == (200, '{"queues":[]}')
