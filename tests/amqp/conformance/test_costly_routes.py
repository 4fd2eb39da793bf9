"""One client can't keep the broker busy: one thread works out routes and hears everybody."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp.commands import Basic

from tests.amqp.wire import Channel, Client, refused
from tests.brokers import Broker
from tests.weights import takes_at_most

WILD = 60  # words of a binding that match anything
MOST_COPIES = 128


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("costly") / "data") as running:
        yield running


@pytest.fixture
def channel(broker: Broker) -> Channel:
    return Client(broker.address("amqp")).channel()


def bind_wildcards(channel: Channel, exchange: str) -> None:
    """300 bindings that share as little of their way as they can."""
    queue = channel.declare()
    for n in range(300):
        stars = ["#" if n >> bit & 1 else "*" for bit in range(8)]
        key = ".".join(["#", *stars[: 8 - n % 2], *(["*"] * (WILD - 8)), str(n)])
        if key.split(".").count("#") <= 8:
            channel.bind(queue, exchange, key)


def test_wildcards_upon_wildcards_are_refused_before_they_cost_much(
    broker: Broker, channel: Channel
) -> None:
    exchange = channel.declare_exchange("costly", "topic")
    bind_wildcards(channel, exchange)
    key = ".".join("w" * 100)
    with takes_at_most(broker, mib=32, cpu_s=0.5):
        for headers in ({}, {"CC": [key + str(n) for n in range(9)]}):
            sender = channel.client.channel()
            with refused(
                406,
                "PRECONDITION_FAILED - its keys or headers take over 20000 steps to compare with"
                " all bindings",
            ):
                sender.publish(b"x", key=key, exchange=exchange, headers=headers)
                sender.round_trip()
    broker.wait_for(r"(channel closed|connection closing) .*over 20000 steps")


def test_a_usual_key_finds_its_way_through_many_wildcards(channel: Channel) -> None:
    exchange = channel.declare_exchange("usual", "topic")
    bind_wildcards(channel, exchange)
    queue = channel.declare()
    channel.bind(queue, exchange, "orders.*.#.paid")
    channel.publish(b"x", key="orders.eu.de.by.paid", exchange=exchange)
    assert channel.must_get(queue).body == b"x"


def test_a_message_has_so_many_copies_and_no_more(channel: Channel) -> None:
    queue = channel.declare()
    keys = [f"{n}" for n in range(MOST_COPIES - 1)]
    channel.publish(b"x", key="nowhere", headers={"CC": keys, "BCC": [queue]})
    assert channel.must_get(queue).body == b"x"
    sender = channel.client.channel()
    with refused(
        406,
        "PRECONDITION_FAILED - invalid message: CC and BCC hold 129 keys, of 128 at most",
    ):
        sender.publish(b"x", key="nowhere", headers={"CC": [*keys, "one"], "BCC": [queue]})
        sender.round_trip()


def test_a_channel_has_so_many_consumers_and_no_more(tmp_path: Path) -> None:
    env = {"OTTERMQ_AMQP__CONSUMER_MAX_PER_CHANNEL": "3000"}
    with Broker(tmp_path / "data", env=env) as broker, takes_at_most(broker, mib=32, cpu_s=5):
        channel = Client(broker.address("amqp")).channel()
        queue = channel.declare()
        with channel.client.together():
            for n in range(3000):
                channel.send(Basic.Consume(queue=queue, consumer_tag=f"{n}", nowait=True))
        channel.round_trip()
        with refused(
            530,
            "NOT_ALLOWED - reached maximum (3000) of consumers per channel",
            connection=True,
        ):
            channel.consume(queue)
        Client(broker.address("amqp")).channel().declare()


def test_a_binding_has_few_hashes(channel: Channel) -> None:
    queue = channel.declare()
    channel.bind(queue, "amq.topic", ".".join(["#", "a"] * 8))
    with refused(406, "PRECONDITION_FAILED - a binding key may hold '#' at most 8 times"):
        channel.bind(queue, "amq.topic", ".".join("#" * 9))
