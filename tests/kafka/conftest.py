"""A room for each test that asks for one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kafka.rooms import House, open_house


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path / "data") as opened:
        yield opened
