"""A disk that can't be synced: no producer is told that its records are there."""

import os
import sys
from pathlib import Path

from tests.engine.kafka_plane import KafkaPlane, batch
from tests.faults.rules import Faults, Op
from tests.faults.shim import recorded


def life() -> None:
    plane = KafkaPlane(Path(os.environ["OTTERMQ_SHIM_ROOT"]))
    plane.topic("clicks")
    client, consumer = plane.kafka(), plane.kafka()
    assert client.produce("clicks", batch(b"safe")).error == 0
    consumer.send_fetch({("clicks", 0): 1}, wait=600_000)
    Faults.from_environment().fail(Op.FDATASYNC, "wal/*.wal", times=1)
    client.send_produce({("clicks", 0): batch(b"lost")})
    client.send_produce({("clicks", 0): batch(b"lost, too")})
    assert client.ends() == "records not written: WAL fenced"
    again = plane.kafka()
    assert again.produce("clicks", batch(b"refused")).error == 56
    assert again.produce("clicks", batch(b"refused"), acks=1).error == 56
    assert again.fetch("clicks", 0).values == [b"safe"]
    assert consumer.is_quiet()
    os._exit(0)


def test_what_a_failed_sync_refused_is_not_answered_nor_shown(tmp_path: Path) -> None:
    with recorded(tmp_path) as rec:
        rec.run([sys.executable, "-P", "-m", "tests.engine.test_kafka_fence"])


if __name__ == "__main__":
    life()
