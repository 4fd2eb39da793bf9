"""OtterMQ beside RabbitMQ and the two ceilings, in one run: `make bench ARGS="amqp"`.

Absolute rates mean little on a shared machine, so all contestants run side by side: within a
scenario they take turns, round after round, each in another order, and medians are compared.
Whoever isn't measured is frozen, and what the last one left unwritten is synced before the next.
"""

import argparse
import contextlib
import datetime
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from perf import chart, rabbitmq, report
from perf.load import LoadFailed
from perf.log_bench import prime
from perf.ottermq import OtterMQ
from perf.programs import BUILD, ROOT
from perf.relay import Relay
from perf.report import Figures, Outcome, Report
from perf.scenarios import SCENARIOS, Effort, Scenario
from perf.served import NotServing, Served

ROUNDS = 3
SERVERS = ("ottermq", "rabbitmq", "relay", "durable")
# Who runs on another's server, and how it is told apart.
ON_SERVER = {"quorum": ("rabbitmq", ("--type", "quorum"))}
HOLD = 3 << 30  # the relay keeps a whole backlog in memory


class Contest:
    """The servers that take part, all frozen but the one whose turn it is."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder = folder
        self.names = names
        self.servers: dict[str, Served] = {}
        self.missing: dict[str, str] = {}

    def __enter__(self) -> "Contest":
        for name in self.names:
            self._start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers.values():
            server.stop()

    def _start(self, name: str) -> None:
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        makers: dict[str, Callable[[], Served]] = {
            "ottermq": lambda: OtterMQ(place),
            "rabbitmq": lambda: rabbitmq.RabbitMQ(place),
            "relay": lambda: Relay(place, hold=HOLD),
            "durable": lambda: Relay(place, durable=True),
        }
        try:
            server = makers[name]()
            server.start()
        except (NotServing, OSError) as error:
            self.missing[name] = str(error)
            return
        server.pause()
        self.servers[name] = server

    def restart(self, name: str) -> None:
        """After a run that failed nobody knows what it still does."""
        self.servers.pop(name).stop()
        self._start(name)

    @contextlib.contextmanager
    def turn(self, name: str) -> Iterator[Served]:
        if name not in self.servers:
            raise NotServing(self.missing.get(name, "doesn't take part"))
        server = self.servers[name]
        os.sync()
        server.resume()
        try:
            yield server
        finally:
            server.pause()

    def measure(self, scenario: Scenario, contestant: str, effort: Effort) -> Figures:
        name, own = ON_SERVER.get(contestant, (contestant, ()))
        try:
            with self.turn(name) as server:
                watch = ("--watch", server.group)
                figures = scenario.measure(server.address, (*own, *watch), effort)
                peak = server.peak_memory()
        except LoadFailed:
            self.restart(name)
            raise
        return {**figures, "peak MiB": peak / (1 << 20)}

    def hold(self, scenario: Scenario, rounds: int, effort: Effort) -> Outcome:
        found: dict[str, list[Figures]] = {}
        errors: dict[str, str] = {}
        servers = {name: ON_SERVER.get(name, (name,))[0] for name in scenario.contestants}
        taking_part = [name for name, server in servers.items() if server in self.names]
        for number in range(1 if scenario.once else rounds):
            turn = number % len(taking_part) if taking_part else 0
            for contestant in taking_part[turn:] + taking_part[:turn]:
                if contestant in errors:
                    continue
                try:
                    figures = self.measure(scenario, contestant, effort)
                except (LoadFailed, NotServing) as error:
                    errors[contestant] = str(error)
                    continue
                found.setdefault(contestant, []).append(figures)
                tell(f"{scenario.name} {number + 1}: {contestant} {brief(figures)}")
        medians = {name: median(rounds) for name, rounds in found.items() if name not in errors}
        verdicts = [bar.judge(medians) for bar in scenario.bars]
        return Outcome(scenario.name, scenario.title, medians, verdicts, errors)


def median(rounds: Sequence[Figures]) -> Figures:
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


def brief(figures: Figures) -> str:
    shown = (name for name in figures if name not in report.ASIDE)
    return ", ".join(f"{name} {report.quantity(name, figures[name])}" for name in shown)


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def machine() -> str:
    cpus = len(os.sched_getaffinity(0))
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{cpus} cores, {line.partition(':')[2].strip()}"
    return f"{cpus} cores"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.py amqp", description=__doc__)
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--only", action="append", choices=names, help="one scenario; repeatable")
    parser.add_argument(
        "--brokers", default=",".join(SERVERS), help="who takes part (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--warm-up", type=float, default=1, help="before each measurement")
    parser.add_argument("--scale", type=float, default=1, help="share of the full backlogs")
    parser.add_argument("--no-priming", action="store_true", help="memory was touched before")
    parser.add_argument("--data", type=Path, help="where the brokers write")
    parser.add_argument("--json", type=Path, default=BUILD / "amqp_bench.json")
    parser.add_argument("--svg", type=Path, default=BUILD / "amqp_bench.svg")
    chosen = parser.parse_args(arguments)
    chosen.brokers = chosen.brokers.split(",")
    for unknown in set(chosen.brokers) - set(SERVERS):
        parser.error(f"there is no {unknown}; known are {', '.join(SERVERS)}")
    if "rabbitmq" in chosen.brokers and not rabbitmq.installed():
        tell("RabbitMQ isn't installed (apt install rabbitmq-server): it is left out")
        chosen.brokers.remove("rabbitmq")
    return chosen


def main(arguments: Sequence[str]) -> None:
    chosen = parse(arguments)
    wanted = [each for each in SCENARIOS if not chosen.only or each.name in chosen.only]
    effort = Effort(chosen.seconds, chosen.warm_up, chosen.scale)
    # Not /tmp: that may be memory, and a sync of it nothing.
    base = chosen.data or BUILD
    base.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="amqp-", dir=base))
    try:
        if not chosen.no_priming:
            prime(folder)
        with Contest(folder, chosen.brokers) as contest:
            for name, reason in contest.missing.items():
                tell(f"{name} can't take part: {reason}")
            outcomes = [contest.hold(each, chosen.rounds, effort) for each in wanted]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    taken = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    result = Report(taken, machine(), chosen.rounds, chosen.seconds, outcomes)
    report.show(result)
    result.write(chosen.json)
    chosen.svg.write_text(chart.draw(result))
    for path in (chosen.json, chosen.svg):
        place = path.resolve()
        tell(f"written to {place.relative_to(ROOT) if place.is_relative_to(ROOT) else place}")
