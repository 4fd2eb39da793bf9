"""Full queues that refuse: what comes in a transaction or as a dead letter is refused, too."""

from pathlib import Path
from typing import Any

import pytest
from pamqp.commands import Tx

from ottermq._core import lib
from ottermq.engine.types import QueueFlags, QueueOptions
from tests.engine.plane import Client, Plane, frame
from tests.engine.test_leaving import got

OK = frame(Tx.CommitOk())
REFUSING = QueueFlags.REJECT_PUBLISH
DYING = QueueFlags.REJECT_PUBLISH | QueueFlags.REJECT_DLX
TO_FULL: dict[str, Any] = {"dead_letter_exchange": b"", "dead_letter_key": b"full"}
TO_DEAD: dict[str, Any] = {"dead_letter_exchange": b"", "dead_letter_key": b"dead"}


def commit(client: Client) -> None:
    """One of which not all happens, so that it isn't confirmed."""
    assert client.engine.tx_commit(client.id, 1, OK) == lib.OM_TX_PARTIAL
    assert client.is_quiet()


def stat(plane: Plane, queue: str) -> tuple[int, int]:
    found = plane.engine.queue_stat(plane.queues[queue])
    return found.ready, found.published


# -- transactions


@pytest.mark.parametrize("limit", [{"max_length": 2}, {"max_length_bytes": 2}])
def test_a_commit_fills_a_queue_and_no_more(plane: Plane, limit: dict[str, int]) -> None:
    plane.queue("full", flags=REFUSING, **limit)
    client = plane.client()
    plane.engine.tx_select(client.id, 1)
    for body in b"abcd":
        client.publish(bytes([body]), "full")
    commit(client)
    assert stat(plane, "full") == (2, 2)
    assert got(plane.client(), "full") == [b"a", b"b"]


def test_what_a_commit_finds_no_room_for_dies_where_the_queue_says_so(plane: Plane) -> None:
    plane.queue("dead")
    plane.queue("full", flags=DYING, max_length=1, **TO_DEAD)
    client = plane.client()
    plane.engine.tx_select(client.id, 1)
    for body in b"abc":
        client.publish(bytes([body]), "full")
    commit(client)
    plane.wait(lambda: plane.ready("dead") == 2)
    assert got(plane.client(), "full") == [b"a"]
    other = plane.client()
    first = other.get("dead")
    assert first and first.body == b"b"
    death = first.headers["x-death"][0]
    assert (death["queue"], death["reason"], death["count"]) == ("full", "maxlen", 1)


def test_the_next_transaction_finds_the_room_that_came(plane: Plane) -> None:
    plane.queue("full", flags=REFUSING, max_length=1)
    client = plane.client()
    plane.engine.tx_select(client.id, 1)
    for round in range(3):
        client.publish(b"%d" % round, "full")
        client.publish(b"too much", "full")
        commit(client)
        assert got(plane.client(), "full") == [b"%d" % round]


# -- dead letters


def test_a_dead_letter_that_finds_its_queue_full_is_dropped(plane: Plane) -> None:
    plane.queue("full", flags=REFUSING, max_length=2)
    plane.queue("work", message_ttl_ms=1, **TO_FULL)
    client = plane.client()
    for number in range(5):
        client.publish(b"%d" % number, "work")
    plane.wait(lambda: plane.ready("work") == plane.unacked("work") == 0)
    assert stat(plane, "full") == (2, 2)
    assert got(client, "full") == [b"0", b"1"]


def test_a_dead_letter_that_finds_its_queue_full_may_die_again(plane: Plane) -> None:
    plane.queue("dead")
    plane.queue("full", flags=DYING, max_length=1, **TO_DEAD)
    plane.queue("work", message_ttl_ms=1, **TO_FULL)
    client = plane.client()
    for number in range(4):
        client.publish(b"%d" % number, "work")
    plane.wait(lambda: plane.ready("dead") == 3)
    assert got(client, "full") == [b"0"]
    twice = client.get("dead")
    assert twice
    deaths = twice.headers["x-death"]
    assert [(death["queue"], death["reason"]) for death in deaths] == [
        ("full", "maxlen"),
        ("work", "expired"),
    ]


# -- at least once


def test_at_least_once_waits_until_the_target_takes_it(plane: Plane) -> None:
    plane.queue("full", flags=REFUSING, max_length=1)
    flags = QueueFlags.QUORUM | REFUSING | QueueFlags.AT_LEAST_ONCE
    plane.queue("work", flags=flags, message_ttl_ms=1, **TO_FULL)
    client = plane.client()
    for number in range(3):
        client.publish(b"%d" % number, "work")
    plane.wait(lambda: plane.ready("work") == 0)  # all of them have expired
    for number in range(3):
        left = 2 - number
        plane.wait(lambda: plane.ready("full") == 1 and plane.unacked("work") == left)  # noqa: B023
        assert got(client, "full") == [b"%d" % number]
    plane.wait(lambda: plane.unacked("work") == 0)


def test_at_least_once_waits_until_there_is_a_target(plane: Plane) -> None:
    flags = QueueFlags.QUORUM | REFUSING | QueueFlags.AT_LEAST_ONCE
    number = plane.queue("work", flags=flags, message_ttl_ms=1, dead_letter_exchange=b"dlx")
    client = plane.client()
    client.publish(b"x", "work")
    plane.wait(lambda: plane.engine.queue_stat(number).expired == 1)
    plane.take_events()
    assert plane.unacked("work") == 1
    plane.queue("dead")
    plane.routes["dlx", "work"] = ["dead"]
    plane.engine.forget_routes(1, b"dlx")
    plane.wait(lambda: plane.ready("dead") == 1)
    assert plane.unacked("work") == 0


def test_what_waits_at_least_once_survives_a_restart(tmp_path: Path) -> None:
    flags = QueueFlags.QUORUM | REFUSING | QueueFlags.AT_LEAST_ONCE
    plane = Plane(tmp_path)
    number = plane.queue("work", flags=flags, message_ttl_ms=1, dead_letter_exchange=b"dlx")
    plane.client().publish(b"x", "work")
    plane.wait(lambda: plane.engine.queue_stat(number).expired == 1)
    plane.close()
    plane = Plane(tmp_path)
    plane.queue("dead")
    plane.routes["dlx", "work"] = ["dead"]
    plane.queue("work", flags=flags, message_ttl_ms=1, dead_letter_exchange=b"dlx")
    plane.wait(lambda: plane.ready("dead") == 1)
    plane.close()


# -- reject-publish-dlx with priorities


def test_what_a_priority_queue_refuses_is_never_given_to_its_consumer(plane: Plane) -> None:
    plane.queue("dead")
    plane.routes["dlx", "full"] = ["dead"]
    number = plane.queue("full", lanes=4, flags=DYING, max_length=1, dead_letter_exchange=b"dlx")
    sender, taker = plane.client(), plane.client()
    sender.publish(b"first", "full", priority=1)
    plane.answering = False  # the refused ones wait for their route
    sender.publish(b"refused", "full", priority=3)
    sender.publish(b"refused", "full", priority=0)
    plane.wait(lambda: plane.asked)
    taker.consume("full")
    assert taker.message().body == b"first"
    assert taker.is_quiet()
    for event in plane.asked:
        plane.answer(event)
    plane.answering = True
    plane.wait(lambda: plane.ready("dead") == 2)
    assert taker.is_quiet()
    # Now there is room again, and what comes behind them is given out.
    sender.publish(b"second", "full", priority=0)
    assert taker.message().body == b"second"
    plane.engine.set_queue(number, QueueOptions())
    assert plane.ready("full") == 0
