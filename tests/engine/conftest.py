from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.plane import Plane


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    plane = Plane(tmp_path / "data")
    yield plane
    plane.close()
