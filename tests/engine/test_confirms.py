"""Confirms: in order, many at once, when the disk has it; returns before them."""

from ottermq.engine.types import QueueFlags
from tests.engine.plane import Client, Confirm, Message, Plane, content


def settled(client: Client, count: int) -> dict[int, bool]:
    """Tags up to `count`, and whether each was taken."""
    verdicts: dict[int, bool] = {}
    while len(verdicts) < count:
        verdict = client.take(kind=Confirm)
        first = min((tag for tag in range(1, count + 1) if tag not in verdicts), default=0)
        tags = range(first, verdict.tag + 1) if verdict.multiple else [verdict.tag]
        new = [tag for tag in tags if tag not in verdicts]
        assert new, f"{verdict} tells nothing new"
        verdicts.update((tag, verdict.good) for tag in new)
    return verdicts


def confirming(plane: Plane) -> Client:
    client = plane.client()
    plane.engine.channel_confirm(client.id, 1)
    return client


def test_confirms_come_in_order_and_speak_for_all_below(plane: Plane) -> None:
    plane.queue("work")
    client = confirming(plane)
    client.feed(b"".join(content(b"%d" % n, "work") for n in range(1000)))
    assert settled(client, 1000) == dict.fromkeys(range(1, 1001), True)
    assert client.is_quiet()
    assert plane.ready("work") == 1000


def test_what_goes_nowhere_is_confirmed_too(plane: Plane) -> None:
    client = confirming(plane)
    client.publish(b"1", "nowhere")
    assert settled(client, 1) == {1: True}


def test_a_return_comes_before_its_confirm(plane: Plane) -> None:
    client = confirming(plane)
    client.publish(b"1", "nowhere", mandatory=True)
    assert client.take(kind=Message).body == b"1"
    assert client.take(kind=Confirm).tag == 1


def test_what_a_full_queue_refuses_is_nacked_and_only_that(plane: Plane) -> None:
    plane.queue("work", flags=QueueFlags.REJECT_PUBLISH, max_length=2)
    client = confirming(plane)
    for number in range(4):
        client.publish(b"%d" % number, "work")
    assert settled(client, 4) == {1: True, 2: True, 3: False, 4: False}
    assert client.is_quiet()
    assert plane.ready("work") == 2


def test_nothing_is_said_on_a_channel_that_was_closed(plane: Plane) -> None:
    plane.queue("work")
    client = confirming(plane)
    for number in range(100):
        client.feed(content(b"%d" % number, "work"))
        plane.engine.channel_close(client.id, 1, True)
        client.drain()
        client.inboxes.clear()
        other = confirming(plane)
        other.publish(b"x", "work")
        assert settled(other, 1) == {1: True}  # what came before it is on disk as well
        assert client.is_quiet()
        client = other


def test_a_crowd_is_confirmed_each_by_its_own(plane: Plane) -> None:
    """More connections than there are spare pieces of output, round after round."""
    plane.queue("work")
    crowd = [confirming(plane) for _ in range(600)]
    for number in range(1, 4):
        for client in crowd:
            client.publish(b"hello", "work")
        assert {client.take(kind=Confirm).tag for client in crowd} == {number}
    assert all(client.is_quiet() for client in crowd)


def test_what_waits_for_no_disk_is_confirmed_while_nothing_else_moves(plane: Plane) -> None:
    plane.queue("work")
    stored, lost = confirming(plane), confirming(plane)
    stored.publish(b"1", "work")
    assert settled(stored, 1) == {1: True}
    for number in range(1, 4):
        lost.publish(b"1", "nowhere")
        assert lost.take(kind=Confirm).tag == number
