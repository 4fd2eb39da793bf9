"""Clients that don't log in: what they may do, whom they are, and from where."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from tests.brokers import Broker
from tests.engine.kafka_plane import batch
from tests.kafka.raw_client import Gone, RawClient
from tests.kafka.wire import Link

Start = Callable[..., Broker]
SALTED = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"x" * 32}


def test_who_does_not_log_in_makes_topics_produces_and_consumes(broker: Broker) -> None:
    with Link(broker.address("kafka")) as link:
        link.create("quick.start")
        link.send_produce("quick.start", 0, batch(b"hello"))
        assert link.produced() == (0, 0)
        assert [value for _, value in link.read_all("quick.start", 0)] == [b"hello"]
        broker.wait_for(
            f"connection opened listener=kafka peer={link.name} user=anonymous login=anonymous"
        )


@pytest.mark.parametrize("name", ["anonymous", "guest"])
def test_who_does_not_log_in_is_no_administrator_whoever_it_acts_as(
    start: Start, name: str
) -> None:
    with start(OTTERMQ_KAFKA__ANONYMOUS_USER=name) as broker:
        with RawClient(broker.address("kafka")) as raw_client:
            body = {"upsertions": [{"name": "evil", **SALTED}], "deletions": []}
            [told] = raw_client.ask(Api.ALTER_USER_SCRAM_CREDENTIALS, body)["results"]
            assert told["error_code"] == Error.CLUSTER_AUTHORIZATION_FAILED
            acl = {
                "resource_type": 2, "resource_name": "*", "resource_pattern_type": 3,
                "principal": "User:guest", "host": "*", "operation": 2, "permission_type": 3,
            }  # fmt: skip
            [told] = raw_client.ask(Api.CREATE_ACLS, {"creations": [acl]})["results"]
            assert told["error_code"] == Error.CLUSTER_AUTHORIZATION_FAILED
            found = {
                "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
                "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
            }  # fmt: skip
            told = raw_client.ask(Api.DESCRIBE_ACLS, found)
            assert told["error_code"] == Error.CLUSTER_AUTHORIZATION_FAILED
        with RawClient(broker.address("kafka")) as raw_client:
            assert raw_client.log_in()["error_code"] == 0
            assert raw_client.ask(Api.DESCRIBE_ACLS, found)["error_code"] == 0


def test_the_user_anonymous_has_no_password(broker: Broker) -> None:
    for password in ("", "anonymous", "guest"):
        with RawClient(broker.address("kafka")) as raw_client:
            assert raw_client.log_in("anonymous", password)["error_code"] != 0


def test_null_switches_it_off(start: Start) -> None:
    with start(OTTERMQ_KAFKA__ANONYMOUS_USER="null") as broker:
        with RawClient(broker.address("kafka")) as raw_client, pytest.raises(Gone):
            raw_client.metadata()
        broker.wait_for('reason="authentication required"')


def test_a_start_that_would_let_a_network_in_without_a_password_is_refused(start: Start) -> None:
    everywhere = {"OTTERMQ_AUTH__LOOPBACK_USERS": "null"}
    broker = start("--kafka", "0.0.0.0:0", **everywhere)
    try:
        assert broker.process.wait(30) != 0
    finally:
        broker.stop()
    [line] = [line for line in broker.lines if "anonymous" in line]
    assert "kafka.anonymous_network" in line
    # On this machine's own address, or with anonymous clients kept to it, it is no danger;
    # and whoever asks for it in so many words gets it.
    for arguments, env in (
        ((), everywhere),
        (("--kafka", "0.0.0.0:0"), {}),
        (("--kafka", "0.0.0.0:0"), everywhere | {"OTTERMQ_KAFKA__ANONYMOUS_USER": "null"}),
        (("--kafka", "0.0.0.0:0"), everywhere | {"OTTERMQ_KAFKA__ANONYMOUS_NETWORK": "true"}),
    ):
        with start(*arguments, **env):
            pass


def users_in(data: Path) -> set[str]:
    with sqlite3.connect(data / "meta.db") as db:
        return {name for (name,) in db.execute("SELECT name FROM users")}


def test_a_data_directory_of_an_older_version_gets_the_user_once(
    start: Start, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with start():
        pass
    with sqlite3.connect(data / "meta.db") as db:  # as an older version left it
        db.execute("DELETE FROM users WHERE name = 'anonymous'")
        db.execute("DELETE FROM permissions WHERE user = 'anonymous'")
        db.execute("DELETE FROM auth_marks WHERE name = 'anonymous user'")
    with start() as broker, RawClient(broker.address("kafka")) as raw_client:
        assert raw_client.metadata("made")[0]["error_code"] == 0
    with sqlite3.connect(data / "meta.db") as db:  # an operator removes it
        db.execute("DELETE FROM users WHERE name = 'anonymous'")
    with start() as broker, RawClient(broker.address("kafka")) as raw_client, pytest.raises(Gone):
        raw_client.metadata()
    assert "anonymous" not in users_in(data)


def test_where_guest_was_deleted_there_is_no_way_in_without_a_password(
    start: Start, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with start():
        pass
    with sqlite3.connect(data / "meta.db") as db:
        db.execute("DELETE FROM users")
        db.execute("DELETE FROM auth_marks WHERE name = 'anonymous user'")
    with start() as broker, RawClient(broker.address("kafka")) as raw_client, pytest.raises(Gone):
        raw_client.metadata()
    assert users_in(data) == set()


def test_a_definitions_file_names_the_users_its_author_wants(start: Start, tmp_path: Path) -> None:
    users = [{"name": "alice", "password": "x", "tags": ""}]
    (tmp_path / "defs.json").write_text(json.dumps({"users": users, "vhosts": [{"name": "/"}]}))
    with start("--definitions", str(tmp_path / "defs.json")):
        pass
    assert users_in(tmp_path / "data") == {"alice"}
