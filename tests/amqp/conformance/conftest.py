"""A connection, a channel, and names that nobody else uses."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.amqp.wire import Address, Channel, Client
from tests.brokers import Broker


@pytest.fixture
def connect(amqp_address: Address) -> Iterator[Callable[..., Client]]:
    """Open as many connections as a test needs; they end with it."""
    opened: list[Client] = []

    def another(**options: object) -> Client:
        client = Client(amqp_address, **options)  # type: ignore[arg-type]
        opened.append(client)
        return client

    yield another
    for client in opened:
        client.drop()


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    return connect()


@pytest.fixture
def channel(client: Client) -> Channel:
    return client.channel()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """`unique("orders")`: a name that no other test, and no earlier run, uses."""
    run = uuid.uuid4().hex[:12]
    return lambda name: f"{name}-{run}"


@pytest.fixture
def start(amqp_address: Address, tmp_path: Path) -> Callable[..., Broker]:
    """A broker of the test's own, to be stopped and killed; each start finds the same data."""
    return lambda *arguments, **env: Broker(tmp_path / "data", *arguments, env=env)
