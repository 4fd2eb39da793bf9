"""An installed OtterMQ at work: python -m tests.installed PATH/TO/ITS/python

Its broker is started from its environment and serves one message; clients are ours.
"""

import sys
import tempfile
from pathlib import Path

import pika

from tests.brokers import Broker


def serves_a_message(python: str, data: Path, *arguments: str) -> str:
    """The core that it has loaded."""
    with Broker(data, *arguments, python=python) as broker:
        host, port = broker.address("amqp")
        with pika.BlockingConnection(pika.ConnectionParameters(host, port)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("orders", durable=True)
            persistent = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", "orders", b"hello", persistent, mandatory=True)
            assert channel.basic_get("orders", auto_ack=True)[2] == b"hello"
        maps = Path(f"/proc/{broker.process.pid}/maps").read_text().splitlines()
        return next(line.split()[-1] for line in maps if "/ottermq/_core." in line)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        python = Path(sys.argv[1]).absolute()
        core = serves_a_message(str(python), Path(folder) / "data")
    assert str(python.parent.parent) in core, f"it has loaded {core}"
