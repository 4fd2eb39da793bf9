"""A publish, from its frames to each queue of its route: every byte of it, and once."""

import pytest

from ottermq.engine.types import RouteFlags
from tests.engine.plane import Plane


@pytest.mark.parametrize("size", [0, 1, 4096 - 8, 4096 - 7, 50_000])
def test_what_was_published_is_delivered(plane: Plane, size: int) -> None:
    """Bodies of no frame, of one that is full, of several."""
    plane.queue("work")
    client = plane.client()
    body = bytes(index % 251 for index in range(size))
    client.publish(body, "work", content_type="x/y", headers={"a": 1}, message_id="m")
    got = client.get("work")
    assert got is not None
    assert got.body == body
    assert (got.properties.content_type, got.properties.message_id) == ("x/y", "m")
    assert got.properties.headers == {"a": 1}


def test_each_queue_of_the_route_gets_it_once(plane: Plane) -> None:
    for name in ("one", "two", "three"):
        plane.queue(name)
    plane.routes["ex", "key"] = ["one", "three"]
    plane.client().publish(b"x", "key", "ex")
    assert [plane.ready(name) for name in ("one", "two", "three")] == [1, 0, 1]


def test_a_route_that_comes_too_late_puts_nothing_anywhere(plane: Plane) -> None:
    plane.queue("work")
    client = plane.client()
    plane.answering = False
    client.publish(b"x", "key", "ex")
    plane.wait(lambda: plane.asked)
    client.leave()
    generation = plane.engine.route_generation
    ids = [plane.queues["work"]]
    # It isn't stale: there is nobody left to work it out again for.
    assert plane.engine.publish_route(client.id, 1, ids, RouteFlags.CACHE, generation)
    assert plane.ready("work") == 0
