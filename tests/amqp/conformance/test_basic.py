"""basic: publish, return, get."""

import hashlib
import time
from collections.abc import Callable

import pytest
from pamqp import header
from pamqp.body import ContentBody
from pamqp.commands import Basic

from tests.amqp.wire import Channel, Client, fill, refused

Connect = Callable[..., Client]
Unique = Callable[[str], str]
LARGE = 120.0  # seconds for a message that takes its time


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


# -- get and the default queue


def test_an_empty_queue_name_means_the_last_declared(channel: Channel) -> None:
    queue = channel.declare()
    channel.publish(b"x", key=queue)
    assert channel.must_get("").body == b"x"


def test_an_empty_queue_name_without_a_declare_is_404(channel: Channel) -> None:
    text = "NOT_FOUND - no previously declared queue"
    with refused(404, text):
        channel.get("")
