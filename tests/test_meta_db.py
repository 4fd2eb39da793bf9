"""A broker whose meta.db is lost or damaged: it says so in one line, and costs no message."""

import re
import shutil
import signal
from pathlib import Path

import pytest

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


ANY = [part for door, place in brokers.ANY_PORT.items() for part in (f"--{door}", place)]


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
        broker.wait_for("orphaned text=.*were set aside in")
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
