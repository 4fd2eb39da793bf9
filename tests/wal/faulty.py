"""Lives with a disk that fails: a function of a test file, run in a child under the shim.

    def a_life(life: Life) -> None:
        life.faults.fail(Op.FDATASYNC, "wal/*.wal", times=1)
        ...

    def test_so_and_so(memory_path: Path) -> None:
        outlive(a_life, memory_path)

The child ends without closing its store, as a kill would end it. What its journal was promised must
then hold three ways: after a restart on the files as they are, after a clean stop of that one, and
after a power loss at any moment of the life (of the faulty moments too: what a failed sync left
behind is as uncertain as the simulator can make it).
"""

import importlib
import os
import select
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ottermq.wal import Options, Report, ReportKind, Store
from tests.faults.powerloss import EXT4, Model, crash_states
from tests.faults.rules import Faults
from tests.faults.shim import recorded
from tests.wal import power_loss_child
from tests.wal.crash_journal import CrashJournal
from tests.wal.promises import Promises, hold_all

#: Room enough that nothing is full, and nothing written, before a test says so.
OPTIONS = replace(power_loss_child.OPTIONS, hot_buffer_size=16 << 20, wal_max_size=8 << 20)
PATIENCE = 60.0


class Life:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.journal = CrashJournal(store)
        self.faults = Faults.from_environment()
        self.reports: list[Report] = []

    def count(self, kind: ReportKind) -> int:
        self.reports += self.store.reports()
        return sum(report.kind is kind for report in self.reports)

    def hear(self, kind: ReportKind, times: int = 1) -> Report:
        """Wait until that was reported so often; the last one."""
        self.until(lambda: self.count(kind) >= times, f"{kind.name} is not reported")
        return [report for report in self.reports if report.kind is kind][-1]

    def until(self, true: Callable[[], object], otherwise: str) -> None:
        """Look again whenever the store says that something happened."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            left = deadline - time.monotonic()
            assert left > 0, f"{otherwise}; {self.store.stat()}; {self.reports}"
            # Not all that a test waits for is an event to the broker.
            if select.select([self.store.event_fd], [], [], min(left, 0.005))[0]:
                os.eventfd_read(self.store.event_fd)

    def pause(self, seconds: float) -> None:
        """Let time pass that something must not happen in."""
        if select.select([self.store.event_fd], [], [], seconds)[0]:
            os.eventfd_read(self.store.event_fd)


LifeStory = Callable[..., None]


def command(story: LifeStory, *args: Any) -> list[str]:
    name = f"{story.__module__}:{story.__name__}"
    return [sys.executable, "-P", "-m", "tests.wal.faulty", name, *(str(arg) for arg in args)]


def outlive(
    story: LifeStory,
    folder: Path,
    *args: Any,
    options: Options = OPTIONS,
    crashes: int = 12,
    model: Model = EXT4,
) -> None:
    """Run it, restart, and take the power away `crashes` times. args: for the story, as text."""
    with recorded(folder) as rec:
        rec.run(command(story, *args))
    assert rec.trace.markers(), "nothing was promised: nothing is proved"
    promises = Promises()
    promises.read(rec.trace.markers())
    promises.hold(rec.root, options)
    states = crash_states(rec.trace, seed=1, n=crashes, model=model)
    hold_all(states, folder, options)


def main(name: str, *args: str) -> None:
    module, _, function = name.partition(":")
    story = getattr(importlib.import_module(module), function)
    options = getattr(story, "options", OPTIONS)
    life = Life(Store.open(Path(os.environ["OTTERMQ_SHIM_ROOT"]), options))
    story(life, *args)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
