"""A broker whose meta.db is lost or damaged: it says so in one line, and costs no message."""

import os
import random
import re
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from ottermq import eventlog
from ottermq.broker import open_broker
from ottermq.config import load
from ottermq.errors import StartupError
from ottermq.storage.store import open_store
from tests import brokers
from tests.amqp.wire import Client, eventually
from tests.brokers import Broker

COUNT = 2000


def refused(data: Path) -> str:
    """The one line that a start ends with."""
    ended = brokers.run("serve", "--data", str(data), *ANY, env=brokers.SMALL_WAL)
    assert ended.returncode == 1, ended.stderr
    (line,) = (line for line in ended.stderr.splitlines() if line.startswith("ottermq: "))
    return line


ANY = [part for listener, place in brokers.ANY_PORT.items() for part in (f"--{listener}", place)]


def fill(data: Path, number: signal.Signals) -> None:
    broker = Broker(data)
    with Client(broker.address("amqp")) as client:
        channel = client.channel()
        channel.declare("orders", durable=True)
        channel.confirm()
        for n in range(COUNT):
            channel.publish(b"%d" % n, key="orders", delivery_mode=2)
        channel.confirmed(COUNT)
    broker.stop(number)


def count(data: Path, *arguments: str) -> int:
    with Broker(data, *arguments) as broker, Client(broker.address("amqp")) as client:
        channel = client.channel()
        channel.declare("orders", durable=True)
        return channel.look("orders")[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_missing_meta_db_costs_no_message(tmp_path: Path, number: signal.Signals) -> None:
    data = tmp_path / "data"
    fill(data, number)
    kept = tmp_path / "kept"
    kept.mkdir()
    for path in data.glob("meta.db*"):
        shutil.move(path, kept / path.name)
    assert re.search("meta.db is missing or empty.*--accept-missing-metadata", refused(data))
    assert not list(data.glob("meta.db*"))
    for path in kept.iterdir():
        shutil.copy(path, data / path.name)
    assert count(data) == COUNT


def test_logs_of_a_lost_meta_db_can_be_set_aside(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data, signal.SIGKILL)
    kept = tmp_path / "kept"
    kept.mkdir()
    for path in data.glob("meta.db*"):
        shutil.move(path, kept / path.name)
    with Broker(data, "--accept-missing-metadata") as broker:
        broker.wait_for("logs orphaned text=.*were set aside in")
    assert count(data) == 0
    (aside,) = data.glob("orphaned-*")
    for path in kept.iterdir():
        shutil.copy(path, aside / path.name)
    assert count(aside) == COUNT


def test_a_lost_wal_of_meta_db_costs_no_message(tmp_path: Path) -> None:
    data = tmp_path / "data"
    Broker(data).__enter__().stop()
    fill(data, signal.SIGKILL)
    shutil.move(data / "meta.db-wal", tmp_path / "kept")
    assert "doesn't know" in refused(data)
    shutil.move(tmp_path / "kept", data / "meta.db-wal")
    assert count(data) == COUNT


def test_a_queue_that_was_deleted_stops_no_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for _ in range(3):
        broker = Broker(data)
        with Client(broker.address("amqp")) as client:
            channel = client.channel()
            for n in range(20):
                channel.declare(f"q{n}", durable=True)
                channel.publish(b"x", key=f"q{n}", delivery_mode=2)
            for n in range(20):
                channel.delete(f"q{n}")
        broker.stop(signal.SIGKILL)
    with Broker(data):
        assert eventually(lambda: not list(data.glob("vhosts/%2F/queues/q*")))
    assert not list(data.glob("orphaned-*"))


# -- damage


DEFINITIONS = """{
  "users": [{"name": "ann", "password_hash": "", "tags": ["administrator"]}],
  "vhosts": [{"name": "/"}, {"name": "other"}],
  "permissions": [{"user": "ann", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
  "topic_permissions":
    [{"user": "ann", "vhost": "/", "exchange": "amq.topic", "write": "a", "read": "b"}],
  "parameters": [{"vhost": "/", "component": "c", "name": "n", "value": {"a": 1}}],
  "policies": [{"vhost": "/", "name": "p", "pattern": "^q", "apply-to": "queues", "priority": 1,
    "definition": {"max-length": 10}}],
  "exchanges": [{"vhost": "/", "name": "e", "type": "topic", "durable": true, "auto_delete": false,
    "internal": false, "arguments": {}}],
  "queues": [{"vhost": "/", "name": "q", "durable": true, "auto_delete": false,
    "arguments": {"x-max-length": 5}}],
  "bindings": [{"vhost": "/", "source": "e", "destination": "q", "destination_type": "queue",
    "routing_key": "k", "arguments": {}}]
}"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a row in each table, or nearly."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / "definitions.json").write_text(DEFINITIONS)
    data = folder / "data"
    with Broker(data, "--definitions", str(folder / "definitions.json")):
        pass
    with closing(sqlite3.connect(data / "meta.db")) as db:
        db.execute("INSERT INTO limits VALUES ('vhost', '/', 'max-queues', 100)")
        db.execute("INSERT INTO kafka_configs SELECT id, 'retention.ms', '1', name FROM logs")
        db.execute("INSERT INTO kafka_quotas VALUES ('{}', 'producer_byte_rate', 1000.0)")
        db.execute("INSERT INTO kafka_cleaned SELECT id, 0 FROM logs")
        db.commit()
    return data


def opening(data: Path) -> str | None:
    """What it is refused with."""
    flags = {("data",): ("--data", str(data)), ("listen", "amqp"): ("--amqp", "127.0.0.1:0")}
    config = load(None, brokers.SMALL_WAL, flags)

    async def start() -> None:
        stop = trio.Event()
        async with open_store(config) as store, open_broker(config, store, stop):
            pass

    try:
        trio.run(start)
    except Exception as caught:
        reason = eventlog.cause(caught)
        if not isinstance(reason, StartupError):
            raise
        return str(reason)
    return None


def columns(data: Path) -> Iterator[tuple[str, str]]:
    with closing(sqlite3.connect(data / "meta.db")) as db:
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        for (table,) in db.execute(tables).fetchall():
            for column in db.execute(f"PRAGMA table_info({table})").fetchall():
                yield table, column[1]


BAD: tuple[Any, ...] = (
    "garbage", "$:$", "[]", "{}", '{"a": [1', "5", "null", b"\xff\xfe", -1, 1 << 40, 0.5,
    "x" * 70_000, "",
)  # fmt: skip


def test_a_bad_value_in_any_column_is_one_line_with_what_to_do(
    filled: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    refusals = 0
    for table, column in columns(filled):
        chance = random.Random(f"{table}.{column}")
        for value in chance.sample(BAD, 2):
            shutil.copytree(filled, data)
            with closing(sqlite3.connect(data / "meta.db")) as db:
                try:
                    db.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))
                    db.commit()
                except sqlite3.IntegrityError:
                    shutil.rmtree(data)
                    continue
            said = opening(data)
            if said is not None:
                refusals += 1
                assert "meta.db" in said and str(data) in said and "\n" not in said, said
                assert "--accept-missing-metadata" in said, (table, column, value, said)
            shutil.rmtree(data)
    assert refusals > 10


def test_a_meta_db_with_bad_bytes_is_one_line(filled: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    chance = random.Random(14)
    whole = (filled / "meta.db").read_bytes()
    for n in range(30):
        shutil.copytree(filled, data)
        raw = bytearray(whole)
        if n % 3 == 0:
            del raw[chance.randrange(1, len(raw)) :]
        else:
            at = chance.randrange(0, len(raw)) if n % 3 == 1 else chance.randrange(0, 100)
            raw[at : at + 64] = chance.randbytes(64)
        (data / "meta.db").write_bytes(raw)
        said = opening(data)
        assert said is None or ("meta.db" in said and "\n" not in said), said
        shutil.rmtree(data)


def test_a_damaged_meta_db_ends_the_process_with_1_and_no_internal_error(
    filled: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(filled, data)
    with closing(sqlite3.connect(data / "meta.db")) as db:
        db.execute("UPDATE users SET scram_sha_256 = 'SCRAM-SHA-256$1:a$b:c'")
        db.commit()
    assert re.search(
        r"meta.db is damaged \(table users: .*put a backup in its place", refused(data)
    )
    os.truncate(data / "meta.db", 5000)
    assert "meta.db is damaged" in refused(data)
