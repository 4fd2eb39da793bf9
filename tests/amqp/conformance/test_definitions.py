"""A definitions file at start: its topology is there, its policies hold."""

from collections.abc import Callable

import pytest

from tests.amqp.conformance.defined import Login, defined, login
from tests.amqp.wire import Confirms, refused

__all__ = ["defined", "login"]

Unique = Callable[[str], str]


def test_queues_and_exchanges_are_there_with_their_arguments(login: Login) -> None:
    channel = login().channel()
    channel.declare("orders", durable=True)
    channel.declare("ranked", {"x-max-priority": 5}, durable=True)
    channel.declare("stream-of-news", {"x-queue-type": "stream"}, durable=True)
    channel.declare_exchange("lossy-news", "topic", durable=True)
    with refused(406):
        channel.declare("ranked", {"x-max-priority": 6}, durable=True)


def test_bindings_route(login: Login) -> None:
    channel = login().channel()
    for queue in ("orders", "graves"):
        channel.purge(queue)
    channel.publish(b"order", key="orders.new", exchange="lossy-news")
    channel.publish(b"spare", key="spare", exchange="lossy-news")
    assert channel.must_get("orders").body == b"order"
    assert channel.must_get("graves").body == b"spare"


def test_a_policy_bounds_a_queue(login: Login, unique: Unique) -> None:
    channel = login().channel()
    queue = channel.declare(unique("short-list"), exclusive=True)
    for number in range(5):
        channel.publish(b"%d" % number, key=queue)
    assert channel.becomes(queue, 2)


def test_the_policy_of_the_highest_priority_counts(login: Login, unique: Unique) -> None:
    channel = login().channel()
    queue = channel.declare(unique("short-er-list"), exclusive=True)
    for number in range(5):
        channel.publish(b"%d" % number, key=queue)
    assert channel.becomes(queue, 1)


@pytest.mark.parametrize(("argument", "left"), [(1, 1), (4, 2)])
def test_of_a_policy_and_an_argument_the_smaller_limit_counts(
    login: Login, unique: Unique, argument: int, left: int
) -> None:
    channel = login().channel()
    queue = channel.declare(unique("short-list"), {"x-max-length": argument}, exclusive=True)
    for number in range(5):
        channel.publish(b"%d" % number, key=queue)
    assert channel.becomes(queue, left)


def test_a_policy_sets_ttl_and_dead_letter_exchange(login: Login, unique: Unique) -> None:
    channel = login().channel()
    channel.purge("graves")
    queue = channel.declare(unique("brief-list"), exclusive=True)
    channel.publish(b"gone", key=queue)
    message = channel.must_get("graves")
    assert message.body == b"gone"
    assert message.headers["x-death"][0]["queue"] == queue


def test_a_policy_sets_an_alternate_exchange(login: Login) -> None:
    channel = login().channel()
    channel.purge("graves")
    channel.publish(b"no route", key="nowhere", exchange="lossy-news")
    assert channel.must_get("graves").body == b"no route"


def test_a_policy_sets_the_overflow(login: Login, unique: Unique) -> None:
    channel = login().channel()
    queue = channel.declare(unique("picky-list"), exclusive=True)
    channel.confirm()
    confirms = Confirms(channel)
    for number in (1, 2):
        channel.publish(b"%d" % number, key=queue)
        confirms.until(number)
    assert (confirms.taken, confirms.refused) == ({1}, {2})
