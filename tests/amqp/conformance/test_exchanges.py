"""exchange: declare, delete, bind and unbind; the types and how they route."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pamqp.commands import Exchange

from tests.amqp.wire import Channel, Client, refused

Connect = Callable[..., Client]
Unique = Callable[[str], str]


def routed(channel: Channel, queue: str) -> list[bytes]:
    """What came to the queue; a last message by the default exchange tells that all has come."""
    channel.publish(b"end", key=queue)
    channel.consume(queue, queue, no_ack=True)
    got = []
    while (body := channel.delivery().body) != b"end":
        got.append(body)
    channel.cancel(queue)
    return got


# -- declare and delete


@pytest.mark.parametrize("type", ["direct", "fanout", "topic", "headers"])
@pytest.mark.parametrize("flags", [{}, {"durable": True}, {"auto_delete": True}])
def test_declare_again_the_same_is_answered(
    channel: Channel, unique: Unique, type: str, flags: dict[str, bool]
) -> None:
    name = channel.declare_exchange(unique("x"), type, **flags)
    channel.declare_exchange(name, type, **flags)
    channel.delete_exchange(name)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"type": "fanout"}, "'type': received 'fanout' but current is 'direct'"),
        ({"durable": True}, "'durable': received 'true' but current is 'false'"),
        ({"auto_delete": True}, "'auto_delete': received 'true' but current is 'false'"),
        ({"internal": True}, "'internal': received 'true' but current is 'false'"),
    ],
)
def test_a_declare_that_differs_is_406(
    channel: Channel, unique: Unique, flags: dict[str, Any], told: str
) -> None:
    name = channel.declare_exchange(unique("x"))
    what, _, difference = told.partition(": ")
    text = f"PRECONDITION_FAILED - inequivalent arg {what} for exchange '{name}' in vhost '/': "
    with refused(406, text + difference):
        channel.declare_exchange(name, **flags)


def test_a_declare_with_another_alternate_exchange_is_406(channel: Channel, unique: Unique) -> None:
    name = channel.declare_exchange(unique("x"), arguments={"alternate-exchange": "a"})
    text = (
        "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange"
        f" '{name}' in vhost '/': received 'b' but current is 'a'"
    )
    with refused(406, text):
        channel.declare_exchange(name, arguments={"alternate-exchange": "b"})


def test_passive_declare_of_an_unknown_exchange_is_404(channel: Channel) -> None:
    with refused(404, "NOT_FOUND - no exchange 'no-such' in vhost '/'"):
        channel.declare_exchange("no-such", passive=True)


def test_passive_declare_looks_at_nothing_but_the_name(channel: Channel, unique: Unique) -> None:
    name = channel.declare_exchange(unique("x"), "topic", durable=True)
    channel.declare_exchange(name, "fanout", passive=True)


@pytest.mark.ottermq_only("503 for the connection before 4.x")
def test_an_unknown_type_is_406(channel: Channel, unique: Unique) -> None:
    with refused(406, "PRECONDITION_FAILED - unknown exchange type 'pigeon'"):
        channel.declare_exchange(unique("x"), "pigeon")


def test_declare_with_no_wait_has_no_answer(channel: Channel, unique: Unique) -> None:
    name = unique("quiet")
    channel.send(Exchange.Declare(exchange=name, exchange_type="fanout", nowait=True))
    channel.round_trip()
    assert not channel.inbox
    channel.declare_exchange(name, passive=True)


BUILT_IN = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_built_in_exchanges_are_there(channel: Channel, name: str) -> None:
    channel.declare_exchange(name, BUILT_IN[name], durable=True)


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_built_in_exchanges_cannot_be_deleted(channel: Channel, name: str) -> None:
    text = f"ACCESS_REFUSED - deletion of system exchange '{name}' in vhost '/' not allowed"
    with refused(403, text):
        channel.delete_exchange(name)


def test_names_with_the_reserved_prefix_are_403(channel: Channel) -> None:
    text = "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'"
    with refused(403, text):
        channel.declare_exchange("amq.mine")


def test_the_default_exchange_is_not_touched(client: Client) -> None:
    text = "ACCESS_REFUSED - operation not permitted on the default exchange"
    operations: list[Callable[[Channel], object]] = [
        lambda channel: channel.declare_exchange("", durable=True),
        lambda channel: channel.delete_exchange(""),
        lambda channel: channel.bind_exchange("", "amq.direct"),
        lambda channel: channel.bind_exchange("amq.direct", ""),
    ]
    for operation in operations:
        with refused(403, text):
            operation(client.channel())


def test_delete_of_an_unknown_exchange_is_answered(channel: Channel) -> None:
    channel.delete_exchange("no-such")


def test_a_deleted_exchange_is_gone(channel: Channel, unique: Unique) -> None:
    name = channel.declare_exchange(unique("x"))
    channel.delete_exchange(name)
    with refused(404, f"NOT_FOUND - no exchange '{name}' in vhost '/'"):
        channel.declare_exchange(name, passive=True)


def test_delete_if_unused_spares_an_exchange_with_bindings(
    channel: Channel, unique: Unique
) -> None:
    name = channel.declare_exchange(unique("x"))
    channel.bind(channel.declare(), name, "key")
    with refused(406, f"PRECONDITION_FAILED - exchange '{name}' in vhost '/' in use"):
        channel.delete_exchange(name, if_unused=True)


def test_an_auto_delete_exchange_goes_with_its_last_binding(
    channel: Channel, unique: Unique
) -> None:
    name = channel.declare_exchange(unique("brief"), auto_delete=True)
    queue = channel.declare()
    channel.bind(queue, name, "a")
    channel.bind(queue, name, "b")
    channel.unbind(queue, name, "a")
    channel.declare_exchange(name, passive=True)
    channel.unbind(queue, name, "b")
    with refused(404):
        channel.declare_exchange(name, passive=True)


def test_an_auto_delete_exchange_goes_with_its_last_queue(channel: Channel, unique: Unique) -> None:
    name = channel.declare_exchange(unique("brief"), auto_delete=True)
    queue = channel.declare()
    channel.bind(queue, name, "a")
    channel.delete(queue)
    with refused(404):
        channel.declare_exchange(name, passive=True)


# -- direct, fanout, topic


def test_a_direct_exchange_routes_by_the_whole_key(channel: Channel, unique: Unique) -> None:
    exchange = channel.declare_exchange(unique("x"), "direct")
    one, both = channel.declare(), channel.declare()
    channel.bind(one, exchange, "a")
    channel.bind(both, exchange, "a")
    channel.bind(both, exchange, "b")
    for key in ("a", "b", "c", "a.b", ""):
        channel.publish(key.encode(), key=key, exchange=exchange)
    assert routed(channel, one) == [b"a"]
    assert routed(channel, both) == [b"a", b"b"]


def test_a_fanout_exchange_routes_to_all(channel: Channel, unique: Unique) -> None:
    exchange = channel.declare_exchange(unique("x"), "fanout")
    queues = [channel.declare() for _ in range(3)]
    for queue in queues:
        channel.bind(queue, exchange, "whatever")
    channel.publish(b"news", key="any", exchange=exchange)
    assert [routed(channel, queue) for queue in queues] == [[b"news"]] * 3


TOPICS = [  # an empty key has no words at all
    ("a.b.c", ["a.b.c"], ["a.b", "a.b.c.d", "a.b.d"]),
    ("a.*.c", ["a.b.c", "a..c"], ["a.c", "a.b.b.c"]),
    ("a.#", ["a", "a.b", "a.b.c", "a."], ["b.a", "ab"]),
    ("#.c", ["c", "a.c", "a.b.c"], ["c.a"]),
    ("a.#.c", ["a.c", "a.b.c", "a.b.b.c"], ["a", "c", "a.c.d"]),
    ("#", ["", "a", "a.b.c", ".."], []),
    ("*", ["a"], ["", "a.b"]),
    ("*.*", ["a.b", "."], ["a", "a.b.c"]),
    ("#.#", ["", "a", "a.b"], []),
    ("*.#", ["a", "a.b"], [""]),
    ("a.#.#.b", ["a.b", "a.x.b", "a.x.y.b"], ["a", "b"]),
    ("", [""], ["a"]),
    ("a.b*", ["a.b*"], ["a.bc", "a.b"]),
]


@pytest.mark.parametrize(("pattern", "matching", "others"), TOPICS)
def test_a_topic_exchange_routes_by_words(
    channel: Channel, unique: Unique, pattern: str, matching: list[str], others: list[str]
) -> None:
    exchange = channel.declare_exchange(unique("x"), "topic")
    queue = channel.declare()
    channel.bind(queue, exchange, pattern)
    for key in matching + others:
        channel.publish(key.encode(), key=key, exchange=exchange)
    assert routed(channel, queue) == [key.encode() for key in matching]


# -- headers


HEADERS = [
    ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1, "b": "x"}, True),
    ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 3}, True),
    ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1}, False),
    ({"a": 1}, {"a": 1}, True),  # all is the default
    ({"a": 1, "b": 2}, {"a": 1}, False),
    ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True),
    ({"x-match": "any", "a": 1, "b": 2}, {"a": 2, "b": 1}, False),
    ({"x-match": "any", "a": 1}, {}, False),
    ({"x-match": "all"}, {}, True),
    ({"x-match": "any"}, {"a": 1}, False),
    ({"x-match": "all", "a": None}, {"a": "anything"}, True),  # void: it is enough to be there
    ({"x-match": "all", "a": None}, {"b": 1}, False),
    ({"x-match": "all", "a": "1"}, {"a": 1}, False),
    ({"x-match": "all", "x-a": 1, "b": 2}, {"b": 2}, True),  # x- headers don't count
    ({"x-match": "any", "x-a": 1}, {"x-a": 1}, False),
    ({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"b": 2}, False),
    ({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"x-a": 1, "b": 2}, True),
    ({"x-match": "any-with-x", "x-a": 1, "b": 2}, {"x-a": 1}, True),
]


@pytest.mark.parametrize(("wanted", "sent", "comes"), HEADERS, ids=str)
def test_a_headers_exchange_routes_by_headers(
    channel: Channel, unique: Unique, wanted: dict[str, Any], sent: dict[str, Any], comes: bool
) -> None:
    exchange = channel.declare_exchange(unique("x"), "headers")
    queue = channel.declare()
    channel.bind(queue, exchange, "", wanted)
    channel.publish(b"x", exchange=exchange, headers=sent)
    assert routed(channel, queue) == [b"x"] * comes


def test_an_unknown_x_match_is_406(client: Client) -> None:
    text = 'PRECONDITION_FAILED - Invalid x-match field value <<"some">>; expected all, any,'
    channel = client.channel()
    with refused(406, f"{text} all-with-x, or any-with-x"):
        channel.bind(channel.declare(), "amq.headers", "", {"x-match": "some"})
    channel = client.channel()
    with refused(
        406, "PRECONDITION_FAILED - Invalid x-match field type byte (value 1); expected longstr"
    ):
        channel.bind(channel.declare(), "amq.headers", "", {"x-match": 1})


# -- exchange to exchange, alternate exchange


def test_an_exchange_may_be_bound_to_an_exchange(channel: Channel, unique: Unique) -> None:
    source = channel.declare_exchange(unique("source"), "topic")
    target = channel.declare_exchange(unique("target"), "fanout")
    queue = channel.declare()
    channel.bind_exchange(target, source, "a.#")
    channel.bind(queue, target)
    for key in ("a.b", "b"):
        channel.publish(key.encode(), key=key, exchange=source)
    assert routed(channel, queue) == [b"a.b"]
    channel.unbind_exchange(target, source, "a.#")
    channel.publish(b"later", key="a.b", exchange=source)
    assert routed(channel, queue) == []


def test_a_message_comes_once_whatever_ways_lead_to_the_queue(
    channel: Channel, unique: Unique
) -> None:
    source = channel.declare_exchange(unique("source"), "fanout")
    left = channel.declare_exchange(unique("left"), "fanout")
    right = channel.declare_exchange(unique("right"), "fanout")
    queue = channel.declare()
    channel.bind_exchange(left, source)
    channel.bind_exchange(right, source)
    channel.bind(queue, left)
    channel.bind(queue, right)
    channel.bind(queue, source)
    channel.publish(b"once", exchange=source)
    assert routed(channel, queue) == [b"once"]


def test_exchanges_bound_in_a_ring_route_once_around(channel: Channel, unique: Unique) -> None:
    one = channel.declare_exchange(unique("one"), "fanout")
    two = channel.declare_exchange(unique("two"), "fanout")
    queue = channel.declare()
    channel.bind_exchange(one, two)
    channel.bind_exchange(two, one)
    channel.bind_exchange(one, one)
    channel.bind(queue, two)
    channel.publish(b"round", exchange=one)
    assert routed(channel, queue) == [b"round"]


def test_exchange_bindings_need_both_exchanges(client: Client) -> None:
    for target, source in (("amq.fanout", "no-such"), ("no-such", "amq.fanout")):
        with refused(404, "NOT_FOUND - no exchange 'no-such' in vhost '/'"):
            client.channel().bind_exchange(target, source)


def test_a_deleted_exchange_takes_its_bindings_along(channel: Channel, unique: Unique) -> None:
    source = channel.declare_exchange(unique("source"), "fanout")
    target = channel.declare_exchange(unique("target"), "fanout")
    queue = channel.declare()
    channel.bind_exchange(target, source)
    channel.bind(queue, target)
    channel.delete_exchange(target)
    channel.declare_exchange(target, "fanout")
    channel.publish(b"lost", exchange=source, mandatory=True)
    assert channel.returned().body == b"lost"


def test_an_alternate_exchange_gets_what_has_no_route(channel: Channel, unique: Unique) -> None:
    spare = channel.declare_exchange(unique("spare"), "fanout")
    main = channel.declare_exchange(
        unique("main"), "direct", arguments={"alternate-exchange": spare}
    )
    queue, rest = channel.declare(), channel.declare()
    channel.bind(queue, main, "known")
    channel.bind(rest, spare)
    for key in ("known", "unknown"):
        channel.publish(key.encode(), key=key, exchange=main, mandatory=True)
    assert routed(channel, queue) == [b"known"]
    assert routed(channel, rest) == [b"unknown"]
    assert channel.nothing_comes()


def test_a_message_that_the_alternate_cannot_route_either_returns(
    channel: Channel, unique: Unique
) -> None:
    spare = channel.declare_exchange(unique("spare"), "fanout")
    main = channel.declare_exchange(unique("main"), arguments={"alternate-exchange": spare})
    channel.publish(b"back", key="x", exchange=main, mandatory=True)
    assert channel.returned().exchange == main


def test_alternate_exchanges_in_a_ring_end(channel: Channel, unique: Unique) -> None:
    one, two = unique("one"), unique("two")
    channel.declare_exchange(one, arguments={"alternate-exchange": two})
    channel.declare_exchange(two, arguments={"alternate-exchange": one})
    channel.publish(b"back", key="x", exchange=one, mandatory=True)
    assert channel.returned().body == b"back"


def test_a_missing_alternate_exchange_drops_the_message(channel: Channel, unique: Unique) -> None:
    main = channel.declare_exchange(unique("main"), arguments={"alternate-exchange": "no-such"})
    channel.publish(b"x", key="x", exchange=main)
    channel.round_trip()
    assert channel.nothing_comes()


def test_routes_follow_the_bindings_at_once(channel: Channel, unique: Unique) -> None:
    exchange = channel.declare_exchange(unique("x"), "topic")
    queue = channel.declare()
    expected = []
    for number in range(20):
        channel.publish(b"before", key="a.b", exchange=exchange)
        channel.bind(queue, exchange, "a.*")
        channel.publish(b"%d" % number, key="a.b", exchange=exchange)
        channel.unbind(queue, exchange, "a.*")
        expected.append(b"%d" % number)
    assert routed(channel, queue) == expected


# -- the types that RabbitMQ has by plugin


def test_a_consistent_hash_sends_a_key_to_one_queue_always(
    channel: Channel, unique: Unique
) -> None:
    exchange = channel.declare_exchange(unique("x"), "x-consistent-hash")
    queues = [channel.declare() for _ in range(4)]
    for queue in queues:
        channel.bind(queue, exchange, "10")
    keys = [f"key-{number}" for number in range(200)]
    for _ in range(2):
        for key in keys:
            channel.publish(key.encode(), key=key, exchange=exchange)
    shares = [Counter(routed(channel, queue)) for queue in queues]
    assert sum(len(share) for share in shares) == 200
    assert all(count == 2 for share in shares for count in share.values())
    assert all(share for share in shares)


def test_a_consistent_hash_goes_by_weight(channel: Channel, unique: Unique) -> None:
    exchange = channel.declare_exchange(unique("x"), "x-consistent-hash")
    light, heavy = channel.declare(), channel.declare()
    channel.bind(light, exchange, "1")
    channel.bind(heavy, exchange, "9")
    for number in range(500):
        channel.publish(b"x", key=f"key-{number}", exchange=exchange)
    assert len(routed(channel, heavy)) > 2 * len(routed(channel, light))


@pytest.mark.parametrize(
    ("arguments", "properties"),
    [
        ({"hash-header": "id"}, {"headers": {"id": "same"}}),
        ({"hash-property": "message_id"}, {"message_id": "same"}),
        ({"hash-property": "correlation_id"}, {"correlation_id": "same"}),
    ],
)
def test_a_consistent_hash_may_go_by_a_header_or_a_property(
    channel: Channel, unique: Unique, arguments: dict[str, str], properties: dict[str, Any]
) -> None:
    exchange = channel.declare_exchange(unique("x"), "x-consistent-hash", arguments)
    queues = [channel.declare() for _ in range(4)]
    for queue in queues:
        channel.bind(queue, exchange, "10")
    for number in range(40):
        channel.publish(b"x", key=f"key-{number}", exchange=exchange, **properties)
    assert sorted(len(routed(channel, queue)) for queue in queues) == [0, 0, 0, 40]


def test_a_weight_that_is_no_number_is_406(client: Client, unique: Unique) -> None:
    for key, told in (
        ("abc", 'The binding key must be an integer: <<"abc">>'),
        ("0", "The binding key must be greater than 0"),
    ):
        channel = client.channel()
        exchange = channel.declare_exchange(unique("x"), "x-consistent-hash")
        with refused(406, f"PRECONDITION_FAILED - {told}"):
            channel.bind(channel.declare(), exchange, key)


def test_hash_header_and_hash_property_exclude_each_other(client: Client, unique: Unique) -> None:
    with refused(406, "PRECONDITION_FAILED - hash-header and hash-property are mutually exclusive"):
        client.channel().declare_exchange(
            unique("x"), "x-consistent-hash", {"hash-header": "a", "hash-property": "message_id"}
        )
    with refused(406, "PRECONDITION_FAILED - Unsupported property: colour"):
        client.channel().declare_exchange(
            unique("y"), "x-consistent-hash", {"hash-property": "colour"}
        )


def test_a_random_exchange_picks_one_queue_a_message(channel: Channel, unique: Unique) -> None:
    exchange = channel.declare_exchange(unique("x"), "x-random")
    queues = [channel.declare() for _ in range(3)]
    for queue in queues:
        channel.bind(queue, exchange, queue)
    for _ in range(120):
        channel.publish(b"x", key="same", exchange=exchange)
    shares = [len(routed(channel, queue)) for queue in queues]
    assert sum(shares) == 120
    assert all(share for share in shares)  # 1 in 10^21 that one is passed over
