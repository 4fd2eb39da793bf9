"""A broker harness for each test that asks for one."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.kafka.broker_harness import Harness, open_harness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    async with open_harness(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Broker]:
    """A broker of the test's own, to be stopped and killed; each start finds the same data."""
    return lambda *arguments, **env: Broker(tmp_path / "data", *arguments, env=env)
