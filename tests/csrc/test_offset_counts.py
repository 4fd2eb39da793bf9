"""Counts kept as planes of bits: the right numbers, and a bulk costs next to nothing."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.csrc.offset_sets import CHUNK
from tests.csrc.set_internals import ffi, lib

SPACE = 40
MIDDLE = CHUNK - SPACE // 2


def new_counts() -> Any:
    return ffi.gc(ffi.new("om_offset_counts *"), lib.om_offset_counts_clear)


changes = st.tuples(
    st.sampled_from(["raise", "raise", "raise", "forget"]),
    st.integers(0, SPACE - 1),
    st.integers(0, SPACE - 1),
)


@given(st.lists(changes, max_size=60))
@settings(deadline=None)
def test_each_offset_has_the_number_of_times_it_was_raised(
    steps: list[tuple[str, int, int]],
) -> None:
    counts = new_counts()
    model: Counter[int] = Counter()
    for what, one, other in steps:
        first, last = MIDDLE + min(one, other), MIDDLE + max(one, other)
        if what == "raise":
            assert lib.om_offset_counts_raise(counts, first, last) == 0
            model.update(range(first, last + 1))
        else:
            assert lib.om_offset_counts_forget(counts, first, last) == 0
            for offset in range(first, last + 1):
                del model[offset]
        numbers = {
            at: lib.om_offset_counts_get(counts, at) for at in range(MIDDLE - 1, MIDDLE + SPACE + 1)
        }
        assert {at: number for at, number in numbers.items() if number} == dict(model)
        assert counts.len == max(model.values(), default=0).bit_length()
    assert lib.om_offset_counts_forget(counts, MIDDLE, MIDDLE + SPACE) == 0
    assert lib.om_offset_counts_memory(counts) == 0


def test_a_message_that_comes_back_ten_thousand_times_costs_little() -> None:
    counts = new_counts()
    for _ in range(10_000):
        assert lib.om_offset_counts_raise(counts, 77, 77) == 0
    assert lib.om_offset_counts_get(counts, 77) == 10_000
    assert lib.om_offset_counts_memory(counts) < 2000


def test_a_million_raised_together_cost_as_much_as_one() -> None:
    counts = new_counts()
    for _ in range(5):
        assert lib.om_offset_counts_raise(counts, 10, 1_000_009) == 0
    assert lib.om_offset_counts_raise(counts, 500_000, 500_000) == 0
    assert lib.om_offset_counts_get(counts, 10) == lib.om_offset_counts_get(counts, 1_000_009) == 5
    assert lib.om_offset_counts_get(counts, 500_000) == 6
    assert lib.om_offset_counts_get(counts, 9) == lib.om_offset_counts_get(counts, 1_000_010) == 0
    assert lib.om_offset_counts_memory(counts) < 1500
