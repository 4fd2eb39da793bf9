"""Leaving a queue another way: expired, rejected, dropped from the head, delayed."""

import time
from typing import Any

import pytest
from pamqp.commands import Basic

from ottermq.engine.types import QueueFlags, QueueOptions, RouteFlags
from tests.engine.plane import Client, Plane, content, frame


def got(client: Client, queue: str) -> list[bytes]:
    """All that is there now."""
    found: list[bytes] = []
    while (message := client.get(queue, no_ack=True)) is not None:
        found.append(message.body)
    return found


def dead_letters(plane: Plane) -> None:
    plane.queue("dead")
    plane.routes["dlx", "work"] = ["dead"]


DLX: dict[str, Any] = {"dead_letter_exchange": b"dlx"}


def test_the_head_is_dropped_when_a_queue_grows_too_long(plane: Plane) -> None:
    plane.queue("work", max_length=3)
    client = plane.client()
    for number in range(10):
        client.publish(b"%d" % number, "work")
    assert got(client, "work") == [b"7", b"8", b"9"]


def test_the_head_is_dropped_when_a_queue_grows_too_heavy(plane: Plane) -> None:
    plane.queue("work", max_length_bytes=10)
    client = plane.client()
    for body in (b"1234", b"5678", b"90", b"abc"):
        client.publish(body, "work")
    assert got(client, "work") == [b"5678", b"90", b"abc"]


def test_a_message_expires_though_nobody_looks(plane: Plane) -> None:
    plane.queue("work", message_ttl_ms=20)
    client = plane.client()
    for number in range(100):
        client.publish(b"%d" % number, "work")
    plane.wait(lambda: plane.ready("work") == 0)
    assert plane.engine.queue_stat(plane.queues["work"]).expired == 100


def test_messages_of_every_priority_expire_though_nobody_looks(plane: Plane) -> None:
    plane.queue("work", lanes=3)
    client = plane.client()
    client.publish(b"stays", "work", priority=2)
    client.publish(b"1", "work", priority=1, expiration="5")
    client.publish(b"0", "work", priority=0, expiration="20")
    plane.wait(lambda: plane.ready("work") == 1)
    assert got(client, "work") == [b"stays"]


def test_a_lower_time_to_live_applies_to_what_is_there(plane: Plane) -> None:
    number = plane.queue("work")
    plane.client().publish(b"x", "work")
    assert plane.ready("work") == 1
    plane.engine.set_queue(number, QueueOptions(message_ttl_ms=1))
    plane.wait(lambda: plane.ready("work") == 0)


def test_dead_letters_for_a_queue_by_its_name_ask_nobody(plane: Plane) -> None:
    """The default exchange needs no route: with Python asked for each, expiry was a hundred times
    slower."""
    plane.queue("dead")
    plane.queue(
        "work",
        message_ttl_ms=1,
        dead_letter_exchange=b"",
        dead_letter_key=b"dead",
    )
    client = plane.client()
    client.publish(b"warm", "dead")
    plane.answering = False
    for number in range(100):
        client.publish(b"%d" % number, "work")
    plane.wait(lambda: plane.ready("dead") == 101)
    assert plane.asked == []


def test_without_any_time_a_message_still_reaches_who_waits_for_it(plane: Plane) -> None:
    plane.queue("work", message_ttl_ms=0)
    client = plane.client()
    client.publish(b"nobody waits", "work")
    plane.wait(lambda: plane.ready("work") == 0)
    client.consume("work", no_ack=True)
    client.publish(b"somebody waits", "work")
    assert client.message().body == b"somebody waits"


def test_many_expire_at_once_and_the_next_is_given(plane: Plane) -> None:
    plane.queue("work")
    plane.queue("other")
    client = plane.client()
    for _ in range(9000):
        client.publish(b"old", "work", expiration="1")
    client.publish(b"new", "work")
    assert got(client, "other") == []  # the engine has them all
    time.sleep(0.01)
    assert got(client, "work") == [b"new"]


def test_the_dead_go_where_their_route_leads_when_it_is_known(plane: Plane) -> None:
    dead_letters(plane)
    plane.queue("work", **DLX)
    plane.answering = False
    client = plane.client()
    for number in range(3):
        client.publish(b"%d" % number, "work")
    for _ in range(3):
        message = client.get("work")
        assert message
        client.reject(message.tag)
    plane.wait(lambda: plane.asked)
    assert plane.unacked("work") == 3
    assert plane.ready("dead") == 0
    plane.answering = True
    plane.answer(plane.asked[0])
    plane.wait(lambda: plane.ready("dead") == 3)
    assert plane.unacked("work") == 0
    assert got(client, "dead") == [b"0", b"1", b"2"]


def test_an_answer_for_an_exchange_that_is_no_longer_meant_is_not_believed(plane: Plane) -> None:
    dead_letters(plane)
    plane.queue("other")
    plane.routes["new", "work"] = ["other"]
    number = plane.queue("work", **DLX)
    plane.answering = False
    client = plane.client()
    client.publish(b"x", "work")
    message = client.get("work")
    assert message
    client.reject(message.tag)
    plane.wait(lambda: plane.asked)
    plane.engine.set_queue(number, QueueOptions(dead_letter_exchange=b"new"))
    plane.answering = True
    plane.answer(plane.asked[0])
    plane.wait(lambda: plane.ready("other") == 1)
    assert plane.ready("dead") == 0


@pytest.mark.parametrize("flags", [QueueFlags(0), QueueFlags.STREAM], ids=["queue", "stream"])
def test_a_dead_letter_wakes_a_queue_that_had_its_turn_in_the_same_tick(
    plane: Plane, flags: QueueFlags
) -> None:
    """Its record is committed behind that turn, and nothing else may happen to the queue."""
    plane.queue("dead", flags=flags)
    plane.queue("work", dead_letter_exchange=b"", dead_letter_key=b"dead")
    client, taker = plane.client(), plane.client()
    taker.consume("dead", prefetch=10)
    for number in range(3):
        client.publish(b"%d" % number, "work")
        message = client.get("work")
        assert message
        rejected = frame(Basic.Reject(message.tag, requeue=False))
        client.feed(rejected + content(b"direct", "dead"))
        assert [each.body for each in taker.messages(2)] == [b"direct", b"%d" % number]
        taker.ack(0, multiple=True)


def test_a_limit_holds_for_dead_letters_that_come_behind_a_queues_turn(plane: Plane) -> None:
    plane.queue("dead", max_length=1)
    plane.queue("work", dead_letter_exchange=b"", dead_letter_key=b"dead")
    client = plane.client()
    client.publish(b"letter", "work")
    message = client.get("work")
    assert message
    client.feed(frame(Basic.Reject(message.tag, requeue=False)) + content(b"direct", "dead"))
    dead = plane.queues["dead"]
    plane.wait(lambda: plane.engine.queue_stat(dead).published == 2 and plane.ready("dead") == 1)
    assert got(client, "dead") == [b"letter"]


def test_dead_letters_larger_than_one_record_keep_their_order(plane: Plane) -> None:
    dead_letters(plane)
    plane.queue("work", max_length=0, **DLX)
    client = plane.client()
    bodies = [b"%d" % number * 500_000 for number in range(10)]
    for body in bodies:
        client.publish(body, "work")
    plane.wait(lambda: plane.ready("dead") == 10)
    assert got(client, "dead") == bodies


def test_the_list_of_the_dying_does_not_grow_with_all_that_ever_died(plane: Plane) -> None:
    """One is always waiting for its route, so the list is never empty."""
    dead_letters(plane)
    plane.route_flags = RouteFlags.NONE
    plane.queue("work", max_length=0, **DLX)
    client = plane.client()
    for number in range(300):
        client.publish(b"%d" % number, "work")
    plane.wait(lambda: plane.ready("dead") == 300)
    assert [int(body) for body in got(client, "dead")] == list(range(300))


def test_a_queue_that_goes_takes_its_dying_with_it(plane: Plane) -> None:
    dead_letters(plane)
    plane.answering = False
    client = plane.client()
    for _ in range(5):
        plane.queue("work", max_length=0, **DLX)
        for number in range(10):
            client.publish(b"%d" % number, "work")
        plane.wait(lambda: plane.asked)
        plane.remove("work")
        plane.engine.dead_route(99, [], RouteFlags.NONE, plane.engine.route_generation)
        plane.asked.clear()
    assert plane.ready("dead") == 0


def test_a_delayed_message_goes_on_when_it_is_due(plane: Plane) -> None:
    delay = plane.queue("delay", flags=QueueFlags.DELAY)
    plane.queue("work")
    plane.routes["later", "k"] = ["work"]
    plane.answering = False
    plane.route_flags = RouteFlags.NONE
    client = plane.client()
    for delay_ms in (300, 1):
        client.publish(b"%d" % delay_ms, "k", "later", headers={"x-delay": delay_ms})
        plane.wait(lambda: plane.asked)
        event = plane.asked.pop()
        generation = plane.engine.route_generation
        plane.engine.may_publish(event.conn, event.exchange, 0, by_event=False)
        plane.engine.publish_route(event.conn, event.channel, [delay], RouteFlags.DELAY, generation)
    plane.answering = True
    plane.wait(lambda: plane.ready("work") == 2)
    assert got(client, "work") == [b"1", b"300"]
    assert plane.engine.queue_stat(delay).ready == 0


def test_a_delay_whose_log_is_gone_is_no_delay(plane: Plane) -> None:
    plane.queue("work")
    plane.answering = False
    client = plane.client()
    client.publish(b"x", "k", "later", headers={"x-delay": 60_000})
    event = plane.asked.pop()
    for queues in ([77], []):
        generation = plane.engine.route_generation
        plane.engine.publish_route(event.conn, event.channel, queues, RouteFlags.DELAY, generation)
    assert client.errors == []


def test_purged_messages_are_not_sent_on_when_their_delay_is_over(plane: Plane) -> None:
    delay = plane.queue("delay", flags=QueueFlags.DELAY)
    plane.queue("work")
    plane.routes["later", "k"] = ["work"]
    plane.answering = False
    client = plane.client()
    client.publish(b"x", "k", "later", headers={"x-delay": 200})
    event = plane.asked.pop()
    generation = plane.engine.route_generation
    plane.engine.publish_route(event.conn, event.channel, [delay], RouteFlags.DELAY, generation)
    plane.answering = True
    assert plane.engine.purge(delay)[0] == 1
    client.publish(b"y", "k", "later", headers={"x-delay": 300})
    plane.wait(lambda: plane.ready("work") >= 1)
    assert got(client, "work") == [b"y"]
