"""The broker's own log: one line per event on stderr, for people and for `grep`, or for machines.

    2026-11-16T02:13:41.123Z INFO ready amqp=localhost:5672 data=/var/lib/ottermq

    {"time":"2026-11-16T02:13:41.123Z","level":"INFO","event":"ready","amqp":"localhost:5672",
     "data":"/var/lib/ottermq"}

`log.format` chooses the form. An event's text is constant, its fields differ: docs/log-events.md
lists all. An exception is one line too; its traceback is for us, not for an operator: it follows
only at the debug level, in JSON as a field.
"""

import json
import logging
import math
import sys
import time
import traceback

LOG = logging.getLogger("ottermq")
TEXT, JSON = "text", "json"


def debug(event: str, **fields: object) -> None:
    log(logging.DEBUG, event, **fields)


def info(event: str, **fields: object) -> None:
    log(logging.INFO, event, **fields)


def warning(event: str, **fields: object) -> None:
    log(logging.WARNING, event, **fields)


def failure(event: str, error: BaseException, **fields: object) -> None:
    """Something broke that shouldn't have."""
    LOG.error("%s", _Line(event, fields), exc_info=error)


def trace(event: str, error: BaseException) -> None:
    """The traceback of an error that is reported elsewhere, at the debug level."""
    LOG.debug("%s", _Line(event, {}), exc_info=error)


def log(level: int, event: str, **fields: object) -> None:
    LOG.log(level, "%s", _Line(event, fields))


def fatal(reason: str, error: BaseException | None = None) -> None:
    """Why the process ends; the log may not have been started yet. error: what should not have
    happened."""
    unexpected = error is not None and LOG.isEnabledFor(logging.DEBUG)
    trace = "".join(traceback.format_exception(error)) if unexpected else ""
    if is_json():
        fields: dict[str, object] = {"error": reason}
        if trace:
            fields["traceback"] = trace
        text = _json_line(time.time(), "ERROR", "broker failed", fields)
    else:
        text = f"{trace}ottermq: {reason}"
    print(text, file=sys.stderr)


def start(level: str, format: str = TEXT) -> None:
    """Everything that logs in this process, libraries included, speaks this way from now on."""
    handler = logging.StreamHandler(sys.stderr)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
    sys.unraisablehook = _unraisable
    set_level(level)
    set_format(format)
    # When stderr has no reader any more, the broker goes on without a log.
    logging.raiseExceptions = False


def set_level(level: str) -> None:
    LOG.setLevel(level.upper())


def set_format(format: str) -> None:
    global _formatter
    _formatter = _JsonFormatter() if format == JSON else _TextFormatter()
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_formatter)


def is_json() -> bool:
    return isinstance(_formatter, _JsonFormatter)


def cause(error: BaseException) -> BaseException:
    """What a nursery wrapped: the first error in the group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe(error: BaseException) -> str:
    error = cause(error)
    text = _on_one_line(str(error))
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


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _unraisable(problem: "sys.UnraisableHookArgs") -> None:
    """An exception in a destructor or a callback of C, which Python would print by itself."""
    error = problem.exc_value or problem.exc_type()
    failure("exception ignored", error, where=_on_one_line(repr(problem.object)))


def _line_of(record: logging.LogRecord) -> _Line | None:
    """None: a library's own record."""
    first = record.args[0] if isinstance(record.args, tuple) and record.args else None
    return first if isinstance(first, _Line) else None


def _stamp(created: float) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))
    return f"{seconds}.{int(created * 1000) % 1000:03d}Z"


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said = record.getMessage()
        said = said if _line_of(record) else _on_one_line(said)  # a warning of Python's has two
        line = f"{_stamp(record.created)} {record.levelname} {said}"
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return line
        if LOG.isEnabledFor(logging.DEBUG):
            return f"{line}\n{''.join(traceback.format_exception(error)).rstrip()}"
        return f"{line} error={_quoted(describe(error))}"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = _line_of(record) or _Line(record.getMessage(), {"logger": record.name})
        fields = dict(line.fields)
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields.setdefault("error", describe(error))
            if LOG.isEnabledFor(logging.DEBUG):
                fields["traceback"] = "".join(traceback.format_exception(error))
        return _json_line(record.created, record.levelname, line.event, fields)


def _json_line(created: float, level: str, event: str, fields: dict[str, object]) -> str:
    head = {"time": _stamp(created), "level": level, "event": event}
    values = {name: _plain(value) for name, value in fields.items() if name not in head}
    return json.dumps(head | values, separators=(",", ":"))


def _plain(value: object) -> object:
    """A number stays one; whatever else it is stands as the text that it has in a line of text."""
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


_formatter: logging.Formatter = _TextFormatter()
