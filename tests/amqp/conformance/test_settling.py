"""basic: ack, nack, reject, recover."""

from collections.abc import Callable

import pytest
from pamqp.commands import Basic

from tests.amqp.wire import Channel, Client, fill, refused

Connect = Callable[..., Client]
Unique = Callable[[str], str]


# -- ack, nack, reject


def test_an_unacked_message_is_not_ready_and_an_acked_one_is_gone(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    queue = other.declare()
    fill(other, queue, 1)
    message = channel.must_get(queue, no_ack=False)
    assert other.count(queue) == 0
    channel.ack(message.tag)
    channel.close()
    assert other.count(queue) == 0


def test_ack_multiple_settles_all_up_to_the_tag(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    queue = other.declare()
    fill(other, queue, 5)
    channel.consume(queue)
    channel.deliveries(5)
    channel.ack(3, multiple=True)
    channel.close()
    assert other.becomes(queue, 2)
    assert other.drain(queue) == [b"4", b"5"]


def test_ack_multiple_of_zero_settles_everything(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    queue = other.declare()
    fill(other, queue, 5)
    channel.consume(queue)
    channel.deliveries(5)
    channel.ack(0, multiple=True)
    channel.close()
    assert other.count(queue) == 0


@pytest.mark.parametrize("answer", ["ack", "nack", "reject"])
def test_an_unknown_delivery_tag_is_406(channel: Channel, answer: str) -> None:
    with refused(406, "PRECONDITION_FAILED - unknown delivery tag 7"):
        getattr(channel, answer)(7)
        channel.round_trip()


def test_a_tag_can_be_settled_once_only(channel: Channel) -> None:
    queue = channel.declare()
    fill(channel, queue, 1)
    message = channel.must_get(queue, no_ack=False)
    channel.ack(message.tag)
    with refused(406, "PRECONDITION_FAILED - unknown delivery tag 1"):
        channel.ack(message.tag)
        channel.round_trip()


def test_a_requeued_message_returns_to_its_own_place(channel: Channel) -> None:
    queue = channel.declare()
    fill(channel, queue, 4)
    tags = [channel.must_get(queue, no_ack=False).tag for _ in range(3)]
    channel.reject(tags[1])
    channel.nack(tags[0])
    assert channel.becomes(queue, 3)
    got = [channel.must_get(queue, no_ack=False) for _ in range(3)]
    assert [m.body for m in got] == [b"1", b"2", b"4"]
    assert [m.redelivered for m in got] == [True, True, False]


def test_nack_multiple_requeues_all_up_to_the_tag(channel: Channel) -> None:
    queue = channel.declare()
    fill(channel, queue, 4)
    for _ in range(4):
        channel.must_get(queue, no_ack=False)
    channel.nack(3, multiple=True)
    assert channel.becomes(queue, 3)
    assert channel.drain(queue) == [b"1", b"2", b"3"]


def test_a_message_nacked_without_requeue_is_gone(channel: Channel) -> None:
    queue = channel.declare()
    fill(channel, queue, 2)
    first, second = (channel.must_get(queue, no_ack=False) for _ in range(2))
    channel.nack(first.tag, requeue=False)
    channel.reject(second.tag, requeue=False)
    assert channel.count(queue) == 0


def test_a_nacked_message_goes_on_to_another_consumer(client: Client) -> None:
    first, second = client.channel(), client.channel()
    queue = first.declare()
    first.qos(1)
    second.qos(1)
    first.consume(queue)
    first.publish(b"x", key=queue)
    message = first.delivery()
    second.consume(queue)
    first.qos(1)
    first.cancel(message.method.consumer_tag)
    first.nack(message.tag)
    again = second.delivery()
    assert (again.body, again.redelivered) == (b"x", True)


def test_a_closed_channel_gives_its_messages_back_in_their_place(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    queue = other.declare()
    fill(other, queue, 5)
    channel.qos(3)
    channel.consume(queue)
    channel.deliveries(3)
    channel.close()
    assert other.becomes(queue, 5)
    got = [other.must_get(queue) for _ in range(5)]
    assert [m.body for m in got] == [b"1", b"2", b"3", b"4", b"5"]
    assert [m.redelivered for m in got] == [True, True, True, False, False]


def test_a_lost_connection_gives_its_messages_back(connect: Connect, unique: Unique) -> None:
    first, second = connect().channel(), connect().channel()
    queue = second.declare(unique("orders"))
    fill(second, queue, 3)
    first.consume(queue)
    first.deliveries(3)
    first.client.drop()
    assert second.becomes(queue, 3)
    assert second.must_get(queue).redelivered


# -- recover


def test_recover_requeues_what_is_unacked(channel: Channel) -> None:
    queue = channel.declare()
    fill(channel, queue, 2)
    channel.consume(queue)
    channel.deliveries(2)
    channel.recover()
    again = channel.deliveries(2)
    assert [(m.body, m.redelivered, m.tag) for m in again] == [(b"1", True, 3), (b"2", True, 4)]


def test_recover_async_requeues_without_an_answer(channel: Channel) -> None:
    queue = channel.declare()
    fill(channel, queue, 1)
    channel.must_get(queue, no_ack=False)
    channel.send(Basic.RecoverAsync(True))
    assert channel.becomes(queue, 1)
    assert channel.must_get(queue).redelivered


def test_recover_without_requeue_is_540(channel: Channel) -> None:
    with refused(540, "NOT_IMPLEMENTED - requeue=false", connection=True):
        channel.recover(requeue=False)
