"""RabbitMQ's own command line tool, as Debian has it, against our API."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers import PATIENCE, Broker

PROGRAM = shutil.which("rabbitmqadmin")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Debian's rabbitmq-server isn't installed")

# A command, and what it says.
COMMANDS = [
    ("show overview", "ottermq@"),
    ("list nodes name type running", "disc"),
    ("""declare queue name=rq durable=true arguments='{"x-max-length":5}'""", "queue declared"),
    ("declare exchange name=rx type=topic", "exchange declared"),
    ("declare binding source=rx destination=rq routing_key=a.b", "binding declared"),
    (
        """declare binding source=rx destination=rq routing_key='c d' arguments='{"z":1}'""",
        "binding",
    ),
    ("list bindings source destination routing_key", "c d"),
    (
        "delete binding source=rx destination_type=queue destination=rq properties_key=a.b",
        "deleted",
    ),
    ("publish exchange=rx routing_key='c d' payload=hello", "Message published"),
    ("publish routing_key=nowhere payload=hello", "NOT routed"),
    ("list queues name messages", "| rq   | 1        |"),
    ("get queue=rq", "hello"),
    ("get queue=rq ackmode=ack_requeue_false", "hello"),
    ("get queue=rq", "No items"),
    ("purge queue name=rq", "queue purged"),
    ("-f long list queues", "rq"),
    ("list exchanges name type", "topic"),
    ("declare vhost name=rv", "vhost declared"),
    ("list vhosts name", "rv"),
    ("declare user name=ru password=x tags=monitoring", "user declared"),
    ("list users name tags", "monitoring"),
    (
        "declare permission vhost=rv user=ru configure='.*' write='.*' read='.*'",
        "permission declared",
    ),
    ("list permissions", "ru"),
    (
        """declare policy name=rp pattern='^r' definition='{"max-length":3}' apply-to=queues"""
        " priority=2",
        "policy declared",
    ),
    ("list policies", "max-length"),
    ("""declare operator_policy name=ro pattern='^x' definition='{"max-length":3}'""", "declared"),
    ("list operator_policies", "ro"),
    ("declare parameter component=shovel name=rs value='{}'", "parameter declared"),
    ("list parameters", "shovel"),
    ("declare vhost_limit vhost=rv name=max-queues value=1000", "vhost_limit declared"),
    ("list vhost_limits", "1000"),
    ("delete vhost_limit vhost=rv name=max-queues", "vhost_limit deleted"),
    ("list connections", "No items"),
    ("list channels", "No items"),
    ("list consumers", "No items"),
    ("export FILE", "Exported definitions"),
    ("delete queue name=rq", "queue deleted"),
    ("import FILE", "Uploaded definitions"),
    ("list queues name", "rq"),
    ("delete policy name=rp", "policy deleted"),
    ("delete operator_policy name=ro", "operator_policy deleted"),
    ("delete parameter component=shovel name=rs", "parameter deleted"),
    ("delete user name=ru", "user deleted"),
    ("delete vhost name=rv", "vhost deleted"),
    ("delete exchange name=rx", "exchange deleted"),
]


def test_every_verb_does_its_work(tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    with Broker(tmp_path / "data") as broker:
        host, port = broker.address("admin")
        for command, said in COMMANDS:
            words = shlex.split(command.replace("FILE", str(file)))
            done = subprocess.run(
                [sys.executable, str(PROGRAM), "-H", host, "-P", str(port), *words],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            assert said in done.stdout, (command, done.stdout, done.stderr)
        queues = json.loads(file.read_text())["queues"]
        assert [queue["name"] for queue in queues] == ["rq"]
