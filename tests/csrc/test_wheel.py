"""The timing wheel: every timer once, never early, at the first look that is late enough."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.internals import ffi, lib

NEVER = (1 << 63) - 1
DAY = 86_400_000


def new_wheel(now: int) -> Any:
    wheel = ffi.new("om_wheel *")
    wheel.now = now
    return wheel


def expired(wheel: Any, now: int) -> list[Any]:
    found = []
    while (timer := lib.om_wheel_expired(wheel, now)) != ffi.NULL:
        found.append(timer)
    return found


spans = st.one_of(st.integers(-3, 200), st.integers(0, 10_000), st.integers(0, 30 * DAY))
steps = st.one_of(
    st.tuples(st.just("set"), st.integers(0, 15), spans),
    st.tuples(st.just("clear"), st.integers(0, 15), st.just(0)),
    st.tuples(st.just("pass"), st.just(0), st.integers(0, 5000) | st.integers(0, 40 * DAY)),
)


@given(st.integers(0, 1 << 45), st.lists(steps, max_size=80))
@settings(deadline=None)
def test_timers_expire_when_their_time_is_up(now: int, plan: list[tuple[str, int, int]]) -> None:
    wheel = new_wheel(now)
    timers = [ffi.new("om_wheel_timer *") for _ in range(16)]
    model: dict[int, int] = {}
    for what, which, span in plan:
        if what == "set":
            lib.om_wheel_set(wheel, timers[which], now + span)
            model[which] = now + span
        elif what == "clear":
            lib.om_wheel_clear(wheel, timers[which])
            model.pop(which, None)
        else:
            now += span
            due = {each for each, at in model.items() if at <= now}
            assert {timers.index(timer) for timer in expired(wheel, now)} == due
            model = {each: at for each, at in model.items() if each not in due}
        assert wheel.count == len(model)
        assert lib.om_wheel_next(wheel) <= max(min(model.values(), default=NEVER), now)
        if not model:
            assert lib.om_wheel_next(wheel) == NEVER


def test_looking_only_when_it_says_so_is_enough() -> None:
    now = 1_000_003
    wheel = new_wheel(now)
    timers = {now + n * n * 7 % 3_000_000: ffi.new("om_wheel_timer *") for n in range(1, 500)}
    for at, timer in timers.items():
        lib.om_wheel_set(wheel, timer, at)
    looks, times = 0, {timer: at for at, timer in timers.items()}
    while (following := lib.om_wheel_next(wheel)) != NEVER:
        looks += 1
        for timer in expired(wheel, following):
            assert times.pop(timer) == following
    assert times == {}
    assert looks < 4 * len(timers)


def test_a_hundred_thousand_wait_and_go() -> None:
    wheel = new_wheel(0)
    timers = ffi.new("om_wheel_timer[]", 100_000)
    for n in range(100_000):
        lib.om_wheel_set(wheel, ffi.addressof(timers, n), 30_000 + n % 500)
    assert wheel.count == 100_000
    assert lib.om_wheel_next(wheel) <= 30_000
    for n in range(0, 100_000, 2):
        lib.om_wheel_clear(wheel, ffi.addressof(timers, n))
    assert len(expired(wheel, 30_249)) == 25_000
    assert len(expired(wheel, 31_000)) == 25_000
    assert wheel.count == 0
