"""Administrative acts in a real broker's log: who, from where, what; and no flood of them."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.amqp.wire import Client, Refused
from tests.brokers import Broker

pytestmark = pytest.mark.ottermq_only("its log")


def policy(hold: bool) -> dict[str, Any]:
    return {
        "vhost": "/", "name": "hold", "pattern": "^ledger$", "apply-to": "queues",
        "definition": {"legal-hold": hold},
    }  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Broker, Path]]:
    definitions = tmp_path / "definitions.json"
    rights = {"user": "ann", "vhost": "/", "configure": ".*", "write": ".*", "read": "^[^s]"}
    definitions.write_text(
        json.dumps(
            {
                "users": [{"name": "ann", "password": "a", "tags": "monitoring"}],
                "permissions": [rights],
                "queues": [{"name": "ledger", "vhost": "/"}],
                "policies": [policy(False)],
            }
        )
    )
    with Broker(tmp_path / "data", "--definitions", str(definitions)) as broker:
        yield broker, definitions


def acts(broker: Broker) -> list[str]:
    return [line.split(" audit act=")[1] for line in broker.lines if " audit act=" in line]


def test_acts_on_what_is_durable_have_a_line_each(place: tuple[Broker, Path]) -> None:
    broker, _ = place
    with Client(broker.address("amqp"), user="ann", password="a") as client:
        peer = "{}:{}".format(*client.socket.getsockname())
        channel = client.channel()
        for _ in range(2):  # what is there already is no act
            channel.declare("jobs", durable=True)
            channel.declare_exchange("x", "topic", durable=True)
            channel.bind("jobs", "x", "k")
        channel.confirm()
        channel.publish(b"x", key="jobs", delivery_mode=2)
        channel.confirmed(1)
        channel.purge("jobs")
        channel.unbind("jobs", "x", "k")
        channel.delete("jobs")
        channel.delete_exchange("x")
    broker.wait_for(
        rf" connection closed listener=amqp peer={peer} user=ann vhost=/"
        ' reason="closed by the client"$'
    )
    who = rf"user=ann peer={re.escape(peer)}"
    expected = [
        rf"queue\.declare {who} what=jobs result=ok vhost=/ type=classic",
        rf"exchange\.declare {who} what=x result=ok vhost=/ type=topic",
        rf"queue\.bind {who} what=jobs result=ok vhost=/ source=x key=k",
        rf"queue\.purge {who} what=jobs result=ok vhost=/ messages=1",
        rf"queue\.unbind {who} what=jobs result=ok vhost=/ source=x key=k",
        rf"queue\.delete {who} what=jobs result=ok vhost=/ messages=0",
        rf"exchange\.delete {who} what=x result=ok vhost=/",
    ]
    found = [line for line in acts(broker) if "user=ann" in line]
    assert len(found) == len(expected)
    for line, pattern in zip(found, expected, strict=True):
        assert re.fullmatch(pattern, line), line


def test_a_refused_act_names_the_user(place: tuple[Broker, Path]) -> None:
    broker, _ = place
    with Client(broker.address("amqp"), user="ann", password="a") as client:
        channel = client.channel()
        channel.declare("secret", durable=True)
        with pytest.raises(Refused):
            channel.purge("secret")
    broker.wait_for(
        r' channel closed channel=1 peer=\S+ user=ann vhost=/ method=queue.purge reason="403 '
    )


def test_what_goes_with_its_connection_fills_no_log(place: tuple[Broker, Path]) -> None:
    broker, _ = place
    before = len(broker.lines)
    with Client(broker.address("amqp"), user="ann", password="a") as client:
        channel = client.channel()
        for _ in range(500):
            queue = channel.declare(exclusive=True, auto_delete=True)
            channel.bind(queue, "amq.topic", "k")
            channel.delete(queue)
    broker.wait_for(" connection closed listener=amqp ")
    assert len(broker.lines) - before < 5


def test_definitions_tell_what_they_change(place: tuple[Broker, Path]) -> None:
    broker, definitions = place
    peer = f"user=- peer=definitions:{definitions}"
    loaded = acts(broker)
    assert f"definitions.load {peer} what=topology result=ok queues=1 others=0" in loaded
    assert f"user.create {peer} what=ann result=ok tags=monitoring" in loaded
    assert f"permission.set {peer} what=ann result=ok vhost=/" in loaded
    definitions.write_text(
        json.dumps(
            {
                "users": [{"name": "ann", "password": "b", "tags": ""}],
                "permissions": [],
                "policies": [policy(True)],
            }
        )
    )
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_for(rf" audit act=user.password {re.escape(peer)} what=ann result=ok$")
    broker.wait_for(rf" audit act=user.tags {re.escape(peer)} what=ann result=ok tags=")
    broker.wait_for(rf" audit act=permission.clear {re.escape(peer)} what=ann result=ok vhost=/$")
    broker.wait_for(r" audit act=hold.set user=- peer=- what=ledger result=ok vhost=/$")
