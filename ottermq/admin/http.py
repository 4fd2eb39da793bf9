"""As much HTTP/1.1 as these few pages need: a request's head in, an answer out, goodbye.

One request a connection, a limit on its size and on its time. Bytes to request and request to
answer are plain functions; only `serve` touches a socket.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple

import trio

from ottermq.listeners import part

HEAD_LIMIT = 8192
PATIENCE = 5.0  # seconds for the whole request, and again for the answer

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST = re.compile(rf"({_TOKEN}) ([!-~]+) HTTP/1\.([01])")
_HEADER = re.compile(rf"({_TOKEN}):[ \t]*([\t -~\x80-\xff]*)")

HIDDEN = "/kafka/hidden"
JSON = "application/json"
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


class Pages(NamedTuple):
    """What there is to tell, whenever it is asked."""

    trouble: Callable[[], str | None]  # why durable appends aren't taken: the store's own word
    metrics: Callable[[], str]  # what is counted, in Prometheus' words
    hidden: Callable[[], list[str]]  # queues that Kafka's clients can't see
    damage: Callable[[], str | None] = lambda: None  # which records are lost or can't be read


@dataclass(frozen=True)
class Request:
    method: str
    path: str


@dataclass(frozen=True)
class Answer:
    status: HTTPStatus
    body: Mapping[str, str | list[str]] | str  # a text is sent as it is
    headers: dict[str, str] = field(default_factory=dict)

    def encode(self, with_body: bool = True) -> bytes:
        if isinstance(self.body, str):
            kind, body = EXPOSITION, self.body.encode()
        else:
            kind, body = JSON, json.dumps(self.body, separators=(",", ":")).encode()
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Connection": "close",
            **self.headers,
        }
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join(lines) + "\r\n\r\n"
        return head.encode("latin-1") + (body if with_body else b"")


class BadRequest(Exception):
    """The text tells the client what is wrong with it."""


def parse(head: bytes) -> Request:
    """A request from its head: everything before the empty line."""
    first, *rest = head.decode("latin-1").split("\r\n")
    line = _REQUEST.fullmatch(first)
    if line is None:
        raise BadRequest("not an HTTP/1.1 request line")
    method, target, minor = line.groups()
    hosts = 0
    for text in rest:
        header = _HEADER.fullmatch(text)
        if header is None:
            raise BadRequest("not a header line")
        hosts += header[1].lower() == "host"
    if hosts > 1 or (minor == "1" and hosts == 0):
        raise BadRequest("one Host header is needed")
    if not target.startswith("/"):
        raise BadRequest("the target must be a path")
    return Request(method, target.partition("?")[0])


def answer(request: Request, pages: Pages) -> Answer:
    tell = TELLERS.get(request.path)
    if tell is None:
        return Answer(HTTPStatus.NOT_FOUND, {"error": "no such page"})
    if request.method not in ("GET", "HEAD"):
        allow = {"Allow": "GET, HEAD"}
        return Answer(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "only GET and HEAD"}, allow)
    return tell(pages)


def _health(pages: Pages) -> Answer:
    if reason := pages.trouble():
        body = {"status": "refusing appends", "reason": reason}
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, body)
    if reason := pages.damage():
        body = {"status": "damaged", "reason": reason}
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, body)
    return Answer(HTTPStatus.OK, {"status": "ok"})


TELLERS: Mapping[str, Callable[[Pages], Answer]] = {
    "/health": _health,
    "/metrics": lambda pages: Answer(HTTPStatus.OK, pages.metrics()),
    HIDDEN: lambda pages: Answer(HTTPStatus.OK, {"queues": pages.hidden()}),
}


async def serve(stream: trio.abc.HalfCloseableStream, pages: Pages) -> str:
    method = ""
    with trio.move_on_after(PATIENCE) as patience:
        try:
            head = await _receive_head(stream)
            if head is None:
                return "left without a request"
            request = parse(head)
            method = request.method
            reply = answer(request, pages)
        except BadRequest as error:
            reply = Answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        except _TooLarge:
            reply = Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, {"error": "too large"})
    if patience.cancelled_caught:
        reply = Answer(HTTPStatus.REQUEST_TIMEOUT, {"error": "too slow"})
    with trio.move_on_after(PATIENCE):
        await stream.send_all(reply.encode(with_body=method != "HEAD"))
        await part(stream)
    return f"answered {reply.status.value}"


class _TooLarge(Exception):
    pass


async def _receive_head(stream: trio.abc.HalfCloseableStream) -> bytes | None:
    """None: the client left first."""
    head = bytearray()
    while (end := head.find(b"\r\n\r\n")) < 0:
        if len(head) >= HEAD_LIMIT:
            raise _TooLarge
        received = await stream.receive_some(HEAD_LIMIT)
        if not received:
            return None
        head += received
    if end > HEAD_LIMIT:
        raise _TooLarge
    return bytes(head[:end])
