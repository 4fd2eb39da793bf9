"""basic: qos, consume, cancel, publish, return, get, ack, nack, reject, recover."""

import hashlib
import re
import time
from collections.abc import Callable

import pytest
from pamqp import header
from pamqp.body import ContentBody
from pamqp.commands import Basic, Tx

from tests.amqp.wire import Channel, Client, refused

Connect = Callable[..., Client]
Unique = Callable[[str], str]
LARGE = 120.0  # seconds for a message that takes its time


def fill(channel: Channel, queue: str, count: int) -> list[bytes]:
    bodies = [b"%d" % number for number in range(1, count + 1)]
    for body in bodies:
        channel.publish(body, key=queue)
    assert channel.becomes(queue, count)
    return bodies


# -- publish and get


def test_a_published_message_can_be_got(channel: Channel) -> None:
    queue = channel.declare()
    channel.publish(b"hello", key=queue)
    message = channel.get(queue)
    assert message
    assert message.body == b"hello"
    assert (message.exchange, message.key, message.redelivered) == ("", queue, False)
    assert message.method.message_count == 0


def test_get_from_an_empty_queue_says_so(channel: Channel) -> None:
    assert channel.get(channel.declare()) is None


def test_get_tells_how_many_more_there_are(channel: Channel) -> None:
    queue = channel.declare()
    fill(channel, queue, 3)
    assert [channel.must_get(queue).method.message_count for _ in range(3)] == [2, 1, 0]


def test_messages_come_in_the_order_they_were_published(channel: Channel) -> None:
    queue = channel.declare()
    bodies = fill(channel, queue, 100)
    assert channel.drain(queue) == bodies


def test_get_from_an_unknown_queue_is_404(channel: Channel) -> None:
    with refused(404, "NOT_FOUND - no queue 'no-such' in vhost '/'"):
        channel.get("no-such")


def test_publish_to_an_unknown_exchange_is_404(channel: Channel) -> None:
    with refused(404, "NOT_FOUND - no exchange 'no-such' in vhost '/'"):
        channel.publish(b"x", exchange="no-such")
        channel.round_trip()


def test_what_follows_a_channel_error_in_flight_is_dropped_until_close_ok(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    queue = other.declare()
    channel.publish(b"x", exchange="no-such")
    channel.publish(b"late", key=queue)  # on a channel that the broker has just closed
    assert channel.refusal().code == 404
    other.round_trip()
    assert other.count(queue) == 0


def test_an_unroutable_message_is_dropped_unless_mandatory(channel: Channel) -> None:
    channel.publish(b"x", key="nobody-reads-this")
    channel.round_trip()
    assert channel.nothing_comes()


def test_an_unroutable_mandatory_message_returns_with_312(channel: Channel) -> None:
    channel.publish(b"back", key="nobody", mandatory=True, content_type="text/plain")
    back = channel.returned()
    assert (back.method.reply_code, back.method.reply_text) == (312, "NO_ROUTE")
    assert (back.exchange, back.key, back.body) == ("", "nobody", b"back")
    assert back.properties.content_type == "text/plain"


def test_a_mandatory_message_that_has_a_queue_does_not_return(channel: Channel) -> None:
    queue = channel.declare()
    channel.publish(b"x", key=queue, mandatory=True)
    assert channel.becomes(queue, 1)
    assert channel.nothing_comes()


def test_immediate_is_refused_with_540(channel: Channel) -> None:
    with refused(540, "NOT_IMPLEMENTED - immediate=true", connection=True):
        channel.publish(b"x", immediate=True)
        channel.round_trip()


def test_publish_to_an_internal_exchange_is_403(channel: Channel, unique: Unique) -> None:
    inner = channel.declare_exchange(unique("inner"), internal=True)
    text = f"ACCESS_REFUSED - cannot publish to internal exchange '{inner}' in vhost '/'"
    with refused(403, text):
        channel.publish(b"x", exchange=inner)
        channel.round_trip()


@pytest.mark.parametrize("size", [0, 1, 4096, 131064, 131065, 131072, 1 << 20])
def test_a_body_of_any_size_arrives_whole(channel: Channel, size: int) -> None:
    queue = channel.declare()
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    channel.publish(body, key=queue)
    channel.consume(queue, no_ack=True)
    assert channel.delivery().body == body


def test_a_message_of_twenty_megabytes_goes_through(channel: Channel) -> None:
    queue = channel.declare()
    body = bytes(range(256)) * (20 << 12)
    channel.publish(body, key=queue)
    assert channel.must_get(queue).body == body


@pytest.mark.parametrize("mode", [1, 2], ids=["transient", "persistent"])
def test_a_message_of_all_the_128_mebibytes_it_may_have_goes_through(
    channel: Channel, unique: Unique, mode: int
) -> None:
    size = 128 << 20
    queue = channel.declare(unique("large"), durable=True)
    part = bytes(range(256)) * 256
    channel.confirm()
    channel.client.socket.settimeout(LARGE)
    channel.send(Basic.Publish(routing_key=queue))
    channel.send(header.ContentHeader(0, size, Basic.Properties(delivery_mode=mode)))
    for _ in range(size // len(part)):
        channel.send(ContentBody(part))
    channel.wait(lambda item: isinstance(item, Basic.Ack), LARGE)
    channel.send(Basic.Get(queue=queue, no_ack=True))
    # Put together here: the channel's inbox would copy what it has with every frame.
    limit = time.monotonic() + LARGE
    got = hashlib.sha256()
    left = size
    while left:
        _, frame = channel.client.read(limit)
        if isinstance(frame, ContentBody):
            got.update(frame.value)
            left -= len(frame.value)
    assert got.digest() == hashlib.sha256(part * (size // len(part))).digest()
    channel.delete(queue)


def test_a_body_may_be_split_over_any_frames(channel: Channel) -> None:
    queue = channel.declare()
    channel.send(Basic.Publish(routing_key=queue))
    channel.send(header.ContentHeader(0, 10, Basic.Properties()))
    for part in (b"a", b"bcd", b"efghi", b"j"):
        channel.send(ContentBody(part))
    assert channel.must_get(queue).body == b"abcdefghij"


def test_messages_larger_than_frame_max_come_in_frames_of_frame_max(connect: Connect) -> None:
    channel = connect(frame_max=4096).channel()
    queue = channel.declare()
    body = b"0123456789" * 10_000
    channel.publish(body, key=queue)
    channel.consume(queue, no_ack=True)
    assert channel.delivery().body == body
    assert channel.client.largest == 4096


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


def test_a_quorum_queue_does_not_take_a_global_prefetch(
    channel: Channel, unique: Callable[[str], str]
) -> None:
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


# -- get and the default queue


def test_an_empty_queue_name_means_the_last_declared(channel: Channel) -> None:
    queue = channel.declare()
    channel.publish(b"x", key=queue)
    assert channel.must_get("").body == b"x"


def test_an_empty_queue_name_without_a_declare_is_404(channel: Channel) -> None:
    text = "NOT_FOUND - no previously declared queue"
    with refused(404, text):
        channel.get("")
