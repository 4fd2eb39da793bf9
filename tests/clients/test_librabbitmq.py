"""librabbitmq: scenarios of librabbitmq.c, compiled against Debian's library, each a process."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.proxy import Address, Proxy

SOURCE = Path(__file__).with_name("librabbitmq.c")
SCENARIOS = [
    "publish_and_consume",
    "confirm",
    "returned",
    "nack_and_requeue",
    "priority",
    "dead_letters",
    "tx",
]

pytestmark = [
    pytest.mark.skipif(not shutil.which("gcc"), reason="no C compiler"),
    pytest.mark.skipif(
        not Path("/usr/include/amqp.h").exists(),
        reason="no librabbitmq-dev; .ci/clients installs it",
    ),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("librabbitmq") / "scenarios"
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, str(SOURCE), "-o", str(built), "-lrabbitmq"], check=True)
    return built


def begin(program: Path, address: Address, scenario: str) -> subprocess.Popen[str]:
    host, port = address
    return subprocess.Popen(
        [str(program), host, str(port), scenario],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> None:
    try:
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, said


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(program: Path, amqp_address: Address, scenario: str) -> None:
    finish(begin(program, amqp_address, scenario))


def test_reconnect(program: Path, proxy: Proxy) -> None:
    process = begin(program, proxy.address, "reconnect")
    assert process.stdout
    assert process.stdout.readline() == "cut\n"
    proxy.cut()
    finish(process)
