"""log.format: json. One object per line, whatever happens; nothing else comes by stderr."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import brokers
from tests.amqp.wire import Client, Refused
from tests.brokers import PATIENCE, Broker

AS_JSON = {"OTTERMQ_LOG__FORMAT": "json"}
READY = r'"event":"ready"'
HEAD = ["time", "level", "event"]
Line = dict[str, Any]


def read(lines: list[str]) -> list[Line]:
    """All of them, each held to what is promised."""
    found = [json.loads(line) for line in lines]
    for line in found:
        assert list(line)[:3] == HEAD, line
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert line["level"] in ("DEBUG", "INFO", "WARNING", "ERROR")
    return found


def only(lines: list[Line], event: str) -> Line:
    [line] = [line for line in lines if line["event"] == event]
    return line


class JsonBroker:
    def __init__(self, data: Path, *arguments: str, **env: str) -> None:
        self.broker = Broker(data, *arguments, env={**AS_JSON, **env})
        self.broker.wait_for(READY)

    @property
    def lines(self) -> list[Line]:
        return read(list(self.broker.lines))

    def address(self, listener: str) -> tuple[str, int]:
        host, _, port = only(self.lines, "ready")[listener].rpartition(":")
        return host, int(port)

    def hung_up_on(self, listener: str, hello: bytes) -> None:
        with socket.create_connection(self.address(listener), timeout=PATIENCE) as sock:
            sock.sendall(hello)
            while sock.recv(1000):
                pass


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[JsonBroker]:
    running = JsonBroker(tmp_path / "data", OTTERMQ_LOG__LEVEL="debug")
    yield running
    running.broker.stop()


def test_a_life_is_told_in_objects_with_the_fields_of_the_text(broker: JsonBroker) -> None:
    with Client(broker.address("amqp")) as client:
        channel = client.channel()
        channel.declare('odd "name"\u2028', durable=True)
        channel.publish(b"x", key="jobs")
        with pytest.raises(Refused):
            channel.look("none")
    with pytest.raises(Refused):
        Client(broker.address("amqp"), password="hunter2")
    broker.hung_up_on("amqp", b"GET / HTTP/1.1\r\n\r\n")
    broker.hung_up_on("kafka", b"12345678")
    broker.broker.wait_for('"event":"connection rejected","listener":"kafka"')
    assert broker.broker.stop() == 0
    lines = broker.lines
    assert [line["event"] for line in lines[-2:]] == ["stopping", "stopped"]
    assert only(lines, "recovered")["logs"] >= 0 and "replayed" in only(lines, "recovered")
    acts = {line["act"]: line["what"] for line in lines if line["event"] == "audit"}
    assert acts == {"user.create": "guest", "queue.declare": 'odd "name"\u2028'}
    assert only(lines, "channel closed")["channel"] == 1
    assert only(lines, "login refused")["mechanism"] == "PLAIN"
    rejected = [line for line in lines if line["event"] == "connection rejected"]
    assert {line["reason"] for line in rejected} == {"wrong protocol"}
    assert "hunter2" not in "".join(broker.broker.lines)


def test_a_reload_changes_the_format(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("log: {format: text}\n")
    with Broker(tmp_path / "data", "--config", str(file)) as broker:
        file.write_text("log: {format: json}\n")
        broker.process.send_signal(signal.SIGHUP)
        broker.wait_for('"event":"audit","act":"config.reload".*"what":"log.format"')
        before = len(broker.lines)
        file.write_text("lag: {}\n")
        broker.process.send_signal(signal.SIGHUP)
        broker.wait_for('"event":"configuration not reloaded","reason":')
        assert broker.stop() == 0
        assert [line["event"] for line in read(broker.lines[before:])][-1] == "stopped"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("log: {format: json}\namqp: {heartbeet: 7s}\n", "amqp.heartbeet = 7s: no such key"),
        ("log:\n  format: 'json'\nwal: [\n", "not YAML"),
        ('"log":\n  "format": "json"\ndata: /dev/null/x\n', "data directory /dev/null/x"),
    ],
)
def test_a_mistake_in_the_file_that_asks_for_json_is_told_in_json(
    tmp_path: Path, text: str, error: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    done = brokers.run("serve", "--config", str(file))
    assert done.returncode != 0
    [line] = read(done.stderr.splitlines())
    assert (line["event"], line["level"]) == ("broker failed", "ERROR")
    assert error in line["error"]


@pytest.mark.parametrize("flags", [("--amqp", "nowhere"), ("--dta", "x"), ("--config",)])
def test_a_wrong_command_line_is_told_in_json_where_the_environment_asks_for_it(
    flags: tuple[str, ...],
) -> None:
    done = brokers.run("serve", *flags, env=AS_JSON)
    assert done.returncode == 2
    assert [line["event"] for line in read(done.stderr.splitlines())] == ["broker failed"]


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("log: {format: json, level: loud}\n")
    done = brokers.run("serve", "--config", str(file), env={"OTTERMQ_LOG__FORMAT": "text"})
    assert done.stderr.startswith(f"ottermq: {file}:1: log.level = loud")
    file.write_text("log: {level: loud}  # not format: json\n")
    done = brokers.run("serve", "--config", str(file))
    assert done.stderr.startswith("ottermq: ")


def test_a_start_that_is_refused_is_told_in_json(broker: JsonBroker) -> None:
    second = brokers.run("serve", "--data", str(broker.broker.data), env=AS_JSON)
    assert second.returncode == 1
    [line] = read(second.stderr.splitlines())
    assert "in use by the broker with pid" in line["error"]


ODD_ONES = """
import logging, warnings
from ottermq import auditlog, eventlog

class Broken:
    def __del__(self):
        raise RuntimeError("as it goes")

eventlog.start({level!r}, {format!r})
eventlog.info("ready", count=3, share=0.5, ok=True, none=None, nan=float("nan"), time="mine")
auditlog.record("a.b", user=None, peer="p", what="x" * 5000, partitions=7)
logging.getLogger("trio").warning("%d sockets\\nare open", 3)
warnings.warn("an old\\nway", DeprecationWarning)
Broken()
try:
    raise ValueError("two\\nlines")
except ValueError as error:
    eventlog.failure("broke", ExceptionGroup("g", [error]), peer="p")
    logging.getLogger("trio").exception("accept failed")
"""


def odd_ones(level: str, format: str) -> list[str]:
    program = ODD_ONES.format(level=level, format=format)
    done = subprocess.run(
        [sys.executable, "-P", "-W", "always", "-c", program],
        capture_output=True, text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    return done.stderr.splitlines()


@pytest.mark.parametrize("level", ["info", "debug"])
def test_libraries_warnings_and_tracebacks_are_objects_too(level: str) -> None:
    plain, audit, library, warning, ignored, failure, theirs = read(odd_ones(level, "json"))
    assert list(plain.values())[3:] == [3, 0.5, True, "None", "nan"]
    assert plain["time"].startswith("20"), "a field can't take the place of the head's"
    assert audit["partitions"] == 7 and len(audit["what"]) < 300
    assert (library["event"], library["logger"]) == ("3 sockets\nare open", "trio")
    assert warning["logger"] == "py.warnings" and "DeprecationWarning" in warning["event"]
    assert ignored["event"] == "exception ignored"
    assert ignored["error"] == "RuntimeError: as it goes" and "Broken" in ignored["where"]
    assert (failure["error"], failure["peer"]) == ("ValueError: two lines", "p")
    for line in (ignored, failure, theirs):
        assert ("traceback" in line) == (level == "debug")
        assert level != "debug" or "Traceback (most recent call last)" in line["traceback"]


def test_as_text_they_are_one_line_each() -> None:
    assert len(odd_ones("info", "text")) == 7
