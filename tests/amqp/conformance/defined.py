"""A broker that began with definitions.json beside this, as `rabbitmqctl export_definitions`
writes it: users by hash, a vhost `team`, one with limits, permissions, policies, a topology.

Held against RabbitMQ (OTTERMQ_TEST_URL), that one must have imported the file beforehand.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.amqp.wire import Address, Client
from tests.brokers import Broker
from tests.conftest import OTHER

DEFINITIONS = Path(__file__).with_name("definitions.json")
VHOST = "team"

Login = Callable[..., Client]


@pytest.fixture(scope="module")
def defined(amqp_address: Address, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    if OTHER:
        yield amqp_address
        return
    data = tmp_path_factory.mktemp("defined") / "data"
    with Broker(data, "--definitions", str(DEFINITIONS)) as broker:
        yield broker.address("amqp")


@pytest.fixture
def login(defined: Address) -> Iterator[Login]:
    """`login("otter")`: a connection to the vhost `team` as that user."""
    opened: list[Client] = []

    def another(user: str = "guest", vhost: str = VHOST, password: str | None = None) -> Client:
        known = "guest" if user == "guest" else f"{user}-password"
        client = Client(
            defined, user=user, password=known if password is None else password, vhost=vhost
        )
        opened.append(client)
        return client

    yield another
    for client in opened:
        client.drop()
