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
from ottermq.admin.pages import PAGES, Sources, respond_with
from ottermq.config.schema import AdminSettings
from ottermq.wal.errors import StorageFailure
from tests.auth.auth_harness import new_auth

HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


def well() -> str | None:
    return None


async def exchange(
    sent: bytes, trouble: Callable[[], str | None] = well, end: bool = False
) -> tuple[bytes, str]:
    """What the broker answers, and how it says the connection ended. end: the client says that it
    sends no more; it does after an answer, in any case."""
    client, server = memory_stream_pair()
    ending = ""

    async def unfence() -> None:
        raise StorageFailure("the WAL isn't fenced")

    async def serve() -> None:
        nonlocal ending
        sources = Sources(
            trouble,
            lambda with_names: "ottermq_holds 3\n" if with_names else "ottermq_logs 3\n",
            lambda: ["a b"],
            unfence,
        )
        guard = Guard(new_auth().users, lambda: AdminSettings(names_need_login=True, hosts=("x",)))
        ending = await http.HttpServer(respond_with(sources, guard, PAGES)).serve(server)
        await server.aclose()

    received = b""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await client.send_all(sent)
        if end:
            await client.send_eof()
        while part := await client.receive_some(4096):
            received += part
            if not end:
                end = True
                await client.send_eof()
        await client.aclose()
    return received, ending


def status_and_body(answer: bytes) -> tuple[int, dict[str, str]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def test_health_is_ok_when_nothing_is_the_matter() -> None:
    answer, ending = await exchange(HEALTH)
    assert answer == (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n"
        b"Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
        b"Cross-Origin-Resource-Policy: same-origin\r\nReferrer-Policy: no-referrer\r\n"
        b"X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nContent-Length: 15\r\n\r\n"
        b'{"status":"ok"}'
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
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n folded", 421),
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
    assert await exchange(b"", end=True) == (b"", "no request sent")
    answer, _ = await exchange(HEALTH[:10], end=True)
    assert not answer or answer.startswith(b"HTTP/1.1 400 ")


async def test_a_connection_goes_on_after_an_answer() -> None:
    pipelined = HEALTH + HEALTH.replace(b"GET", b"HEAD") + HEALTH
    answer, ending = await exchange(pipelined, end=True)
    assert answer.count(b"HTTP/1.1 200 OK") == 3 and answer.count(b'{"status":"ok"}') == 2
    assert ending == "request answered: 200"


async def test_a_client_that_wants_the_connection_closed_gets_that() -> None:
    answer, _ = await exchange(HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") * 2)
    assert answer.count(b"HTTP/1.1 200 OK") == 1 and b"\r\nConnection: close\r\n" in answer


async def test_what_follows_a_body_nobody_read_is_no_request() -> None:
    sent = b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n" + HEALTH
    answer, _ = await exchange(sent)
    assert answer.count(b"HTTP/1.1 ") == 1 and answer.startswith(b"HTTP/1.1 405 ")


async def test_a_silent_connection_is_closed_after_a_while(autojump_clock: MockClock) -> None:
    client, server = memory_stream_pair()
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            guard = Guard(new_auth().users, AdminSettings)
            sources = Sources(well, lambda _: "", lambda: [], trio.sleep_forever)
            await http.HttpServer(respond_with(sources, guard, PAGES)).serve(server)
            await server.aclose()

        nursery.start_soon(serve)
        await client.send_all(HEALTH)
        began = trio.current_time()
        while await client.receive_some(4096):
            pass
        assert http.KEEP_ALIVE <= trio.current_time() - began < http.KEEP_ALIVE + 10


async def test_a_defect_is_a_500_without_a_word_of_it(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str | None:
        raise RuntimeError("our secret")

    answer, _ = await exchange(HEALTH, trouble=broken)
    assert answer.startswith(b"HTTP/1.1 500 ") and b"secret" not in answer
    assert "admin request failed" in caplog.text


@given(st.binary(max_size=80))
def test_any_head_is_answered_or_the_connection_ends(head: bytes) -> None:
    answer, _ = trio.run(exchange, head + b"\r\n\r\n", well, True)
    assert not answer or (answer.startswith(b"HTTP/1.1 ") and not answer.startswith(b"HTTP/1.1 5"))
