"""As much HTTP/1.1 as these few pages need: a request's head in, an answer out, goodbye.

One request per connection, a limit on its size and on its time. Bytes to request is a plain
function; only `serve` touches a socket. Access checks are guard.py's.
"""

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from http import HTTPStatus
from typing import NamedTuple

import trio

from ottermq import auditlog
from ottermq.admin.guard import Guard
from ottermq.admin.paths import HIDDEN, UNFENCE
from ottermq.admin.waiting import Waiting
from ottermq.errors import AccessRefused, LoginRefused
from ottermq.net import close_reasons
from ottermq.net.listeners import Service, part
from ottermq.wal import LogError, Store

HEAD_LIMIT = 8192
PATIENCE = 5.0  # seconds for the whole request, for a login, and again for the answer
MOST_WAITING = 100  # connections whose client is to say something
MOST = MOST_WAITING + 50  # connections, with those that are being answered

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST = re.compile(rf"({_TOKEN}) ([!-~]+) HTTP/1\.([01])")
_HEADER = re.compile(rf"({_TOKEN}):[ \t]*([\t -~\x80-\xff]*)")

HEALTH = "/health"
JSON = "application/json"
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


class Pages(NamedTuple):
    """The sources of the pages, called for each request."""

    trouble: Callable[[], str | None]  # why durable appends aren't taken: the store's own word
    metrics: Callable[[bool], str]  # what is counted, in Prometheus' words; with names?
    hidden: Callable[[], list[str]]  # queues that Kafka's clients can't see
    unfence: Callable[[], Awaitable[None]]  # LogError: the log can't be written, or isn't fenced
    damage: Callable[[], str | None] = lambda: None  # which records are lost or can't be read
    hindrance: Callable[[], str | None] = lambda: None  # why what was taken can't be written

    @classmethod
    def of(
        cls, store: Store, metrics: Callable[[bool], str], hidden: Callable[[], list[str]]
    ) -> "Pages":
        unfence = partial(trio.to_thread.run_sync, store.unfence)
        return cls(
            store.trouble, metrics, hidden, unfence, lambda: store.damage.reason, store.hindrance
        )


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    host: str | None = None
    authorization: str | None = None
    origin: str | None = None  # a page in a browser asks


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
    found: dict[str, list[str]] = {"host": [], "authorization": [], "origin": []}
    for text in rest:
        header = _HEADER.fullmatch(text)
        if header is None:
            raise BadRequest("not a header line")
        found.get(header[1].lower(), []).append(header[2].strip())
    hosts, logins, origins = found.values()
    if len(hosts) > 1 or (minor == "1" and not hosts):
        raise BadRequest("one Host header is needed")
    if len(logins) > 1:
        raise BadRequest("one Authorization header is enough")
    if not target.startswith("/"):
        raise BadRequest("the target must be a path")
    more = (each[0] if each else None for each in (hosts, logins, origins))
    return Request(method, target.partition("?")[0], *more)


async def answer(
    request: Request, page: "Page | Act | None", pages: Pages, guard: Guard, peer: str
) -> Answer:
    if page is None:
        return Answer(HTTPStatus.NOT_FOUND, {"error": "no such page"})
    if page.checks_host and not guard.knows(request.host):
        why = {"error": "the Host header isn't a name of this broker: see admin.hosts"}
        return Answer(HTTPStatus.MISDIRECTED_REQUEST, why)
    if request.method not in page.methods:
        allow = {"Allow": ", ".join(page.methods)}
        error = f"only {' and '.join(page.methods)}"
        return Answer(HTTPStatus.METHOD_NOT_ALLOWED, {"error": error}, allow)
    try:
        if isinstance(page, Act):
            return await _act(request, page, pages, guard, peer)
        with_names = False
        if page.names is not Names.NONE:
            with_names = await guard.allows_names(request.authorization, peer)
        if page.names is Names.ONLY and not with_names:
            return _unauthorized("a login is needed: a user with the tag monitoring")
        return page.tell(pages, with_names)
    except LoginRefused:
        return _unauthorized("wrong name or password")
    except AccessRefused as error:
        return Answer(HTTPStatus.FORBIDDEN, {"error": str(error)})


async def _act(request: Request, page: "Act", pages: Pages, guard: Guard, peer: str) -> Answer:
    """Log who acts. A page in a browser is refused: it may use somebody else's login."""
    if request.origin is not None:
        return Answer(HTTPStatus.FORBIDDEN, {"error": "not from a page in a browser"})
    if request.authorization is None:
        return _unauthorized("a login is needed: a user with the tag administrator")
    user = await guard.administrator(request.authorization, peer)
    result, reply = auditlog.OK, Answer(HTTPStatus.OK, {"status": "ok"})
    try:
        await page.do(pages)
    except LogError as error:
        result, reply = str(error), Answer(HTTPStatus.CONFLICT, {"error": str(error)})
    auditlog.record(page.name, user=user, peer=peer, what="the log", result=result)
    return reply


def _unauthorized(why: str) -> Answer:
    challenge = {"WWW-Authenticate": 'Basic realm="ottermq", charset="UTF-8"'}
    return Answer(HTTPStatus.UNAUTHORIZED, {"error": why}, challenge)


def _health(pages: Pages, with_names: bool) -> Answer:
    if reason := pages.trouble():
        body = {"status": "refusing appends", "reason": reason}
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, body)
    if reason := pages.hindrance():
        body = {"status": "can't write", "reason": reason}
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, body)
    if reason := pages.damage():
        body = {"status": "damaged", "reason": reason}
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, body)
    return Answer(HTTPStatus.OK, {"status": "ok"})


class Names(Enum):
    """Does a page show names of queues, topics, transactional ids?"""

    NONE = "no"
    MORE = "to who may know them"
    ONLY = "nothing else"


class Page(NamedTuple):
    tell: Callable[[Pages, bool], Answer]
    names: Names = Names.NONE
    checks_host: bool = True
    methods: tuple[str, ...] = ("GET", "HEAD")


class Act(NamedTuple):
    """A page that does something: for administrators, who are logged."""

    name: str
    do: Callable[[Pages], Awaitable[None]]
    checks_host: bool = True
    methods: tuple[str, ...] = ("POST",)


PAGES: Mapping[str, Page | Act] = {
    HEALTH: Page(_health, checks_host=False),
    "/metrics": Page(
        lambda pages, with_names: Answer(HTTPStatus.OK, pages.metrics(with_names)), Names.MORE
    ),
    HIDDEN: Page(lambda pages, _: Answer(HTTPStatus.OK, {"queues": pages.hidden()}), Names.ONLY),
    UNFENCE: Act("wal.unfence", lambda pages: pages.unfence()),
}
ONLY_HEALTH = {HEALTH: PAGES[HEALTH]}


@dataclass(frozen=True)
class Desk:
    """Serves the admin port's connections."""

    pages: Pages
    guard: Guard
    table: Mapping[str, Page | Act] = field(default_factory=lambda: PAGES)
    waiting: Waiting = field(default_factory=lambda: Waiting(MOST_WAITING))

    async def serve(self, stream: trio.abc.HalfCloseableStream) -> str:
        """Returns why the connection ended, for the log."""
        head: bytes | None = None
        reply: Answer | None = None
        with self.waiting.for_client() as place, trio.move_on_after(PATIENCE) as patience:
            try:
                head = await _receive_head(stream)
                if head is None:
                    return close_reasons.NO_REQUEST
            except _TooLarge:
                reply = Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, {"error": "too large"})
        if place.cancelled_caught:
            return close_reasons.IDLE_LONGEST
        if patience.cancelled_caught:
            reply = Answer(HTTPStatus.REQUEST_TIMEOUT, {"error": "too slow"})
        if reply is None:
            reply = await self._answer(head or b"", _host_of(stream))
        with self.waiting.for_client(), trio.move_on_after(PATIENCE):
            await stream.send_all(reply.encode(with_body=not (head or b"").startswith(b"HEAD ")))
            await part(stream)
        return f"{close_reasons.ANSWERED}: {reply.status.value}"

    async def _answer(self, head: bytes, peer: str) -> Answer:
        with trio.move_on_after(PATIENCE):
            try:
                request = parse(head)
                page = self.table.get(request.path)
                return await answer(request, page, self.pages, self.guard, peer)
            except BadRequest as error:
                return Answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "too many logins: try again"})


def services(pages: Pages, guard: Guard, *, health: bool) -> list[Service]:
    """health: whether a port of its own is there for health checks alone."""
    desks = {"admin": Desk(pages, guard)}
    if health:
        desks["health"] = Desk(pages, guard, ONLY_HEALTH)
    return [
        Service(name, desk.serve, MOST, log_level=logging.DEBUG) for name, desk in desks.items()
    ]


def _host_of(stream: trio.abc.HalfCloseableStream) -> str:
    if not isinstance(stream, trio.SocketStream):
        return ""
    try:
        return str(stream.socket.getpeername()[0])
    except OSError:  # it left before we looked
        return ""


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
