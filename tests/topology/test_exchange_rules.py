"""Declaring, binding and deleting exchanges: what is allowed, and what goes along."""

import re
from typing import Any

import pytest

from ottermq.errors import AccessRefused, NotFound, PreconditionFailed
from ottermq.topology import Exchange, Topology

X = "exchange 'x' in vhost '/'"
DEFAULT = "operation not permitted on the default exchange"


def declared(topology: Topology, name: str = "x", type: str = "fanout", **how: Any) -> Exchange:
    exchange = topology.declare_exchange("/", name, type, **how).exchange
    assert exchange is not None
    return exchange


def refused(error: type[Exception], text: str) -> Any:
    return pytest.raises(error, match=f"^{re.escape(text)}$")


def test_every_vhost_has_the_built_in_ones(topology: Topology) -> None:
    found = {name: each.type for name, each in topology.vhost("/").exchanges.items()}
    assert found == {
        "": "direct",
        "amq.direct": "direct",
        "amq.fanout": "fanout",
        "amq.headers": "headers",
        "amq.match": "headers",
        "amq.rabbitmq.trace": "topic",
        "amq.topic": "topic",
    }


def test_an_exchange_declared_again_is_the_same(topology: Topology) -> None:
    assert declared(topology, durable=True) is declared(topology, durable=True)
    built_in = topology.declare_exchange("/", "amq.topic", "topic", durable=True)
    assert not built_in.created


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"type": "direct"}, "'type' for {}: received 'direct' but current is 'fanout'"),
        ({"durable": True}, "'durable' for {}: received 'true' but current is 'false'"),
        ({"auto_delete": True}, "'auto_delete' for {}: received 'true' but current is 'false'"),
        ({"internal": True}, "'internal' for {}: received 'true' but current is 'false'"),
        (
            {"arguments": {"alternate-exchange": "a"}},
            "'alternate-exchange' for {}: received the value 'a' of type 'longstr' "
            "but current is none",
        ),
    ],
)
def test_an_inequivalent_declaration_is_refused(topology: Topology, how: Any, text: str) -> None:
    declared(topology)
    with refused(PreconditionFailed, "inequivalent arg " + text.format(X)):
        declared(topology, **how)


def test_other_arguments_are_not_compared(topology: Topology) -> None:
    assert declared(topology, arguments={"a": 1}) is declared(topology, arguments={"a": 2})


def test_reserved_names_are_refused(topology: Topology) -> None:
    with refused(AccessRefused, "exchange name 'amq.x' contains reserved prefix 'amq.*'"):
        declared(topology, "amq.x")


def test_the_default_exchange_is_left_alone(topology: Topology) -> None:
    topology.declare_queue("/", "q")
    for touch in (
        lambda: topology.declare_exchange("/", "", "direct"),
        lambda: topology.passive_exchange("/", ""),
        lambda: topology.delete_exchange("/", ""),
        lambda: topology.bind("/", "", "q", "k"),
        lambda: topology.unbind("/", "", "q", "q"),
        lambda: topology.bind("/", "amq.direct", "", kind="exchange"),
    ):
        with refused(AccessRefused, DEFAULT):
            touch()


def test_an_alternate_exchange_is_a_name(topology: Topology) -> None:
    text = f"invalid type 'signedint' for arg 'alternate-exchange' in {X}"
    with refused(PreconditionFailed, text):
        declared(topology, arguments={"alternate-exchange": 5})


def test_system_exchanges_stay(topology: Topology) -> None:
    text = "deletion of system exchange 'amq.topic' in vhost '/' not allowed"
    with refused(AccessRefused, text):
        topology.delete_exchange("/", "amq.topic")


def test_one_in_use_stays_if_asked_for(topology: Topology) -> None:
    declared(topology)
    topology.declare_queue("/", "q")
    topology.bind("/", "x", "q")
    with refused(PreconditionFailed, f"{X} in use"):
        topology.delete_exchange("/", "x", if_unused=True)
    topology.unbind("/", "x", "q")
    assert topology.delete_exchange("/", "x", if_unused=True).exchange is not None
    assert topology.delete_exchange("/", "x").exchange is None


def test_binding_needs_both_ends(topology: Topology) -> None:
    topology.declare_queue("/", "q")
    with refused(NotFound, f"no {X}"):
        topology.bind("/", "x", "none")
    with refused(NotFound, "no queue 'none' in vhost '/'"):
        topology.bind("/", "amq.direct", "none")
    with refused(NotFound, f"no {X}"):
        topology.bind("/", "amq.direct", "x", kind="exchange")


def test_unbinding_what_is_not_there_is_no_error(topology: Topology) -> None:
    topology.unbind("/", "none", "none")
    topology.declare_queue("/", "q")
    topology.unbind("/", "amq.direct", "q", "k")


def test_the_same_binding_twice_is_one(topology: Topology) -> None:
    queue = topology.declare_queue("/", "q").queue
    assert queue is not None
    assert topology.bind("/", "amq.topic", "q", "k", {"a": 1}).created
    assert not topology.bind("/", "amq.topic", "q", "k", {"a": 1}).created
    assert topology.bind("/", "amq.topic", "q", "k", {"a": 2}).created
    assert len(topology.bindings_to(queue)) == 2


def test_an_auto_delete_exchange_goes_with_its_last_binding(topology: Topology) -> None:
    declared(topology, auto_delete=True)
    topology.declare_queue("/", "q")
    topology.bind("/", "x", "q", "1")
    topology.bind("/", "x", "q", "2")
    topology.unbind("/", "x", "q", "1")
    assert topology.find_exchange("/", "x")
    topology.unbind("/", "x", "q", "2")
    assert topology.find_exchange("/", "x") is None


def test_one_that_was_never_bound_stays(topology: Topology) -> None:
    declared(topology, auto_delete=True)
    topology.declare_queue("/", "q")
    topology.delete_queue("/", "q")
    assert topology.find_exchange("/", "x")


def test_a_row_of_auto_delete_exchanges_falls_with_the_queue(topology: Topology) -> None:
    for name in ("a", "b", "c"):
        declared(topology, name, auto_delete=True)
    topology.declare_queue("/", "q")
    topology.bind("/", "c", "q")
    topology.bind("/", "b", "c", kind="exchange")
    topology.bind("/", "a", "b", kind="exchange")
    topology.delete_queue("/", "q")
    assert {"a", "b", "c"}.isdisjoint(topology.vhost("/").exchanges)


def test_a_circle_of_auto_delete_exchanges_falls_too(topology: Topology) -> None:
    for name in ("a", "b"):
        declared(topology, name, auto_delete=True)
    topology.bind("/", "a", "b", kind="exchange")
    topology.bind("/", "b", "a", kind="exchange")
    topology.delete_exchange("/", "a")
    assert {"a", "b"}.isdisjoint(topology.vhost("/").exchanges)


def test_a_deletion_undone_is_as_if_it_had_never_been(topology: Topology) -> None:
    for name in ("a", "b"):
        declared(topology, name, auto_delete=True)
    queue = topology.declare_queue("/", "q").queue
    topology.bind("/", "b", "q")
    topology.bind("/", "a", "b", kind="exchange")
    topology.pending.undo(topology.delete_queue("/", "q"))
    assert topology.route("/", "a", "k").queues == (queue,)
    assert topology.delete_queue("/", "q").removed == [queue]


def test_a_vhost_goes_with_all_that_is_in_it(topology: Topology) -> None:
    topology.create_vhost("other")
    topology.declare_queue("other", "q")
    topology.bind("other", "amq.direct", "q", "k")
    change = topology.delete_vhost("other")
    assert [queue.name for queue in change.removed] == ["q"]
    assert list(topology.vhosts) == ["/"]
    topology.pending.undo(change)
    assert len(topology.route("other", "amq.direct", "k").queues) == 1
    with refused(NotFound, "no vhost 'none'"):
        topology.delete_vhost("none")
