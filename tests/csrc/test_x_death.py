"""Dead-lettering: x-death and its companions as RabbitMQ 4 writes them, and cycles."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.csrc.contents import parse, property_part, read_properties, some_properties, span
from tests.csrc.test_content_headers import rewritten
from tests.internals import ffi, lib

REASONS = ("expired", "rejected", "maxlen", "delivery_limit")
NOW = 1_700_000_000


@dataclass(frozen=True)
class Death:
    queue: str = "work"
    reason: str = "rejected"
    exchange: str = "orders"
    routing_key: str = "eu.new"
    time: int = NOW
    drop_cc: bool = False
    first: bool = False


def die(part: bytes, death: Death) -> bytes:
    parsed = parse(part)
    spans = [span(text.encode()) for text in (death.queue, death.exchange, death.routing_key)]
    (queue, _), (exchange, _), (key, _) = spans
    fields = {
        "reason": REASONS.index(death.reason),
        "queue": queue,
        "exchange": exchange,
        "routing_key": key,
        "now_s": death.time,
        "drop_cc": death.drop_cc,
        "first": death.first,
    }
    c_death = ffi.new("om_x_death *", fields)
    bound = lib.om_x_death_bound(parsed.c, c_death)
    return rewritten(
        parsed, bound, lambda out, cap: lib.om_x_death_rewrite(out, cap, parsed.c, c_death)
    )


def deaths(part: bytes) -> list[tuple[str, str, int]]:
    return [
        (death["queue"], death["reason"], death["count"])
        for death in read_properties(part)["headers"]["x-death"]
    ]


def cycles(part: bytes, queue: str) -> bool:
    parsed = parse(part)
    assert parsed.result == lib.OM_OK
    name, alive = span(queue.encode())
    found = lib.om_x_death_cycle(parsed.c, name)
    del alive
    return bool(found)


# ---- what is written -------------------------------------------------------------------


def test_a_first_death_says_where_when_and_why() -> None:
    part = die(property_part(content_type="text/plain", headers={"a": 1}), Death())
    assert read_properties(part) == {
        "content_type": "text/plain",
        "headers": {
            "a": 1,
            "x-first-death-exchange": "orders",
            "x-first-death-queue": "work",
            "x-first-death-reason": "rejected",
            "x-last-death-exchange": "orders",
            "x-last-death-queue": "work",
            "x-last-death-reason": "rejected",
            "x-death": [
                {
                    "count": 1,
                    "reason": "rejected",
                    "queue": "work",
                    "time": datetime.fromtimestamp(NOW, tz=UTC),
                    "exchange": "orders",
                    "routing-keys": ["eu.new"],
                }
            ],
        },
    }


def test_types_are_those_of_rabbitmq() -> None:
    part = die(b"\0\0", Death("q", "maxlen", "", "k"))
    assert b"\x05countl" + (1).to_bytes(8, "big") in part
    assert b"\x04timeT" + NOW.to_bytes(8, "big") in part
    assert b"\x06reasonS\0\0\0\x06maxlen" in part
    assert b"\x0crouting-keysA\0\0\0\x06S\0\0\0\x01k" in part


def test_the_newest_death_comes_first() -> None:
    part = die(die(b"\0\0", Death("a", "expired")), Death("b", "maxlen"))
    assert deaths(part) == [("b", "maxlen", 1), ("a", "expired", 1)]
    headers = read_properties(part)["headers"]
    assert headers["x-first-death-queue"] == "a"
    assert headers["x-first-death-reason"] == "expired"
    assert headers["x-last-death-queue"] == "b"
    assert headers["x-last-death-reason"] == "maxlen"


def test_the_same_death_again_is_counted_and_moves_to_the_front() -> None:
    part = die(b"\0\0", Death("a", "expired", routing_key="first"))
    part = die(part, Death("b", "rejected"))
    part = die(part, Death("a", "expired", "other", "second", NOW + 60))
    assert deaths(part) == [("a", "expired", 2), ("b", "rejected", 1)]
    again = read_properties(part)["headers"]["x-death"][0]
    assert again["time"] == datetime.fromtimestamp(NOW, tz=UTC)
    assert again["exchange"] == "orders"
    assert again["routing-keys"] == ["first"]
    assert read_properties(part)["headers"]["x-last-death-exchange"] == "other"


def test_another_reason_is_another_death() -> None:
    part = die(die(b"\0\0", Death("a", "expired")), Death("a", "delivery_limit"))
    assert deaths(part) == [("a", "delivery_limit", 1), ("a", "expired", 1)]


@pytest.mark.parametrize("reason", REASONS)
def test_an_expiration_is_moved_into_the_death(reason: str) -> None:
    part = die(property_part(expiration="5000", message_id="m", reply_to="r"), Death("a", reason))
    found = read_properties(part)
    assert "expiration" not in found
    assert (found["message_id"], found["reply_to"]) == ("m", "r")
    assert found["headers"]["x-death"][0]["original-expiration"] == "5000"


def test_a_message_without_expiration_has_no_original_one() -> None:
    part = die(b"\0\0", Death("a", "expired"))
    assert "original-expiration" not in read_properties(part)["headers"]["x-death"][0]


def test_keys_of_cc_are_told_and_those_of_bcc_are_not() -> None:
    part = die(property_part(headers={"CC": ["c1", "c2"], "BCC": ["b"]}), Death(routing_key="k"))
    headers = read_properties(part)["headers"]
    assert headers["x-death"][0]["routing-keys"] == ["k", "c1", "c2"]
    assert headers["CC"] == ["c1", "c2"]
    assert "BCC" not in headers


def test_a_dead_letter_routing_key_replaces_cc_too() -> None:
    part = die(property_part(headers={"CC": ["c"]}), Death(routing_key="k", drop_cc=True))
    headers = read_properties(part)["headers"]
    assert "CC" not in headers
    assert headers["x-death"][0]["routing-keys"] == ["k", "c"]


def test_a_history_that_a_publisher_brought_along_counts_for_nothing() -> None:
    brought = die(die(b"\0\0", Death("a", "expired")), Death("b", "expired"))
    part = die(brought, Death("a", "expired", first=True))
    assert deaths(part) == [("a", "expired", 1)]
    assert read_properties(part)["headers"]["x-first-death-queue"] == "a"
    assert not cycles(part, "b")
    assert len(read_properties(part)["headers"]) == 7


@pytest.mark.parametrize("made_up", ["text", 7, [], ["text", 7], {"queue": "a"}])
def test_an_x_death_that_is_none_is_replaced(made_up: Any) -> None:
    part = die(property_part(headers={"x-death": made_up}), Death("a", "expired"))
    assert deaths(part) == [("a", "expired", 1)]


histories = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(REASONS)), max_size=8)


@given(some_properties, histories)
def test_deaths_are_a_history_without_repetitions(
    properties: dict[str, Any], history: list[tuple[str, str]]
) -> None:
    part = property_part(**properties)
    before = read_properties(part)
    counts: dict[tuple[str, str], int] = {}
    for queue, reason in history:
        part = die(part, Death(queue, reason))
        counts = {(queue, reason): counts.pop((queue, reason), 0) + 1, **counts}
    if history:
        assert deaths(part) == [(*death, count) for death, count in counts.items()]
        found = read_properties(part)
        assert found["headers"]["x-first-death-queue"] == history[0][0]
        assert found["headers"].items() >= before.get("headers", {}).items()
        ours = ("headers", "expiration")
        assert {name: found[name] for name in found if name not in ours} == {
            name: before[name] for name in before if name not in ours
        }


# ---- cycles ----------------------------------------------------------------------------


def after(*history: tuple[str, str]) -> bytes:
    part = b"\0\0"
    for queue, reason in history:
        part = die(part, Death(queue, reason))
    return part


def test_a_message_that_never_died_has_no_cycle() -> None:
    assert not cycles(b"\0\0", "a")
    assert not cycles(property_part(headers={"x-death": "a"}), "a")


def test_back_to_where_it_just_expired_is_a_cycle() -> None:
    assert cycles(after(("a", "expired")), "a")
    assert not cycles(after(("a", "expired")), "b")


def test_a_round_over_other_queues_is_a_cycle() -> None:
    part = after(("a", "expired"), ("b", "maxlen"), ("c", "delivery_limit"))
    assert all(cycles(part, queue) for queue in "abc")
    assert not cycles(part, "d")


def test_a_rejection_on_the_way_breaks_the_cycle() -> None:
    assert not cycles(after(("a", "expired"), ("b", "rejected")), "a")
    assert not cycles(after(("a", "rejected")), "a")
    assert cycles(after(("a", "rejected"), ("b", "expired"), ("c", "expired")), "b")
    assert not cycles(after(("a", "rejected"), ("b", "expired"), ("c", "expired")), "a")


def test_a_rejection_counts_as_the_newest_when_it_happens_again() -> None:
    part = after(("b", "rejected"), ("a", "expired"), ("b", "rejected"))
    assert not cycles(part, "a")
