"""The timing wheel: never early, at most a tick late, whatever is added and cancelled meanwhile."""

import random
from collections.abc import Callable

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ottermq.kafka.wheel import HORIZON, TICK, Timer, Wheel


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def noting(fired: list[tuple[int, float]], clock: Clock, name: int) -> Callable[[], None]:
    return lambda: fired.append((name, clock.now))


@given(
    delays=st.lists(st.floats(0, 400_000), max_size=30),
    steps=st.lists(st.floats(0, 40_000), max_size=30),
)
def test_timers_run_once_never_early_and_in_order(delays: list[float], steps: list[float]) -> None:
    clock = Clock()
    wheel = Wheel(clock)
    fired: list[tuple[int, float]] = []
    due = {n: clock.now + delay for n, delay in enumerate(delays)}
    for n, delay in enumerate(delays):
        wheel.after(delay, noting(fired, clock, n))
    for step in [*steps, 500_000.0]:
        clock.now += step
        told = wheel.next_due()
        already = len(fired)
        wheel.advance()
        for name, at in fired[already:]:
            assert due[name] <= at
            assert told is not None and told <= at
        for name, at in due.items():
            assert at + TICK * 1.01 > clock.now or name in dict(fired)
    assert sorted(name for name, _ in fired) == sorted(due)
    assert len(wheel) == 0 and wheel.next_due() is None


@given(st.data())
def test_what_is_cancelled_never_runs(data: st.DataObject) -> None:
    clock = Clock()
    wheel = Wheel(clock)
    timers: list[Timer] = []
    ran: set[int] = set()
    cancelled: set[int] = set()
    for _ in range(data.draw(st.integers(1, 40))):
        match data.draw(st.sampled_from(["add", "cancel", "wait"])):
            case "add":
                n = len(timers)
                timers.append(
                    wheel.after(data.draw(st.floats(0, 200)), lambda n=n: ran.add(n))  # type: ignore[misc]
                )
            case "cancel" if timers:
                n = data.draw(st.integers(0, len(timers) - 1))
                if timers[n].pending:
                    cancelled.add(n)
                timers[n].cancel()
            case _:
                clock.now += data.draw(st.floats(0, 100))
                wheel.advance()
    clock.now += 300
    wheel.advance()
    assert ran == set(range(len(timers))) - cancelled


def test_a_hundred_thousand_are_no_trouble() -> None:
    clock = Clock()
    wheel = Wheel(clock)
    chance = random.Random(7)
    ran = 0

    def count() -> None:
        nonlocal ran
        ran += 1

    timers = [wheel.after(chance.uniform(6, 45), count) for _ in range(100_000)]
    assert len(wheel) == 100_000
    for _ in range(3):  # heartbeats: each of them again, later
        clock.now += 3
        wheel.advance()
        for timer in timers:
            timer.cancel()
        timers = [wheel.after(chance.uniform(6, 45), count) for _ in range(100_000)]
    assert ran == 0
    while wheel.next_due() is not None:
        clock.now += 1
        wheel.advance()
    assert ran == 100_000


def test_an_action_may_add_and_cancel() -> None:
    clock = Clock()
    wheel = Wheel(clock)
    ran: list[str] = []

    def first() -> None:
        ran.append("first")
        second.cancel()
        wheel.after(1, lambda: ran.append("added"))

    wheel.after(1, first)
    second = wheel.after(1, lambda: ran.append("cancelled"))
    clock.now += 1.5
    wheel.advance()
    assert ran == ["first"]
    clock.now += 1.5
    wheel.advance()
    assert ran == ["first", "added"]


def test_one_that_fails_harms_no_other() -> None:
    clock = Clock()
    wheel = Wheel(clock)
    ran: list[str] = []

    def fail() -> None:
        raise ValueError("no")

    wheel.after(1, fail)
    wheel.after(1, lambda: ran.append("other"))
    clock.now += 2
    wheel.advance()
    assert ran == ["other"]


def test_what_is_farther_off_than_the_wheel_reaches_still_comes() -> None:
    clock = Clock()
    wheel = Wheel(clock)
    ran: list[float] = []
    due = clock.now + 2.5 * HORIZON * TICK
    wheel.after(due - clock.now, lambda: ran.append(clock.now))
    while not ran:
        told = wheel.next_due()
        assert told is not None
        clock.now = told + TICK / 2
        wheel.advance()
    assert due <= ran[0] <= due + 2 * TICK


async def test_it_runs_by_trios_clock(autojump_clock: trio.testing.MockClock) -> None:
    wheel = Wheel()
    ran: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wheel.run)
        await trio.sleep(50)  # it sleeps with nothing to do
        wheel.after(10, lambda: ran.append("later"))
        await trio.testing.wait_all_tasks_blocked()
        wheel.after(1, lambda: ran.append("sooner"))
        await trio.sleep(1.5)
        assert ran == ["sooner"]
        await trio.sleep(10)
        assert ran == ["sooner", "later"]
        nursery.cancel_scope.cancel()
