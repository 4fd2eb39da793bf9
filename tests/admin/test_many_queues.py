"""Ten thousand queues: a page comes at once, the whole list soon, and others don't wait for it."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.api import Api
from tests.brokers import Broker

pytestmark = pytest.mark.long
MANY = 10_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder: Path = tmp_path_factory.mktemp("many")
    queues = [{"name": f"queue-{n:05}", "vhost": "/", "durable": True} for n in range(MANY)]
    (folder / "definitions.json").write_text(json.dumps({"queues": queues}))
    with Broker(folder / "data", "--definitions", str(folder / "definitions.json")) as running:
        yield running


def best_of(api: Api, path: str, times: int = 5) -> float:
    """Seconds."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        api.get(path)
        found.append(time.perf_counter() - began)
    return min(found)


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("queues?page=1", 0.1),
        ("queues?page=100&page_size=100&name=queue&use_regex=true", 1.0),
        ("queues?page=1&sort=messages&sort_reverse=true", 1.5),
        ("queues", 1.5),
        ("overview", 0.5),
    ],
)
def test_many_queues_are_listed_in_time(broker: Broker, path: str, most: float) -> None:
    with Api(broker.address("admin")) as api:
        assert best_of(api, path) < most


def test_a_whole_list_lets_others_in_between(broker: Broker) -> None:
    done = threading.Event()

    def list_all() -> None:
        with Api(broker.address("admin")) as api:
            for _ in range(5):
                api.get("queues")
        done.set()

    thread = threading.Thread(target=list_all)
    thread.start()
    waits = []
    with Api(broker.address("admin")) as api:
        while not done.is_set():
            waits.append(best_of(api, "whoami", times=1))
    thread.join()
    waits.sort()
    assert waits[len(waits) * 9 // 10] < 0.1
