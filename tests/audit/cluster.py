"""A Spark standalone cluster on loopback: a master and two workers, processes of their own."""

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pyspark

from ottermq.audit.java import java_home

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
PATIENCE = 300.0
WORKERS = 2
MASTER_READY = r"Starting Spark master at (spark://\S+)"
WORKER_READY = r"Successfully registered with master"


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self._running = ExitStack()

    def __enter__(self) -> "Cluster":
        try:
            self.url = _wait(*self._start("master"), MASTER_READY)
            workers = [self._start("worker", str(number)) for number in range(WORKERS)]
            for worker in workers:
                _wait(*worker, WORKER_READY)
        except BaseException:
            self._running.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._running.close()

    def _start(self, kind: str, number: str = "") -> tuple["subprocess.Popen[bytes]", Path]:
        log = self.folder / f"{kind}{number}.log"
        arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        if kind == "worker":
            work = str(self.folder / f"work{number}")
            arguments += ["--cores", "1", "--memory", "1g", "--work-dir", work, self.url]
        with open(log, "wb") as words:
            process = subprocess.Popen(
                # With us gone, however suddenly, it goes too, and its executors after it.
                ["setpriv", "--pdeathsig", "TERM", str(SPARK_CLASS)]
                + [f"org.apache.spark.deploy.{kind}.{kind.title()}", *arguments],
                env={
                    **os.environ,
                    "JAVA_HOME": str(java_home()),
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_DAEMON_MEMORY": "256m",
                },
                stdout=words,
                stderr=words,
            )
        self._running.callback(_end, process)
        return process, log


def _wait(process: "subprocess.Popen[bytes]", log: Path, ready: str) -> str:
    """Until it says that it is ready; what the pattern's last group found."""
    patience = time.monotonic() + PATIENCE
    while time.monotonic() < patience and process.poll() is None:
        if found := re.search(ready, log.read_text(errors="replace")):
            return found[found.lastindex or 0]
        time.sleep(0.1)
    raise AssertionError(f"not ready: {log.read_text(errors='replace')[-2000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
