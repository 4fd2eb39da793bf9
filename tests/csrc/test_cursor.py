"""What a cursor does, told one thing at a time, then everything at once against a model."""

import random
import time
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.csrc.cursors import FRESH, IN_FLIGHT, RETURNED, Cursor, Model, Record, decode
from tests.examples import examples
from tests.internals import ffi, lib

LARGEST = 2**63 - 1


def filled(count: int, weight: int = 10, start: int = 0) -> Cursor:
    cursor = Cursor(start)
    assert cursor.appended(start, count, count * weight) == 0
    return cursor


# ---- one thing at a time ----


def test_records_come_out_in_offset_order() -> None:
    cursor = filled(3, start=40)
    assert cursor.take(3, 10) == [40, 41, 42]
    assert cursor.peek() == -1


def test_peek_does_not_move() -> None:
    cursor = filled(3)
    assert [cursor.peek(), cursor.peek()] == [0, 0]


def test_a_returned_record_comes_out_again_in_its_own_place() -> None:
    cursor = filled(10)
    cursor.take(5)
    for offset in (3, 1):
        assert cursor.give_back(offset) == 0
    assert cursor.take(4) == [1, 3, 5, 6]


def test_the_floor_rises_when_the_last_hole_below_is_settled() -> None:
    cursor = filled(6)
    cursor.take(6)
    for offset in (1, 2, 4):
        assert cursor.settle(offset) == 1
    assert cursor.stat.floor == 0
    assert cursor.settle(0) == 1
    assert cursor.stat.floor == 3
    assert cursor.settle(3) == 1
    assert cursor.stat.floor == 5


def test_settling_twice_settles_once() -> None:
    cursor = filled(3)
    cursor.take(3, 10)
    assert [cursor.settle(1, weight=10), cursor.settle(1, weight=10)] == [1, 0]
    assert (cursor.stat.unacked_count, cursor.stat.unacked_bytes) == (2, 20)


def test_a_range_of_every_kind_is_settled_and_counted_once() -> None:
    cursor = filled(10)
    cursor.take(6, 10)
    cursor.settle(2, weight=10)  # settled: 2; returned: 3; in flight: 0 1 4 5; fresh: 6 .. 9
    cursor.give_back(3, 10)
    cursor.skip(8, 8)
    assert cursor.settle(1, 8, weight=60) == 6
    stat = cursor.stat
    assert (stat.ready_count, stat.unacked_count, stat.returned_count) == (1, 1, 0)
    assert (stat.ready_bytes, stat.unacked_bytes) == (10, 10)
    assert (stat.floor, stat.next, stat.end) == (0, 9, 10)


def test_settling_what_is_not_there_yet_settles_nothing() -> None:
    cursor = filled(3)
    assert cursor.settle(3, 100) == 0
    assert cursor.settle(1, 100) == 2
    assert cursor.stat.end == 3


def test_a_gap_before_an_append_counts_as_settled_and_is_never_given_out() -> None:
    cursor = filled(2)
    assert cursor.appended(70_000, 2, 20) == 0
    assert cursor.is_settled(2) and cursor.is_settled(69_999) and not cursor.is_settled(70_000)
    assert cursor.stat.ready_count == 4
    assert cursor.take(4) == [0, 1, 70_000, 70_001]


def test_an_empty_cursor_walks_over_a_gap_without_a_trace() -> None:
    cursor = Cursor(0)
    idle = cursor.stat.memory
    assert cursor.appended(10**12, 1, 1) == 0
    assert cursor.stat.floor == 10**12
    assert cursor.stat.memory == idle


def test_skipped_records_are_never_given_out() -> None:
    cursor = filled(6)
    assert cursor.skip(0, 1) == 0
    assert cursor.skip(3, 4) == 0
    assert cursor.stat.ready_bytes == 20
    assert cursor.take(2) == [2, 5]


def test_skipping_past_the_end_moves_the_end() -> None:
    cursor = filled(2)
    assert cursor.skip(5, 9) == 0
    assert cursor.stat.end == 10
    assert cursor.appended(9) == lib.OM_E_RANGE
    assert cursor.appended(10) == 0
    assert cursor.take(3) == [0, 1, 10]


def test_a_truncated_log_takes_its_offsets_back() -> None:
    cursor = filled(10)
    cursor.take(8, 10)
    cursor.settle(6, weight=10)
    cursor.give_back(5, 10)
    assert cursor.truncate(4) == 0
    stat = cursor.stat
    assert (stat.floor, stat.next, stat.end) == (0, 4, 4)
    assert (stat.ready_count, stat.unacked_count, stat.unacked_bytes) == (0, 4, 40)
    assert cursor.appended(4, 3, 30) == 0
    assert cursor.take(3, 10) == [4, 5, 6]
    assert cursor.counts(5) == (1, 1, 0)


def test_a_log_truncated_below_its_floor_starts_again_there() -> None:
    cursor = filled(100_000)
    cursor.settle(0, 90_000)
    cursor.settle(95_000)
    assert cursor.truncate(50) == 0
    stat = cursor.stat
    assert (stat.floor, stat.next, stat.end) == (50, 50, 50)
    assert stat.memory == Cursor().stat.memory
    assert cursor.truncate(50) == cursor.truncate(60) == 0
    assert cursor.stat == stat


def test_purge_settles_what_is_ready_and_leaves_what_is_in_flight() -> None:
    cursor = filled(10)
    cursor.take(5, 10)
    cursor.give_back(1, 10)
    cursor.give_back(2, 10)
    assert cursor.purge() == 7
    stat = cursor.stat
    assert (stat.ready_count, stat.ready_bytes) == (0, 0)
    assert (stat.unacked_count, stat.unacked_bytes) == (3, 30)
    assert cursor.peek() == -1
    assert cursor.give_back(3, 10) == 0
    assert cursor.peek() == 3


def test_a_purge_goes_no_further_than_told() -> None:
    cursor = filled(10)
    cursor.take(5, 10)
    for offset in (1, 2, 4):
        cursor.give_back(offset, 10)
    assert cursor.purge(3) == 2
    assert cursor.peek() == 4
    assert cursor.purge(7) == 3
    assert cursor.peek() == 7
    assert (cursor.stat.ready_count, cursor.stat.unacked_count) == (3, 2)
    everything_ready = filled(10)
    assert everything_ready.purge(4) == 4
    assert everything_ready.stat.floor == everything_ready.peek() == 4
    assert everything_ready.purge(4) == everything_ready.purge(0) == 0


def test_a_settle_can_be_taken_back() -> None:
    cursor = filled(10)
    cursor.take(5, 10)
    cursor.settle(0, 3)
    cursor.settle(7)
    assert cursor.stat.floor == 4
    assert cursor.unsettle(1, 2) == 2
    assert (cursor.stat.floor, cursor.stat.next, cursor.stat.ready_count) == (1, 5, 6)
    assert [cursor.is_settled(offset) for offset in range(5)] == [True, False, False, True, False]
    assert cursor.peek() == 1
    assert cursor.counts(1) == (1, 1, 0)
    assert cursor.unsettle(6, 8) == 1
    assert cursor.counts(7) == (0, 0, 0)
    assert cursor.unsettle(1, 2) == cursor.unsettle(10, 20) == 0


def test_what_is_passed_by_counts_as_given_out() -> None:
    cursor = filled(10)
    cursor.take(2, 10)
    cursor.settle(4, weight=10)
    assert cursor.pass_by(7) == 4
    assert (cursor.stat.next, cursor.stat.ready_count, cursor.stat.unacked_count) == (7, 3, 6)
    assert (cursor.stat.ready_bytes, cursor.stat.unacked_bytes) == (30, 60)
    assert cursor.pass_by(7) == cursor.pass_by(3) == 0
    assert cursor.pass_by(8, weight=0) == 1
    assert (cursor.stat.ready_bytes, cursor.stat.unacked_bytes) == (30, 60)
    assert cursor.pass_by(100) == 2
    assert (cursor.stat.ready_bytes, cursor.stat.unacked_bytes) == (0, 90)
    assert cursor.return_all(False) == 9
    assert cursor.counts(2) == (1, 1, 0)


def test_counts_tell_how_often_a_record_was_seen() -> None:
    cursor = filled(2)
    assert cursor.counts(0) == (0, 0, 0)
    cursor.take(1)
    assert cursor.counts(0) == (1, 1, 0)
    cursor.give_back(0, counted=True)
    assert cursor.counts(0) == (1, 1, 1)
    cursor.take(1)
    assert cursor.counts(0) == (1, 2, 1)
    cursor.give_back(0)
    assert cursor.counts(0) == (1, 2, 1)
    cursor.settle(0)
    assert cursor.counts(0) == (0, 0, 0)
    assert cursor.counts(2)[0] == lib.OM_E_RANGE


def test_a_counted_return_of_all_counts_for_each() -> None:
    cursor = filled(6)
    cursor.take(5)
    cursor.give_back(1)
    cursor.settle(2)
    assert cursor.return_all(counted=True) == 3
    assert [cursor.counts(at)[2] for at in range(6)] == [1, 0, 0, 1, 1, 0]
    assert cursor.return_all(counted=True) == 0
    assert cursor.take(5) == [0, 1, 3, 4, 5]


def test_after_a_crash_all_come_out_in_order_whatever_was_given_out_last() -> None:
    cursor = filled(10)
    cursor.take(5)
    cursor.give_back(2)
    assert cursor.take(1) == [2]
    assert cursor.return_all() == 5
    assert cursor.take(6) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda cursor: cursor.acquire(0), "OM_E_INVALID"),  # in flight
        (lambda cursor: cursor.acquire(1), "OM_E_INVALID"),  # settled
        (lambda cursor: cursor.acquire(4), "OM_E_INVALID"),  # fresh, but not the next
        (lambda cursor: cursor.acquire(2, -1), "OM_E_INVALID"),
        (lambda cursor: cursor.acquire(5), "OM_E_RANGE"),
        (lambda cursor: cursor.acquire(-1), "OM_E_RANGE"),
        (lambda cursor: cursor.give_back(1), "OM_E_INVALID"),  # settled
        (lambda cursor: cursor.give_back(2), "OM_E_INVALID"),  # returned
        (lambda cursor: cursor.give_back(3), "OM_E_INVALID"),  # fresh
        (lambda cursor: cursor.give_back(0, -1), "OM_E_INVALID"),
        (lambda cursor: cursor.give_back(5), "OM_E_RANGE"),
        (lambda cursor: cursor.settle(3, 2), "OM_E_INVALID"),
        (lambda cursor: cursor.settle(-1, 2), "OM_E_INVALID"),
        (lambda cursor: cursor.skip(3, 2), "OM_E_INVALID"),
        (lambda cursor: cursor.skip(3, LARGEST), "OM_E_INVALID"),
        (lambda cursor: cursor.truncate(-1), "OM_E_INVALID"),
        (lambda cursor: cursor.appended(4, 1), "OM_E_RANGE"),
        (lambda cursor: cursor.appended(5, 0), "OM_E_INVALID"),
        (lambda cursor: cursor.appended(5, 1, -1), "OM_E_INVALID"),
        (lambda cursor: cursor.appended(5, LARGEST), "OM_E_INVALID"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused_and_changes_nothing(
    call: Callable[[Cursor], int], error: str
) -> None:
    cursor = filled(5)
    cursor.take(3, 10)
    cursor.settle(1, weight=10)
    cursor.give_back(2, 10)
    before = cursor.encode()
    assert call(cursor) == getattr(lib, error)
    assert cursor.encode() == before


def test_a_cursor_needs_an_offset_to_start_from() -> None:
    assert lib.om_cursor_new(-1) == ffi.NULL
    assert lib.om_cursor_new(LARGEST) == ffi.NULL


def test_bytes_never_fall_below_zero_whatever_the_caller_says() -> None:
    cursor = filled(4, weight=10)
    cursor.take(1, 1000)
    assert cursor.stat.ready_bytes == 0
    cursor.settle(0, weight=10**18)
    assert cursor.stat.unacked_bytes == 0
    cursor.take(3, LARGEST)
    assert cursor.stat.unacked_bytes == LARGEST
    cursor.settle(1, 3)
    assert cursor.stat.unacked_bytes == 0


# ---- memory ----


def test_an_idle_cursor_is_small() -> None:
    cursor = Cursor(123_456)
    assert cursor.stat.memory < 300
    cursor.appended(123_456, 10**7, 10**9)
    assert cursor.stat.memory < 300


def test_a_backlog_with_a_lease_gap_is_small() -> None:
    cursor = filled(10)
    cursor.appended(10 + 65_536, 5, 50)
    assert cursor.stat.memory < 500


def test_a_jump_to_the_far_end_costs_no_memory() -> None:
    cursor = filled(1)
    assert cursor.appended(LARGEST - 3, 3, 3) == 0
    assert cursor.stat.memory < 500
    assert cursor.take(4) == [0, LARGEST - 3, LARGEST - 2, LARGEST - 1]
    assert cursor.settle(0, LARGEST, 4) == 4
    assert cursor.stat.floor == cursor.stat.end == LARGEST
    assert cursor.stat.memory < 300


def test_a_million_settled_in_random_order_cost_what_the_holes_need(
    capsys: pytest.CaptureFixture[str],
) -> None:
    count = 1_000_000
    cursor = filled(count, start=12_345)
    idle = cursor.stat.memory
    taken = cursor.take(count, 10)
    random.Random(4).shuffle(taken)
    raw, settle = cursor.raw, lib.om_cursor_settle
    peak, spent, done = 0, 0.0, 0
    for start in range(0, count, 5000):
        began = time.perf_counter()
        for offset in taken[start : start + 5000]:
            done += settle(raw, offset, offset, 10)
        spent += time.perf_counter() - began
        stat = cursor.stat
        assert stat.unacked_count == count - done
        assert stat.unacked_bytes == 10 * (count - done)
        assert stat.memory - idle <= 2 * (stat.next - stat.floor) // 8 + 16_384
        peak = max(peak, stat.memory)
        if done >= count * 0.98:
            # Nearly all settled: the holes alone count, 16 bytes each at the worst.
            assert stat.memory - idle <= 16 * stat.unacked_count + 2048
    assert done == count
    assert (cursor.stat.floor, cursor.stat.memory) == (12_345 + count, idle)
    with capsys.disabled():
        print(
            f"\n1 M in random order: {spent * 1e9 / count:.0f} ns each through cffi, peak {peak} B"
        )


def test_a_crash_with_a_million_in_flight_leaves_no_million_entries() -> None:
    count = 1_000_000
    cursor = filled(count)
    cursor.take(count)
    assert cursor.return_all(counted=True) == count
    assert cursor.stat.memory < 1000
    assert [cursor.counts(at) for at in (0, 77_777, count - 1)] == [(1, 1, 1)] * 3
    assert cursor.take(count)[-1] == count - 1
    assert cursor.stat.memory < 2000
    assert [cursor.counts(at) for at in (0, 77_777, count - 1)] == [(1, 2, 1)] * 3
    assert cursor.settle(0, count) == count
    assert cursor.stat.memory == Cursor().stat.memory


# ---- everything at once ----

weights = st.integers(0, 1000)
gaps = st.sampled_from([0, 0, 0, 0, 1, 2, 30, 65_536, 65_541, 5 * 10**9])
picks = st.integers(0, 10**6)


class CursorMachine(RuleBasedStateMachine):
    """A cursor beside its model; round trips through the codec in the middle of it all."""

    @initialize(start=st.sampled_from([0, 7, 65_530, 10**15]))
    def begin(self, start: int) -> None:
        self.cursor = Cursor(start)
        self.model = Model(start)

    def pick(self, offsets: list[int], at: int) -> int:
        return offsets[at % len(offsets)]

    def spot(self, at: int, aside: int) -> int:
        """An offset near a record, or near the end when there is none."""
        near = sorted(self.model.records) or [self.model.end]
        return max(0, self.pick([*near, self.model.end], at) + aside)

    @rule(gap=gaps, sizes=st.lists(weights, min_size=1, max_size=30))
    def append(self, gap: int, sizes: list[int]) -> None:
        first = self.model.end + gap
        assert self.cursor.appended(first, len(sizes), sum(sizes)) == 0
        self.model.append(first, sizes)

    @precondition(lambda self: self.model.peek() >= 0)
    @rule(count=st.integers(1, 12))
    def acquire_in_order(self, count: int) -> None:
        for _ in range(min(count, len(self.model.ready()))):
            offset = self.model.peek()
            assert self.cursor.peek() == offset
            assert self.cursor.acquire(offset, self.model.records[offset].weight) == 0
            self.model.acquire(offset)

    @precondition(lambda self: self.model.in_state(RETURNED))
    @rule(at=picks)
    def acquire_any_returned(self, at: int) -> None:
        offset = self.pick(self.model.in_state(RETURNED), at)
        assert self.cursor.acquire(offset, self.model.records[offset].weight) == 0
        self.model.acquire(offset)

    @precondition(lambda self: self.model.next() < self.model.end)
    @rule()
    def acquire_fresh(self) -> None:
        offset = self.model.next()
        assert self.cursor.acquire(offset, self.model.records[offset].weight) == 0
        self.model.acquire(offset)

    @rule(at=picks, aside=st.integers(-2, 2))
    def acquire_anything(self, at: int, aside: int) -> None:
        offset = self.spot(at, aside)
        record = self.model.records.get(offset)
        may = record is not None and (record.state == RETURNED or offset == self.model.next())
        result = self.cursor.acquire(offset, record.weight if record else 0)
        assert (result == 0) == may
        if may:
            self.model.acquire(offset)

    @precondition(lambda self: self.model.unacked())
    @rule(at=picks, count=st.integers(1, 6), counted=st.booleans())
    def give_back(self, at: int, count: int, counted: bool) -> None:
        for _ in range(min(count, len(self.model.unacked()))):
            offset = self.pick(self.model.in_state(IN_FLIGHT), at)
            weight = self.model.records[offset].weight
            assert self.cursor.give_back(offset, weight, counted) == 0
            self.model.give_back(offset, counted)

    @rule(at=picks, aside=st.integers(-2, 2))
    def give_back_what_is_not_in_flight(self, at: int, aside: int) -> None:
        offset = self.spot(at, aside)
        if offset not in self.model.unacked():
            assert self.cursor.give_back(offset) < 0

    @precondition(lambda self: self.model.unacked())
    @rule(at=picks, count=st.integers(1, 12))
    def ack(self, at: int, count: int) -> None:
        for _ in range(min(count, len(self.model.unacked()))):
            offset = self.pick(self.model.in_state(IN_FLIGHT), at)
            assert self.cursor.settle(offset, weight=self.model.records[offset].weight) == 1
            self.model.settle(offset, offset, weighed=True)

    @rule(at=picks, other=picks, aside=st.integers(-2, 2), known=st.booleans())
    def settle_a_range(self, at: int, other: int, aside: int, known: bool) -> None:
        first, last = sorted((self.spot(at, 0), self.spot(other, aside)))
        weight = sum(record.weight for record in self.model.between(first, last).values())
        result = self.cursor.settle(first, last, weight if known else -1)
        assert result == self.model.settle(first, last, weighed=known)

    @rule(at=picks, aside=st.integers(-2, 2), length=st.sampled_from([1, 1, 2, 9, 70_000]))
    def skip(self, at: int, aside: int, length: int) -> None:
        first = self.spot(at, aside)
        last = first + length - 1
        assert self.cursor.skip(first, last) == 0
        self.model.settle(first, last, weighed=False)
        self.model.end = max(self.model.end, last + 1)

    @rule(at=picks, aside=st.integers(-2, 2))
    def truncate(self, at: int, aside: int) -> None:
        offset = self.spot(at, aside)
        assert self.cursor.truncate(offset) == 0
        self.model.settle(offset, self.model.end, weighed=False)
        self.model.end = min(self.model.end, offset)

    @rule(at=picks, aside=st.integers(-2, 2), whole=st.booleans())
    def purge(self, at: int, aside: int, whole: bool) -> None:
        before = self.model.end if whole else self.spot(at, aside)
        purged = [offset for offset in self.model.ready() if offset < before]
        assert self.cursor.purge(before) == len(purged)
        for offset in purged:
            self.model.settle(offset, offset, weighed=False)

    @rule(at=picks, aside=st.integers(-2, 2), length=st.integers(1, 6))
    def unsettle(self, at: int, aside: int, length: int) -> None:
        first = self.spot(at, aside)
        model = self.model
        revived = [
            offset
            for offset in range(first, min(first + length, model.end))
            if offset not in model.records
        ]
        assert self.cursor.unsettle(first, first + length - 1) == len(revived)
        fresh_from = model.next()
        for offset in revived:
            was_given_out = offset < fresh_from
            model.records[offset] = Record(
                0, state=RETURNED if was_given_out else FRESH, acquired=int(was_given_out)
            )
        if revived:
            model.exact[True] = False

    @rule(at=picks, aside=st.integers(-2, 2))
    def pass_by(self, at: int, aside: int) -> None:
        offset = self.spot(at, aside)
        passed = [fresh for fresh in self.model.in_state(FRESH) if fresh < offset]
        assert self.cursor.pass_by(offset) == len(passed)
        if passed:
            self.model.exact = {True: False, False: False}
        for fresh in passed:
            self.model.acquire(fresh)

    @rule(counted=st.booleans())
    def return_all(self, counted: bool) -> None:
        assert self.cursor.return_all(counted) == len(self.model.unacked())
        self.model.exact[True] = self.model.exact[True] and self.model.exact[False]
        for offset in self.model.unacked():
            self.model.give_back(offset, counted)

    @rule()
    def go_through_the_codec(self) -> None:
        data = self.cursor.encode()
        restored = decode(data)
        assert isinstance(restored, Cursor)
        assert restored.encode() == data
        self.cursor = restored

    @rule(at=picks, aside=st.integers(-2, 2))
    def ask_about_a_place(self, at: int, aside: int) -> None:
        offset = self.spot(at, aside)
        settled = offset < self.model.end and offset not in self.model.records
        assert self.cursor.is_settled(offset) == settled
        if settled:
            assert self.cursor.counts(offset) == (0, 0, 0)

    @invariant()
    def they_agree(self) -> None:
        if hasattr(self, "model"):
            self.model.check(self.cursor)

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.cursor.settle(0, self.model.end, -1)
            assert self.cursor.stat.floor == self.model.end
            assert self.cursor.stat.memory == Cursor().stat.memory


TestCursorMachine = CursorMachine.TestCase
TestCursorMachine.settings = settings(
    max_examples=examples(100), stateful_step_count=40, deadline=None
)
