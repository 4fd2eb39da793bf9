"""Patterns that anybody may send: they mean what they mean to Python, and none takes for ever."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottermq.kafka.linear_regex import BadPattern, Linear
from tests.examples import examples

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\.", "^", "$"])


def composed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{1,}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    )


@settings(max_examples=examples(300), deadline=None, derandomize=True, database=None)
@given(st.recursive(ATOMS, composed, max_leaves=6), st.text("ab.1", max_size=6))
def test_it_matches_what_python_matches(pattern: str, text: str) -> None:
    try:
        ours = Linear(pattern)
    except BadPattern:  # too large
        return
    assert ours.matches(text) == bool(re.fullmatch(pattern, text))


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|a)*b", "(.*)*x", "a*" * 60 + "b", "(a|b)*a(a|b){12}", "((a{3}){4}){4}"],
)
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    start = time.process_time()
    Linear(pattern).matches("a" * 1023 + "!")
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "a)", "[a", "*a", r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", r"\p{L}", "a{3,2}",
        "(((()){999}){999}){999}", "a{999}", "(" * 100 + ")" * 100, "x" * 1000, "[b-a]", "\\",
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        Linear(pattern)


def test_classes_groups_and_anchors() -> None:
    for pattern, text in (
        ("orders-[0-9]+|audit-.*", "orders-17"),
        ("(?P<kind>tx|[[:digit:]]+)-é", "42-é"),
        (r"^\w+\.x$", "a_1.x"),
        ("[]a]+", "]a"),
        ("", ""),
    ):
        assert Linear(pattern).matches(text)
    assert not Linear("orders").matches("orders-17")
