"""A room for each test that asks for one."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.kafka.rooms import House, open_house


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Broker]:
    """A broker of the test's own, to be stopped and killed; each start finds the same data."""
    return lambda *arguments, **env: Broker(tmp_path / "data", *arguments, env=env)
