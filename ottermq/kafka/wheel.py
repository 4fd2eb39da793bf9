"""A hierarchical timing wheel: a hundred thousand time-outs, each added and cancelled in O(1).

    level 0   64 slots of a tick (20 ms)         the next 1.3 s
    level 1   64 slots of 64 ticks               the next 82 s
    level 2   64 slots of 4096 ticks             the next 87 min
    level 3   64 slots of 262,144 ticks          the next 4 days; what is later waits in its last

A timer lies in the slot of the coarsest level that is fine enough for how far off it is. When the
wheel comes to a slot of a coarse level, its timers move down to finer ones; when it comes to one
of level 0, its timers are due. Most time-outs of a broker never happen (a heartbeat comes first),
so they are cancelled before they ever move.

Nothing happens but in `advance`; `run` calls it when something is due by trio's clock.
"""

from collections.abc import Callable
from math import ceil

import trio

from ottermq import eventlog

TICK = 0.02  # seconds; a time-out is late by this at most, and never early
LATE = 2 * TICK  # the process stood still, or had no core ...
HEARING = 1.0  # ... and hears for so long what clients sent meanwhile, before it judges them
BITS = 6
SLOTS = 1 << BITS
MASK = SLOTS - 1
LEVELS = 4
HORIZON = SLOTS**LEVELS  # ticks

Action = Callable[[], object]
Slot = dict["Timer", None]  # in the order they came


class Timer:
    """Something to be done at `due`; known to one wheel."""

    __slots__ = ("_slot", "action", "due")

    def __init__(self, due: float, action: Action) -> None:
        self.due = due
        self.action = action
        self._slot: Slot | None = None

    @property
    def pending(self) -> bool:
        return self._slot is not None

    def cancel(self) -> None:
        """Too late or twice does no harm."""
        if self._slot is not None:
            del self._slot[self]
            self._slot = None


class Wheel:
    def __init__(self, clock: Callable[[], float] = trio.current_time) -> None:
        self._clock = clock
        self._start = clock()
        self._tick = 0  # all timers up to it have been run
        self._levels: list[list[Slot]] = [[{} for _ in range(SLOTS)] for _ in range(LEVELS)]
        self._sooner = trio.Event()
        self._wake_at = 0.0

    def after(self, seconds: float, action: Action) -> Timer:
        timer = Timer(self._clock() + seconds, action)
        self._place(timer)
        if timer.due < self._wake_at:
            self._sooner.set()
        return timer

    def __len__(self) -> int:
        return sum(len(slot) for level in self._levels for slot in level)

    def _place(self, timer: Timer) -> None:
        due = max(ceil((timer.due - self._start) / TICK), self._tick + 1)
        distance = due - self._tick
        if distance >= HORIZON:
            due, distance = self._tick + HORIZON - 1, HORIZON - 1
        level = (distance.bit_length() - 1) // BITS
        slot = self._levels[level][(due >> level * BITS) & MASK]
        slot[timer] = None
        timer._slot = slot

    def advance(self) -> None:
        """Run all that is due, in order."""
        end = int((self._clock() - self._start) / TICK)
        while True:
            tick = self._next_tick()
            if tick is None or tick > end:
                break
            self._tick = tick
            self._cascade(tick)
            self._run(self._levels[0][tick & MASK])
        self._tick = max(end, self._tick)

    def next_due(self) -> float | None:
        """When to advance next: nothing happens before."""
        tick = self._next_tick()
        return None if tick is None else self._start + tick * TICK

    def _next_tick(self) -> int | None:
        """The next one with anything to run or to move."""
        found: int | None = None
        for level, slots in enumerate(self._levels):
            at = self._tick >> level * BITS
            for step in range(1, SLOTS + 1):
                if slots[(at + step) & MASK]:
                    tick = (at + step) << level * BITS
                    found = tick if found is None else min(tick, found)
                    break
        return found

    def _cascade(self, tick: int) -> None:
        for level in range(LEVELS - 1, 0, -1):
            if tick & ((1 << level * BITS) - 1) == 0:
                slot = self._levels[level][(tick >> level * BITS) & MASK]
                moved = list(slot)
                slot.clear()
                for timer in moved:
                    self._place_at(timer, tick)

    def _place_at(self, timer: Timer, tick: int) -> None:
        """It may be due in this very tick, whose slot hasn't been run yet."""
        if ceil((timer.due - self._start) / TICK) <= tick:
            slot = self._levels[0][tick & MASK]
            slot[timer] = None
            timer._slot = slot
        else:
            self._place(timer)

    def _run(self, slot: Slot) -> None:
        while slot:  # an action may cancel another of the same slot
            timer = next(iter(slot))
            timer.cancel()
            try:
                timer.action()
            except Exception as error:  # the others must not pay for it
                eventlog.failure("timer failed", error)

    async def run(self) -> None:
        """By trio's clock, until cancelled."""
        while True:
            self.advance()
            due = self.next_due()
            self._wake_at = float("inf") if due is None else due
            self._sooner = trio.Event()
            with trio.move_on_at(self._wake_at):
                await self._sooner.wait()
            if self._clock() - self._wake_at > LATE:
                await trio.sleep(HEARING)
