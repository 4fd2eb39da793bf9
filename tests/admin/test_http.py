"""The admin port's HTTP, without a socket."""

import json
from collections.abc import Callable

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, memory_stream_pair

from ottermq.admin import http
from ottermq.admin.guard import Guard
from ottermq.config.schema import AdminSettings
from ottermq.wal.errors import StorageFailure
from tests.auth.auth_harness import new_auth

HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


def well() -> str | None:
    return None


async def exchange(
    sent: bytes, trouble: Callable[[], str | None] = well, end: bool = False
) -> tuple[bytes, str]:
    """What the broker answers, and how it says the connection ended."""
    client, server = memory_stream_pair()
    ending = ""

    async def unfence() -> None:
        raise StorageFailure("the WAL isn't fenced")

    async def serve() -> None:
        nonlocal ending
        pages = http.Pages(
            trouble,
            lambda with_names: "ottermq_holds 3\n" if with_names else "ottermq_logs 3\n",
            lambda: ["a b"],
            unfence,
        )
        guard = Guard(new_auth().users, lambda: AdminSettings(names_need_login=True, hosts=("x",)))
        ending = await http.Desk(pages, guard).serve(server)
        await server.aclose()

    received = b""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await client.send_all(sent)
        if end:
            await client.send_eof()
        while part := await client.receive_some(4096):
            received += part
        await client.aclose()
    return received, ending


def status_and_body(answer: bytes) -> tuple[int, dict[str, str]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def test_health_is_ok_when_nothing_is_the_matter() -> None:
    answer, ending = await exchange(HEALTH)
    assert answer == (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n"
        b'Cache-Control: no-store\r\nConnection: close\r\n\r\n{"status":"ok"}'
    )
    assert ending == "request answered: 200"


async def test_health_tells_why_appends_are_refused() -> None:
    answer, _ = await exchange(HEALTH, trouble=lambda: "fdatasync: Input/output error")
    expected = {"status": "refusing appends", "reason": "fdatasync: Input/output error"}
    assert status_and_body(answer) == (503, expected)


async def test_head_answers_as_get_without_the_body() -> None:
    answer, _ = await exchange(HEALTH.replace(b"GET", b"HEAD"))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"\r\n\r\n")
    assert b"Content-Length: 15\r\n" in answer


async def test_metrics_are_a_text_that_prometheus_knows() -> None:
    answer, ending = await exchange(HEALTH.replace(b"/health", b"/metrics"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in head
    assert (body, ending) == (b"ottermq_logs 3\n", "request answered: 200")


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET /health?verbose=1 HTTP/1.1\r\nHost: x", 200),
        (b"GET /health HTTP/1.0", 200),
        (b"POST /metrics HTTP/1.1\r\nHost: x", 405),
        (b"GET / HTTP/1.1\r\nHost: x", 404),
        (b"GET /unfence HTTP/1.1\r\nHost: x", 405),
        (b"POST /unfence HTTP/1.1\r\nHost: x", 401),
        (b"POST /unfence HTTP/1.1\r\nHost: y", 421),
        (b"POST /unfence HTTP/1.1\r\nHost: x\r\nOrigin: http://x", 403),
        (b"DELETE /queues HTTP/1.1\r\nHost: x", 404),
        (b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 2", 405),
        (b"GET /health HTTP/1.1", 400),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nHost: y", 400),
        (b"GET /health HTTP/1.1\r\nHost : x", 400),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n folded", 400),
        (b"GET /health HTTP/1.1\r\nHost: x\x00", 400),
        (b"GET /health HTTP/2.0\r\nHost: x", 400),
        (b"GET  /health HTTP/1.1\r\nHost: x", 400),
        (b"GET http://x/health HTTP/1.1\r\nHost: x", 400),
        (b"AMQP\x00\x00\x09\x01", 400),
        (b"", 400),
    ],
)
async def test_every_request_gets_the_status_it_deserves(request_head: bytes, status: int) -> None:
    answer, ending = await exchange(request_head + b"\r\n\r\n")
    assert (status_and_body(answer)[0], ending) == (status, f"request answered: {status}")


async def test_a_refused_method_is_told_which_ones_are_taken() -> None:
    answer, _ = await exchange(HEALTH.replace(b"GET", b"PUT"))
    assert b"\r\nAllow: GET, HEAD\r\n" in answer


async def test_a_head_that_never_ends_is_too_large() -> None:
    answer, _ = await exchange(b"GET /health HTTP/1.1\r\nX: " + b"y" * http.HEAD_LIMIT)
    assert status_and_body(answer)[0] == 431


async def test_a_head_just_over_the_limit_is_too_large() -> None:
    filler = b"y" * (http.HEAD_LIMIT - len(HEALTH))
    answer, _ = await exchange(HEALTH[:-4] + b"\r\nX: " + filler + b"\r\n\r\n")
    assert status_and_body(answer)[0] == 431


async def test_a_client_that_is_too_slow_is_told_so(autojump_clock: MockClock) -> None:
    answer, ending = await exchange(HEALTH[:10])
    assert (status_and_body(answer)[0], ending) == (408, "request answered: 408")
    assert trio.current_time() < http.PATIENCE * 3


async def test_a_client_that_leaves_early_gets_nothing() -> None:
    assert await exchange(HEALTH[:10], end=True) == (b"", "no request sent")


@given(st.binary(max_size=80))
def test_any_head_is_a_request_or_a_bad_one(head: bytes) -> None:
    try:
        assert http.parse(head).path.startswith("/")
    except http.BadRequest:
        pass


PATHS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=40)


@given(PATHS)
def test_a_path_is_what_stands_before_the_question_mark(path: str) -> None:
    request = http.parse(f"GET /{path} HTTP/1.1\r\nHost: x".encode())
    assert request == http.Request("GET", f"/{path}".split("?")[0], "x")
