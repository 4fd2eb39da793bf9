"""A broker that all tests of the API share; each uses names of its own."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.admin.api import GUEST, Api
from tests.brokers import Broker


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("admin") / "data") as running:
        yield running


@pytest.fixture
def login(shared: Broker) -> Iterator[Callable[..., Api]]:
    """`login("ann:secret")`: the API as that user asks; None: without a login."""
    opened: list[Api] = []

    def another(who: str | None = GUEST) -> Api:
        opened.append(Api(shared.address("admin"), who))
        return opened[-1]

    yield another
    for api in opened:
        api.close()


@pytest.fixture
def api(login: Callable[..., Api]) -> Api:
    return login()


@pytest.fixture
def name() -> str:
    return f"n{uuid.uuid4().hex[:10]}"
