"""What was taken can't be put down: health, metrics and the log say so with the true reason, and
when it lasts publishers are told (connection.blocked), before the WAL is full."""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pamqp.commands import Connection

from tests.amqp.wire import Channel, Client
from tests.brokers import Broker
from tests.damage.flaws import health, metric
from tests.faults.rules import Faults, Op
from tests.faults.shim import recorded
from tests.test_broker_store import environment, health_becomes

SETTINGS = {"OTTERMQ_WAL__CHECKPOINT_INTERVAL": "1s", "OTTERMQ_WAL__DIRECT_IO": "off"}
LASTS = 10.0


@contextmanager
def on_a_disk(tmp_path: Path) -> Iterator[tuple[Broker, Faults]]:
    data = tmp_path / "data"
    data.mkdir()
    with recorded(tmp_path, root=data, real_sync=True) as recording:
        with Broker(data, env={**environment(recording), **SETTINGS}) as broker:
            yield broker, recording.faults
            recording.faults.clear()


def publisher(broker: Broker) -> Channel:
    channel = Client(broker.address("amqp")).channel()
    channel.declare("q", durable=True)
    channel.confirm()
    channel.publish(b"before", key="q", delivery_mode=2)
    channel.confirmed(1)
    return channel


def segments_fail(faults: Faults) -> None:
    faults.fail(Op.WRITE, "vhosts/*.log", error=errno.EIO)


def checkpoints_fail(faults: Faults) -> None:
    faults.fail(Op.FSYNC, "checkpoint.tmp", error=errno.ENODEV)


@pytest.mark.parametrize(
    ("harm", "kind", "why", "gauge"),
    [
        (segments_fail, "write failed", "Input/output error", "ottermq_writer_stuck"),
        pytest.param(
            checkpoints_fail,
            "checkpoint failed",
            "No such device",
            "ottermq_checkpoint_failing",
            marks=pytest.mark.long,
        ),
    ],
)
def test_what_cannot_be_written_is_told_and_becomes_an_alarm(
    tmp_path: Path, harm: Callable[[Faults], None], kind: str, why: str, gauge: str
) -> None:
    with on_a_disk(tmp_path) as (broker, faults):
        channel = publisher(broker)
        assert health(broker)[0] == 200 and metric(broker, gauge) == 0
        harm(faults)
        channel.publish(b"taken", key="q", delivery_mode=2)
        channel.confirmed(2)
        assert why in broker.wait_for(f" ERROR {kind} text=.*")[0]
        answer = health_becomes(broker, 503)
        assert answer["status"] == "can't write" and why in answer["reason"]
        assert metric(broker, gauge) == 1
        # The WAL has room: what comes is taken, for a while.
        channel.publish(b"taken, too", key="q", delivery_mode=2)
        channel.confirmed(3)
        assert why in broker.wait_for(" ERROR writes stalled text=.*")[0]
        assert health(broker)[1]["status"] == "refusing appends"
        channel.publish(b"held back", key="q", delivery_mode=2)
        assert channel.client.expect(Connection.Blocked).reason == "disk writes stalled"
        assert metric(broker, "ottermq_storage_stalled") == 1
        faults.clear()
        channel.client.expect(Connection.Unblocked)
        channel.confirmed(4)
        broker.wait_for(" INFO writes resumed text=")
        health_becomes(broker, 200)
        assert metric(broker, gauge) == metric(broker, "ottermq_storage_stalled") == 0
        channel.client.close()


@pytest.mark.long
def test_a_log_that_does_not_move_is_told(tmp_path: Path) -> None:
    with on_a_disk(tmp_path) as (broker, faults):
        channel = publisher(broker)
        faults.delay(Op.FDATASYNC, "wal/0*.wal", seconds=LASTS + 8, times=1)
        began = time.monotonic()
        channel.publish(b"under way", key="q", delivery_mode=2)
        broker.wait_for(" ERROR writes stalled text=.*hasn't moved for 10 s")
        assert time.monotonic() - began >= LASTS
        assert "hasn't moved" in health(broker)[1]["reason"]
        other = Client(broker.address("amqp")).channel()
        other.publish(b"held back", key="q", delivery_mode=2)
        assert other.client.expect(Connection.Blocked).reason == "disk writes stalled"
        channel.confirmed(2)
        other.client.expect(Connection.Unblocked)
        health_becomes(broker, 200)
        other.client.close()
        channel.client.close()
