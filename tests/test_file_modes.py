"""What lies in the data folder is not for others."""

import os
from pathlib import Path

from tests.amqp.wire import Client
from tests.brokers import Broker


def test_files_of_the_data_folder_are_closed_to_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)  # such as a volume that was there before
    before = os.umask(0o022)
    try:
        with Broker(data) as broker:
            broker.wait_for(r"WARNING data is open to others data=\S+ mode=0755")
            channel = Client(broker.address("amqp")).channel()
            channel.declare("work", durable=True)
            channel.confirm()
            channel.publish(b"x", key="work", delivery_mode=2)
            channel.confirmed(1)
    finally:
        os.umask(before)
    found = [path for path in data.rglob("*") if path.exists()]
    assert any(path.name == "meta.db" for path in found)
    assert not [path for path in found if path.stat().st_mode & 0o007]
