"""kafkajs (npm): scenarios of kafkajs.js, each a Node process."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.conftest import BUILD

SCRIPT = Path(__file__).with_name("kafkajs.js")
MODULES = BUILD / "node" / "node_modules"

pytestmark = [
    pytest.mark.skipif(not shutil.which("node"), reason="no Node.js; .ci/clients installs it"),
    pytest.mark.skipif(
        not (MODULES / "kafkajs").exists(), reason="no kafkajs; .ci/clients fetches it from npm"
    ),
]


@pytest.mark.parametrize("scenario", ["admin", "acks", "group"])
def test_scenario(kafka: str, unique: Callable[[str], str], scenario: str) -> None:
    done = subprocess.run(
        ["node", str(SCRIPT), kafka, scenario, unique("js")],
        env={**os.environ, "NODE_PATH": str(MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
