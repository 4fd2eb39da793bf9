"""x-delayed-message: a message waits for its x-delay before it is routed."""

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from pamqp.commands import Basic

from tests.amqp.wire import Channel, Client, refused
from tests.fuzz.odd_tables import DELAY, array, entry, text

pytestmark = pytest.mark.ottermq_only("a plugin that Debian's RabbitMQ does not bring")

Unique = Callable[[str], str]


@pytest.fixture
def later(channel: Channel, unique: Unique) -> str:
    return channel.declare_exchange(
        unique("later"), "x-delayed-message", {"x-delayed-type": "topic"}
    )


def test_a_delayed_message_comes_after_its_delay(channel: Channel, later: str) -> None:
    queue = channel.declare()
    channel.bind(queue, later, "a.*")
    started = time.monotonic()
    channel.publish(b"x", key="a.b", exchange=later, headers={"x-delay": 300})
    channel.consume(queue, no_ack=True)
    assert channel.delivery().body == b"x"
    assert time.monotonic() - started >= 0.28


def test_shorter_delays_overtake_longer_ones(channel: Channel, later: str) -> None:
    queue = channel.declare()
    channel.bind(queue, later, "#")
    with channel.client.together():
        for delay in (900, 100, 500, 300):
            channel.publish(b"%d" % delay, key="k", exchange=later, headers={"x-delay": delay})
        channel.publish(b"now", key="k", exchange=later)
    channel.consume(queue, no_ack=True)
    got = [m.body for m in channel.deliveries(5)]
    assert got == [b"now", b"100", b"300", b"500", b"900"]


def test_routes_are_those_of_when_the_delay_ends(channel: Channel, later: str) -> None:
    queue = channel.declare()
    channel.publish(b"x", key="k", exchange=later, headers={"x-delay": 300})
    channel.bind(queue, later, "k")
    assert channel.must_get(queue).body == b"x"


def test_the_delay_header_arrives_with_its_sign_turned(channel: Channel, later: str) -> None:
    queue = channel.declare()
    channel.bind(queue, later, "k")
    channel.publish(b"x", key="k", exchange=later, headers={"x-delay": 50, "a": 1})
    assert channel.must_get(queue).headers == {"x-delay": -50, "a": 1}


def test_a_delayed_publish_is_confirmed_when_it_is_kept_not_when_it_is_routed(
    channel: Channel, later: str
) -> None:
    queue = channel.declare()
    channel.bind(queue, later, "k")
    channel.confirm()
    channel.publish(b"x", key="k", exchange=later, headers={"x-delay": 60_000})
    channel.confirmed(1)
    assert channel.count(queue) == 0


@pytest.mark.parametrize("in_tx", [False, True])
@pytest.mark.parametrize("delay", [0, 50])
def test_copies_are_delayed_too_and_bcc_stays_hidden(
    channel: Channel, later: str, delay: int, in_tx: bool
) -> None:
    queues = {key: channel.declare() for key in ("to", "cc", "bcc")}
    for key, queue in queues.items():
        channel.bind(queue, later, key)
    sender = channel.client.channel()
    if in_tx:
        sender.tx_select()
    headers = {"x-delay": delay, "CC": ["cc"], "BCC": ["bcc"]}
    sender.publish(b"x", key="to", exchange=later, headers=headers)
    if in_tx:
        sender.tx_commit()
    for queue in queues.values():
        assert channel.must_get(queue).headers == {"x-delay": -delay, "CC": ["cc"]}
    direct = channel.declare()
    sender.publish(b"x", key=direct, headers=headers)  # the same headers where nothing waits
    if in_tx:
        sender.tx_commit()
    assert channel.must_get(direct).headers == {"x-delay": delay, "CC": ["cc"]}


@pytest.mark.parametrize("delay", [None, 0])
def test_a_mandatory_message_that_does_not_wait_returns_also_from_a_transaction(
    channel: Channel, later: str, delay: int | None
) -> None:
    channel.tx_select()
    headers: dict[str, Any] = {} if delay is None else {"headers": {"x-delay": delay}}
    channel.publish(b"x", key="nobody", exchange=later, mandatory=True, **headers)
    channel.tx_commit()
    assert channel.returned().body == b"x"


def test_a_delayed_exchange_needs_a_type(client: Client, unique: Unique) -> None:
    for arguments in ({}, {"x-delayed-type": "pigeon"}, {"x-delayed-type": "x-delayed-message"}):
        with refused(406):
            client.channel().declare_exchange(unique("x"), "x-delayed-message", arguments)


def publish_with(channel: Channel, exchange: str, headers: bytes) -> None:
    """An empty message with a headers table that no library would write."""
    head = struct.pack(">HHQHI", 60, 0, 0, 1 << 13, len(headers)) + headers
    channel.send(Basic.Publish(exchange=exchange, routing_key="to"))
    channel.client.raw(struct.pack(">BHI", 2, channel.number, len(head)) + head + b"\xce")


def test_of_a_header_that_comes_twice_the_first_counts(channel: Channel, later: str) -> None:
    queues = {key: channel.declare() for key in ("to", "first", "second", "hidden")}
    for key, queue in queues.items():
        channel.bind(queue, later, key)
    cc = entry("CC", array(text("first"))) + entry("CC", text("second"))
    bcc = entry("BCC", array(text("hidden"))) + entry("BCC", text("second"))
    publish_with(channel, later, cc + bcc + DELAY)
    for key in ("to", "first", "hidden"):
        # pamqp, the reader here, keeps the last of a name
        assert channel.must_get(queues[key]).headers == {"x-delay": -1, "CC": "second"}
    assert channel.get(queues["second"]) is None


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_a_wrong_list_of_copies_is_refused_also_when_a_right_one_follows(
    client: Client, later: str, name: str
) -> None:
    channel = client.channel()
    queue = channel.declare()
    channel.bind(queue, later, "to")
    twice = entry(name, text("to")) + entry(name, array(text("to")))
    hidden = entry("BCC", array(text("to")))
    with refused(
        406,
        f'PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,"{name}",longstr}}',
    ):
        publish_with(channel, later, twice + hidden + DELAY)
        channel.round_trip()
