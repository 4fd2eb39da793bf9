"""Which segments go, and which must never."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottermq.wal.log import SegmentStat
from ottermq.wal.removal_reasons import RemovalReason
from ottermq.wal.retention import (
    ACTIVE_IDLE_MS,
    ACTIVE_WORTH,
    Expired,
    Policy,
    expired,
)

NOW = 1_800_000_000_000
HOUR = 3_600_000


def segments(*ages_ms: int, size: int = 1000, active: bool = True) -> list[SegmentStat]:
    """Ten records each, the last one active, each as old as said."""
    return [
        SegmentStat(
            base_offset=10 * i,
            next_offset=10 * i + 10,
            size=size,
            first_timestamp=NOW - age,
            max_timestamp=NOW - age,
            sealed=not active or i < len(ages_ms) - 1,
            fenced=False,
        )
        for i, age in enumerate(ages_ms)
    ]


def gone(
    shape: list[SegmentStat], policy: Policy, *, floor: int | None = 0
) -> list[tuple[int, RemovalReason]]:
    found = expired(shape, sum(s.size for s in shape), floor, NOW, policy)
    return [(each.segment.base_offset, each.rule) for each in found]


def test_a_segment_goes_once_every_record_in_it_is_settled() -> None:
    assert gone(segments(3, 2, 1, 0), Policy(), floor=29) == [
        (0, RemovalReason.SETTLED),
        (10, RemovalReason.SETTLED),
    ]


def test_a_forgotten_message_keeps_its_segment_and_all_after_it() -> None:
    assert gone(segments(3, 2, 1, 0), Policy(), floor=0) == []


def test_a_stream_has_no_floor_to_go_by() -> None:
    assert gone(segments(3 * HOUR, 2 * HOUR, 0), Policy(), floor=None) == []
    by_age = Policy(max_age_ms=HOUR)
    assert gone(segments(3 * HOUR, 2 * HOUR, 0), by_age, floor=None) == [
        (0, RemovalReason.MAX_AGE),
        (10, RemovalReason.MAX_AGE),
    ]


def test_old_segments_go_settled_or_not() -> None:
    assert gone(segments(2 * HOUR, HOUR + 1, HOUR, 0), Policy(max_age_ms=HOUR)) == [
        (0, RemovalReason.MAX_AGE),
        (10, RemovalReason.MAX_AGE),
    ]


def test_an_active_segment_goes_when_all_of_it_is_too_old() -> None:
    assert gone(segments(2 * HOUR), Policy(max_age_ms=HOUR)) == [(0, RemovalReason.MAX_AGE)]


def test_what_has_no_timestamp_has_no_age() -> None:
    timeless = [dataclasses.replace(s, max_timestamp=-1) for s in segments(0, 0, 0)]
    assert gone(timeless, Policy(max_age_ms=1)) == []


def test_the_oldest_go_until_the_rest_fits() -> None:
    assert gone(segments(4, 3, 2, 1, 0), Policy(max_size=2500)) == [
        (0, RemovalReason.MAX_SIZE),
        (10, RemovalReason.MAX_SIZE),
        (20, RemovalReason.MAX_SIZE),
    ]
    assert gone(segments(4, 3, 2, 1, 0), Policy(max_size=5000)) == []


def test_size_never_takes_the_active_segment() -> None:
    assert gone(segments(1, 0), Policy(max_size=1)) == [(0, RemovalReason.MAX_SIZE)]


def test_an_audit_trail_keeps_what_is_settled_until_age_or_size() -> None:
    trail = Policy(keep_settled=True)
    assert gone(segments(2 * HOUR, 1, 0), trail, floor=30) == []
    aged = dataclasses.replace(trail, max_age_ms=HOUR)
    assert gone(segments(2 * HOUR, 1, 0), aged, floor=30) == [(0, RemovalReason.MAX_AGE)]


def test_without_the_floor_rule_settled_segments_stay() -> None:
    assert gone(segments(2 * HOUR, 1, 0), Policy(by_floor=False), floor=30) == []


def test_rules_take_turns_from_segment_to_segment() -> None:
    shape = segments(5 * HOUR, 4 * HOUR, 2, 1, 0)
    policy = Policy(max_age_ms=HOUR, max_size=2000)
    assert gone(shape, policy, floor=10) == [
        (0, RemovalReason.SETTLED),
        (10, RemovalReason.MAX_AGE),
        (20, RemovalReason.MAX_SIZE),
    ]


@pytest.mark.parametrize(
    ("size", "age", "goes"),
    [
        (ACTIVE_WORTH - 1, ACTIVE_IDLE_MS - 1, False),
        (ACTIVE_WORTH, 0, True),
        (1, ACTIVE_IDLE_MS, True),
    ],
)
def test_a_settled_active_segment_goes_when_it_is_large_or_idle(
    size: int, age: int, goes: bool
) -> None:
    assert gone(segments(age, size=size), Policy(), floor=10) == [(0, RemovalReason.SETTLED)][:goes]


def test_an_empty_segment_stays() -> None:
    empty = SegmentStat(50, 50, 0, -1, -1, sealed=False, fenced=False)
    assert gone([empty], Policy(max_age_ms=1, max_size=0), floor=50) == []


@st.composite
def logs(draw: st.DrawFn) -> list[SegmentStat]:
    shape: list[SegmentStat] = []
    offset = draw(st.integers(0, 1 << 40))
    count = draw(st.integers(0, 8))
    for i in range(count):
        first = offset + draw(st.integers(0, 5))  # a gap
        offset = first + draw(st.integers(1, 1000))
        shape.append(
            SegmentStat(
                base_offset=first,
                next_offset=offset,
                size=draw(st.integers(61, 4 << 20)),
                first_timestamp=0,
                max_timestamp=draw(st.integers(-1, 2 * NOW)),
                sealed=i < count - 1 or draw(st.booleans()),
                fenced=False,
            )
        )
    return shape


policies = st.builds(
    Policy,
    by_floor=st.booleans(),
    max_age_ms=st.none() | st.integers(1, NOW),
    max_size=st.none() | st.integers(0, 32 << 20),
    keep_settled=st.booleans(),
)


@given(logs(), policies, st.none() | st.integers(0, 1 << 41))
def test_each_segment_that_goes_has_its_reason_and_the_next_one_has_none(
    shape: list[SegmentStat], policy: Policy, floor: int | None
) -> None:
    total = sum(s.size for s in shape)
    found = expired(shape, total, floor, NOW, policy)
    assert [each.segment for each in found] == shape[: len(found)]  # from the start, in order
    for each in found:
        _has_its_reason(each, total, floor, policy)
        total -= each.segment.size
    left = shape[len(found) :]
    if left and policy.max_size is not None and left[0].sealed:
        assert total <= policy.max_size
    if left and left[0].sealed and floor is not None and policy.drops_settled:
        assert left[0].next_offset > floor
    # A look at the first few comes to the same for those.
    few = expired(shape[:3], sum(s.size for s in shape), floor, NOW, policy)
    assert few == found[:3]


def _has_its_reason(each: Expired, total: int, floor: int | None, policy: Policy) -> None:
    segment = each.segment
    if each.rule is RemovalReason.SETTLED:
        assert policy.by_floor and not policy.keep_settled
        assert floor is not None and segment.next_offset <= floor
    elif each.rule is RemovalReason.MAX_AGE:
        assert policy.max_age_ms is not None
        assert 0 <= segment.max_timestamp < NOW - policy.max_age_ms
    else:
        assert policy.max_size is not None and total > policy.max_size and segment.sealed


@given(logs(), st.none() | st.integers(0, 1 << 41))
def test_a_work_queue_without_limits_never_loses_an_unsettled_record(
    shape: list[SegmentStat], floor: int | None
) -> None:
    for each in expired(shape, sum(s.size for s in shape), floor, NOW, Policy()):
        assert floor is not None and each.segment.next_offset <= floor
