"""The way of a message over more than one exchange, and which routes a change touches."""

import pytest

from ottermq.errors import AccessRefused, NotFound
from ottermq.topology import Policy, Topology


@pytest.fixture
def topology() -> Topology:
    topology = Topology()
    topology.create_vhost("/")
    for name in ("a", "b", "c"):
        topology.declare_exchange("/", name, "fanout")
        topology.declare_queue("/", f"q{name}")
    return topology


def routed(topology: Topology, exchange: str, *keys: str) -> list[str]:
    first, *also = keys or ("",)
    return sorted(queue.name for queue in topology.route("/", exchange, first, also=also).queues)


def ids(topology: Topology, *names: str) -> set[int]:
    return {topology.exchange("/", name).id for name in names}


def test_exchanges_lead_to_exchanges(topology: Topology) -> None:
    topology.bind("/", "a", "b", kind="exchange")
    topology.bind("/", "b", "c", kind="exchange")
    topology.bind("/", "c", "qc")
    topology.bind("/", "b", "qb")
    assert routed(topology, "a") == ["qb", "qc"]


def test_a_circle_ends(topology: Topology) -> None:
    for source, destination in (("a", "b"), ("b", "c"), ("c", "a")):
        topology.bind("/", source, destination, kind="exchange")
    topology.bind("/", "c", "qc")
    assert routed(topology, "a") == ["qc"]


def test_a_queue_reached_twice_gets_one(topology: Topology) -> None:
    topology.bind("/", "a", "b", kind="exchange")
    topology.bind("/", "a", "qa")
    topology.bind("/", "b", "qa")
    assert routed(topology, "a") == ["qa"]


def test_what_leads_nowhere_goes_to_the_alternate_exchange(topology: Topology) -> None:
    topology.declare_exchange("/", "main", "direct", arguments={"alternate-exchange": "a"})
    topology.bind("/", "main", "qb", "known")
    topology.bind("/", "a", "qa")
    assert routed(topology, "main", "known") == ["qb"]
    assert routed(topology, "main", "unknown") == ["qa"]


def test_an_alternate_exchange_may_be_declared_later(topology: Topology) -> None:
    topology.declare_exchange("/", "main", "direct", arguments={"alternate-exchange": "late"})
    assert routed(topology, "main", "k") == []
    told: set[int] = set()
    topology.on_change.append(told.update)
    topology.declare_exchange("/", "late", "fanout")
    assert told >= ids(topology, "main", "late")
    topology.bind("/", "late", "qa")
    assert routed(topology, "main", "k") == ["qa"]


def test_alternate_exchanges_in_a_circle_end(topology: Topology) -> None:
    topology.declare_exchange("/", "x", "direct", arguments={"alternate-exchange": "y"})
    topology.declare_exchange("/", "y", "direct", arguments={"alternate-exchange": "x"})
    assert routed(topology, "x", "k") == []


def test_a_policy_names_the_alternate_exchange_and_the_argument_wins(topology: Topology) -> None:
    topology.bind("/", "a", "qa")
    topology.bind("/", "b", "qb")
    topology.declare_exchange("/", "plain", "direct")
    topology.declare_exchange("/", "own", "direct", arguments={"alternate-exchange": "b"})
    told: set[int] = set()
    topology.on_change.append(told.update)
    policy = Policy("/", "ae", "^(plain|own)$", {"alternate-exchange": "a"}, apply_to="exchanges")
    change = topology.set_policy(policy)
    assert routed(topology, "plain", "k") == ["qa"]
    assert routed(topology, "own", "k") == ["qb"]
    assert ids(topology, "plain") <= told
    topology.pending.undo(change)
    assert routed(topology, "plain", "k") == []


def test_cc_keys_route_too(topology: Topology) -> None:
    for name in ("a", "b"):
        topology.bind("/", "amq.direct", f"q{name}", name)
    assert routed(topology, "amq.direct", "a", "b", "b") == ["qa", "qb"]
    assert routed(topology, "", "qa", "qc", "none") == ["qa", "qc"]


def test_a_route_over_a_headers_exchange_is_not_remembered(topology: Topology) -> None:
    assert topology.route("/", "a", "k").cacheable
    topology.bind("/", "a", "amq.headers", kind="exchange")
    assert not topology.route("/", "a", "k").cacheable


def test_a_binding_touches_all_that_lead_there(topology: Topology) -> None:
    topology.bind("/", "a", "b", kind="exchange")
    topology.declare_exchange("/", "main", "direct", arguments={"alternate-exchange": "a"})
    told: list[frozenset[int]] = []
    topology.on_change.append(told.append)
    topology.bind("/", "b", "qb")
    assert told == [ids(topology, "a", "b", "main")]
    assert topology.upstream(topology.exchange("/", "b")) == told[0]
    assert topology.upstream(topology.exchange("/", "main")) == ids(topology, "main")


def test_a_deleted_queue_touches_where_it_was_bound(topology: Topology) -> None:
    topology.bind("/", "a", "b", kind="exchange")
    topology.bind("/", "b", "qb")
    told: set[int] = set()
    topology.on_change.append(told.update)
    topology.delete_queue("/", "qb")
    assert told == ids(topology, "a", "b", "")
    assert routed(topology, "a") == []


def test_nobody_publishes_to_what_is_internal_or_absent(topology: Topology) -> None:
    topology.declare_exchange("/", "inner", "fanout", internal=True)
    with pytest.raises(AccessRefused, match="cannot publish to internal exchange 'inner' in vhost"):
        topology.publishable("/", "inner")
    with pytest.raises(NotFound, match="^no exchange 'x' in vhost '/'$"):
        topology.publishable("/", "x")
    with pytest.raises(NotFound, match="^no exchange 'x' in vhost '/'$"):
        topology.route("/", "x", "k")
