"""Celery: a real worker process, tasks sent to it, results by rpc://."""

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.proxy import Address, Proxy

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
# -P and the checkout last: `import amqp` must find py-amqp, not our folder of that name.
WORKER = f"""
import sys
sys.path.append({str(ROOT)!r})
from tests.clients.celery_app import app
app.worker_main(["worker", "--pool", "solo", "--loglevel", "info", "--hostname", "w@localhost"])
"""


class Worker:
    """Celery's worker behind a wire that can be cut, and the application to talk to it."""

    def __init__(self, address: Address) -> None:
        self.proxy = Proxy(address)
        queue = f"celery-{uuid.uuid4().hex[:12]}"
        self.environment = {"OTTERS_QUEUE": queue}
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", WORKER],
            env={**os.environ, **self.environment, "OTTERS_BROKER": self.url(self.proxy.address)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    @staticmethod
    def url(address: Address) -> str:
        return f"amqp://guest:guest@{address[0]}:{address[1]}//"

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line)

    def wait_for(self, words: str, times: int = 1) -> None:
        limit = time.monotonic() + PATIENCE
        while sum(words in line for line in self.lines) < times:
            assert time.monotonic() < limit and self.process.poll() is None, "".join(self.lines)
            time.sleep(0.05)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            self.proxy.close()


@pytest.fixture(scope="module")
def worker(amqp_address: Address) -> Iterator[Worker]:
    running = Worker(amqp_address)
    try:
        running.wait_for("ready.")
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def tasks(worker: Worker, amqp_address: Address) -> Any:
    os.environ.update(worker.environment, OTTERS_BROKER=Worker.url(amqp_address))
    from tests.clients import celery_app

    return celery_app


def test_a_task_gives_its_result(tasks: Any) -> None:
    assert tasks.add.delay(2, 3).get(timeout=PATIENCE) == 5


def test_many_tasks_give_their_results(tasks: Any) -> None:
    from celery import group

    results = group(tasks.add.s(number, number) for number in range(20)).apply_async()
    assert results.get(timeout=PATIENCE) == [2 * number for number in range(20)]


def test_a_task_is_retried(tasks: Any) -> None:
    assert tasks.stumble.delay(2).get(timeout=PATIENCE) == 2


def test_a_task_waits_for_its_countdown(tasks: Any) -> None:
    started = time.monotonic()
    assert tasks.add.apply_async((1, 1), countdown=0.5).get(timeout=PATIENCE) == 2
    assert time.monotonic() - started > 0.4


def test_an_error_comes_back(tasks: Any) -> None:
    with pytest.raises(ValueError, match="as asked"):
        tasks.fail.delay().get(timeout=PATIENCE)


def test_a_task_may_have_a_priority(tasks: Any) -> None:
    assert tasks.add.apply_async((1, 2), priority=5).get(timeout=PATIENCE) == 3


def test_a_rejected_task_is_dead_lettered(tasks: Any) -> None:
    with tasks.app.connection_for_write() as connection:
        dead = connection.SimpleQueue(tasks.DEAD)
        sent = tasks.refuse.delay()
        message = dead.get(timeout=PATIENCE)
        message.ack()
        dead.close()
    assert message.headers["id"] == sent.id
    (death,) = message.headers["x-death"]
    assert (death["reason"], death["queue"]) == ("rejected", tasks.NAME)


def test_the_worker_answers_remote_control(tasks: Any) -> None:
    assert tasks.app.control.broadcast("ping", reply=True, limit=1, timeout=PATIENCE)


def test_the_worker_comes_back_after_a_lost_connection(tasks: Any, worker: Worker) -> None:
    seen = sum("Connected to" in line for line in worker.lines)
    worker.proxy.cut()
    worker.wait_for("Connected to", seen + 1)
    assert tasks.add.delay(20, 1).get(timeout=PATIENCE) == 21
