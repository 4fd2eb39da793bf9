"""amqplib (npm): scenarios of amqplib.js, each a Node process."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.conftest import BUILD
from tests.clients.proxy import Proxy

SCRIPT = Path(__file__).with_name("amqplib.js")
MODULES = BUILD / "node" / "node_modules"

SCENARIOS = [
    "publishAndConsume",
    "headers",
    "confirm",
    "returned",
    "nackAndRequeue",
    "priority",
    "deadLetters",
    "tx",
    "errors",
    "cancelled",
]

pytestmark = [
    pytest.mark.skipif(not shutil.which("node"), reason="no Node.js; .ci/clients installs it"),
    pytest.mark.skipif(
        not (MODULES / "amqplib").exists(), reason="no amqplib; .ci/clients fetches it from npm"
    ),
]


def node(url: str, scenario: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["node", str(SCRIPT), url, scenario],
        env={**os.environ, "NODE_PATH": str(MODULES)},
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
def test_scenario(url: str, scenario: str) -> None:
    finish(node(url, scenario))


def test_reconnect(proxy: Proxy) -> None:
    host, port = proxy.address
    process = node(f"amqp://guest:guest@{host}:{port}/", "reconnect")
    assert process.stdout
    assert process.stdout.readline() == "cut\n"
    proxy.cut()
    finish(process)


def test_no_scenario_is_forgotten() -> None:
    named = finish_list()
    assert sorted(named) == sorted([*SCENARIOS, "reconnect"])


def finish_list() -> list[str]:
    process = node("amqp://unused", "list")
    said, _ = process.communicate(timeout=60)
    return said.split()
