"""A request of the admin port, an answer, and what is wrong with a request."""

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

JSON = "application/json"
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
REALM = 'Basic realm="RabbitMQ Management", charset="UTF-8"'

# The `error` beside a reason, in RabbitMQ's words where it has one.
ERRORS = {
    HTTPStatus.BAD_REQUEST: "bad_request",
    HTTPStatus.UNAUTHORIZED: "not_authorised",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.NOT_FOUND: "Object Not Found",
    HTTPStatus.METHOD_NOT_ALLOWED: "Method Not Allowed",
}


@dataclass(frozen=True)
class Request:
    method: str
    path: str  # as it was sent, without the query
    query: str
    headers: Mapping[str, str]  # by names in lower case
    peer: str  # the client's address
    read_body: Callable[[int], Awaitable[bytes]]  # of at most so many bytes; Problem: no body

    def header(self, name: str) -> str | None:
        return self.headers.get(name)

    def fields(self) -> dict[str, str]:
        """Of the query. A field that comes twice counts as it came first."""
        try:
            found = parse_qs(
                self.query, keep_blank_values=True, errors="strict", max_num_fields=100
            )
        except ValueError:
            raise Problem(HTTPStatus.BAD_REQUEST, "the query can't be read") from None
        return {name: values[0] for name, values in found.items()}


@dataclass(frozen=True)
class Answer:
    status: HTTPStatus = HTTPStatus.OK
    body: Any = None  # a text or bytes are sent as they are, all else as JSON; None: no body
    headers: Mapping[str, str] = field(default_factory=dict)

    def encoded(self) -> tuple[str | None, bytes]:
        """Its kind and its bytes."""
        match self.body:
            case None:
                return None, b""
            case bytes():
                return JSON, self.body
            case str():
                return EXPOSITION, self.body.encode()
            case _:
                return JSON, as_json(self.body)


class Problem(Exception):
    """What is wrong with a request: the client gets the status and the text."""

    def __init__(
        self, status: HTTPStatus, reason: str, *, error: str = "", headers: Mapping[str, str] = {}
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.error = error or ERRORS.get(status, status.phrase.lower().replace(" ", "_"))
        self.headers = headers

    def answer(self) -> Answer:
        return Answer(self.status, {"error": self.error, "reason": str(self)}, self.headers)


def unauthorized(reason: str, error: str = "not_authorised") -> Problem:
    headers = {"WWW-Authenticate": REALM}
    return Problem(HTTPStatus.UNAUTHORIZED, reason, error=error, headers=headers)


def as_json(value: object) -> bytes:
    try:
        return _dumped(value)
    except ValueError:
        return _dumped(_finite(value))


def _dumped(value: object) -> bytes:
    text = json.dumps(value, default=_plain, separators=(",", ":"), allow_nan=False)
    return text.encode()


def _finite(value: Any) -> Any:
    """A client's arguments may hold numbers that JSON has no word for."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case Decimal():
            return float(value) if value.is_finite() else None
        case _:
            return value


def _plain(value: object) -> object:
    """Values of field tables that JSON has no type for."""
    match value:
        case bytes() | bytearray():
            return value.decode("utf-8", "replace")
        case datetime():
            return int(value.timestamp())
        case Decimal():
            return float(value)
        case _:
            raise TypeError(f"no JSON: {value!r}")
