"""The queue that a watch publishes to, and a watch as users run it."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pika

from ottermq.audit.watch import loop
from ottermq.audit.watch.loop import WatchRequest
from ottermq.config import Config, load
from tests.brokers import Broker, command, environment

QUEUE = "ottermq.audit.violations"
A_MINUTE = 60.0
STARTS_IN = 120.0  # Spark, on a busy machine


@dataclass(frozen=True)
class PublishedFinding:
    id: str
    kind: str
    queue: str
    properties: Any


def url_of(broker: Broker) -> str:
    return "amqp://guest:guest@{}:{}/%2F".format(*broker.address("amqp"))


def told(broker: Broker) -> list[PublishedFinding]:
    """What lies in the queue, taken out."""
    found: list[PublishedFinding] = []
    with pika.BlockingConnection(pika.URLParameters(url_of(broker))) as connection:
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True)
        while True:
            method, properties, body = channel.basic_get(QUEUE, auto_ack=True)
            if method is None:
                return found
            said = json.loads(body)
            found.append(
                PublishedFinding(properties.message_id, said["kind"], said["queue"], properties)
            )


def soon(broker: Broker) -> list[PublishedFinding]:
    deadline = time.monotonic() + A_MINUTE
    while time.monotonic() < deadline:
        if found := told(broker):
            return found
        time.sleep(0.2)
    raise AssertionError("nothing within a minute")


def once(data: Path, checkpoint: Path, url: str | None, config: Config | None = None) -> int:
    """In this process, in the session that is there. Its exit code."""
    every = timedelta(seconds=1)
    request = WatchRequest(
        data, checkpoint, "local[2]", config or load(), every, url, QUEUE, once=True
    )
    return loop.run(request)


def start_watch(
    data: Path, checkpoint: Path, url: str, *more: str, program: tuple[str, ...] = ("-m", "ottermq")
) -> "subprocess.Popen[str]":
    places = ["--data", str(data), "--checkpoint", str(checkpoint), "--master", "local[2]"]
    return subprocess.Popen(
        command(["audit", "watch", *places, "--interval", "2s", *more], program),
        env=environment({"AUDIT_PUBLISH": url}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def watching(data: Path, checkpoint: Path, url: str) -> "Iterator[subprocess.Popen[str]]":
    """One that is at work; ended by SIGTERM, unless it was killed."""
    watch = start_watch(data, checkpoint, url)
    try:
        assert watch.stderr
        assert watch.stderr.readline() == f"ottermq: watching {data}\n"
        yield watch
        if watch.poll() is None:
            watch.send_signal(signal.SIGTERM)
            assert watch.wait(STARTS_IN) == 0
            assert watch.stderr.read() == ""
    finally:
        watch.kill()
        watch.communicate()
