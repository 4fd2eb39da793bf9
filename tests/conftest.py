"""What all tests share: how the package is found, when long runs happen, a broker to talk to."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# The checkout's folders amqp/, cli/ and wal/ are no packages of their own: with the checkout
# first on the path, `import amqp` would find ours and not py-amqp. Last, it still gives `tests`
# (pytest keeps it there: --import-mode=append in pyproject.toml).
sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != ROOT]
sys.path.append(str(ROOT))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("OTTERMQ_SOAK"):
        return
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.skip(reason="a long run: make soak"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Broker"]:
    """One for all tests that only talk to it."""
    with Broker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


from tests.brokers import Broker  # noqa: E402  (only found by the path set above)
