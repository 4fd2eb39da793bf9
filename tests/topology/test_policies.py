"""Policies: which one counts, and what a queue goes by in the end."""

from collections.abc import Sequence
from typing import Any

import pytest

from ottermq.errors import InvalidRequest, NotFound
from ottermq.topology import Policy, Queue, QueueSettings, QueueType, Topology


def queue(topology: Topology, name: str = "q", type: str = "classic", **arguments: Any) -> Queue:
    named = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    named["x-queue-type"] = type
    found = topology.declare_queue("/", name, durable=True, arguments=named).queue
    assert found is not None
    return found


def rule(topology: Topology, definition: dict[str, Any], **how: Any) -> None:
    how = {"name": "p", "pattern": ".*", **how}
    topology.set_policy(Policy("/", definition=definition, **how))


def test_a_plain_queue_has_plain_settings(topology: Topology) -> None:
    assert topology.effective(queue(topology)) == QueueSettings(QueueType.CLASSIC)


def test_arguments_become_settings(topology: Topology) -> None:
    found = topology.effective(
        queue(
            topology, message_ttl=1, expires=2, max_length=3, max_length_bytes=4,
            overflow="reject-publish", dead_letter_exchange="d", dead_letter_routing_key="k",
            max_priority=5, single_active_consumer=True, consumer_timeout=6,
        )
    )  # fmt: skip
    assert found == QueueSettings(
        QueueType.CLASSIC, message_ttl_ms=1, expires_ms=2, max_length=3, max_length_bytes=4,
        overflow="reject-publish", dlx="d", dlrk="k", max_priority=5, single_active=True,
        consumer_timeout_ms=6,
    )  # fmt: skip


def test_a_streams_settings(topology: Topology) -> None:
    arguments: dict[str, Any] = {
        "max_age": "2h",
        "stream_max_segment_size_bytes": 1000,
        "max_length_bytes": 9,
    }
    found = topology.effective(queue(topology, type="stream", **arguments))
    assert (found.max_age_ms, found.segment_size, found.max_length_bytes) == (7_200_000, 1000, 9)
    assert found.delivery_limit == -1


@pytest.mark.parametrize(
    ("argument", "policy", "limit"),
    [
        (None, None, 20), (5, None, 5), (-1, None, -1), (-7, None, -1), (None, 3, 3), (5, 3, 3),
        (3, 5, 3), (-1, 5, 5), (5, -1, 5), ("many", None, 20), ("many", 4, 4),
    ],
)  # fmt: skip
def test_the_delivery_limit_of_a_quorum_queue(
    topology: Topology, argument: Any, policy: int | None, limit: int
) -> None:
    arguments = {} if argument is None else {"delivery_limit": argument}
    made = queue(topology, type="quorum", **arguments)
    if policy is not None:
        rule(topology, {"delivery-limit": policy})
    assert topology.effective(made).delivery_limit == limit


def test_of_two_limits_the_lower_counts_and_else_the_argument(topology: Topology) -> None:
    made = queue(
        topology, message_ttl=10, max_length=10, dead_letter_exchange="mine", overflow="drop-head"
    )
    rule(
        topology,
        {
            "message-ttl": 5,
            "max-length": 20,
            "dead-letter-exchange": "theirs",
            "overflow": "reject-publish",
            "expires": 7,
        },
    )
    found = topology.effective(made)
    assert (found.message_ttl_ms, found.max_length, found.dlx) == (5, 10, "mine")
    assert (found.overflow, found.expires_ms) == ("drop-head", 7)


def test_on_a_quorum_queue_the_policy_sets_the_overflow(topology: Topology) -> None:
    made = queue(topology, type="quorum", overflow="drop-head")
    rule(topology, {"overflow": "reject-publish"})
    assert topology.effective(made).overflow == "reject-publish"


@pytest.mark.parametrize(
    ("overflow", "strategy"),
    [("reject-publish", "at-least-once"), ("drop-head", "at-most-once")],
)
def test_at_least_once_needs_reject_publish(
    topology: Topology, overflow: str, strategy: str
) -> None:
    made = queue(
        topology,
        type="quorum",
        overflow=overflow,
        dead_letter_exchange="d",
        dead_letter_strategy="at-least-once",
    )
    assert topology.effective(made).dl_strategy == strategy


def test_the_highest_priority_counts_alone(topology: Topology) -> None:
    made = queue(topology)
    rule(topology, {"max-length": 1, "expires": 9}, name="low", priority=1)
    rule(topology, {"max-length": 2}, name="high", priority=2)
    found = topology.effective(made)
    assert (found.max_length, found.expires_ms) == (2, None)
    assert getattr(topology.policy_of(made), "name", None) == "high"
    topology.clear_policy("/", "high")
    assert topology.effective(made).max_length == 1
    with pytest.raises(NotFound):
        topology.clear_policy("/", "high")


def test_a_pattern_may_have_posix_classes(topology: Topology) -> None:
    words, other = queue(topology, "orders"), queue(topology, "orders1")
    rule(topology, {"max-length": 1}, pattern="^[[:alpha:]]+$")
    assert topology.effective(words).max_length == 1
    assert topology.effective(other).max_length is None


def test_an_operator_policy_tightens(topology: Topology) -> None:
    made = queue(topology)
    rule(topology, {"max-length": 100, "message-ttl": 5, "overflow": "drop-head"})
    limits = {"max-length": 10, "message-ttl": 50, "overflow": "reject-publish"}
    rule(topology, limits, name="op", operator=True)
    found = topology.effective(made)
    assert (found.max_length, found.message_ttl_ms) == (10, 5)
    assert found.overflow == "reject-publish"


@pytest.mark.parametrize(
    ("apply_to", "matched"),
    [
        ("all", {"c", "q"}), ("queues", {"c", "q"}), ("classic_queues", {"c"}),
        ("quorum_queues", {"q"}), ("streams", set()), ("exchanges", set()),
    ],
)  # fmt: skip
def test_what_a_policy_applies_to(topology: Topology, apply_to: str, matched: set[str]) -> None:
    made = [queue(topology, "c"), queue(topology, "q", "quorum"), queue(topology, "s", "stream")]
    rule(topology, {"max-length": 1}, apply_to=apply_to)
    assert {each.name for each in made if topology.effective(each).max_length == 1} == matched


def test_a_policy_a_type_can_not_take_is_no_match_at_all(topology: Topology) -> None:
    made = queue(topology)
    rule(topology, {"max-length": 1, "delivery-limit": 5}, priority=9)
    assert topology.effective(made).max_length is None


@pytest.mark.parametrize("operator", [False, True])
def test_a_policy_for_delayed_retries_loads_and_the_rest_of_it_counts(
    topology: Topology, operator: bool
) -> None:
    made = queue(topology, "q", "quorum")
    retries = {"delayed-retry-type": "failed", "delayed-retry-min": 100, "delayed-retry-max": 1000}
    rule(topology, {**retries, "delivery-limit": 5}, operator=operator)
    assert topology.effective(made).delivery_limit == 5


def test_whose_settings_change_are_told(topology: Topology) -> None:
    told: list[list[str]] = []

    def listen(queues: Sequence[Queue]) -> None:
        told.append([each.name for each in queues])

    topology.on_settings.append(listen)
    for name in ("a1", "a2", "b"):
        topology.effective(queue(topology, name))
    change = topology.set_policy(Policy("/", "p", "^a", {"max-length": 1}))
    rule(topology, {"max-length": 1}, pattern="^a")  # the same again
    assert told == [["a1", "a2"]]
    topology.pending.undo(change)
    assert told == [["a1", "a2"], ["a1", "a2"]]


@pytest.mark.parametrize(
    ("definition", "how", "text"),
    [
        ({"max-length": -1}, {}, "-1 is not a valid maximum length"),
        ({"max-length": "5"}, {}, "5 is not a valid maximum length"),
        ({"max-length": True}, {}, "true is not a valid maximum length"),
        ({"no-such": 1}, {}, "no-such is not a recognised policy setting"),
        ({"dead-letter-exchange": "d"}, {"operator": True}, "is not a recognised policy setting"),
        ({}, {}, "no policy provided"),
        ({"max-length": 1}, {"pattern": "("}, "is no regular expression"),
        ({"max-length": 1}, {"apply_to": "topics"}, "apply-to 'topics' unrecognised"),
        ({"overflow": "up"}, {}, "up is not a valid overflow value"),
        ({"max-age": "1"}, {}, "1 is not a valid max age"),
        ({"expires": 0}, {}, "0 is not a valid queue expiry"),
        ({"delayed-retry-type": "some"}, {}, "some is not a valid delayed retry type"),
    ],
)
def test_a_policy_that_can_not_be(topology: Topology, definition: Any, how: Any, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        rule(topology, definition, **how)
