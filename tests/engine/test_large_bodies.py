"""Bodies that come in pieces, large ones among small ones: whatever the pieces are."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottermq.engine.events import ConnectionHello
from tests.engine.plane import GREETING, PATIENCE, VHOST, Plane, content
from tests.examples import examples

LARGE = 32_768  # from here on a message is a batch of its own, copied past the cache
Send = Callable[[bytes], None]
Way = Callable[[Plane], AbstractContextManager[tuple[int, Send]]]


@contextmanager
def fed(plane: Plane) -> Iterator[tuple[int, Send]]:
    client = plane.client(channels=2)
    yield client.id, client.feed
    assert client.errors == []


@contextmanager
def wired(plane: Plane) -> Iterator[tuple[int, Send]]:
    """The same by a socket; each piece is read before the next one is sent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        plane.engine.listen(listener.fileno())
        with socket.create_connection(listener.getsockname(), timeout=PATIENCE) as sock:
            sock.sendall(GREETING)
            conn = plane.wait(lambda: plane.events_like(ConnectionHello))[0].conn
            plane.engine.tune(conn, 131_072, 2047, 0)
            plane.engine.open(conn, VHOST, "guest", 0)  # type: ignore[arg-type]
            plane.engine.may_publish(conn, b"", 0, by_event=False)
            for number in (1, 2):
                assert plane.engine.channel_open(conn, number)
            yield conn, lambda piece: send(plane, sock, piece)
        plane.engine.stop_listening()


def send(plane: Plane, sock: socket.socket, piece: bytes) -> None:
    before = plane.engine.stat().received_bytes
    sock.sendall(piece)
    deadline = time.monotonic() + PATIENCE
    while plane.engine.stat().received_bytes < before + len(piece):
        plane.take_events()
        assert time.monotonic() < deadline


WAYS: dict[str, Way] = {"fed": fed, "by a socket": wired}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


def taken(plane: Plane, queue: str, count: int) -> list[bytes]:
    plane.wait(lambda: plane.ready(queue) == count)
    reader = plane.client()
    bodies = []
    for _ in range(count):
        got = reader.get(queue, no_ack=True)
        assert got
        bodies.append(got.body)
    return bodies


SIZES = st.sampled_from([0, 10, LARGE - 1, LARGE, LARGE + 1, 65_536, 100_000, 250_001])


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    sizes=st.lists(SIZES, min_size=1, max_size=5),
    cuts=st.lists(st.integers(1, 120_000), max_size=12),
)
def test_bodies_come_together_however_they_are_cut(
    plane: Plane, way: Way, sizes: list[int], cuts: list[int]
) -> None:
    if "work" not in plane.queues:
        plane.queue("work")
    bodies = [os.urandom(size) for size in sizes]
    data = b"".join(content(body, "work") for body in bodies)
    plane.events.clear()
    with way(plane) as (conn, feed):
        for cut in cuts:
            if data[:cut]:
                feed(data[:cut])
            data = data[cut:]
        if data:
            feed(data)
        assert taken(plane, "work", len(bodies)) == bodies
        plane.engine.hang_up(conn)


@pytest.mark.parametrize("queues", [1, 2, 20])
@pytest.mark.parametrize("late", [False, True])
def test_all_queues_of_a_large_message_have_it(
    plane: Plane, way: Way, queues: int, late: bool
) -> None:
    """Its route may be known late."""
    names = [f"q{number}" for number in range(queues)]
    for number, name in enumerate(names):
        plane.queue(name, max_length=5 + number)
    plane.routes["ex", "k"] = names
    bodies = [os.urandom(70_000) for _ in range(3)]
    with way(plane) as (_, feed):
        plane.answering = not late
        for number, body in enumerate(bodies):
            data = content(body, "k", "ex")
            feed(data[:40_000])
            feed(data[40_000:])
            if late and number == 0:
                plane.answer(plane.wait(lambda: plane.asked)[0])
        plane.answering = True
        for name in names:
            assert taken(plane, name, 3) == bodies


def test_small_and_large_messages_keep_their_order(plane: Plane, way: Way) -> None:
    plane.queue("work")
    bodies = [b"before", os.urandom(90_000), b"between", os.urandom(90_000), b"after"]
    data = b"".join(content(body, "work") for body in bodies)
    with way(plane) as (_, feed):
        feed(data[:50_000])
        feed(data[50_000:])
        assert taken(plane, "work", 5) == bodies


def test_a_large_frame_with_a_wrong_end_is_told_as_any_other(plane: Plane) -> None:
    plane.queue("work")
    whole = content(b"x" * 90_000, "work")
    for first in (len(whole) - 1, 60_000):
        client = plane.client()
        wrong = whole[:-1] + b"\xcd"
        client.feed(wrong[:first])
        client.feed(wrong[first:] + content(b"never", "work"))
        [(code, channel, text)] = client.errors
        assert (code, channel) == (501, 0)
        assert "FRAME_ERROR - type 3" in text and "{invalid_frame_end_marker,205}" in text
    assert plane.ready("work") == 0


def test_a_large_frame_of_more_than_its_header_told_is_an_error(plane: Plane) -> None:
    plane.queue("work")
    client = plane.client()
    told, longer = content(b"x" * 40_000, "work"), content(b"y" * 50_000, "work")
    data = told[: -40_000 - 8] + longer[-50_000 - 8 :]
    client.feed(data[:20_000])
    client.feed(data[20_000:])
    assert [error[0] for error in client.errors] == [501]


def test_the_rest_of_a_frame_goes_nowhere_when_its_channel_is_being_closed(
    plane: Plane, way: Way
) -> None:
    """Others on its connection go on."""
    plane.queue("work")
    lost = content(b"x" * 90_000, "work")
    with way(plane) as (conn, feed):
        feed(lost[:50_000])
        assert plane.engine.channel_close(conn, 1, True)
        feed(lost[50_000:60_000])
        feed(lost[60_000:] + content(b"other", "work", channel=2))
        assert taken(plane, "work", 1) == [b"other"]


def test_who_leaves_in_the_middle_of_a_body_leaves_nothing(plane: Plane) -> None:
    plane.queue("work")
    client = plane.client()
    client.feed(content(b"x" * 90_000, "work")[:50_000])
    client.leave()
    assert plane.ready("work") == 0


def test_a_large_message_is_there_after_a_restart(tmp_path: Path) -> None:
    bodies = [os.urandom(120_000), b"small", os.urandom(66_000)]
    plane = Plane(tmp_path)
    plane.queue("work")
    client = plane.client()
    plane.engine.channel_confirm(client.id, 1)
    for body in bodies:
        data = content(body, "work")
        client.feed(data[: len(data) // 2])
        client.feed(data[len(data) // 2 :])
    while client.take().tag < 3:
        pass
    plane.close()
    plane = Plane(tmp_path)
    plane.queue("work")
    assert taken(plane, "work", 3) == bodies
    plane.close()
