"""The system's time is set while the broker runs, or while it is down: TTLs and delays go on."""

import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.amqp.wire import Channel, Client
from tests.brokers import Broker
from tests.faults.clock import Clock

pytestmark = pytest.mark.ottermq_only("a broker of the test's own")

HOUR = timedelta(hours=1)
SHORT, LONG = 400, 600_000  # ms


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


@pytest.fixture
def channel(tmp_path: Path, clock: Clock) -> Iterator[Channel]:
    """Of a broker that goes by that clock, with queues for two times to live."""
    with Broker(tmp_path / "data", env=clock.environment()) as broker:
        with Client(broker.address("amqp")) as client:
            yield prepared(client.channel())


def prepared(channel: Channel) -> Channel:
    later = {"x-delayed-type": "fanout"}
    channel.declare_exchange("later", "x-delayed-message", later, durable=True)
    for name in ("dead", "due"):
        channel.declare(name, durable=True)
    channel.bind("due", "later")
    for name, ttl in (("short", SHORT), ("long", LONG)):
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.declare(name, {"x-message-ttl": ttl, **dead}, durable=True)
    channel.confirm()
    return channel


def publish(channel: Channel, queue: str, delay: int) -> None:
    channel.publish(b"x", queue, delivery_mode=2)
    channel.publish(b"y", "", "later", headers={"x-delay": delay}, delivery_mode=2)
    channel.confirmed(2)


def test_a_clock_that_is_set_back_lets_nothing_live_longer(channel: Channel, clock: Clock) -> None:
    publish(channel, "short", SHORT)
    clock.set(-HOUR)
    assert channel.becomes("dead", 1)
    assert channel.becomes("due", 1)
    assert channel.count("short") == 0


def test_a_clock_that_is_set_forward_ends_nothing_early(channel: Channel, clock: Clock) -> None:
    publish(channel, "long", LONG)
    clock.set(HOUR)
    channel.publish(b"z", "short")  # the engine has looked at the time since
    assert channel.becomes("dead", 1)
    message = channel.get("long")
    assert message is not None and message.body == b"x"
    assert channel.count("due") == 0


def test_a_start_with_a_clock_behind_goes_on_from_the_last_checkpoint(
    tmp_path: Path, clock: Clock
) -> None:
    with Broker(tmp_path / "data", env=clock.environment()) as broker:
        channel = prepared(Client(broker.address("amqp")).channel())
        publish(channel, "short", SHORT)
        channel.client.drop()
        broker.stop(signal.SIGTERM)
    clock.set(-HOUR)
    with Broker(tmp_path / "data", env=clock.environment()) as broker:
        broker.wait_for(r"WARNING clock behind text=.*clock is 3[56]\d\d s behind")
        with Client(broker.address("amqp")) as client:
            assert client.channel().becomes("dead", 1)
            assert client.channel().becomes("due", 1)
