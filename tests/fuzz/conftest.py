"""What the targets are linked with."""

from pathlib import Path

import pytest

from tests.fuzz.sanitized import core_objects


@pytest.fixture(scope="session")
def core() -> list[Path]:
    return core_objects()
