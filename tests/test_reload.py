"""SIGHUP at a real broker: what may change does, what can't is told, and nothing ends it."""

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pamqp.commands import Basic

from tests.amqp.wire import Client, Gone, Refused
from tests.brokers import PATIENCE, Broker

QUEUE = "orders"


def permission(user: str, read: str = ".*") -> dict[str, str]:
    return {"user": user, "vhost": "/", "configure": ".*", "write": ".*", "read": read}


def user(name: str, password: str = "secret", tags: str = "") -> dict[str, str]:
    return {"name": name, "password": password, "tags": tags}


class ReloadHarness:
    """A broker with a configuration and a definitions file that change under it."""

    def __init__(self, folder: Path) -> None:
        self.config, self.definitions = folder / "config.yaml", folder / "definitions.json"
        self.configure()
        self.define(users=[user("ann")], permissions=[permission("ann")])
        self.broker = Broker(
            folder / "data", "--config", str(self.config), "--definitions", str(self.definitions)
        )

    def configure(self, text: str = "") -> None:
        self.config.write_text(text or "log: {level: info}\n")

    def define(self, **sections: Any) -> None:
        self.definitions.write_text(json.dumps(sections))

    def reload(self, seen: str = " (definitions (not )?loaded|configuration not reloaded) ") -> str:
        """Its answer in the log."""
        before = len(self.broker.lines)
        self.broker.process.send_signal(signal.SIGHUP)
        until(lambda: any(re.search(seen, line) for line in self.broker.lines[before:]))
        return "\n".join(self.broker.lines[before:])

    def login(self, name: str = "ann", password: str = "secret", **more: Any) -> Client:
        return Client(self.broker.address("amqp"), user=name, password=password, **more)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def harness(tmp_path: Path) -> Any:
    harness = ReloadHarness(tmp_path)
    with harness.broker:
        yield harness


def test_no_signal_but_those_that_stop_it_ends_a_broker(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            broker.process.send_signal(number)
        broker.wait_for(r" reloaded applied=nothing restart=nothing$")
        with Client(broker.address("amqp")) as client:
            client.channel().round_trip()
        assert broker.stop() == 0


def test_a_hangup_while_it_starts_or_stops_does_not_end_it(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as first:
        assert first.stop() == 0
    again = Broker(tmp_path / "data")
    try:
        lock = tmp_path / "data" / "lock"
        until(lambda: lock.read_text() == f"{again.process.pid}\n")  # it has begun
        for _ in range(50):
            again.process.send_signal(signal.SIGHUP)
            time.sleep(0.002)
        again.wait_for(" ready ")
        again.wait_for(" reloaded ")
        again.process.send_signal(signal.SIGTERM)
        while again.process.poll() is None:
            again.process.send_signal(signal.SIGHUP)
            time.sleep(0.002)
    finally:
        assert again.stop() == 0


def test_it_says_what_it_took_and_what_needs_a_restart(harness: ReloadHarness) -> None:
    harness.configure("log: {level: debug}\namqp: {heartbeat: 7s}\nwal: {segment_max_age: 1d}\n")
    said = harness.reload()
    assert 'reloaded applied="amqp.heartbeat, log.level" restart=wal.segment_max_age' in said
    client = Client(harness.broker.address("amqp"), user="ann", password="secret", open=False)
    client.start("ann", "secret")
    assert client.tune().heartbeat == 7
    client.open()
    client.close()


def test_a_limit_counts_from_then_on(harness: ReloadHarness) -> None:
    with harness.login() as client:
        channel = client.channel()
        queue = channel.declare()
        channel.publish(bytes(2000), key=queue)
        assert channel.must_get(queue)
        harness.configure("amqp: {max_message_size: 1KiB}\n")
        assert "applied=amqp.max_message_size" in harness.reload()
        channel.publish(bytes(2000), key=queue)
        assert channel.refusal().code == 406


def test_a_wrong_configuration_changes_nothing(harness: ReloadHarness) -> None:
    harness.configure("amqp: {heartbeet: 7s}\n")
    assert "WARNING configuration not reloaded reason=" in harness.reload()
    with harness.login() as client:
        client.channel().round_trip()


def test_wrong_definitions_change_nothing(harness: ReloadHarness) -> None:
    harness.define(users=[user("eve")], queue=[{"name": "x"}])
    assert "did you mean queues?" in harness.reload()
    with harness.login() as client:
        client.channel().round_trip()
    with pytest.raises((Refused, Gone)):
        harness.login("eve")


def test_a_new_queue_and_its_binding_work_at_once(harness: ReloadHarness) -> None:
    harness.define(
        users=[user("ann")],
        permissions=[permission("ann")],
        queues=[{"name": QUEUE, "vhost": "/"}],
        exchanges=[{"name": "x", "vhost": "/", "type": "topic"}],
        bindings=[{"vhost": "/", "source": "x", "destination": QUEUE, "routing_key": "a.#"}],
    )
    harness.reload(" definitions loaded ")
    with harness.login() as client:
        channel = client.channel()
        channel.confirm()
        channel.publish(b"1", exchange="x", key="a.b", delivery_mode=2)
        channel.confirmed(1)
        assert channel.count(QUEUE) == 1


def test_a_ttl_and_the_queue_for_its_dead_letters_come_together(harness: ReloadHarness) -> None:
    """The policy is the first that is read, the queue that it needs the last."""
    with harness.login() as client:
        channel = client.channel()
        channel.declare("source", durable=True)
        channel.confirm()
        for number in range(100):
            channel.publish(b"x", key="source")
            channel.confirmed(number + 1)
        definition = {
            "message-ttl": 1,
            "dead-letter-exchange": "",
            "dead-letter-routing-key": "dead",
        }
        harness.define(
            policies=[{"vhost": "/", "name": "p", "pattern": "^source$", "definition": definition}],
            queues=[{"name": "dead", "vhost": "/"}],
        )
        harness.reload(" definitions loaded ")
        assert channel.becomes("dead", 100)


# -- what is revoked


def test_a_user_that_the_file_no_longer_names_is_gone_with_its_connections(
    harness: ReloadHarness,
) -> None:
    harness.define(
        users=[user("ann"), user("bob")], permissions=[permission("ann"), permission("bob")]
    )
    harness.reload(" definitions loaded ")
    bob, ann = harness.login("bob"), harness.login()
    harness.define(users=[user("ann")], permissions=[permission("ann")])
    harness.reload(" definitions loaded ")
    refusal = bob.refusal()
    assert (refusal.code, refusal.connection) == (320, True)
    with pytest.raises((Refused, Gone)):
        harness.login("bob")
    ann.channel().round_trip()
    ann.close()


def test_a_changed_password_ends_who_used_the_old_one(harness: ReloadHarness) -> None:
    client = harness.login()
    harness.define(users=[user("ann", "better")], permissions=[permission("ann")])
    harness.reload(" definitions loaded ")
    assert client.refusal().code == 320
    with pytest.raises((Refused, Gone)):
        harness.login()
    harness.login(password="better").close()


def test_a_consumer_that_may_no_longer_read_is_cancelled(harness: ReloadHarness) -> None:
    client = harness.login()
    channel = client.channel()
    channel.declare("open")
    channel.declare("secret")
    channel.consume("open", "o")
    channel.consume("secret", "s")
    harness.define(users=[user("ann")], permissions=[permission("ann", read="^open$")])
    harness.reload(" definitions loaded ")
    assert channel.expect(Basic.Cancel).consumer_tag == "s"
    channel.publish(b"hidden", key="secret")
    channel.publish(b"seen", key="open")
    assert channel.delivery().body == b"seen"
    client.close()


def test_who_does_not_know_a_cancel_loses_the_channel(harness: ReloadHarness) -> None:
    client = harness.login(capabilities={})
    channel = client.channel()
    channel.declare("secret")
    channel.consume("secret", "s")
    harness.define(users=[user("ann")], permissions=[permission("ann", read="^open$")])
    harness.reload(" definitions loaded ")
    assert channel.refusal().code == 403
    client.close()


def test_a_permission_that_the_file_no_longer_has_shuts_out(harness: ReloadHarness) -> None:
    client = harness.login()
    harness.define(users=[user("ann")], permissions=[])
    harness.reload(" definitions loaded ")
    assert client.refusal().code == 320
    with pytest.raises(Refused, match="access to vhost"):
        harness.login()


def test_what_did_not_come_by_a_file_stays(harness: ReloadHarness) -> None:
    """And a file without a section says nothing about it."""
    harness.define(queues=[{"name": QUEUE, "vhost": "/"}])
    harness.reload(" definitions loaded ")
    with harness.login() as client:
        client.channel().round_trip()
