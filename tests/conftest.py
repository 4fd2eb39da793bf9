"""What all tests share: how the package is found, when long runs happen, a broker to talk to."""

import gc
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# The checkout's folders amqp/, cli/ and wal/ are no packages of their own: with the checkout
# first on the path, `import amqp` would find ours and not py-amqp. Last, it still gives `tests`
# (pytest keeps it there: --import-mode=append in pyproject.toml).
sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != ROOT]
sys.path.append(str(ROOT))


# Brokers close their memory, and with it some of /proc, unless core dumps are wanted. They are, of
# one byte: tests look there, and not all of them as root.
_, most = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (min(1, most) if most >= 0 else 1, most))


# Another broker to hold the AMQP tests against: OTTERMQ_TEST_URL=amqp://127.0.0.1:5672 is how
# they were proved with RabbitMQ before ours was held to them.
OTHER = os.environ.get("OTTERMQ_TEST_URL")

# A life that a test forks doesn't collect the garbage of tests before it: a Kafka client's threads
# aren't there, and its end falls over without them.
os.register_at_fork(after_in_child=gc.freeze)


def pytest_configure(config: pytest.Config) -> None:
    quarantine = quarantined(QUARANTINE.read_text())
    config.pluginmanager.register(SecondTries(config, LEDGER, quarantine))


# Files that take longest come first, so that no worker is left waiting for the other's last one:
# seconds on a quiet machine, roughly. Those that aren't here take less.
SECONDS = {
    "tests/audit": 170,
    "tests/clients/test_kafka_spark.py": 60,
    "tests/damage/test_one_flipped_bit.py": 45,
    "tests/test_trouble.py": 31,
    "tests/amqp/conformance/test_large.py": 30,
    "tests/clients/test_kafka_transactions.py": 28,
    "tests/test_paused.py": 25,
    "tests/clients/test_kafka_java.py": 24,
}


def scope(nodeid: str) -> str:
    """A file, and the audit's files together: they share a Spark session, which takes longer to
    start than most of them to run. Two workers with Spark take twice as long on two cores."""
    return "tests/audit" if nodeid.startswith("tests/audit/") else nodeid.split("::")[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: -SECONDS.get(scope(item.nodeid), 0))
    for item in items:
        if item.get_closest_marker("long") and not os.environ.get("OTTERMQ_LONG"):
            item.add_marker(pytest.mark.skip(reason="a long one: make check-all"))
        if item.get_closest_marker("soak") and not os.environ.get("OTTERMQ_SOAK"):
            item.add_marker(pytest.mark.skip(reason="a long run: make soak"))
        if item.get_closest_marker("weighed") and os.environ.get("OTTERMQ_SANITIZE"):
            item.add_marker(pytest.mark.skip(reason="memory is weighed without a sanitizer"))
        ours = item.get_closest_marker("ottermq_only")
        if ours and OTHER:
            item.add_marker(pytest.mark.skip(reason=f"not RabbitMQ 3.10: {ours.args[0]}"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class ByScope(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    config.option.loadscopereorder = False  # it would be by the number of tests
    return ByScope(config, log)


SHARED_MEMORY = Path("/dev/shm")


def in_memory() -> Path | None:
    """A file system in memory, where there is one: what kill -9 leaves behind is the page cache,
    and that is the same there, without waiting for a disk."""
    has_room = SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > 1 << 30
    return SHARED_MEMORY if has_room else None


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """Like tmp_path, in memory."""
    place = Path(tempfile.mkdtemp(prefix="ottermq-", dir=in_memory()))
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Broker"]:
    """One for all tests that only talk to it."""
    with Broker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def amqp_address(request: pytest.FixtureRequest) -> tuple[str, int]:
    """Where AMQP clients connect: our broker, unless OTTERMQ_TEST_URL names another."""
    if OTHER:
        place = urlsplit(OTHER)
        return place.hostname or "127.0.0.1", place.port or 5672
    running: Broker = request.getfixturevalue("broker")
    return running.address("amqp")


from tests.brokers import Broker  # noqa: E402  (only found by the path set above)
from tests.examples import examples  # noqa: E402
from tests.second_tries import LEDGER, QUARANTINE, SecondTries, quarantined  # noqa: E402

# A test never fails because the machine was busy.
settings.register_profile(
    "patient",
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("patient")
