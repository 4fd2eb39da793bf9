"""Files that vanish under a running broker: what nobody could find again isn't confirmed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.amqp.wire import Client, Confirms
from tests.brokers import Broker


def unlink_wal(data: Path) -> None:
    for file in (data / "wal").glob("*.wal"):
        file.unlink()


@pytest.mark.parametrize("vanish", [unlink_wal, shutil.rmtree])
def test_nothing_is_confirmed_once_the_files_are_gone(
    tmp_path: Path, vanish: Callable[[Path], None]
) -> None:
    with Broker(tmp_path / "data") as broker:
        with Client(broker.address("amqp")) as client:
            channel = client.channel()
            channel.declare("q", durable=True)
            channel.confirm()
            confirms = Confirms(channel)
            channel.publish(b"before", key="q", delivery_mode=2)
            confirms.until(1)
            vanish(tmp_path / "data")
            channel.publish(b"after", key="q", delivery_mode=2)
            confirms.until(2)
            assert (confirms.taken, confirms.refused) == ({1}, {2})
        broker.wait_for("was removed while in use")
