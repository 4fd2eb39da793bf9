"""The log: one line an event, whatever happens."""

import logging
import re
from collections.abc import Iterator

import pytest

from ottermq import eventlog


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str]) -> Iterator[pytest.CaptureFixture[str]]:
    root = logging.getLogger()
    handlers, level, raising = list(root.handlers), root.level, logging.raiseExceptions
    yield capsys
    root.handlers[:] = handlers
    root.setLevel(level)
    eventlog.LOG.setLevel(logging.NOTSET)
    logging.raiseExceptions = raising


def test_an_event_is_a_time_a_level_a_name_and_its_fields(
    log: pytest.CaptureFixture[str],
) -> None:
    eventlog.start("info")
    eventlog.info("ready", amqp="127.0.0.1:5672", data="/srv/my data", empty="")
    eventlog.debug("not shown")
    line = log.readouterr().err
    assert re.fullmatch(
        r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO"
        r' ready amqp=127\.0\.0\.1:5672 data="/srv/my data" empty=""\n',
        line,
    )


def test_a_value_cannot_start_a_line_of_its_own(log: pytest.CaptureFixture[str]) -> None:
    eventlog.start("info")
    eventlog.info("closed", reason='x\n2026 INFO ready "y"\u2028')
    assert log.readouterr().err.endswith(r'reason="x\n2026 INFO ready \"y\"\u2028"' + "\n")


def test_a_failure_is_one_line(log: pytest.CaptureFixture[str]) -> None:
    eventlog.start("info")
    eventlog.failure("failed", ExceptionGroup("g", [ValueError("a\nb")]), listener="amqp")
    line = log.readouterr().err
    assert line.endswith(' ERROR failed listener=amqp error="ValueError: a b"\n')
    assert line.count("\n") == 1


def test_a_librarys_failure_is_one_line_too(log: pytest.CaptureFixture[str]) -> None:
    eventlog.start("info")
    try:
        raise OSError("too many open files")
    except OSError:
        logging.getLogger("trio.serve_listeners").error("accept failed", exc_info=True)
    line = log.readouterr().err
    assert line.endswith(' ERROR accept failed error="OSError: too many open files"\n')


def test_the_debug_level_shows_the_traceback(log: pytest.CaptureFixture[str]) -> None:
    eventlog.start("debug")
    eventlog.failure("failed", ValueError("x"))
    assert "ValueError: x" in log.readouterr().err.splitlines()[-1]
