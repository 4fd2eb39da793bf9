"""The RabbitMQ that we measure and compare with; the load generator against a real broker."""

from collections.abc import Iterator

import pytest

from perf import load, rabbitmq
from perf.rabbitmq import RabbitMQ
from perf.served import speaks_amqp

pytestmark = pytest.mark.skipif(
    not rabbitmq.installed(), reason="Debian's rabbitmq-server isn't installed"
)


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with RabbitMQ(tmp_path_factory.mktemp("rabbit")) as running:
        yield running
    assert not speaks_amqp(running.address), "it is gone afterwards"


def test_a_frozen_rabbitmq_goes_on_when_its_turn_comes(rabbit: RabbitMQ) -> None:
    rabbit.pause()
    rabbit.resume()
    assert speaks_amqp(rabbit.address)
    assert rabbit.peak_memory() > 1 << 20


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_the_load_passes_through_both_kinds_of_queue(rabbit: RabbitMQ, kind: str) -> None:
    durable = ("--persistent", "--confirms", 50, "--prefetch", 50, "--ack-every", 10)
    found = load.run(rabbit.address, "--messages", 300, "--type", kind, *durable)
    assert (found.published, found.confirmed, found.delivered) == (300, 300, 300)


def test_messages_expire_into_the_queue_the_consumer_sits_on(rabbit: RabbitMQ) -> None:
    found = load.run(rabbit.address, "--messages", 200, "--confirms", 20, "--ttl", 1)
    assert found.delivered == 200


def test_a_fan_out_is_bound_and_counted(rabbit: RabbitMQ) -> None:
    fan = ("--exchange", "fanout", "--queues", 3, "--consumers", 3, "--auto-ack")
    assert load.run(rabbit.address, "--messages", 100, *fan).delivered == 300


def test_a_refused_declare_is_quoted(rabbit: RabbitMQ) -> None:
    with pytest.raises(load.LoadFailed, match="the broker closed the channel.*406 PRECONDITION"):
        load.run(rabbit.address, "--messages", 1, "--argument", "x-max-length=-1")
