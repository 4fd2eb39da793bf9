"""HTTP/1.1 on the admin port: connections, requests, answers, by h11.

Framing, chunks and what smugglers try are h11's; ours are the limits. A connection goes on after an
answer; one that says nothing is closed, and closed earlier when others need the place. A body is
read by whoever wants it, once the login is checked: strangers send none.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any

import h11
import trio

from ottermq import eventlog
from ottermq.admin.messages import Answer, Problem, Request
from ottermq.admin.waiting import Waiting
from ottermq.contained import is_failure
from ottermq.net import close_reasons
from ottermq.net.listeners import part

HEAD_LIMIT = 8192
CHUNK = 65536
PATIENCE = 5.0  # seconds for a request's head, and for each part of an answer to be taken
KEEP_ALIVE = 60.0  # between two requests
BODY_PATIENCE = 30.0
MOST_WAITING = 100  # connections whose client is to say something

# Answers are data for programs: no page may embed them, and no proxy keep them.
HEADERS = (
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)

Respond = Callable[[Request], Awaitable[Answer]]
Stream = trio.abc.HalfCloseableStream


@dataclass(frozen=True)
class HttpServer:
    """Serves the admin port's connections."""

    respond: Respond
    waiting: Waiting = field(default_factory=lambda: Waiting(MOST_WAITING))

    async def serve(self, stream: Stream) -> str:
        """Returns why the connection ended, for the log."""
        conversation = _Conversation(stream, self.waiting)
        ended, idle = close_reasons.NO_REQUEST, PATIENCE
        while True:
            with self.waiting.for_client() as place:
                taken = await conversation.take(idle)
            if place.cancelled_caught:
                return close_reasons.IDLE_LONGEST
            if taken is None:
                return ended
            reply = await self._reply(taken)
            ended = f"{close_reasons.ANSWERED}: {reply.status.value}"
            with self.waiting.for_client():
                if await conversation.give(reply):
                    idle = KEEP_ALIVE
                    continue
                with trio.move_on_after(PATIENCE):
                    await part(stream)
            return ended

    async def _reply(self, request: "Request | Problem") -> Answer:
        if isinstance(request, Problem):
            return request.answer()
        try:
            return await self.respond(request)
        except Problem as problem:
            return problem.answer()
        except trio.BrokenResourceError:
            raise
        except BaseException as error:
            if not is_failure(error):
                raise
            path = request.path
            eventlog.failure(
                "admin request failed", error, peer=request.peer, method=request.method, path=path
            )
            why = "the broker made a mistake; its log tells"
            return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, why).answer()


class _Conversation:
    """The requests and answers of one connection."""

    def __init__(self, stream: Stream, waiting: Waiting) -> None:
        self._stream = stream
        self._waiting = waiting
        self._peer = _host_of(stream)
        self._conn = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT)
        self._is_head = False  # the request is HEAD: its answer has no body

    async def take(self, idle: float) -> Request | Problem | None:
        """The next request; None: none comes."""
        self._is_head = False
        heard = bool(self._conn.trailing_data[0])
        with trio.move_on_after(PATIENCE if heard else idle) as patience:
            try:
                while (event := self._conn.next_event()) is h11.NEED_DATA:
                    data = await self._stream.receive_some(CHUNK)
                    if data and not heard:
                        heard = True
                        patience.deadline = trio.current_time() + PATIENCE
                    elif not data:
                        return None
                    self._conn.receive_data(bytes(data))
                return self._request(event) if isinstance(event, h11.Request) else None
            except h11.RemoteProtocolError as error:
                return _malformed(error)
            except Problem as problem:
                return problem
        return Problem(HTTPStatus.REQUEST_TIMEOUT, "too slow") if heard else None

    def _request(self, event: h11.Request) -> Request:
        target = event.target.decode("latin-1")
        headers: dict[str, str] = {}
        size = len(event.target)
        for raw_name, raw_value in event.headers:
            name, value = raw_name.decode(), raw_value.decode("latin-1")
            size += len(name) + len(value) + 4
            if name == "authorization" and name in headers:
                raise Problem(HTTPStatus.BAD_REQUEST, "one Authorization header is enough")
            headers.setdefault(name, value)
        if size > HEAD_LIMIT - 64:
            raise Problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too large")
        if event.http_version not in (b"1.1", b"1.0"):
            raise Problem(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request line")
        if not target.startswith("/"):
            raise Problem(HTTPStatus.BAD_REQUEST, "the target must be a path")
        if _is_without_body(headers):
            self._conn.next_event()  # its end
        path, _, query = target.partition("?")
        method = event.method.decode()
        self._is_head = method == "HEAD"
        declared = int(headers.get("content-length", "0"))
        return Request(method, path, query, headers, self._peer, partial(self.body, declared))

    async def body(self, declared: int, most: int) -> bytes:
        """declared: its size, as the head says; 0 if it comes in chunks."""
        if declared > most:
            raise _too_large(most)
        found, size = [], 0
        with self._waiting.for_client(), trio.move_on_after(BODY_PATIENCE):
            try:
                while self._conn.their_state is h11.SEND_BODY:
                    match await self._part():
                        case h11.Data(data=data):
                            size += len(data)
                            if size > most:
                                raise _too_large(most)
                            found.append(bytes(data))
                return b"".join(found)
            except h11.RemoteProtocolError as error:
                raise _malformed(error) from None
        raise Problem(HTTPStatus.REQUEST_TIMEOUT, "the body came too slowly")

    async def _part(self) -> Any:
        while (event := self._conn.next_event()) is h11.NEED_DATA:
            if self._conn.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                await self._stream.send_all(self._conn.send(go_on) or b"")
            self._conn.receive_data(bytes(await self._stream.receive_some(CHUNK)))
        return event

    async def give(self, reply: Answer) -> bool:
        """Another request may follow."""
        kind, body = reply.encoded()
        headers = [*([("Content-Type", kind)] if kind else []), *HEADERS, *reply.headers.items()]
        if reply.status is not HTTPStatus.NO_CONTENT:
            headers.append(("Content-Length", str(len(body))))
        if self._conn.their_state is not h11.DONE:  # what we didn't read, we can't skip
            headers.append(("Connection", "close"))
        if not await self._send_all(reply, headers, body):
            return False
        if self._conn.our_state is h11.MUST_CLOSE or self._conn.their_state is not h11.DONE:
            return False
        self._conn.start_next_cycle()
        return True

    async def _send_all(
        self, reply: Answer, headers: Sequence[tuple[str, str]], body: bytes
    ) -> bool:
        """False: the client doesn't read it."""
        conn, status = self._conn, reply.status
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        head = h11.Response(
            status_code=status.value, headers=encoded, reason=status.phrase.encode()
        )
        out = conn.send(head) or b""
        if body and not self._is_head:
            out += conn.send(h11.Data(data=body)) or b""
        out += conn.send(h11.EndOfMessage()) or b""
        view = memoryview(out)
        for at in range(0, len(view), CHUNK):
            with trio.move_on_after(PATIENCE) as patience:
                await self._stream.send_all(view[at : at + CHUNK])
            if patience.cancelled_caught:
                return False
        return True


def _too_large(most: int) -> Problem:
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return Problem(status, f"a body of this request has {most} bytes at most")


def _malformed(error: h11.RemoteProtocolError) -> Problem:
    status = HTTPStatus(error.error_status_hint)
    return Problem(HTTPStatus.BAD_REQUEST if status >= 500 else status, str(error))


def _is_without_body(headers: dict[str, str]) -> bool:
    return "transfer-encoding" not in headers and not int(headers.get("content-length", "0"))


def _host_of(stream: Stream) -> str:
    if not isinstance(stream, trio.SocketStream):
        return ""
    try:
        return str(stream.socket.getpeername()[0])
    except OSError:  # it left before we looked
        return ""
