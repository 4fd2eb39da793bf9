"""Declaring, finding and deleting queues: what is allowed, and RabbitMQ's words where it isn't."""

import re
from dataclasses import replace
from typing import Any

import pytest

from ottermq.errors import (
    AccessRefused,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
    reply_of,
)
from ottermq.topology import Queue, Topology, VHostOptions
from ottermq.topology.arguments import check_consumer
from ottermq.topology.settings import settings_of

Q = "queue 'q' in vhost '/'"


def declared(topology: Topology, name: str = "q", **how: Any) -> Queue:
    queue = topology.declare_queue("/", name, **how).queue
    assert queue is not None
    return queue


def refused(error: type[Exception], text: str) -> Any:
    return pytest.raises(error, match=f"^{re.escape(text)}$")


def test_a_queue_declared_again_is_the_same(topology: Topology) -> None:
    first = topology.declare_queue("/", "q", durable=True, arguments={"x-max-length": 5})
    again = topology.declare_queue("/", "q", durable=True, arguments={"x-max-length": 5})
    assert first.created and not again.created
    assert first.queue is again.queue


def test_one_declared_after_its_deletion_is_another(topology: Topology) -> None:
    first = declared(topology)
    topology.delete_queue("/", "q")
    second = declared(topology)
    assert second is not first and second.id > first.id


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ({}, {"durable": True}, "'durable' for {}: received 'true' but current is 'false'"),
        (
            {"durable": True},
            {"durable": True, "auto_delete": True},
            "'auto_delete' for {}: received 'true' but current is 'false'",
        ),
        (
            {},
            {"arguments": {"x-message-ttl": 10}},
            "'x-message-ttl' for {}: received the value '10' of type 'signedint' "
            "but current is none",
        ),
        (
            {"arguments": {"x-dead-letter-exchange": "d"}},
            {},
            "'x-dead-letter-exchange' for {}: received none but current is the value 'd' "
            "of type 'longstr'",
        ),
        (
            {"arguments": {"x-max-length": 10}},
            {"arguments": {"x-max-length": 20}},
            "'x-max-length' for {}: received '20' but current is '10'",
        ),
        (
            {"durable": True},
            {"durable": True, "arguments": {"x-queue-type": "quorum"}},
            "'x-queue-type' for {}: received 'quorum' but current is 'classic'",
        ),
        (
            {"durable": True, "arguments": {"x-queue-type": "quorum"}},
            {"durable": True},
            "'x-queue-type' for {}: received 'classic' but current is 'quorum'",
        ),
    ],
)
def test_an_inequivalent_declaration_is_refused(
    topology: Topology, first: dict[str, Any], second: dict[str, Any], text: str
) -> None:
    declared(topology, **first)
    with refused(PreconditionFailed, "inequivalent arg " + text.format(Q)):
        declared(topology, **second)


def test_the_reply_has_the_code_and_the_name_of_the_error(topology: Topology) -> None:
    with pytest.raises(NotFound) as caught:
        topology.queue("/", "q")
    assert reply_of(caught.value) == (404, "NOT_FOUND - no queue 'q' in vhost '/'")


def test_arguments_that_no_type_knows_are_kept_and_not_compared(topology: Topology) -> None:
    queue = declared(topology, arguments={"x-my-own": 1, "colour": "red"})
    assert queue.arguments["colour"] == "red"
    assert declared(topology, arguments={"x-my-own": 2}) is queue


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("x-message-ttl", "10", '"expected integer, got longstr"'),
        ("x-message-ttl", -1, "{value_negative,-1}"),
        ("x-message-ttl", 315_360_000_001, "{value_too_large,315360000001}"),
        ("x-message-ttl", True, '"expected integer, got bool"'),
        ("x-expires", 0, "{value_zero,0}"),
        ("x-expires", -5, "{value_negative,-5}"),
        ("x-max-length", -1, "{value_negative,-1}"),
        ("x-max-length-bytes", 1.5, '"expected integer, got double"'),
        ("x-max-priority", 256, "{max_value_exceeded,256}"),
        ("x-max-priority", -1, "{value_negative,-1}"),
        ("x-overflow", "drop-tail", "invalid_overflow"),
        ("x-overflow", 1, "{unacceptable_type,signedint}"),
        ("x-dead-letter-exchange", 1, "{unacceptable_type,signedint}"),
        ("x-dead-letter-exchange", "x" * 256, "longer_than_255_bytes"),
        ("x-dead-letter-routing-key", "k", "routing_key_but_no_dlx_defined"),
        ("x-single-active-consumer", "true", "{unacceptable_type,longstr}"),
        ("x-queue-type", "durable", "\"unsupported queue type 'durable'\""),
        ("x-queue-type", 4, "{unacceptable_type,signedint}"),
        ("x-queue-version", 1, "\"unsupported queue version '1'\""),
        ("x-queue-leader-locator", "here", "invalid_queue_locator_arg"),
        ("x-consumer-timeout", -1, "{value_negative,-1}"),
    ],
)
def test_a_wrong_value_is_refused(topology: Topology, name: str, value: Any, fault: str) -> None:
    with refused(PreconditionFailed, f"invalid arg '{name}' for {Q}: {fault}"):
        declared(topology, arguments={name: value})
    assert topology.find_queue("/", "q") is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": 0, "x-expires": 1},
        {"x-max-length": 0, "x-max-length-bytes": 1 << 40, "x-overflow": "reject-publish-dlx"},
        {"x-max-priority": 255, "x-queue-mode": "lazy", "x-queue-version": 2},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": ""},
        {"x-single-active-consumer": True, "x-queue-master-locator": "min-masters"},
        {"x-queue-leader-locator": "balanced", "x-consumer-timeout": 0},
    ],
)
def test_what_a_classic_queue_takes(topology: Topology, arguments: dict[str, Any]) -> None:
    assert declared(topology, arguments=arguments).type == "classic"


@pytest.mark.parametrize(
    ("type", "name", "value"),
    [
        ("classic", "x-delivery-limit", 5),
        ("classic", "x-max-age", "1D"),
        ("classic", "x-dead-letter-strategy", "at-least-once"),
        ("quorum", "x-max-priority", 5),
        ("quorum", "x-queue-mode", "lazy"),
        ("quorum", "x-max-age", "1D"),
        ("stream", "x-message-ttl", 5),
        ("stream", "x-dead-letter-exchange", "d"),
        ("stream", "x-max-length", 5),
        ("stream", "x-single-active-consumer", True),
    ],
)
def test_what_only_other_types_take_is_refused(
    topology: Topology, type: str, name: str, value: Any
) -> None:
    with refused(
        PreconditionFailed, f"invalid arg '{name}' for {Q} of queue type rabbit_{type}_queue"
    ):
        declared(topology, durable=True, arguments={"x-queue-type": type, name: value})


@pytest.mark.parametrize("type", ["quorum", "stream"])
@pytest.mark.parametrize(
    ("how", "wrong"),
    [
        ({"durable": False}, "non-durable"),
        ({"durable": True, "auto_delete": True}, "auto-delete"),
        ({"durable": True, "exclusive": True, "connection": 1}, "exclusive-owner"),
    ],
)
def test_what_quorum_queues_and_streams_can_not_be(
    topology: Topology, type: str, how: dict[str, Any], wrong: str
) -> None:
    with refused(PreconditionFailed, f"invalid property '{wrong}' for {Q}"):
        declared(topology, arguments={"x-queue-type": type}, **how)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-max-age": "7"}, f"invalid arg 'x-max-age' for {Q}: invalid_max_age"),
        ({"x-max-age": "0D"}, f"invalid arg 'x-max-age' for {Q}: invalid_max_age"),
        ({"x-max-age": 7}, f"invalid arg 'x-max-age' for {Q}: {{unacceptable_type,signedint}}"),
        (
            {"x-stream-max-segment-size-bytes": 3_000_000_001},
            "Exceeded max value for x-stream-max-segment-size-bytes",
        ),
        ({"x-stream-filter-size-bytes": 15}, "Invalid value for x-stream-filter-size-bytes"),
    ],
)
def test_a_streams_own_arguments(topology: Topology, arguments: Any, text: str) -> None:
    with refused(PreconditionFailed, text):
        declared(topology, durable=True, arguments={"x-queue-type": "stream", **arguments})


def test_reserved_names_are_refused(topology: Topology) -> None:
    text = "queue name 'amq.x' contains reserved prefix 'amq.*'"
    with refused(AccessRefused, text):
        declared(topology, "amq.x")


def test_the_server_makes_names_up(topology: Topology) -> None:
    names = {declared(topology, "").name for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(r"amq\.gen-[A-Za-z0-9_-]{22}", name) for name in names)
    prefixed = declared(topology, "", arguments={"x-name-prefix": "mine-"})
    assert re.fullmatch(r"mine-[A-Za-z0-9_-]{22}", prefixed.name)


def test_only_for_classic_queues(topology: Topology) -> None:
    text = "Cannot declare a server-named queue for type rabbit_quorum_queue"
    with refused(PreconditionFailed, text):
        declared(topology, "", durable=True, arguments={"x-queue-type": "quorum"})


def test_line_ends_in_a_name_are_dropped(topology: Topology) -> None:
    assert declared(topology, "or\r\nders").name == "orders"


def test_an_exclusive_queue_is_its_connections_only(topology: Topology) -> None:
    mine = declared(topology, exclusive=True, durable=True, connection=1)
    assert not mine.durable  # it ends with the connection
    assert topology.queue("/", "q", 1) is mine
    locked = f"cannot obtain exclusive access to locked {Q}. It could be originally declared on "
    for use in (
        lambda: topology.queue("/", "q", 2),
        lambda: topology.declare_queue("/", "q", exclusive=True, connection=2),
        lambda: topology.declare_queue("/", "q", connection=1),  # not as an exclusive one
        lambda: topology.bind("/", "amq.direct", "q", connection=2),
        lambda: topology.delete_queue("/", "q", 2),
    ):
        with pytest.raises(ResourceLocked, match=re.escape(locked)):
            use()
    assert topology.declare_queue("/", "q", exclusive=True, connection=1).queue is mine


def test_exclusive_queues_end_with_their_connection(topology: Topology) -> None:
    for name in ("a", "b"):
        declared(topology, name, exclusive=True, connection=1)
    declared(topology, "c", exclusive=True, connection=2)
    gone = topology.remove(topology.owned_by(1)).removed
    assert [queue.name for queue in gone] == ["a", "b"]
    assert topology.owned_by(1) == [] and len(topology.owned_by(2)) == 1


def test_nothing_to_delete_is_no_error(topology: Topology) -> None:
    assert topology.delete_queue("/", "q").queue is None


@pytest.mark.parametrize("name", ["x-dead-letter-exchange", "x-dead-letter-routing-key"])
def test_a_dead_letter_place_of_an_older_version_that_cannot_be_is_none(
    topology: Topology, name: str
) -> None:
    """It was taken, and kept the broker from starting again."""
    arguments = {"x-dead-letter-exchange": "dlx", name: "é" * 128}
    settings = settings_of(replace(declared(topology), arguments=arguments), {})
    assert (settings.dlx, settings.dlrk) == (None, None)


def test_a_vhosts_default_type_counts_where_it_can(topology: Topology) -> None:
    topology.create_vhost("/", VHostOptions(default_queue_type="quorum"))
    assert declared(topology, "a", durable=True).type == "quorum"
    assert declared(topology, "b").type == "classic"
    assert declared(topology, "c", durable=True, auto_delete=True).type == "classic"
    assert declared(topology, "d", exclusive=True, connection=1).type == "classic"


def test_a_full_vhost_takes_no_new_queue(topology: Topology) -> None:
    def full(vhost: str, queue: str, now: int) -> None:
        if now >= 1:
            raise PreconditionFailed(f"{vhost} {queue} {now}")

    topology.check_room = full
    declared(topology, "a")
    declared(topology, "a")  # not a new one
    with refused(PreconditionFailed, "/ b 1"):
        declared(topology, "b")


def test_an_unknown_vhost_is_not_allowed(topology: Topology) -> None:
    with refused(NotAllowed, "vhost nowhere not found"):
        topology.declare_queue("nowhere", "q")


def test_consumer_arguments() -> None:
    check_consumer("classic", {"x-priority": -5, "own": 1}, Q)
    check_consumer("stream", {"x-stream-offset": "first"}, Q)
    with refused(
        PreconditionFailed,
        f"invalid arg 'x-priority' for {Q}: \"expected integer, got longstr\"",
    ):
        check_consumer("quorum", {"x-priority": "high"}, Q)
    with refused(
        PreconditionFailed,
        f"invalid arg 'x-stream-offset' for {Q} of queue type rabbit_classic_queue",
    ):
        check_consumer("classic", {"x-stream-offset": "first"}, Q)
