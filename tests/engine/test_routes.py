"""Routes that C remembers: for whom, for how long, how many."""

from pathlib import Path

import pytest

from ottermq.engine.events import RouteWanted
from ottermq.engine.types import RouteFlags
from tests.engine.plane import VHOST, Client, Plane


def asked(plane: Plane) -> int:
    """How often Python was asked for a route, or whether somebody may publish there."""
    plane.take_events()
    return len(plane.events_like(RouteWanted))


def bound(plane: Plane, *keys: str) -> Client:
    plane.queue("work")
    for key in keys:
        plane.routes["ex", key] = ["work"]
    return plane.client()


def test_a_warm_route_asks_nobody(plane: Plane) -> None:
    client = bound(plane, "a", "b")
    for _ in range(10):
        client.publish(b"x", "a", "ex")
        client.publish(b"x", "b", "ex")
    assert plane.ready("work") == 20
    assert asked(plane) == 2


def test_nowhere_is_remembered_too(plane: Plane) -> None:
    client = bound(plane)
    for _ in range(10):
        client.publish(b"x", "lost", "ex")
    assert asked(plane) == 1


def test_a_changed_exchange_is_asked_for_again_and_no_other(plane: Plane) -> None:
    client = bound(plane, "a")
    plane.routes["other", "a"] = ["work"]
    for exchange in ("ex", "other"):
        client.publish(b"x", "a", exchange)
    assert asked(plane) == 2
    plane.queue("more")
    plane.routes["ex", "a"] = ["work", "more"]
    plane.engine.forget_routes(VHOST, b"ex")
    for exchange in ("ex", "other"):
        client.publish(b"x", "a", exchange)
    assert asked(plane) == 3
    assert (plane.ready("work"), plane.ready("more")) == (4, 1)


def test_a_route_that_was_worked_out_before_a_change_is_refused(plane: Plane) -> None:
    client = bound(plane, "a")
    plane.answering = False
    client.publish(b"x", "a", "ex")
    plane.wait(lambda: plane.asked)
    (event,) = plane.asked
    old = plane.engine.route_generation
    plane.engine.forget_routes(VHOST, b"ex")
    plane.engine.may_publish(client.id, b"ex", 0, by_event=False)
    ids = [plane.queues["work"]]
    assert not plane.engine.publish_route(client.id, 1, ids, RouteFlags.CACHE, old)
    assert plane.ready("work") == 0
    plane.answer(event)
    assert plane.ready("work") == 1


def test_a_warm_route_lets_no_stranger_through(plane: Plane) -> None:
    first = bound(plane, "a")
    first.publish(b"x", "a", "ex")
    assert asked(plane) == 1
    plane.answering = False
    stranger = plane.client()
    stranger.publish(b"x", "a", "ex")
    assert asked(plane) == 2
    assert plane.ready("work") == 1


def test_permissions_that_changed_are_asked_for_again(plane: Plane) -> None:
    client = bound(plane, "a")
    client.publish(b"x", "a", "ex")
    plane.engine.forget_permissions()
    plane.answering = False
    client.publish(b"x", "a", "ex")
    client.publish(b"x", "a", "ex")
    assert asked(plane) == 2  # and the second waits behind the first
    assert plane.ready("work") == 1
    plane.answer(plane.asked[-1])
    plane.wait(lambda: plane.ready("work") == 3)


def test_who_has_topic_permissions_has_routes_of_its_own(plane: Plane) -> None:
    """The salt: what one user may send with a key, another may not."""
    one = bound(plane, "a")
    one.publish(b"x", "a", "ex")
    other = plane.client()
    plane.engine.may_publish(other.id, b"ex", 7, by_event=False)
    other.publish(b"x", "a", "ex")
    assert asked(plane) == 2


def test_an_exchange_that_goes_by_each_message_is_asked_each_time(plane: Plane) -> None:
    client = bound(plane, "a")
    plane.route_flags = RouteFlags.NONE
    for _ in range(5):
        client.publish(b"x", "a", "ex")
    assert asked(plane) == 5
    assert plane.ready("work") == 5


@pytest.mark.parametrize("queues", [["work"], []])
def test_routes_are_bounded_and_the_one_used_longest_ago_goes(
    tmp_path: Path, queues: list[str]
) -> None:
    plane = Plane(tmp_path, route_cache=16)
    client = bound(plane, "often")
    for number in range(200):
        plane.routes["ex", f"k{number}"] = queues
        client.publish(b"x", f"k{number}", "ex")
        client.publish(b"x", "often", "ex")
    assert plane.engine.stat().routes <= 16
    assert asked(plane) == 201  # "often" stayed
    client.publish(b"x", "k0", "ex")  # which is long gone
    assert asked(plane) == 202
    assert plane.ready("work") == (401 if queues else 200)
    plane.close()


def test_a_queue_that_goes_leaves_the_routes_that_lead_to_it(plane: Plane) -> None:
    client = bound(plane, "a")
    plane.queue("other")
    plane.routes["ex", "a"] = ["work", "other"]
    client.publish(b"x", "a", "ex")
    plane.remove("other")
    client.publish(b"x", "a", "ex")
    assert plane.ready("work") == 2
