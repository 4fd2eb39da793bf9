"""channel: open, close, flow; what ends a channel and what ends the connection."""

from collections.abc import Callable

import pytest
from pamqp import commands, header
from pamqp.body import ContentBody
from pamqp.commands import Basic, Connection, Queue

from tests.amqp.wire import Channel, Client, Gone, Refused, refused

Connect = Callable[..., Client]


def test_channels_open_in_any_order(client: Client) -> None:
    for number in (7, 1, 2047, 3):
        client.channel(number).round_trip()


def test_a_channel_number_may_be_used_again_after_close(client: Client) -> None:
    for _ in range(3):
        client.channel(1).close()


def test_a_second_open_is_504(channel: Channel) -> None:
    with refused(504, "CHANNEL_ERROR - second 'channel.open' seen", connection=True):
        channel.call(commands.Channel.Open())


def test_a_method_on_a_channel_that_is_not_open_is_504(client: Client) -> None:
    client.send(Queue.Declare(queue="x"), 5)
    no = client.refusal()
    assert (no.code, no.text, no.method) == (
        504,
        "CHANNEL_ERROR - expected 'channel.open'",
        (50, 10),
    )


def test_content_on_a_closed_channel_is_504(client: Client) -> None:
    client.channel(1).close()
    client.send(Basic.Publish(routing_key="x"), 1)
    client.send(header.ContentHeader(0, 1, Basic.Properties()), 1)
    client.send(ContentBody(b"x"), 1)
    no = client.refusal()
    assert (no.code, no.text) == (504, "CHANNEL_ERROR - expected 'channel.open'")


@pytest.mark.parametrize("method", [Connection.Open("/"), Connection.Close(200, "", 0, 0)])
def test_connection_methods_on_a_channel_are_503(channel: Channel, method: Connection.Open) -> None:
    channel.send(method)
    no = channel.refusal()
    assert (no.code, no.text, no.connection) == (
        503,
        "COMMAND_INVALID - unimplemented method",
        True,
    )


@pytest.mark.parametrize(
    "method",
    [Queue.DeclareOk("x", 0, 0), commands.Channel.FlowOk(True), commands.Channel.CloseOk()],
    ids=lambda method: str(method.name),
)
def test_answers_that_nobody_asked_for_are_503(channel: Channel, method: Queue.DeclareOk) -> None:
    channel.send(method)
    no = channel.refusal()
    assert (no.code, no.text, no.connection) == (
        503,
        "COMMAND_INVALID - unimplemented method",
        True,
    )


def test_a_channel_error_leaves_the_other_channels_alone(client: Client) -> None:
    first, second = client.channel(), client.channel()
    queue = second.declare()
    second.consume(queue)
    with refused(404):
        first.look("no-such")
    second.publish(b"x", key=queue)
    assert second.delivery().body == b"x"


def test_a_channel_may_be_opened_again_after_an_error(client: Client) -> None:
    for _ in range(3):
        channel = client.channel(1)
        with refused(404):
            channel.look("no-such")


def test_a_channel_error_names_the_method_that_caused_it(channel: Channel) -> None:
    with pytest.raises(Refused) as no:
        channel.look("no-such")
    assert no.value.method == (50, 10)


def test_a_long_reply_text_is_cut_at_255_bytes(channel: Channel) -> None:
    name = "x" * 250
    with pytest.raises(Refused) as no:
        channel.look(name)
    assert no.value.code == 404
    assert len(no.value.text) <= 255
    assert no.value.text.startswith("NOT_FOUND - no queue 'xxx")


def test_flow_active_is_answered(channel: Channel) -> None:
    assert channel.flow(True)


def test_flow_inactive_is_540(channel: Channel) -> None:
    with refused(540, "NOT_IMPLEMENTED - active=false", connection=True):
        channel.flow(False)


def test_close_gives_back_consumers(client: Client) -> None:
    first, second = client.channel(), client.channel()
    queue = second.declare()
    first.consume(queue)
    assert second.look(queue) == (0, 1)
    first.close()
    assert second.look(queue) == (0, 0)


def test_what_the_broker_sends_after_our_close_is_nothing_but_close_ok(client: Client) -> None:
    channel = client.channel()
    queue = channel.declare()
    channel.consume(queue)
    for _ in range(10):
        channel.publish(b"x", key=queue)
    channel.close()
    late = client.channel(channel.number)  # nothing of the old channel may reach it
    late.round_trip()
    assert late.nothing_comes()


def test_many_channels_of_a_connection_work_at_once(client: Client) -> None:
    channels = [client.channel() for _ in range(200)]
    queues = [channel.declare() for channel in channels]
    for channel, queue in zip(channels, reversed(queues), strict=True):
        channel.publish(queue.encode(), key=queue)
    for channel, queue in zip(channels, queues, strict=True):
        assert channel.must_get(queue).body == queue.encode()


def test_a_client_that_leaves_without_a_word_harms_nobody(connect: Connect) -> None:
    for _ in range(20):
        client = connect()
        client.channel().declare()
        client.drop()
    connect().channel().round_trip()


def test_the_broker_survives_a_client_that_never_answers_close(connect: Connect) -> None:
    client, other = connect(), connect()
    channel = client.channel()
    client.send = lambda frame, channel: None  # type: ignore[method-assign]
    client.raw(b"\x01\x00\x01\x00\x00\x00\x04\x00\x3c\x00\x0a\xce")  # a qos without arguments
    with pytest.raises((Refused, Gone)):
        channel.wait(lambda item: False)
    other.channel().round_trip()
