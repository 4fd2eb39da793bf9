"""Priority queues: x-max-priority."""

from collections.abc import Callable
from typing import Any

from tests.amqp.wire import Channel, Client

Connect = Callable[..., Client]


def publish(channel: Channel, queue: str, *priorities: int | None) -> None:
    for number, priority in enumerate(priorities):
        given: dict[str, Any] = {} if priority is None else {"priority": priority}
        channel.publish(b"%d:%s" % (number, str(priority).encode()), key=queue, **given)
    assert channel.becomes(queue, len(priorities))


def test_higher_priorities_come_first_and_equals_in_order(channel: Channel) -> None:
    queue = channel.declare("", {"x-max-priority": 10})
    publish(channel, queue, 1, 5, 9, 5, 1, 9)
    assert channel.drain(queue) == [b"2:9", b"5:9", b"1:5", b"3:5", b"0:1", b"4:1"]


def test_a_message_without_priority_has_zero(channel: Channel) -> None:
    queue = channel.declare("", {"x-max-priority": 10})
    publish(channel, queue, None, 0, 1, None)
    assert channel.drain(queue) == [b"2:1", b"0:None", b"1:0", b"3:None"]


def test_a_priority_over_the_maximum_counts_as_the_maximum(channel: Channel) -> None:
    queue = channel.declare("", {"x-max-priority": 3})
    publish(channel, queue, 3, 200, 2, 4)
    assert channel.drain(queue) == [b"0:3", b"1:200", b"3:4", b"2:2"]


def test_the_priority_property_arrives_as_it_was_sent(channel: Channel) -> None:
    queue = channel.declare("", {"x-max-priority": 3})
    channel.publish(b"x", key=queue, priority=200)
    assert channel.must_get(queue).properties.priority == 200


def test_without_x_max_priority_the_order_is_that_of_publishing(channel: Channel) -> None:
    queue = channel.declare()
    publish(channel, queue, 1, 9, 5)
    assert channel.drain(queue) == [b"0:1", b"1:9", b"2:5"]


def test_a_requeued_message_returns_to_its_place_among_its_priority(channel: Channel) -> None:
    queue = channel.declare("", {"x-max-priority": 5})
    publish(channel, queue, 5, 1, 5, 1)
    taken = [channel.must_get(queue, no_ack=False) for _ in range(3)]
    assert [m.body for m in taken] == [b"0:5", b"2:5", b"1:1"]
    for message in reversed(taken):
        channel.nack(message.tag)
    assert channel.becomes(queue, 4)
    assert channel.drain(queue) == [b"0:5", b"2:5", b"1:1", b"3:1"]


def test_a_consumer_with_prefetch_gets_the_highest_that_is_there(client: Client) -> None:
    channel, sender = client.channel(), client.channel()
    queue = sender.declare("", {"x-max-priority": 5})
    publish(sender, queue, 1, 1)
    channel.qos(1)
    channel.consume(queue)
    first = channel.delivery()
    sender.publish(b"urgent", key=queue, priority=5)
    assert sender.becomes(queue, 2)
    channel.ack(first.tag)
    assert channel.delivery().body == b"urgent"


def test_counts_and_purge_cover_all_priorities(channel: Channel) -> None:
    queue = channel.declare("", {"x-max-priority": 255})
    publish(channel, queue, 0, 100, 255)
    assert channel.count(queue) == 3
    assert channel.purge(queue) == 3
    assert channel.count(queue) == 0


def test_a_full_priority_queue_drops_its_head_which_is_the_highest(channel: Channel) -> None:
    queue = channel.declare("", {"x-max-priority": 5, "x-max-length": 2})
    for number, priority in enumerate((5, 1, 5, 1)):
        channel.publish(b"%d" % number, key=queue, priority=priority)
    assert channel.becomes(queue, 2)
    assert channel.drain(queue) == [b"1", b"3"]


def test_messages_of_any_priority_expire(channel: Channel) -> None:
    queue = channel.declare("", {"x-max-priority": 5, "x-message-ttl": 30})
    channel.confirm()
    for priority in (5, 1, 3):
        channel.publish(b"x", key=queue, priority=priority)
    channel.confirmed(3)
    assert channel.becomes(queue, 0)
