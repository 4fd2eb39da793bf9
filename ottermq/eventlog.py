"""The broker's own log: one line an event on stderr, for people and for `grep` alike.

    2026-11-16T02:13:41.123Z INFO ready amqp=localhost:5672 data=/var/lib/ottermq

An exception is one line too. Its traceback is for us, not for an operator: it follows only at
the debug level.
"""

import json
import logging
import sys
import time

LOG = logging.getLogger("ottermq")


def debug(event: str, **fields: object) -> None:
    log(logging.DEBUG, event, **fields)


def info(event: str, **fields: object) -> None:
    log(logging.INFO, event, **fields)


def warning(event: str, **fields: object) -> None:
    log(logging.WARNING, event, **fields)


def failure(event: str, error: BaseException, **fields: object) -> None:
    """Something broke that shouldn't have."""
    LOG.error("%s", _Line(event, fields), exc_info=error)


def log(level: int, event: str, **fields: object) -> None:
    LOG.log(level, "%s", _Line(event, fields))


def start(level: str) -> None:
    """Everything that logs in this process, libraries included, speaks this way from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    set_level(level)
    # When nobody reads stderr any more, the broker goes on without a log.
    logging.raiseExceptions = False


def set_level(level: str) -> None:
    LOG.setLevel(level.upper())


def cause(error: BaseException) -> BaseException:
    """What a nursery wrapped: the first error in the group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe(error: BaseException) -> str:
    error = cause(error)
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _Line:
    """Made to text only when the level asks for it."""

    def __init__(self, event: str, fields: dict[str, object]) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        fields = (f"{name}={_quoted(str(value))}" for name, value in self.fields.items())
        return " ".join((self.event, *fields))


def _quoted(value: str) -> str:
    plain = value.isprintable() and not set(' "=').intersection(value)
    return value if value and plain else json.dumps(value)


class _Formatter(logging.Formatter):
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return f"{seconds}.{int(record.msecs):03d}Z"

    def format(self, record: logging.LogRecord) -> str:
        failure = record.exc_info[1] if record.exc_info else None
        if failure is None or LOG.isEnabledFor(logging.DEBUG):
            return super().format(record)
        record.exc_info = record.exc_text = None
        return f"{super().format(record)} error={_quoted(describe(failure))}"
