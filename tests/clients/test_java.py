"""The Java client: Scenarios.java, compiled against the jar that Maven brought (.ci/clients)."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.conftest import BUILD
from tests.clients.proxy import Proxy

SOURCE = Path(__file__).with_name("Scenarios.java")
JARS = BUILD / "java"

SCENARIOS = [
    "publish and consume",
    "confirm",
    "return",
    "nack and requeue",
    "priority",
    "dead letters",
    "tx",
    "errors",
    "direct reply-to",
    "stream",
    "reconnect",
]


@pytest.mark.java
@pytest.mark.skipif(not shutil.which("javac"), reason="no JDK; .ci/clients --java installs it")
@pytest.mark.skipif(
    not list(JARS.glob("amqp-client-*.jar")),
    reason="no amqp-client; .ci/clients --java fetches it, if Maven can be reached",
)
def test_the_java_client(proxy: Proxy, tmp_path: Path) -> None:
    jars = ":".join(map(str, JARS.glob("*.jar")))
    subprocess.run(
        ["javac", "-nowarn", "-cp", jars, "-d", str(tmp_path), str(SOURCE)], check=True, timeout=120
    )
    host, port = proxy.address
    process = subprocess.Popen(
        ["java", "-cp", f"{tmp_path}:{jars}", "Scenarios", f"amqp://guest:guest@{host}:{port}/%2F"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said: list[str] = []
    try:
        assert process.stdout
        for line in process.stdout:
            said.append(line.strip())
            if said[-1] == "cut":
                proxy.cut()
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, "\n".join(said)
    assert [line.removesuffix(" ok") for line in said if line.endswith(" ok")] == SCENARIOS
