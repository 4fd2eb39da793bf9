"""Brokers in turns: all frozen but the one that is measured.

Absolute rates mean little on a shared machine, so all contestants run side by side: within a
scenario they take turns, round after round, each round in another order, and medians are compared.
Contestants that aren't measured are stopped (SIGSTOP), and unwritten data of the last one is synced
before the next begins.
"""

import contextlib
import os
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from perf import report
from perf.load import LoadFailed
from perf.ottermq import OtterMQ
from perf.rabbitmq import RabbitMQ
from perf.relay import Relay
from perf.report import Figures, Outcome
from perf.scenarios import Effort, Options, Scenario
from perf.served import NotServing, Served

HOLD = 3 << 30  # the relay keeps a whole backlog in memory
# A frozen broker doesn't remove what was deleted: one that has more than this on disk begins anew.
# Three rounds of a thousand partitions once filled a disk.
MOST_KEPT = 8 << 30
COPYING = {"OTTERMQ_WAL__ZERO_COPY__ENABLED": "false"}
SERVERS: dict[str, Callable[[Path], Served]] = {
    "ottermq": OtterMQ,
    "copying": lambda folder: OtterMQ(folder, env=COPYING),
    "rabbitmq": RabbitMQ,
    "relay": lambda folder: Relay(folder, hold=HOLD),
    "durable": lambda folder: Relay(folder, durable=True),
}
# Contestants that use another's server, and the options that tell them apart.
GUESTS: dict[str, tuple[str, Options]] = {"quorum": ("rabbitmq", ("--type", "quorum"))}
# Contestants that come along with another: the same broker, started otherwise.
COMPANIONS = {"copying": "ottermq", "quorum": "rabbitmq"}


class Contest:
    """`with Contest(...)`: servers start when they are first needed and end together."""

    def __init__(
        self,
        folder: Path,
        brokers: Sequence[str],
        tell: Callable[[str], None],
        servers: Mapping[str, Callable[[Path], Served]] = SERVERS,
    ) -> None:
        self.folder = folder
        self.servers = servers
        self.brokers = brokers
        self.tell = tell
        self._servers: dict[str, Served] = {}

    def __enter__(self) -> "Contest":
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.stop()

    def hold(self, scenario: Scenario, rounds: int, effort: Effort) -> Outcome:
        found: dict[str, list[Figures]] = {}
        errors: dict[str, str] = {}
        taking_part = [
            name for name in scenario.contestants if COMPANIONS.get(name, name) in self.brokers
        ]
        for number in range(rounds):
            first = number % max(len(taking_part), 1)
            for name in taking_part[first:] + taking_part[:first]:
                if name in errors:
                    continue
                try:
                    figures = self._measure(scenario, name, effort)
                except (LoadFailed, NotServing) as error:
                    errors[name] = str(error)
                    self.tell(f"{scenario.name} {number + 1}: {name} failed: {error}")
                    continue
                found.setdefault(name, []).append(figures)
                self.tell(f"{scenario.name} {number + 1}: {name} {brief(figures)}")
        medians = {name: median(each) for name, each in found.items() if name not in errors}
        verdicts = [bar.judge(medians) for bar in scenario.bars]
        return Outcome(scenario.name, scenario.title, medians, verdicts, found, errors)

    def _measure(self, scenario: Scenario, contestant: str, effort: Effort) -> Figures:
        name, own = GUESTS.get(contestant, (contestant, ()))
        server = self._turn_of(name)
        try:
            watch = ("--watch", server.group)
            figures = scenario.measure(server.address, (*own, *watch), effort)
            peak, own_memory = server.peak_memory(), server.own_memory()
        except LoadFailed as error:
            # Nobody knows what it still does: the next turn begins with a fresh one.
            last_words = f"; it had ended: {server.tail()}" if server.ended() else ""
            self._servers.pop(name).stop()
            raise LoadFailed(f"{error}{last_words}") from error
        self._freeze(name)
        memory = {"peak MiB": peak / (1 << 20), "own MiB": own_memory / (1 << 20)}
        return {**figures, **memory, "start s": server.took}

    def _freeze(self, name: str) -> None:
        if disk_usage(self.folder / name) <= MOST_KEPT:
            self._servers[name].pause()
            return
        self._servers.pop(name).stop()
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def _turn_of(self, name: str) -> Served:
        os.sync()
        if name in self._servers:
            self._servers[name].resume()
            return self._servers[name]
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        server = self.servers[name](place)
        server.start()
        self._servers[name] = server
        return server


def disk_usage(folder: Path) -> int:
    """Bytes on disk. Files come and go meanwhile."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total


def median(rounds: Sequence[Figures]) -> Figures:
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


def brief(figures: Figures) -> str:
    shown = (name for name in figures if name not in report.ASIDE)
    return ", ".join(f"{name} {report.quantity(name, figures[name])}" for name in shown)
