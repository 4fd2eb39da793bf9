"""`ottermq unfence`: a broker whose disk failed once goes on without a restart."""

import errno
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.amqp.wire import Client, Confirms
from tests.brokers import Broker, run
from tests.engine.kafka_plane import batch
from tests.faults.rules import Op
from tests.faults.shim import Recording, recorded
from tests.kafka.wire import Link


def unfence(broker: Broker, *more: str, password: str | None = None) -> tuple[int, str, str]:
    address = "{}:{}".format(*broker.address("admin"))
    env = {"OTTERMQ_PASSWORD": password} if password else None
    ended = run("unfence", "--admin", address, *more, env=env)
    return ended.returncode, ended.stdout, ended.stderr


def publish(confirms: Confirms, body: bytes) -> bool:
    """Is it taken?"""
    before = len(confirms.taken | confirms.refused)
    confirms.channel.publish(body, key="orders", delivery_mode=2)
    confirms.until(before + 1)
    return before + 1 in confirms.taken


@contextmanager
def on_a_bad_disk(tmp_path: Path) -> Iterator[tuple[Broker, Recording]]:
    with recorded(tmp_path) as recording:
        env = {**recording.environment(), "OTTERMQ_WAL__DIRECT_IO": "off"}
        with Broker(recording.root, env=env) as broker:
            yield broker, recording


def test_once_unfenced_a_broker_goes_on_and_nothing_refused_comes_back(tmp_path: Path) -> None:
    with on_a_bad_disk(tmp_path) as (broker, recording):
        with Client(broker.address("amqp")) as client, Link(broker.address("kafka")) as link:
            link.create("clicks")
            link.send_produce("clicks", 0, batch(b"one"))
            assert link.produced()[0] == 0
            channel = client.channel()
            channel.declare("orders", durable=True)
            channel.confirm()
            confirms = Confirms(channel)
            assert publish(confirms, b"before")
            recording.faults.fail(Op.FDATASYNC, "wal/*.wal", times=1, error=errno.EIO)
            assert not publish(confirms, b"refused")
            broker.wait_for("ERROR wal fenced text=.*`ottermq unfence`")
            assert not publish(confirms, b"refused, too")
            assert unfence(broker) == (0, "durable messages are taken again\n", "")
            broker.wait_for("INFO audit act=wal.unfence user=guest .*result=ok")
            for number in range(100):
                assert publish(confirms, b"after %d" % number)
            link.send_produce("clicks", 0, batch(b"two"))
            assert link.produced()[0] == 0
            assert [value for _, value in link.read_all("clicks", 0)] == [b"one", b"two"]
        broker.process.send_signal(signal.SIGKILL)
        broker.process.wait(20)
        with Broker(recording.root) as again, Client(again.address("amqp")) as client:
            channel = client.channel()
            found = [channel.get("orders", no_ack=True) for _ in range(101)]
            bodies = [message and message.body for message in found]
            assert bodies == [
                b"before",
                *(b"after %d" % number for number in range(100)),
            ]
            assert channel.get("orders") is None


def test_a_disk_that_is_still_broken_is_told(tmp_path: Path) -> None:
    with on_a_bad_disk(tmp_path) as (broker, recording), Client(broker.address("amqp")) as client:
        channel = client.channel()
        channel.declare("orders", durable=True)
        channel.confirm()
        confirms = Confirms(channel)
        recording.faults.fail(Op.FDATASYNC, "wal/*.wal", error=errno.EIO)
        recording.faults.fail(Op.FSYNC, "wal/*.wal", error=errno.EIO)
        assert not publish(confirms, b"refused")
        broker.wait_for("ERROR wal fenced text=")
        code, _, said = unfence(broker)
        assert code == 1 and said.startswith("ottermq: ") and said.count("\n") == 1
        assert not publish(confirms, b"refused")
        recording.faults.clear()
        assert unfence(broker)[0] == 0
        assert publish(confirms, b"taken")


def make_user(data: Path, tags: str) -> list[str]:
    file = data / "definitions.json"
    user = {"name": "eve", "password": "secret", "tags": tags}
    file.write_text(json.dumps({"users": [user], "permissions": []}))
    return ["--definitions", str(file)]


@pytest.mark.parametrize(
    ("tags", "password", "said"),
    [
        ("monitoring", "secret", "user 'eve' has no tag administrator"),
        ("administrator", "wrong", "wrong name or password"),
        ("administrator", "secret", "the WAL isn't fenced"),
    ],
)
def test_it_takes_an_administrator_and_a_fence(
    tmp_path: Path, tags: str, password: str, said: str
) -> None:
    with Broker(tmp_path / "data", *make_user(tmp_path, tags)) as broker:
        code, _, told = unfence(broker, "--user", "eve", password=password)
        assert code == 1 and said in told and told.count("\n") == 1
