"""Starts with time passed: what expired, came due or became too much while the broker was down.

Nothing of it may happen before the whole topology stands: a message that dies while its target is
not there yet is lost. Each scenario is set up before the broker ends and looked at when it is back,
after its time has passed.
"""

import json
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.amqp.wire import Address, Channel, Client
from tests.brokers import Broker

pytestmark = pytest.mark.ottermq_only("a broker of the test's own")

ENDS = {"stop": signal.SIGTERM, "kill": signal.SIGKILL}
TTL = 1500  # ms: longer than it takes to publish them all
QUORUM = {"x-queue-type": "quorum"}


def dying(exchange: str, key: str | None = None, ttl: int = TTL) -> dict[str, Any]:
    arguments: dict[str, Any] = {"x-message-ttl": ttl, "x-dead-letter-exchange": exchange}
    return arguments if key is None else {**arguments, "x-dead-letter-routing-key": key}


def one_step(channel: Channel) -> None:
    channel.declare("a-classic", dying("", "z-classic"), durable=True)
    channel.declare("z-classic", durable=True)


def one_step_of_quorum_queues(channel: Channel) -> None:
    channel.declare("a-quorum", {**dying("", "z-quorum"), **QUORUM}, durable=True)
    channel.declare("z-quorum", QUORUM, durable=True)


def at_least_once(channel: Channel) -> None:
    strategy = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    channel.declare("a-strict", {**dying("", "z-strict"), **QUORUM, **strategy}, durable=True)
    channel.declare("z-strict", QUORUM, durable=True)


def a_chain(channel: Channel) -> None:
    channel.declare("a-chain", dying("", "b-chain", TTL - 100), durable=True)
    channel.declare("b-chain", dying("", "c-chain", 50), durable=True)
    channel.declare("c-chain", durable=True)


def of_priorities(channel: Channel) -> None:
    channel.declare("a-ranked", {**dying("", "z-ranked"), "x-max-priority": 3}, durable=True)
    channel.declare("z-ranked", {"x-max-priority": 3}, durable=True)


def by_an_exchange(channel: Channel) -> None:
    channel.declare_exchange("dlx", "topic", durable=True)
    channel.declare("a-bound", dying("dlx", "is.dead"), durable=True)
    channel.declare("z-bound", durable=True)
    channel.bind("z-bound", "dlx", "*.dead")


def by_an_alternate_exchange(channel: Channel) -> None:
    channel.declare_exchange("a-dlx", "direct", {"alternate-exchange": "z-dlx"}, durable=True)
    channel.declare_exchange("z-dlx", "fanout", durable=True)
    channel.declare("a-elsewhere", dying("a-dlx", "nobody"), durable=True)
    channel.declare("z-elsewhere", durable=True)
    channel.bind("z-elsewhere", "z-dlx")


def into_a_stream(channel: Channel) -> None:
    channel.declare("a-streamed", dying("", "z-streamed"), durable=True)
    channel.declare("z-streamed", {"x-queue-type": "stream"}, durable=True)


def of_a_delayed_exchange(channel: Channel) -> None:
    channel.declare_exchange(
        "a-later", "x-delayed-message", {"x-delayed-type": "fanout"}, durable=True
    )
    channel.declare("z-later", durable=True)
    channel.bind("z-later", "a-later")


@dataclass(frozen=True)
class Scenario:
    declare: Callable[[Channel], None]
    target: str  # where all of them must be, in their order
    key: str = ""
    exchange: str = ""
    delay: bool = False
    count: int = 1000


SCENARIOS = {
    each.declare.__name__: each
    for each in (
        Scenario(one_step, "z-classic", "a-classic"),
        Scenario(one_step_of_quorum_queues, "z-quorum", "a-quorum"),
        Scenario(at_least_once, "z-strict", "a-strict"),
        Scenario(a_chain, "c-chain", "a-chain"),
        Scenario(of_priorities, "z-ranked", "a-ranked"),
        Scenario(by_an_exchange, "z-bound", "a-bound"),
        Scenario(by_an_alternate_exchange, "z-elsewhere", "a-elsewhere"),
        Scenario(into_a_stream, "z-streamed", "a-streamed"),
        Scenario(of_a_delayed_exchange, "z-later", exchange="a-later", delay=True),
    )
}


def publish(channel: Channel, scenario: Scenario) -> None:
    with channel.client.together():
        for number in range(scenario.count):
            headers = {"x-delay": TTL} if scenario.delay else None
            channel.publish(
                b"%d" % number, scenario.key, scenario.exchange, headers=headers, delivery_mode=2
            )
    channel.confirmed(scenario.count)


@pytest.fixture(scope="module", params=ENDS)
def back(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Address]:
    """A broker that was ended, and started when all their time had passed."""
    data = tmp_path_factory.mktemp("passed") / "data"
    with Broker(data) as broker:
        client = Client(broker.address("amqp"))
        for scenario in SCENARIOS.values():
            scenario.declare(client.channel())
        for scenario in SCENARIOS.values():
            channel = client.channel()
            channel.confirm()
            publish(channel, scenario)
        client.drop()
        broker.stop(ENDS[request.param])
    time.sleep(TTL / 1000 + 0.1)
    with Broker(data) as broker:
        yield broker.address("amqp")


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_died_while_the_broker_was_down_is_in_its_target(back: Address, name: str) -> None:
    scenario = SCENARIOS[name]
    with Client(back) as client:
        channel = client.channel()
        channel.becomes(scenario.target, scenario.count)
        channel.qos(100)
        channel.consume(
            scenario.target, arguments={"x-stream-offset": "first"} if "stream" in name else None
        )
        numbers = []
        for _ in range(scenario.count):
            message = channel.delivery()
            numbers.append(int(message.body))
            channel.ack(message.tag)
        assert numbers == list(range(scenario.count))


def policy(folder: Path, most: int) -> str:
    """Definitions in which a queue's target comes behind it."""
    queues: list[dict[str, Any]] = [
        {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
        for name in ("a-limited", "z-rest")
    ]
    definition = {
        "max-length": most,
        "dead-letter-exchange": "",
        "dead-letter-routing-key": "z-rest",
    }
    written = {
        "vhosts": [{"name": "/"}],
        "queues": queues,
        "policies": [
            {
                "vhost": "/",
                "name": "p",
                "pattern": "^a-",
                "apply-to": "queues",
                "definition": definition,
            }
        ],
    }
    path = folder / "definitions.json"
    path.write_text(json.dumps(written))
    return str(path)


def test_a_limit_that_came_with_the_start_dead_letters_what_is_too_much(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", "--definitions", policy(tmp_path, 1000)) as broker:
        channel = Client(broker.address("amqp")).channel()
        channel.confirm()
        publish(channel, Scenario(one_step, "", "a-limited"))
        broker.stop(signal.SIGKILL)
    with Broker(tmp_path / "data", "--definitions", policy(tmp_path, 10)) as broker:
        with Client(broker.address("amqp")) as client:
            channel = client.channel()
            assert channel.becomes("z-rest", 990)
            assert channel.count("a-limited") == 10


def test_a_queue_s_lease_begins_when_clients_can_use_it(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        channel = Client(broker.address("amqp")).channel()
        channel.declare("leased", {"x-expires": 1000}, durable=True)
        broker.stop(signal.SIGKILL)
    time.sleep(1.1)
    with Broker(tmp_path / "data") as broker, Client(broker.address("amqp")) as client:
        assert client.channel().count("leased") == 0
