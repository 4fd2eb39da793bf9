"""What all clients' tests share: names of their own, a wire to cut, where programs lie."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.clients.proxy import Address, Proxy

BUILD = Path(__file__).resolve().parents[2] / "build" / "clients"  # filled by .ci/clients


@pytest.fixture
def unique() -> Callable[[str], str]:
    run = uuid.uuid4().hex[:12]
    return lambda name: f"{name}-{run}"


@pytest.fixture
def proxy(amqp_address: Address) -> Iterator[Proxy]:
    with Proxy(amqp_address) as wire:
        yield wire


@pytest.fixture
def url(amqp_address: Address) -> str:
    host, port = amqp_address
    return f"amqp://guest:guest@{host}:{port}/%2F"


@pytest.fixture(scope="session")
def kafka(broker: Broker) -> str:
    """Where Kafka's clients begin."""
    host, port = broker.address("kafka")
    return f"{host}:{port}"
