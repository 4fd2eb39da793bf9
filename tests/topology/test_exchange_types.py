"""What each exchange type makes of its bindings."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottermq.errors import PreconditionFailed
from ottermq.topology import Topology

WORDS = st.sampled_from(["a", "b", "", "*", "#"])
KEYS = st.lists(WORDS, max_size=6).map(".".join)


def matches(pattern: list[str], key: list[str]) -> bool:
    """The rule, said naively."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(matches(pattern[1:], key[skipped:]) for skipped in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and matches(pattern[1:], key[1:])


def words(key: str) -> list[str]:
    return key.split(".") if key else []


def routed(topology: Topology, exchange: str, key: str = "", **headers: object) -> list[str]:
    return sorted(queue.name for queue in topology.route("/", exchange, key, headers).queues)


def bound(topology: Topology, exchange: str, *bindings: tuple[str, str]) -> None:
    for queue, key in bindings:
        topology.declare_queue("/", queue)
        topology.bind("/", exchange, queue, key)


def test_the_default_exchange_knows_every_queue_by_its_name(topology: Topology) -> None:
    topology.declare_queue("/", "orders")
    assert routed(topology, "", "orders") == ["orders"]
    assert routed(topology, "", "others") == []


def test_direct_takes_the_key_as_it_is(topology: Topology) -> None:
    bound(topology, "amq.direct", ("a", "k"), ("b", "k"), ("c", "other"))
    assert routed(topology, "amq.direct", "k") == ["a", "b"]


def test_fanout_goes_everywhere(topology: Topology) -> None:
    bound(topology, "amq.fanout", ("a", "k"), ("b", ""))
    assert routed(topology, "amq.fanout", "whatever") == ["a", "b"]


def test_a_destination_bound_twice_stays_until_its_last_binding_goes(topology: Topology) -> None:
    bound(topology, "amq.fanout", ("a", "1"), ("a", "2"))
    topology.unbind("/", "amq.fanout", "a", "1")
    assert routed(topology, "amq.fanout") == ["a"]
    topology.unbind("/", "amq.fanout", "a", "2")
    assert routed(topology, "amq.fanout") == []


@given(patterns=st.lists(KEYS, max_size=8, unique=True), key=KEYS, gone=st.integers(0, 8))
def test_topic_matches_as_the_rule_says(patterns: list[str], key: str, gone: int) -> None:
    topology = Topology()
    topology.create_vhost("/")
    bound(topology, "amq.topic", *((f"q{at}", pattern) for at, pattern in enumerate(patterns)))
    for at, pattern in list(enumerate(patterns))[:gone]:
        topology.unbind("/", "amq.topic", f"q{at}", pattern)
    expected = [
        f"q{at}" for at, pattern in enumerate(patterns)
        if at >= gone and matches(words(pattern), words(key))
    ]  # fmt: skip
    assert routed(topology, "amq.topic", key) == sorted(expected)


def test_a_topic_made_to_be_slow_is_not(topology: Topology) -> None:
    bound(topology, "amq.topic", ("a", ".".join(["#"] * 8)), ("b", ".".join(["*"] * 120)))
    assert routed(topology, "amq.topic", ".".join(["*"] * 120)) == ["a", "b"]


@pytest.mark.parametrize(
    ("mode", "headers", "found"),
    [
        ("all", {"a": 1, "b": "x"}, True),
        ("all", {"a": 1}, False),
        ("any", {"a": 1}, True),
        ("any", {"a": 2, "b": "y"}, False),
        ("all", {"a": True, "b": "x"}, False),  # of another kind
        ("all", {"a": 1.0, "b": "x"}, False),
        ("all-with-x", {"a": 1, "b": "x"}, False),
        ("all-with-x", {"a": 1, "b": "x", "x-c": "z"}, True),
        ("any-with-x", {"x-c": "z"}, True),
        ("any", {"x-c": "z"}, False),
    ],
)
def test_headers(topology: Topology, mode: str, headers: dict[str, Any], found: bool) -> None:
    topology.declare_queue("/", "q")
    arguments = {"x-match": mode, "a": 1, "b": "x", "x-c": "z"}
    topology.bind("/", "amq.headers", "q", "", arguments)
    assert routed(topology, "amq.headers", **headers) == (["q"] if found else [])


def test_a_header_without_a_value_only_has_to_be_there(topology: Topology) -> None:
    topology.declare_queue("/", "q")
    topology.bind("/", "amq.headers", "q", "", {"a": None})
    assert routed(topology, "amq.headers", a="anything") == ["q"]
    assert routed(topology, "amq.headers", b=1) == []


@pytest.mark.parametrize("mode", ["any", "all"])
def test_headers_that_would_take_too_long_to_compare_are_refused(
    topology: Topology, mode: str
) -> None:
    topology.declare_queue("/", "q")
    names = {f"h{number}": None for number in range(10_000)}
    for number in range(60):
        topology.bind("/", "amq.headers", "q", str(number), names | {"x-match": mode})
    few: dict[str, Any] = {"h9999": 1}
    many: dict[str, Any] = dict.fromkeys(names, 1)
    if mode == "all":  # the first one that isn't there ends it
        assert routed(topology, "amq.headers", **few) == []
    for headers in [many] if mode == "all" else [few, many]:
        with pytest.raises(PreconditionFailed, match="over 20000 steps"):
            routed(topology, "amq.headers", **headers)
    for number in range(20):
        topology.unbind("/", "amq.headers", "q", str(number), names | {"x-match": mode})
    assert routed(topology, "amq.headers", **many) == ["q"]


def test_headers_with_no_wishes_match_all_and_never_any(topology: Topology) -> None:
    for mode in ("all", "any"):
        topology.declare_queue("/", mode)
        topology.bind("/", "amq.match", mode, "", {"x-match": mode})
    assert routed(topology, "amq.match", a=1) == ["all"]


def test_an_unknown_x_match_is_refused(topology: Topology) -> None:
    topology.declare_queue("/", "q")
    with pytest.raises(PreconditionFailed, match='Invalid x-match field value <<"most">>'):
        topology.bind("/", "amq.headers", "q", "", {"x-match": "most"})


@pytest.fixture
def hashing(topology: Topology) -> Iterator[Topology]:
    topology.declare_exchange("/", "ring", "x-consistent-hash")
    bound(topology, "ring", ("one", "10"), ("two", "20"), ("three", "10"))
    yield topology


def landed(topology: Topology) -> dict[str, str]:
    keys = [f"key-{number}" for number in range(4000)]
    return {key: routed(topology, "ring", key)[0] for key in keys}


def test_a_consistent_hash_shares_out_by_weight(hashing: Topology) -> None:
    shares = Counter(landed(hashing).values())
    assert 850 < shares["one"] < 1150 and 850 < shares["three"] < 1150
    assert 1800 < shares["two"] < 2200


def test_only_the_share_of_a_newcomer_moves(hashing: Topology) -> None:
    before = landed(hashing)
    bound(hashing, "ring", ("four", "10"))
    after = landed(hashing)
    assert {after[key] for key in before if after[key] != before[key]} == {"four"}
    hashing.unbind("/", "ring", "four", "10")
    assert landed(hashing) == before


def test_a_consistent_hash_may_look_at_a_header_or_a_property(topology: Topology) -> None:
    by_header = {"hash-header": "who"}
    by_property = {"hash-property": "message_id"}
    topology.declare_exchange("/", "h", "x-consistent-hash", arguments=by_header)
    topology.declare_exchange("/", "p", "x-consistent-hash", arguments=by_property)
    for number in range(10):
        bound(topology, "h", (f"q{number}", "5"))
        bound(topology, "p", (f"q{number}", "5"))
    assert len({routed(topology, "h", str(key), who="me")[0] for key in range(50)}) == 1
    assert len({routed(topology, "h", "k", who=str(key))[0] for key in range(50)}) > 1
    ids = ({"message_id": str(key)} for key in range(50))
    assert len({topology.route("/", "p", "k", None, each).queues for each in ids}) > 1
    assert not topology.route("/", "h", "k").cacheable


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("x", 'The binding key must be an integer: <<"x">>'),
        ("", "The binding key must be an integer: <<>>"),
        ("1_0", 'The binding key must be an integer: <<"1_0">>'),
        ("0", "The binding key must be greater than 0"),
        ("10001", "The binding key must not exceed 10000"),
    ],
)
def test_a_weight_is_a_number(hashing: Topology, key: str, text: str) -> None:
    with pytest.raises(PreconditionFailed, match=text):
        hashing.bind("/", "ring", "one", key)


def test_a_hash_looks_at_one_thing(topology: Topology) -> None:
    both = {"hash-header": "a", "hash-property": "message_id"}
    with pytest.raises(PreconditionFailed, match="mutually exclusive"):
        topology.declare_exchange("/", "x", "x-consistent-hash", arguments=both)
    with pytest.raises(PreconditionFailed, match="Unsupported property: app_id"):
        topology.declare_exchange(
            "/", "x", "x-consistent-hash", arguments={"hash-property": "app_id"}
        )


def test_a_modulus_hash_sends_a_key_always_to_the_same_place(topology: Topology) -> None:
    topology.declare_exchange("/", "shards", "x-modulus-hash")
    assert routed(topology, "shards", "k") == []
    bound(topology, "shards", ("c", "1"), ("a", ""), ("b", "any"), ("b", "twice"))
    keys = [f"key-{number}" for number in range(300)]
    there = {key: routed(topology, "shards", key) for key in keys}
    assert all(len(names) == 1 for names in there.values())
    shares = Counter(names[0] for names in there.values())
    assert set(shares) == {"a", "b", "c"} and min(shares.values()) > 50
    topology.declare_exchange("/", "others", "x-modulus-hash")
    bound(topology, "others", ("b", ""), ("a", ""), ("c", ""))  # in another order
    assert all(routed(topology, "others", key) == there[key] for key in keys)
    assert topology.route("/", "shards", "k").cacheable


def test_local_random_picks_one_classic_queue(topology: Topology) -> None:
    topology.declare_exchange("/", "dice", "x-local-random")
    bound(topology, "dice", ("a", ""), ("b", ""))
    picks = [routed(topology, "dice", "any") for _ in range(200)]
    assert {tuple(pick) for pick in picks} == {("a",), ("b",)}
    with pytest.raises(PreconditionFailed, match="Non empty binding 'k' key not permitted"):
        topology.bind("/", "dice", "a", "k")
    with pytest.raises(PreconditionFailed, match="Destination not found"):
        topology.bind("/", "dice", "amq.fanout", kind="exchange")
    topology.declare_queue("/", "s", durable=True, arguments={"x-queue-type": "stream"})
    with pytest.raises(PreconditionFailed, match="Queue type rabbit_stream_queue not valid"):
        topology.bind("/", "dice", "s")


def test_random_picks_one(topology: Topology) -> None:
    topology.declare_exchange("/", "dice", "x-random")
    assert routed(topology, "dice", "k") == []
    bound(topology, "dice", ("a", "1"), ("b", "2"))
    picks = [routed(topology, "dice", "k") for _ in range(200)]
    assert all(len(pick) == 1 for pick in picks)
    assert {pick[0] for pick in picks} == {"a", "b"}
    assert not topology.route("/", "dice", "k").cacheable


def test_a_delayed_exchange_routes_as_its_inner_type_and_says_so(topology: Topology) -> None:
    arguments = {"x-delayed-type": "topic"}
    topology.declare_exchange("/", "later", "x-delayed-message", arguments=arguments)
    bound(topology, "later", ("q", "a.#"))
    route = topology.route("/", "later", "a.b")
    assert [queue.name for queue in route.queues] == ["q"]
    assert route.delayed and not topology.route("/", "amq.topic", "a.b").delayed


@pytest.mark.parametrize("inner", [None, 5, "x-delayed-message", "nonsense"])
def test_a_delayed_exchange_needs_an_inner_type(topology: Topology, inner: object) -> None:
    with pytest.raises(PreconditionFailed):
        topology.declare_exchange(
            "/", "later", "x-delayed-message", arguments={"x-delayed-type": inner}
        )


def test_an_unknown_type_is_refused(topology: Topology) -> None:
    with pytest.raises(PreconditionFailed, match="^unknown exchange type 'round-robin'$"):
        topology.declare_exchange("/", "x", "round-robin")
