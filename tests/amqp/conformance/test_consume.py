"""basic: consume, cancel, qos."""

import re
from collections.abc import Callable

import pytest
from pamqp.commands import Basic, Tx

from tests.amqp.wire import Channel, Client, fill, refused

Connect = Callable[..., Client]
Unique = Callable[[str], str]


# -- consume


def test_a_consumer_gets_what_is_there_and_what_comes(channel: Channel) -> None:
    queue = channel.declare()
    fill(channel, queue, 2)
    tag = channel.consume(queue)
    channel.publish(b"3", key=queue)
    got = channel.deliveries(3)
    assert [message.body for message in got] == [b"1", b"2", b"3"]
    assert [message.tag for message in got] == [1, 2, 3]
    assert {message.method.consumer_tag for message in got} == {tag}


def test_a_consumer_without_a_tag_is_given_one(channel: Channel) -> None:
    tag = channel.consume(channel.declare())
    assert re.fullmatch(r"amq\.ctag-[A-Za-z0-9_-]{22}", tag)


def test_a_consumer_may_choose_its_tag(channel: Channel) -> None:
    assert channel.consume(channel.declare(), "mine") == "mine"


def test_a_tag_in_use_on_the_channel_is_530(channel: Channel) -> None:
    queue = channel.declare()
    channel.consume(queue, "mine")
    text = "NOT_ALLOWED - attempt to reuse consumer tag 'mine'"
    with refused(530, text, connection=True):
        channel.consume(queue, "mine")


def test_another_channel_may_use_the_same_tag(client: Client) -> None:
    first, second = client.channel(), client.channel()
    queue = first.declare()
    assert first.consume(queue, "mine") == second.consume(queue, "mine")


def test_consume_from_an_unknown_queue_is_404(channel: Channel) -> None:
    with refused(404, "NOT_FOUND - no queue 'no-such' in vhost '/'"):
        channel.consume("no-such")


def test_consume_with_no_wait_has_no_answer(channel: Channel) -> None:
    queue = channel.declare()
    channel.send(Basic.Consume(queue=queue, consumer_tag="quiet", nowait=True))
    channel.publish(b"x", key=queue)
    assert channel.take().method.consumer_tag == "quiet"


def test_no_ack_deliveries_are_gone_at_once(channel: Channel) -> None:
    queue = channel.declare()
    fill(channel, queue, 5)
    tag = channel.consume(queue, no_ack=True)
    channel.deliveries(5)
    channel.cancel(tag)
    assert channel.look(queue) == (0, 0)


def test_an_exclusive_consumer_keeps_others_out(client: Client) -> None:
    first, second = client.channel(), client.channel()
    queue = first.declare()
    first.consume(queue, exclusive=True)
    text = f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"
    with refused(403, text):
        second.consume(queue)


def test_an_exclusive_consumer_must_be_the_first(client: Client) -> None:
    first, second = client.channel(), client.channel()
    queue = first.declare()
    first.consume(queue)
    text = f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"
    with refused(403, text):
        second.consume(queue, exclusive=True)


def test_no_local_is_ignored(channel: Channel) -> None:
    queue = channel.declare()
    channel.consume(queue, no_local=True)
    channel.publish(b"my own", key=queue)
    assert channel.delivery().body == b"my own"


def test_consumers_take_turns(client: Client) -> None:
    first, second, sender = client.channel(), client.channel(), client.channel()
    queue = sender.declare()
    for channel in (first, second):
        channel.qos(100)
        channel.consume(queue)
    for number in range(10):
        sender.publish(b"%d" % number, key=queue)
    shares = [[int(m.body) for m in channel.deliveries(5)] for channel in (first, second)]
    assert sorted(shares) == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]


def test_consumers_of_a_higher_priority_come_first(client: Client) -> None:
    low, high, sender = client.channel(), client.channel(), client.channel()
    queue = sender.declare()
    low.consume(queue)
    high.qos(2)
    high.consume(queue, arguments={"x-priority": 10})
    for number in range(4):
        sender.publish(b"%d" % number, key=queue)
    assert [m.body for m in high.deliveries(2)] == [b"0", b"1"]
    assert [m.body for m in low.deliveries(2)] == [b"2", b"3"]


def test_a_consumer_priority_that_is_no_number_is_refused(channel: Channel) -> None:
    queue = channel.declare()
    with refused(406):
        channel.consume(queue, arguments={"x-priority": "high"})


# -- cancel


def test_cancel_ends_deliveries(channel: Channel) -> None:
    queue = channel.declare()
    tag = channel.consume(queue)
    channel.cancel(tag)
    channel.publish(b"x", key=queue)
    assert channel.becomes(queue, 1)
    assert channel.nothing_comes()


def test_cancel_leaves_unacked_messages_with_the_channel(channel: Channel) -> None:
    queue = channel.declare()
    fill(channel, queue, 1)
    tag = channel.consume(queue)
    message = channel.delivery()
    channel.cancel(tag)
    assert channel.count(queue) == 0
    channel.ack(message.tag)
    assert channel.count(queue) == 0


def test_cancel_of_an_unknown_tag_is_answered(channel: Channel) -> None:
    channel.cancel("never-was")


def test_a_deleted_queue_cancels_its_consumers(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    queue = other.declare()
    tag = channel.consume(queue)
    other.delete(queue)
    assert channel.expect(Basic.Cancel).consumer_tag == tag


def test_a_client_without_consumer_cancel_notify_hears_nothing(connect: Connect) -> None:
    client = connect(capabilities={})
    channel, other = client.channel(), client.channel()
    queue = other.declare()
    channel.consume(queue)
    other.delete(queue)
    channel.round_trip()
    assert channel.nothing_comes()


# -- qos


def test_prefetch_bounds_what_is_unacked(channel: Channel) -> None:
    queue = channel.declare()
    fill(channel, queue, 5)
    channel.qos(2)
    channel.consume(queue)
    first, second = channel.deliveries(2)
    assert channel.count(queue) == 3
    channel.ack(first.tag)
    assert channel.delivery().body == b"3"
    channel.ack(4 - 1, multiple=True)
    assert [m.body for m in channel.deliveries(2)] == [b"4", b"5"]


def test_prefetch_holds_for_consumers_that_come_after_it(channel: Channel) -> None:
    queue, other = channel.declare(), channel.declare()
    fill(channel, queue, 5)
    fill(channel, other, 5)
    channel.qos(1)
    channel.consume(queue, "one")
    channel.qos(3)
    channel.consume(other, "three")
    tags = [m.method.consumer_tag for m in channel.deliveries(4)]
    assert (tags.count("one"), tags.count("three")) == (1, 3)
    assert channel.nothing_comes()


def test_prefetch_does_not_bound_no_ack_consumers(channel: Channel) -> None:
    queue = channel.declare()
    fill(channel, queue, 5)
    channel.qos(1)
    channel.consume(queue, no_ack=True)
    assert len(channel.deliveries(5)) == 5


def test_global_prefetch_is_shared_by_the_channel(channel: Channel) -> None:
    queue, other = channel.declare(), channel.declare()
    fill(channel, queue, 5)
    fill(channel, other, 5)
    channel.qos(3, everyone=True)
    channel.consume(queue)
    channel.consume(other)
    got = channel.deliveries(3)
    assert channel.nothing_comes()
    channel.ack(got[0].tag)
    channel.delivery()
    assert channel.nothing_comes()


def test_global_prefetch_holds_no_ack_consumers_back_too(channel: Channel) -> None:
    acked, unacked = channel.declare(), channel.declare()
    channel.qos(1, everyone=True)
    channel.consume(acked)
    channel.publish(b"x", key=acked)
    first = channel.delivery()
    channel.consume(unacked, no_ack=True)
    fill(channel, unacked, 2)
    assert channel.nothing_comes()
    channel.ack(first.tag)
    assert len(channel.deliveries(2)) == 2  # and they take nothing of it


def test_basic_get_neither_needs_nor_takes_of_the_global_prefetch(channel: Channel) -> None:
    queue = channel.declare()
    fill(channel, queue, 5)
    channel.qos(1, everyone=True)
    channel.consume(queue)
    first = channel.delivery()
    taken = [channel.must_get(queue, no_ack=False) for _ in range(2)]
    channel.ack(first.tag)
    channel.delivery()
    for message in taken:
        channel.ack(message.tag)
    assert channel.nothing_comes()


@pytest.mark.parametrize("tx", [False, True])
def test_no_queue_is_left_behind_under_a_global_prefetch(channel: Channel, tx: bool) -> None:
    queues = [channel.declare() for _ in range(3)]
    channel.qos(1, everyone=True)
    for queue in queues:
        fill(channel, queue, 10)
        channel.consume(queue)
    if tx:
        channel.call(Tx.Select())
    for _ in range(10):
        channel.ack(channel.delivery().tag)
        if tx:
            channel.call(Tx.Commit())
    assert max(channel.count(queue) for queue in queues) < 9


def test_a_quorum_queue_does_not_take_a_global_prefetch(channel: Channel, unique: Unique) -> None:
    queue = channel.declare(unique("orders"), {"x-queue-type": "quorum"}, durable=True)
    channel.qos(5, everyone=True)
    text = f"NOT_IMPLEMENTED - queue '{queue}' in vhost '/' does not support global qos"
    with refused(540, text, connection=True):
        channel.consume(queue)


def test_prefetch_zero_means_no_bound(channel: Channel) -> None:
    queue = channel.declare()
    fill(channel, queue, 50)
    channel.qos(0)
    channel.consume(queue)
    assert len(channel.deliveries(50)) == 50


def test_prefetch_size_is_refused_with_540(channel: Channel) -> None:
    with refused(540, "NOT_IMPLEMENTED - prefetch_size!=0 (1024)", connection=True):
        channel.qos(1, size=1024)
