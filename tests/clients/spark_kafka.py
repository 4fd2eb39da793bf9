"""Spark and its own Kafka connector, in a process of their own, asked by lines of JSON.

The connector is Apache's `spark-sql-kafka-0-10` with all it needs, as Maven brings it, and PySpark
is of the same version: not the one that audits run on, whose connector can't be had. Both are
fetched by `python -m tests.clients.spark_kafka` (.ci/clients --java), 450 MB, to build/spark-kafka.
"""

import json
import os
import subprocess
import sys
import time
import venv
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from ottermq.audit.java import java_home

VERSION = "4.0.0"  # the newest whose parts all come by Maven
HOME = Path(__file__).resolve().parents[2] / "build" / "spark-kafka"
JARS = HOME / "jars"
PYTHON = HOME / "venv" / "bin" / "python"
FETCHED = HOME / VERSION  # is there when all of it is
PROGRAM = Path(__file__).with_name("spark_kafka_program.py")
PATIENCE = 180.0
POM = f"""<project><modelVersion>4.0.0</modelVersion>
<groupId>ottermq</groupId><artifactId>spark-kafka</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId>
<version>{VERSION}</version>
<exclusions>
<exclusion><groupId>org.apache.hadoop</groupId><artifactId>*</artifactId></exclusion>
<exclusion><groupId>org.scala-lang</groupId><artifactId>*</artifactId></exclusion>
<exclusion><groupId>org.slf4j</groupId><artifactId>*</artifactId></exclusion>
</exclusions></dependency>
</dependencies></project>"""

Row = dict[str, Any]


class Spark:
    """`with Spark(folder) as spark`: a session on two cores."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "spark.log"
        self._process: subprocess.Popen[str] | None = None
        self._ending = ExitStack()

    def __enter__(self) -> "Spark":
        words: IO[bytes] = self._ending.enter_context(open(self._log, "wb"))
        jars = ",".join(map(str, sorted(JARS.glob("*.jar"))))
        self._process = subprocess.Popen(
            [PYTHON, PROGRAM, jars],
            env={
                **os.environ,
                "JAVA_HOME": str(java_home()),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": str(PYTHON),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            text=True,
        )
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process and self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._ending.close()

    def read(self, **options: str) -> list[Row]:
        return list(self._ask("read", options=options))

    def write(self, rows: list[Row], **options: str) -> None:
        self._ask("write", rows=rows, options=options)

    def news(self, checkpoint: Path, **options: str) -> list[Row]:
        """What a stream finds that wasn't there when its checkpoint was written."""
        return list(self._ask("news", checkpoint=str(checkpoint), options=options))

    def copy(self, checkpoint: Path, source: dict[str, str], sink: dict[str, str]) -> None:
        """A stream from topic to topic, as far as there is something."""
        self._ask("copy", checkpoint=str(checkpoint), options=source, sink=sink)

    def follow(self, checkpoint: Path, **options: str) -> None:
        """A stream that goes on; `seen` tells how far it is."""
        self._ask("follow", checkpoint=str(checkpoint), options=options)

    def seen(self, count: int) -> list[Row]:
        """By the stream that goes on, as soon as there are so many."""
        patience = time.monotonic() + PATIENCE
        while len(rows := self._ask("seen")) < count and time.monotonic() < patience:
            time.sleep(0.5)
        return list(rows)

    def leave(self) -> None:
        """Ends the stream that goes on."""
        self._ask("leave")

    def _ask(self, do: str, **more: Any) -> Any:
        assert self._process and self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(self._log.read_text(errors="replace")[-3000:])
        answer = json.loads(line)
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["result"]


def fetch() -> str:
    """What could not be had; empty: all is there."""
    if FETCHED.exists():
        return ""
    HOME.mkdir(parents=True, exist_ok=True)
    (HOME / "pom.xml").write_text(POM)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={JARS}"]
    by_maven = subprocess.run(["mvn", "-q", "-B", *goal], cwd=HOME, capture_output=True)
    if by_maven.returncode:
        return "Maven could not fetch Spark's Kafka connector"
    venv.create(PYTHON.parent.parent, with_pip=True)
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    if subprocess.run([*pip, f"pyspark=={VERSION}"], capture_output=True).returncode:
        return f"pip could not fetch PySpark {VERSION}"
    FETCHED.touch()
    return ""


if __name__ == "__main__":
    sys.exit(fetch() or None)
