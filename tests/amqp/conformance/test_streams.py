"""Stream queues: read from any offset, by any number of readers, as often as one likes."""

import datetime
import time
from collections.abc import Callable
from typing import Any

import pytest
from pamqp.commands import Basic, Queue

from tests.amqp.wire import Channel, Client, Message, Refused, eventually, refused

Connect = Callable[..., Client]
Unique = Callable[[str], str]


@pytest.fixture
def stream(channel: Channel, unique: Unique) -> str:
    return channel.declare(unique("stream"), {"x-queue-type": "stream"}, durable=True)


def fill(channel: Channel, stream: str, *bodies: bytes, **properties: Any) -> None:
    """Published and confirmed: readers see nothing else."""
    writer = channel.client.channel()
    writer.confirm()
    for body in bodies:
        writer.publish(body, key=stream, **properties)
    writer.confirmed(len(bodies))
    writer.close()


def read(channel: Channel, stream: str, count: int, offset: Any = "first") -> list[Message]:
    reader = channel.client.channel()
    reader.qos(100)
    arguments = {} if offset is None else {"x-stream-offset": offset}
    reader.consume(stream, arguments=arguments)
    got = []
    for _ in range(count):
        message = reader.delivery()
        reader.ack(message.tag)
        got.append(message)
    return got


def bodies(messages: list[Message]) -> list[bytes]:
    return [message.body for message in messages]


NUMBERS = [b"%d" % number for number in range(20)]


def test_a_stream_is_read_from_the_first_message(channel: Channel, stream: str) -> None:
    fill(channel, stream, *NUMBERS)
    got = read(channel, stream, 20)
    assert bodies(got) == NUMBERS
    assert [m.headers["x-stream-offset"] for m in got] == list(range(20))


def test_acks_take_nothing_away(channel: Channel, stream: str) -> None:
    fill(channel, stream, *NUMBERS)
    for _ in range(3):
        assert bodies(read(channel, stream, 20)) == NUMBERS


def test_many_readers_read_the_same(connect: Connect, channel: Channel, stream: str) -> None:
    fill(channel, stream, *NUMBERS)
    readers = [connect().channel() for _ in range(5)]
    for reader in readers:
        reader.qos(100)
        reader.consume(stream, arguments={"x-stream-offset": "first"})
    assert [bodies(reader.deliveries(20)) for reader in readers] == [NUMBERS] * 5


def test_a_stream_is_read_from_an_offset(channel: Channel, stream: str) -> None:
    fill(channel, stream, *NUMBERS)
    assert bodies(read(channel, stream, 13, 7)) == NUMBERS[7:]


def test_an_offset_beyond_the_end_waits_for_it(channel: Channel, stream: str) -> None:
    fill(channel, stream, *NUMBERS[:5])
    reader = channel.client.channel()
    reader.qos(10)
    reader.consume(stream, arguments={"x-stream-offset": 7})
    fill(channel, stream, *NUMBERS[5:10])
    assert bodies(reader.deliveries(3)) == NUMBERS[7:10]


@pytest.mark.parametrize("offset", ["next", None])
def test_next_is_the_default_and_means_what_comes_from_now_on(
    channel: Channel, stream: str, offset: str | None
) -> None:
    fill(channel, stream, b"old")
    reader = channel.client.channel()
    reader.qos(10)
    reader.consume(stream, arguments={"x-stream-offset": offset} if offset else {})
    fill(channel, stream, b"new")
    assert reader.delivery().body == b"new"


def test_last_begins_with_the_last_chunk(channel: Channel, stream: str) -> None:
    for number in NUMBERS:
        fill(channel, stream, number)
    (got,) = bodies(read(channel, stream, 1, "last"))
    assert got in NUMBERS[1:]  # where the last chunk begins is the broker's business


@pytest.mark.ottermq_only("a chunk is what one tick brought")
def test_what_was_confirmed_before_the_last_message_is_in_another_chunk(
    channel: Channel, stream: str
) -> None:
    for number in NUMBERS:
        fill(channel, stream, number)
    assert bodies(read(channel, stream, 1, "last")) == NUMBERS[-1:]


def test_a_timestamp_begins_with_what_came_after(channel: Channel, stream: str) -> None:
    fill(channel, stream, *NUMBERS[:5])
    time.sleep(2.1)
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    fill(channel, stream, *NUMBERS[5:10])
    got = bodies(read(channel, stream, 5, now))
    assert got == NUMBERS[5:10]
    past = now - datetime.timedelta(hours=1)
    assert bodies(read(channel, stream, 10, past)) == NUMBERS[:10]


def test_an_interval_begins_that_long_ago(channel: Channel, stream: str) -> None:
    fill(channel, stream, *NUMBERS[:5])
    time.sleep(3.1)
    fill(channel, stream, *NUMBERS[5:10])
    assert bodies(read(channel, stream, 5, "2s")) == NUMBERS[5:10]
    assert bodies(read(channel, stream, 10, "1h")) == NUMBERS[:10]


@pytest.mark.ottermq_only("3.10 crashes the connection at all but the first")
@pytest.mark.parametrize(
    ("offset", "told"),
    [("1x", '{longstr,<<"1x">>}'), ("", "{longstr,<<>>}"), (True, "{bool,true}")],
)
def test_it_is_told_which_offset_means_nothing(
    channel: Channel, stream: str, offset: Any, told: str
) -> None:
    channel.qos(10)
    text = f"invalid arg 'x-stream-offset' for queue '{stream}' in vhost '/'"
    with refused(406, f"PRECONDITION_FAILED - {text}: {{invalid_stream_offset_arg,{told}}}"):
        channel.consume(stream, arguments={"x-stream-offset": offset})


@pytest.mark.ottermq_only("3.10 crashes the connection")
@pytest.mark.parametrize("offset", ["never", True, {"a": 1}])
def test_an_offset_that_means_nothing_is_406(channel: Channel, stream: str, offset: Any) -> None:
    channel.qos(10)
    with pytest.raises(Refused) as no:
        channel.consume(stream, arguments={"x-stream-offset": offset})
    assert no.value.code == 406


@pytest.mark.ottermq_only("4.x has another text")
def test_a_stream_consumer_needs_a_prefetch(channel: Channel, stream: str) -> None:
    with refused(
        406,
        "PRECONDITION_FAILED - consumer prefetch count is not set for"
        f" stream queue '{stream}' in vhost '/'",
    ):
        channel.consume(stream)


NOT_ON_STREAMS: dict[str, tuple[str, Callable[[Channel, str], object]]] = {
    "consume": (
        "automatic acknowledgement not supported by stream",
        lambda channel, stream: channel.consume(stream, no_ack=True),
    ),
    "get": (
        "basic.get not supported by stream queues",
        lambda channel, stream: channel.get(stream),
    ),
    "purge": (
        "queue.purge not supported by stream queues",
        lambda channel, stream: channel.purge(stream),
    ),
}


@pytest.mark.ottermq_only("4.x has another text")
@pytest.mark.parametrize("operation", NOT_ON_STREAMS)
def test_what_streams_do_not_know_is_540(channel: Channel, stream: str, operation: str) -> None:
    told, act = NOT_ON_STREAMS[operation]
    channel.qos(10)
    text = f"NOT_IMPLEMENTED - {told} queue '{stream}' in vhost '/'"
    with refused(540, text, connection=True):
        act(channel, stream)


@pytest.mark.ottermq_only("3.10 hands out whole chunks")
def test_prefetch_bounds_what_is_unacked(channel: Channel, stream: str) -> None:
    fill(channel, stream, *NUMBERS)
    channel.qos(5)
    channel.consume(stream, arguments={"x-stream-offset": "first"})
    first = channel.deliveries(5)
    assert channel.nothing_comes()
    channel.ack(first[-1].tag, multiple=True)
    assert bodies(channel.deliveries(5)) == NUMBERS[5:10]


def test_a_stream_counts_its_messages(channel: Channel, stream: str) -> None:
    fill(channel, stream, *NUMBERS)
    assert channel.becomes(stream, 20)


def test_a_stream_goes_by_its_exchange_like_any_queue(
    channel: Channel, unique: Unique, stream: str
) -> None:
    exchange = channel.declare_exchange(unique("x"), "topic")
    channel.bind(stream, exchange, "a.#")
    channel.confirm()
    channel.publish(b"x", key="a.b", exchange=exchange, headers={"mine": 1}, message_id="m")
    channel.confirmed(1)
    (message,) = read(channel, stream, 1)
    assert (message.exchange, message.key, message.body) == (exchange, "a.b", b"x")
    assert message.headers == {"mine": 1, "x-stream-offset": 0}
    assert message.properties.message_id == "m"


def test_large_messages_stream_too(channel: Channel, stream: str) -> None:
    body = bytes(range(256)) * 2000
    fill(channel, stream, body, body[::-1])
    assert bodies(read(channel, stream, 2)) == [body, body[::-1]]


def test_a_backlog_is_read_in_order(channel: Channel, stream: str) -> None:
    sent = [b"%d" % number for number in range(3000)]
    fill(channel, stream, *sent)
    assert bodies(read(channel, stream, 3000)) == sent


def test_a_deleted_stream_ends_its_readers(channel: Channel, stream: str) -> None:
    reader = channel.client.channel()
    reader.qos(10)
    tag = reader.consume(stream, arguments={"x-stream-offset": "first"})
    channel.delete(stream)
    assert reader.expect(Basic.Cancel).consumer_tag == tag


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("x-max-age", 1),
        ("x-max-age", "soon"),
        ("x-stream-max-segment-size-bytes", 100_000_000_000),
        ("x-max-length-bytes", -1),
    ],
)
@pytest.mark.ottermq_only("3.10 crashes on some of these")
def test_stream_arguments_out_of_range_are_406(
    channel: Channel, unique: Unique, argument: str, value: Any
) -> None:
    with refused(406):
        channel.declare(unique("s"), {"x-queue-type": "stream", argument: value}, durable=True)


@pytest.mark.ottermq_only("retention is looked at when we say so, not with the next segment")
def test_a_stream_keeps_no_more_than_its_bytes(channel: Channel, unique: Unique) -> None:
    stream = channel.declare(
        unique("stream"),
        {
            "x-queue-type": "stream",
            "x-max-length-bytes": 200_000,
            "x-stream-max-segment-size-bytes": 65_536,
        },
        durable=True,
    )
    fill(channel, stream, *[b"x" * 1000] * 1000)
    assert eventually(lambda: read(channel, stream, 1)[0].headers["x-stream-offset"] > 0)


@pytest.mark.ottermq_only("retention is looked at when we say so, not with the next segment")
def test_a_stream_keeps_nothing_longer_than_its_age(channel: Channel, unique: Unique) -> None:
    arguments = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 65_536}
    short = channel.declare(unique("short"), {**arguments, "x-max-age": "1s"}, durable=True)
    long = channel.declare(unique("long"), {**arguments, "x-max-age": "1h"}, durable=True)
    for stream in (short, long):
        fill(channel, stream, *[b"x" * 1000] * 300)
    assert eventually(lambda: channel.count(short) < 300)
    assert channel.count(long) == 300


@pytest.mark.ottermq_only("AMQP 0.9.1 filters came with 3.13")
def test_a_filter_picks_the_messages_with_its_value(channel: Channel, stream: str) -> None:
    for number in range(30):
        fill(
            channel,
            stream,
            b"%d" % number,
            headers={"x-stream-filter-value": ("odd", "even")[number % 2 == 0]},
        )
    reader = channel.client.channel()
    reader.qos(100)
    reader.consume(stream, arguments={"x-stream-offset": "first", "x-stream-filter": "odd"})
    got = {int(m.body) for m in reader.deliveries(15)}
    assert {number for number in got if number % 2} == got  # ours filters exactly


@pytest.mark.ottermq_only("AMQP 0.9.1 filters came with 3.13")
def test_filters_may_be_many_and_take_the_unfiltered_too(channel: Channel, stream: str) -> None:
    for value in ("a", "b", "c", None):
        fill(channel, stream, str(value).encode(), headers={"x-stream-filter-value": value})
    reader = channel.client.channel()
    reader.qos(100)
    reader.consume(
        stream,
        arguments={
            "x-stream-offset": "first",
            "x-stream-filter": ["a", "b"],
            "x-stream-match-unfiltered": True,
        },
    )
    assert bodies(reader.deliveries(2)) == [b"a", b"b"]


@pytest.mark.ottermq_only("AMQP 0.9.1 filters came with 3.13")
@pytest.mark.parametrize("filter", ["x" * 256, ["short", "x" * 256]])
def test_a_filter_too_long_is_406_and_does_not_let_everything_through(
    channel: Channel, stream: str, filter: Any
) -> None:
    channel.qos(10)
    with refused(
        406,
        f"PRECONDITION_FAILED - invalid arg 'x-stream-filter' for queue '{stream}' in vhost '/':"
        " longer than 255 bytes",
    ):
        channel.consume(stream, arguments={"x-stream-filter": filter})


@pytest.mark.ottermq_only("AMQP 0.9.1 filters came with 3.13")
def test_messages_without_a_filter_value_come_when_asked_for(channel: Channel, stream: str) -> None:
    fill(channel, stream, b"a", headers={"x-stream-filter-value": "a"})
    fill(channel, stream, b"b", headers={"x-stream-filter-value": "b"})
    fill(channel, stream, b"none")
    for too, wanted in ((True, [b"a", b"none"]), (False, [b"a"])):
        reader = channel.client.channel()
        reader.qos(100)
        reader.consume(
            stream,
            arguments={
                "x-stream-offset": "first",
                "x-stream-filter": "a",
                "x-stream-match-unfiltered": too,
            },
        )
        assert bodies(reader.deliveries(len(wanted))) == wanted
        assert reader.nothing_comes()


def test_a_stream_of_the_same_arguments_may_be_declared_again(
    channel: Channel, unique: Unique
) -> None:
    arguments: Any = {"x-queue-type": "stream", "x-max-age": "7D"}
    name = channel.declare(unique("stream"), arguments, durable=True)
    assert channel.call(Queue.Declare(queue=name, durable=True, arguments=arguments)).queue == name
    with refused(406):
        channel.declare(name, {**arguments, "x-max-age": "8D"}, durable=True)
