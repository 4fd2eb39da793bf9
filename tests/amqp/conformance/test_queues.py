"""queue: declare, bind, unbind, purge, delete; arguments, equivalence, exclusive queues."""

import re
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pamqp import frame as frames
from pamqp.commands import Basic, Queue

from tests.amqp.wire import Channel, Client, Refused, eventually, refused
from tests.brokers import Broker

Connect = Callable[..., Client]
Unique = Callable[[str], str]


def locked(queue: str) -> str:
    """The text that clients look for; it names both reasons, and is cut at 255 bytes."""
    text = (
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost"
        " '/'. It could be originally declared on another connection or the exclusive property"
        " value does not match that of the original declaration."
    )
    return text[:255]


# -- declare


def test_a_new_queue_is_empty_and_has_no_consumers(channel: Channel, unique: Unique) -> None:
    name = unique("orders")
    answer = channel.call(Queue.Declare(queue=name))
    assert (answer.queue, answer.message_count, answer.consumer_count) == (name, 0, 0)


def test_declare_again_is_answered_with_the_counts(channel: Channel, unique: Unique) -> None:
    name = channel.declare(unique("orders"))
    channel.consume(name, no_ack=False)
    channel.qos(1)
    other = channel.client.channel()
    other.consume(name)
    answer = channel.call(Queue.Declare(queue=name))
    assert (answer.message_count, answer.consumer_count) == (0, 2)


def test_a_queue_without_a_name_is_given_one(channel: Channel) -> None:
    names = {channel.declare(), channel.declare()}
    assert len(names) == 2
    assert all(re.fullmatch(r"amq\.gen-[A-Za-z0-9_-]{22}", name) for name in names)


def test_declare_with_no_wait_has_no_answer(channel: Channel, unique: Unique) -> None:
    name = unique("quiet")
    channel.send(Queue.Declare(queue=name, nowait=True))
    channel.round_trip()
    assert not channel.inbox
    assert channel.look(name) == (0, 0)


def test_passive_declare_of_an_unknown_queue_is_404(channel: Channel, unique: Unique) -> None:
    name = unique("none")
    with refused(404, f"NOT_FOUND - no queue '{name}' in vhost '/'"):
        channel.look(name)


def test_passive_declare_looks_at_nothing_but_the_name(channel: Channel, unique: Unique) -> None:
    name = channel.declare(unique("orders"), {"x-max-length": 5}, durable=True)
    assert channel.declare(name, {"x-max-length": 9}, passive=True) == name


def test_names_with_the_reserved_prefix_are_403(channel: Channel) -> None:
    with refused(403, "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'"):
        channel.declare("amq.mine")


def test_names_have_line_ends_taken_out(channel: Channel, unique: Unique) -> None:
    name = unique("two lines")
    assert channel.declare(name + "\r\n", exclusive=True) == name


def test_names_may_be_any_text_of_255_bytes(channel: Channel, unique: Unique) -> None:
    name = unique("Ötter 🦦 ")
    name += "x" * (255 - len(name.encode()))
    assert channel.declare(name, exclusive=True) == name
    channel.publish(b"x", key=name)
    assert channel.must_get(name).body == b"x"


# -- equivalence


@pytest.mark.parametrize("flag", ["durable", "auto_delete"])
def test_a_declare_that_differs_in_a_flag_is_406(
    channel: Channel, unique: Unique, flag: str
) -> None:
    name = channel.declare(unique("orders"))
    with refused(
        406,
        f"PRECONDITION_FAILED - inequivalent arg '{flag}' for queue '{name}' in vhost '/':"
        " received 'true' but current is 'false'",
    ):
        channel.declare(name, **{flag: True})


def test_a_declare_that_differs_in_exclusive_is_405(channel: Channel, unique: Unique) -> None:
    name = channel.declare(unique("orders"))
    with refused(405, locked(name)):
        channel.declare(name, exclusive=True)


DIFFERENCES = [
    ({"x-message-ttl": 1000}, {"x-message-ttl": 2000}, "received '2000' but current is '1000'"),
    (
        {"x-message-ttl": 1000},
        {},
        "received none but current is the value '1000' of type 'short'",
    ),
    (
        {},
        {"x-message-ttl": 100_000},
        "received the value '100000' of type 'signedint' but current is none",
    ),
    (
        {"x-dead-letter-exchange": "a"},
        {"x-dead-letter-exchange": "b"},
        "received 'b' but current is 'a'",
    ),
    ({"x-expires": 60_000}, {"x-expires": 70_000}, "received '70000' but current is '60000'"),
    ({"x-max-length": 10}, {"x-max-length": 11}, "received '11' but current is '10'"),
    ({"x-max-length-bytes": 10}, {"x-max-length-bytes": 11}, "received '11' but current is '10'"),
    ({"x-max-priority": 4}, {"x-max-priority": 5}, "received '5' but current is '4'"),
    (
        {"x-overflow": "drop-head"},
        {"x-overflow": "reject-publish"},
        "received 'reject-publish' but current is 'drop-head'",
    ),
    (
        {},
        {"x-single-active-consumer": True},
        "received the value 'true' of type 'bool' but current is none",
    ),
]


@pytest.mark.parametrize(("before", "after", "told"), DIFFERENCES)
def test_a_declare_that_differs_in_an_argument_is_406(
    channel: Channel, unique: Unique, before: dict[str, Any], after: dict[str, Any], told: str
) -> None:
    name = channel.declare(unique("orders"), before)
    (argument,) = before or after
    with refused(
        406,
        f"PRECONDITION_FAILED - inequivalent arg '{argument}' for queue '{name}' in vhost '/':"
        f" {told}",
    ):
        channel.declare(name, after)


def test_the_same_number_in_another_width_is_the_same(channel: Channel, unique: Unique) -> None:
    name = channel.declare(unique("orders"), {"x-max-length": 10})
    method = frames.marshal(Queue.Declare(queue=name, arguments={"x-max-length": 10}), 1)
    wide = method.replace(b"b\x0a", b"l" + (10).to_bytes(8, "big"))
    grown = len(wide) - len(method)
    table = wide.index(b"\x0cx-max-length") - 4
    size = int.from_bytes(wide[3:7], "big") + grown
    inner = int.from_bytes(wide[table : table + 4], "big") + grown
    wide = (
        wide[:3]
        + size.to_bytes(4, "big")
        + wide[7:table]
        + inner.to_bytes(4, "big")
        + (wide[table + 4 :])
    )
    channel.client.raw(wide)
    assert channel.expect(Queue.DeclareOk).queue == name


def test_arguments_that_mean_nothing_may_differ(channel: Channel, unique: Unique) -> None:
    name = channel.declare(unique("orders"), {"x-my-own": 1})
    assert channel.declare(name, {"x-my-own": 2, "team": "otters"}) == name


# -- arguments

INVALID = [
    ("x-message-ttl", -1, "{value_negative,-1}"),
    ("x-message-ttl", "a", '"expected integer, got longstr"'),
    ("x-message-ttl", 1.5, '"expected integer, got float"'),
    ("x-message-ttl", True, '"expected integer, got bool"'),
    ("x-message-ttl", 10**12, "{value_too_large,1000000000000}"),
    ("x-expires", 0, "{value_zero,0}"),
    ("x-expires", -1, "{value_negative,-1}"),
    ("x-max-length", -1, "{value_negative,-1}"),
    ("x-max-length", "1", '"expected integer, got longstr"'),
    ("x-max-length-bytes", -5, "{value_negative,-5}"),
    ("x-overflow", "spill", "invalid_overflow"),
    ("x-overflow", 1, "{unacceptable_type,byte}"),
    ("x-dead-letter-routing-key", "a", "routing_key_but_no_dlx_defined"),
    ("x-max-priority", 256, "{max_value_exceeded,256}"),
    ("x-max-priority", -1, "{value_negative,-1}"),
    ("x-max-priority", "a", '"expected integer, got longstr"'),
    ("x-single-active-consumer", "yes", "{unacceptable_type,longstr}"),
    ("x-queue-type", "pile", "\"unsupported queue type 'pile'\""),
    ("x-queue-type", 1, "{unacceptable_type,byte}"),
]


@pytest.mark.parametrize(("argument", "value", "told"), INVALID)
def test_an_argument_out_of_its_range_is_406(
    channel: Channel, unique: Unique, argument: str, value: Any, told: str
) -> None:
    name = unique("orders")
    text = f"PRECONDITION_FAILED - invalid arg '{argument}' for queue '{name}' in vhost '/': {told}"
    with refused(406, text):
        channel.declare(name, {argument: value})


def test_a_dead_letter_exchange_that_is_no_text_is_406(channel: Channel, unique: Unique) -> None:
    name = unique("orders")
    text = (
        "PRECONDITION_FAILED - invalid type 'byte' for arg 'x-dead-letter-exchange' in queue"
        f" '{name}' in vhost '/'"
    )
    with refused(406, text):
        channel.declare(name, {"x-dead-letter-exchange": 1})


MISPLACED = [
    ("classic", {"x-max-age": "1D"}),
    ("classic", {"x-delivery-limit": 5}),
    ("classic", {"x-dead-letter-strategy": "at-least-once"}),
    ("classic", {"x-stream-max-segment-size-bytes": 1 << 20}),
    ("quorum", {"x-max-age": "1D"}),
    ("quorum", {"x-stream-max-segment-size-bytes": 1 << 20}),
    ("stream", {"x-message-ttl": 1000}),
    ("stream", {"x-expires": 1000}),
    ("stream", {"x-max-length": 1000}),
    ("stream", {"x-overflow": "drop-head"}),
    ("stream", {"x-dead-letter-exchange": ""}),
    ("stream", {"x-dead-letter-strategy": "at-least-once"}),
    ("stream", {"x-single-active-consumer": True}),
    ("stream", {"x-delivery-limit": 5}),
    ("stream", {"x-max-priority": 5}),
]


@pytest.mark.parametrize(("type", "arguments"), MISPLACED)
def test_an_argument_that_the_queue_type_does_not_know_is_406(
    channel: Channel, unique: Unique, type: str, arguments: dict[str, Any]
) -> None:
    name = unique("orders")
    (argument,) = arguments
    text = (
        f"PRECONDITION_FAILED - invalid arg '{argument}' for queue '{name}' in vhost '/' of queue"
        f" type rabbit_{type}_queue"
    )
    with refused(406, text):
        channel.declare(name, {**arguments, "x-queue-type": type}, durable=True)


ACCEPTED = [
    {"x-queue-mode": "lazy"},
    {"x-queue-mode": "default"},
    {"x-queue-version": 2},
    {"x-message-ttl": 0},
    {"x-max-length": 0},
    {"x-max-priority": 1},
    {"x-max-priority": 255},
    {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"},
    {"x-overflow": "reject-publish-dlx"},
    {"x-queue-type": "classic"},
    {"x-queue-type": "quorum", "x-quorum-initial-group-size": 3},
    {"x-queue-type": "quorum", "x-queue-leader-locator": "client-local"},
    {"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once"},
    {"x-queue-type": "stream", "x-initial-cluster-size": 1},
    {"x-queue-type": "stream", "x-max-age": "7D", "x-max-length-bytes": 1 << 30},
]


@pytest.mark.parametrize("arguments", ACCEPTED, ids=str)
def test_harmless_and_known_arguments_are_accepted(
    channel: Channel, unique: Unique, arguments: dict[str, Any]
) -> None:
    name = channel.declare(unique("orders"), arguments, durable=True)
    assert channel.look(name) == (0, 0)
    channel.delete(name)


# -- exclusive and auto-delete


def declare_again(channel: Channel, queue: str) -> None:
    channel.declare(queue, exclusive=True)


OPERATIONS: dict[str, Callable[[Channel, str], object]] = {
    "declare": declare_again,
    "passive declare": Channel.look,
    "get": Channel.get,
    "consume": Channel.consume,
    "bind": lambda channel, queue: channel.bind(queue, "amq.direct"),
    "purge": Channel.purge,
    "delete": Channel.delete,
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_exclusive_queue_is_closed_to_other_connections(
    connect: Connect, unique: Unique, operation: str
) -> None:
    name = connect().channel().declare(unique("mine"), exclusive=True)
    with refused(405, locked(name)):
        OPERATIONS[operation](connect().channel(), name)


def test_anyone_may_publish_to_an_exclusive_queue(connect: Connect) -> None:
    mine, other = connect().channel(), connect().channel()
    name = mine.declare()
    mine.consume(name)
    other.publish(b"hello", key=name)
    assert mine.delivery().body == b"hello"


def test_an_exclusive_queue_is_open_to_all_channels_of_its_connection(client: Client) -> None:
    name = client.channel().declare()
    assert client.channel().look(name) == (0, 0)


@pytest.mark.parametrize("end", ["close", "drop"])
def test_an_exclusive_queue_dies_with_its_connection(
    connect: Connect, unique: Unique, end: str
) -> None:
    mine = connect()
    name = mine.channel().declare(unique("mine"), exclusive=True)
    getattr(mine, end)()
    other = connect()

    def gone() -> bool:
        try:
            other.channel().look(name)
        except Refused as no:  # 405 as long as it is there
            return no.code == 404
        return False

    assert eventually(gone)


def test_an_auto_delete_queue_goes_with_its_last_consumer(client: Client, unique: Unique) -> None:
    channel, other = client.channel(), client.channel()
    name = channel.declare(unique("brief"), auto_delete=True)
    first, second = channel.consume(name), channel.consume(name)
    channel.cancel(first)
    assert other.look(name) == (0, 1)
    channel.cancel(second)
    with refused(404):
        while True:
            other.look(name)


def test_an_auto_delete_queue_that_never_had_a_consumer_stays(
    connect: Connect, unique: Unique
) -> None:
    first = connect()
    name = first.channel().declare(unique("brief"), auto_delete=True)
    first.close()
    assert connect().channel().look(name) == (0, 0)


def test_an_auto_delete_queue_goes_with_the_connection_of_its_consumer(
    connect: Connect, unique: Unique
) -> None:
    first, other = connect(), connect().channel()
    channel = first.channel()
    name = channel.declare(unique("brief"), auto_delete=True)
    channel.consume(name)
    first.drop()
    with refused(404):
        while True:
            other.look(name)


# -- bind and unbind


def test_a_bound_queue_gets_messages_and_an_unbound_one_does_not(channel: Channel) -> None:
    queue = channel.declare()
    channel.bind(queue, "amq.direct", queue)
    channel.publish(b"1", key=queue, exchange="amq.direct")
    assert channel.becomes(queue, 1)
    channel.unbind(queue, "amq.direct", queue)
    channel.publish(b"2", key=queue, exchange="amq.direct")
    channel.round_trip()
    assert channel.drain(queue) == [b"1"]


def test_binding_twice_delivers_once(channel: Channel) -> None:
    queue = channel.declare()
    channel.bind(queue, "amq.direct", queue)
    channel.bind(queue, "amq.direct", queue)
    channel.publish(b"1", key=queue, exchange="amq.direct")
    channel.publish(b"end", key=queue)
    assert channel.becomes(queue, 2)


def test_two_bindings_of_a_queue_that_match_deliver_once(channel: Channel, unique: Unique) -> None:
    exchange = channel.declare_exchange(unique("topics"), "topic")
    queue = channel.declare()
    channel.bind(queue, exchange, "a.*")
    channel.bind(queue, exchange, "a.#")
    channel.publish(b"1", key="a.b", exchange=exchange)
    channel.publish(b"end", key=queue)
    assert channel.becomes(queue, 2)


def test_bindings_that_differ_in_arguments_are_two(channel: Channel) -> None:
    queue = channel.declare()
    channel.bind(queue, "amq.direct", queue, {"a": 1})
    channel.bind(queue, "amq.direct", queue, {"a": 2})
    channel.unbind(queue, "amq.direct", queue, {"a": 1})
    channel.publish(b"still", key=queue, exchange="amq.direct")
    assert channel.must_get(queue).body == b"still"


def test_bind_needs_a_queue_and_an_exchange(client: Client) -> None:
    with refused(404, "NOT_FOUND - no queue 'no-such' in vhost '/'"):
        client.channel().bind("no-such", "amq.direct")
    channel = client.channel()
    with refused(404, "NOT_FOUND - no exchange 'no-such' in vhost '/'"):
        channel.bind(channel.declare(), "no-such")


def test_nothing_binds_to_the_default_exchange(client: Client) -> None:
    text = "ACCESS_REFUSED - operation not permitted on the default exchange"
    for operation in (Channel.bind, Channel.unbind):
        channel = client.channel()
        with refused(403, text):
            operation(channel, channel.declare(), "", "key")


def test_unbind_of_what_is_not_bound_is_answered(channel: Channel) -> None:
    queue = channel.declare()
    channel.unbind(queue, "amq.direct", "never")
    channel.unbind(queue, "no-such-exchange", "never")
    channel.unbind("no-such-queue", "amq.direct", "never")


def test_an_empty_queue_and_key_in_bind_mean_the_last_declared(channel: Channel) -> None:
    queue = channel.declare()
    channel.bind("", "amq.direct", "")
    channel.publish(b"x", key=queue, exchange="amq.direct")
    assert channel.must_get(queue).body == b"x"


# -- purge and delete


def test_purge_takes_what_is_ready_and_tells_how_many(channel: Channel) -> None:
    queue = channel.declare()
    for _ in range(3):
        channel.publish(b"x", key=queue)
    assert channel.becomes(queue, 3)
    unacked = channel.must_get(queue, no_ack=False)
    assert channel.purge(queue) == 2
    channel.nack(unacked.tag)
    assert channel.becomes(queue, 1)


def test_purge_of_an_unknown_queue_is_404(channel: Channel) -> None:
    with refused(404, "NOT_FOUND - no queue 'no-such' in vhost '/'"):
        channel.purge("no-such")


def test_delete_tells_how_many_messages_went(channel: Channel) -> None:
    queue = channel.declare()
    channel.publish(b"x", key=queue)
    assert channel.becomes(queue, 1)
    assert channel.delete(queue) == 1
    with refused(404, f"NOT_FOUND - no queue '{queue}' in vhost '/'"):
        channel.look(queue)


@pytest.mark.parametrize("durable", [False, True])
def test_who_deletes_a_queue_has_its_answer_before_the_cancels_of_its_own_consumers(
    client: Client, durable: bool
) -> None:
    channel, other = client.channel(), client.channel()
    queue = channel.declare(durable=durable, exclusive=not durable)
    tags = [channel.consume(queue) for _ in range(2)]
    others = other.consume(queue)
    channel.send(Queue.Delete(queue=queue))
    channel.expect(Queue.DeleteOk)
    assert sorted(channel.expect(Basic.Cancel).consumer_tag for _ in tags) == sorted(tags)
    assert other.expect(Basic.Cancel).consumer_tag == others


def test_delete_of_an_unknown_queue_is_answered(channel: Channel) -> None:
    assert channel.delete("no-such") == 0


def test_delete_if_unused_spares_a_queue_with_consumers(channel: Channel) -> None:
    queue = channel.declare()
    channel.consume(queue)
    with refused(406, f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' in use"):
        channel.delete(queue, if_unused=True)


def test_delete_if_empty_spares_a_queue_with_messages(channel: Channel) -> None:
    queue = channel.declare()
    channel.publish(b"x", key=queue)
    assert channel.becomes(queue, 1)
    with refused(406, f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' not empty"):
        channel.delete(queue, if_empty=True)


def test_a_deleted_queue_loses_its_bindings(channel: Channel, unique: Unique) -> None:
    queue = channel.declare(unique("again"))
    channel.bind(queue, "amq.direct", queue)
    channel.delete(queue)
    channel.declare(queue)
    channel.publish(b"x", key=queue, exchange="amq.direct", mandatory=True)
    assert channel.expect(Basic.Return).body == b"x"


def test_acks_of_a_deleted_queue_do_no_harm(channel: Channel) -> None:
    queue = channel.declare()
    channel.publish(b"x", key=queue)
    message = channel.must_get(queue, no_ack=False)
    channel.delete(queue)
    channel.ack(message.tag)
    channel.round_trip()


def test_declares_and_deletes_of_one_queue_by_many_never_fail(
    connect: Connect, unique: Unique
) -> None:
    queue = unique("raced")
    failures: list[Exception] = []

    def race(channel: Channel) -> None:
        try:
            for _ in range(100):
                channel.declare(queue, durable=True)
                channel.delete(queue)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=race, args=(connect().channel(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.ottermq_only("a broker of the test's own")
def test_a_queue_that_is_declared_while_its_namesake_goes_is_another(
    start: Callable[..., Broker],
) -> None:
    """It has none of the other's messages, and keeps its own, over a kill, too."""
    names = [f"again-{number}" for number in range(20)]
    with start() as broker:
        one, other = (Client(broker.address("amqp")) for _ in range(2))
        deleter, channel = one.channel(), other.channel()
        channel.confirm()
        for name in names:
            deleter.declare(name, durable=True)
            deleter.publish(b"old", name, delivery_mode=2)
            deleter.send(Queue.Delete(queue=name))
            while is_there(other, name):
                pass
            channel.declare(name, durable=True)
            channel.publish(b"new", name, delivery_mode=2)
            channel.expect(Basic.Ack)
            deleter.expect(Queue.DeleteOk)
        broker.stop(signal.SIGKILL)
    with start() as broker, Client(broker.address("amqp")) as client:
        channel = client.channel()
        assert [channel.drain(name) for name in names] == [[b"new"]] * len(names)


def is_there(client: Client, queue: str) -> bool:
    channel = client.channel()
    try:
        channel.look(queue)
    except Refused:
        return False
    channel.close()
    return True
