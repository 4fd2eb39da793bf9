"""Queue types: what quorum queues and streams are, and what they have no use for."""

from collections.abc import Callable

import pytest

from tests.amqp.wire import Channel, Client, Refused, refused

Unique = Callable[[str], str]


@pytest.mark.parametrize("type", ["quorum", "stream"])
@pytest.mark.parametrize(
    ("flags", "property"),
    [
        ({}, "non-durable"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({"durable": True, "auto_delete": True}, "auto-delete"),
    ],
)
def test_quorum_queues_and_streams_are_durable_shared_and_stay(
    channel: Channel, unique: Unique, type: str, flags: dict[str, bool], property: str
) -> None:
    name = unique("orders")
    text = f"PRECONDITION_FAILED - invalid property '{property}' for queue '{name}' in vhost '/'"
    with refused(406, text):
        channel.declare(name, {"x-queue-type": type}, **flags)


@pytest.mark.ottermq_only("4.x; 3.10 refuses an empty one")
@pytest.mark.parametrize("meaningless", ["", "undefined"])
def test_a_queue_type_that_says_nothing_means_the_default(
    channel: Channel, unique: Unique, meaningless: str
) -> None:
    name = channel.declare(unique("orders"), {"x-queue-type": meaningless}, durable=True)
    assert channel.declare(name, {"x-queue-type": "classic"}, durable=True) == name
    channel.delete(name)


def test_a_queue_type_without_a_value_is_406(channel: Channel, unique: Unique) -> None:
    with pytest.raises(Refused, match="unacceptable_type,void"):
        channel.declare(unique("orders"), {"x-queue-type": None}, durable=True)


@pytest.mark.parametrize("type", ["quorum", "stream"])
def test_quorum_queues_and_streams_know_no_exclusive_consumers(
    client: Client, unique: Unique, type: str
) -> None:
    channel, other = client.channel(), client.channel()
    name = channel.declare(unique("orders"), {"x-queue-type": type}, durable=True)
    for each in (channel, other):
        each.qos(10)
        each.consume(name, exclusive=True)
    channel.round_trip()
    channel.delete(name)


def test_a_queue_cannot_change_its_type(channel: Channel, unique: Unique) -> None:
    name = channel.declare(unique("orders"), durable=True)
    with pytest.raises(Refused, match=f"inequivalent arg 'x-queue-type' for queue '{name}'"):
        channel.declare(name, {"x-queue-type": "quorum"}, durable=True)


@pytest.mark.parametrize("flag", ["if_unused", "if_empty"])
def test_a_quorum_queue_knows_no_conditions_for_its_end(
    channel: Channel, unique: Unique, flag: str
) -> None:
    name = channel.declare(unique("orders"), {"x-queue-type": "quorum"}, durable=True)
    told = flag.replace("_", "-")
    text = (
        f"NOT_IMPLEMENTED - cannot delete queue '{name}' in vhost '/'. queue.delete operations"
        f" with {told} flag set are not supported by quorum queues"
    )
    with refused(540, text, connection=True):
        channel.delete(name, **{flag: True})


def test_a_stream_goes_whatever_was_asked(channel: Channel, unique: Unique) -> None:
    name = channel.declare(unique("orders"), {"x-queue-type": "stream"}, durable=True)
    channel.confirm()
    channel.publish(b"x", key=name)
    channel.confirmed(1)
    channel.qos(1)
    channel.consume(name)
    assert channel.delete(name, if_unused=True, if_empty=True) == 0
