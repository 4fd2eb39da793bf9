"""The compressed set: whatever its chunks look like, it is a set, and it costs its borders."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.csrc.offset_sets import CHUNK, MAX, Bits, OffsetSet, places, ranges
from tests.csrc.set_internals import ffi, lib
from tests.examples import examples

CHUNKS = 4
ENTRY = int(ffi.sizeof("om_chunk"))
BITMAP = 8192


def bound(runs: int, chunks: int) -> int:
    """What a set may cost: 16 bytes a run at the worst, and its list of chunks."""
    return 16 * runs + 4 * (ENTRY + 16) * chunks


class SetMachine(RuleBasedStateMachine):
    """An offset set beside its model, over a few chunks somewhere on the line of offsets."""

    @initialize(chunk=st.sampled_from([0, 1, 1000, 2**47 - CHUNKS]))
    def begin(self, chunk: int) -> None:
        self.base = chunk * CHUNK
        self.set = OffsetSet()
        self.model = Bits(self.base)

    def clip(self, at: int) -> int:
        return min(self.base + at, MAX)

    @rule(ends=ranges(CHUNKS))
    def add(self, ends: tuple[int, int]) -> None:
        first, last = map(self.clip, ends)
        self.set.add(first, last)
        self.model.add(first, last)

    @rule(ends=ranges(CHUNKS))
    def remove(self, ends: tuple[int, int]) -> None:
        first, last = map(self.clip, ends)
        self.set.remove(first, last)
        self.model.remove(first, last)

    @rule(ends=ranges(CHUNKS), step=st.integers(2, 90), count=st.integers(1, 3000))
    def add_every(self, ends: tuple[int, int], step: int, count: int) -> None:
        for at in range(ends[0], ends[1] + 1, step)[:count]:
            self.set.add(self.clip(at))
            self.model.bits |= 1 << (self.clip(at) - self.base)

    @rule(ends=ranges(CHUNKS), step=st.integers(2, 90), count=st.integers(1, 3000))
    def remove_every(self, ends: tuple[int, int], step: int, count: int) -> None:
        for at in range(ends[0], ends[1] + 1, step)[:count]:
            self.set.remove(self.clip(at))
            self.model.bits &= ~(1 << (self.clip(at) - self.base))

    @rule(ends=ranges(CHUNKS))
    def prepare_a_removal_that_never_comes(self, ends: tuple[int, int]) -> None:
        first, last = map(self.clip, ends)
        assert lib.om_offset_set_prepare_remove(self.set.raw, first, last) == 0

    @rule(at=places(CHUNKS))
    def look_at_one_place(self, at: int) -> None:
        offset = self.clip(at)
        assert (offset in self.set) == (offset in self.model)
        assert self.set.next_member(offset) == self.model.next_member(offset)
        assert self.set.next_gap(offset) == self.model.next_gap(offset)

    @rule(ends=ranges(CHUNKS))
    def look_at_a_range(self, ends: tuple[int, int]) -> None:
        first, last = map(self.clip, ends)
        assert self.set.count(first, last) == self.model.count(first, last)
        assert self.set.next_member(first, last) == self.model.next_member(first, last)

    @rule()
    def look_at_all_runs(self) -> None:
        runs = list(self.set.runs())
        assert runs == list(self.model.runs())

    @invariant()
    def it_is_empty_when_the_model_is(self) -> None:
        if hasattr(self, "set"):
            assert bool(self.set) == bool(self.model.bits)
            if not self.model.bits:
                assert self.set.memory == 0

    def teardown(self) -> None:
        if hasattr(self, "set"):
            self.look_at_all_runs()
            self.set.remove(self.base, self.clip(CHUNKS * CHUNK))
            assert self.set.memory == 0


TestSetMachine = SetMachine.TestCase
TestSetMachine.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)


@given(st.lists(ranges(CHUNKS), max_size=40))
@settings(deadline=None)
def test_memory_follows_the_number_of_runs(added: list[tuple[int, int]]) -> None:
    offsets = OffsetSet()
    for first, last in added:
        offsets.add(first, last)
    assert offsets.memory <= bound(len(list(offsets.runs())), CHUNKS)


def test_a_chunk_filled_in_any_order_ends_as_no_memory_but_its_entry() -> None:
    order = list(range(CHUNK))
    random.Random(1).shuffle(order)
    offsets = OffsetSet()
    for settled, offset in enumerate(order):
        offsets.add(offset)
        if settled % 1000 == 0 or settled > CHUNK - 100:
            assert offsets.memory <= BITMAP + 2 * ENTRY
            assert offsets.memory <= bound(len(list(offsets.runs())), 1)
    assert offsets.memory == 2 * ENTRY
    assert list(offsets.runs()) == [(0, CHUNK - 1)]


def test_a_chunk_emptied_in_any_order_ends_as_no_memory_at_all() -> None:
    order = list(range(CHUNK))
    random.Random(3).shuffle(order)
    offsets = OffsetSet()
    offsets.add(0, 3 * CHUNK - 1)
    for offset in order:
        offsets.remove(CHUNK + offset)
    assert list(offsets.runs()) == [(0, CHUNK - 1), (2 * CHUNK, 3 * CHUNK - 1)]
    assert offsets.memory <= 4 * ENTRY
    offsets.remove(0, 3 * CHUNK)
    assert offsets.memory == 0


def test_a_gap_costs_the_same_however_long_it_is() -> None:
    costs = []
    for last in (70_000, 10**9, 10**15, MAX):
        offsets = OffsetSet()
        offsets.add(5, last)
        offsets.remove(65_537)
        assert list(offsets.runs()) == [(5, 65_536), (65_538, last)]
        assert offsets.count(0, MAX) == last - 5
        costs.append(offsets.memory)
    assert max(costs) < 256


def test_whole_chunks_cut_out_of_a_long_stretch_leave_both_its_ends() -> None:
    offsets = OffsetSet()
    offsets.add(0, 10 * CHUNK - 1)
    offsets.remove(3 * CHUNK, 5 * CHUNK - 1)
    assert list(offsets.runs()) == [(0, 3 * CHUNK - 1), (5 * CHUNK, 10 * CHUNK - 1)]
    offsets.remove(7 * CHUNK, 8 * CHUNK - 1)
    assert [first // CHUNK for first, _ in offsets.runs()] == [0, 5, 8]
    offsets.remove(2 * CHUNK, 9 * CHUNK - 1)
    assert list(offsets.runs()) == [(0, 2 * CHUNK - 1), (9 * CHUNK, 10 * CHUNK - 1)]


def test_members_far_apart_cost_nothing_between_them() -> None:
    offsets = OffsetSet()
    places_apart = [0, 2**20, 2**40, 2**62, MAX]
    for place in places_apart:
        offsets.add(place)
    assert [first for first, _ in offsets.runs()] == places_apart
    assert offsets.memory <= bound(len(places_apart), len(places_apart))


@pytest.mark.parametrize("ends", [(-1, 5), (6, 5), (0, MAX + 1), (MAX + 1, MAX + 1), (-3, -2)])
def test_ranges_that_are_none_are_refused(ends: tuple[int, int]) -> None:
    offsets = OffsetSet()
    offsets.add(MAX)
    assert lib.om_offset_set_add(offsets.raw, *ends) == lib.OM_E_INVALID
    assert lib.om_offset_set_remove(offsets.raw, *ends) == lib.OM_E_INVALID
    assert lib.om_offset_set_prepare_remove(offsets.raw, *ends) == lib.OM_E_INVALID
    assert list(offsets.runs()) == [(MAX, MAX)]
