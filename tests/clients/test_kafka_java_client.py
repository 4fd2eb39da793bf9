"""Apache Kafka's Java client: KafkaScenarios.java, compiled against the jars that Maven brought.

The same scenarios pass on Apache Kafka itself: `python -m tests.clients.test_kafka_java_client`.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from perf.apache_kafka import JARS, ApacheKafka, is_fetched

SOURCE = Path(__file__).with_name("KafkaScenarios.java")
SCENARIOS = [
    "topics",
    "produce and consume",
    "codecs",
    "offsets",
    "configs",
    "group",
    "transactions",
    "exactly once",
    "fencing",
]


def play(bootstrap: str, classes: Path, *only: str) -> tuple[int, list[str]]:
    """How the program ended, and what it said."""
    jars = f"{JARS}/*"
    compiled = ["javac", "-nowarn", "-cp", jars, "-d", str(classes), str(SOURCE)]
    subprocess.run(compiled, check=True, timeout=180)
    done = subprocess.run(
        ["java", "-cp", f"{classes}:{jars}", "KafkaScenarios", bootstrap, *only],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    return done.returncode, done.stdout.splitlines()


@pytest.mark.java
@pytest.mark.skipif(not shutil.which("javac"), reason="no JDK; .ci/clients --java installs it")
@pytest.mark.skipif(
    not is_fetched(), reason="no Kafka jars; .ci/clients --java fetches them, if Maven answers"
)
def test_the_java_client(kafka: str, tmp_path: Path) -> None:
    code, said = play(kafka, tmp_path)
    assert code == 0, "\n".join(said)
    assert [line.removesuffix(" ok") for line in said if line.endswith(" ok")] == SCENARIOS


def on_apache_kafka() -> None:
    with tempfile.TemporaryDirectory() as folder:
        with ApacheKafka(Path(folder) / "kafka") as kafka:
            host, port = kafka.address
            _, said = play(f"{host}:{port}", Path(folder))
    print("\n".join(said))


if __name__ == "__main__":
    on_apache_kafka()
