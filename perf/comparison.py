"""A comparison from the command line: brokers in turns, a table, JSON and an SVG."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perf import chart, report
from perf.contest import Contest
from perf.log_bench import prime
from perf.ottermq import OtterMQ
from perf.programs import BUILD, ROOT, machine, now
from perf.report import Report, beside_before
from perf.scenarios import Effort, Scenario
from perf.served import Served
from perf.tables import Row

ROUNDS = 3
# A broker measures the machine at its start and chooses by that: two starts of one version may
# differ, and a comparison of two versions must not.
SAME_DISK = {"OTTERMQ_WAL__DIRECT_IO": "on"}


@dataclass(frozen=True)
class Comparison:
    name: str
    about: str
    brokers: tuple[str, ...]
    scenarios: tuple[Scenario, ...]
    servers: Mapping[str, Callable[[Path], Served]]
    missing: Callable[[str], str | None]  # why that broker can't take part here
    rows: tuple[Row, ...]  # of the README's table and picture
    unit: str


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse(comparison: Comparison, arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"bench.py {comparison.name}", description=comparison.about
    )
    names = [scenario.name for scenario in comparison.scenarios]
    parser.add_argument("--only", action="append", choices=names, help="one scenario; repeatable")
    parser.add_argument(
        "--brokers",
        default=",".join(comparison.brokers),
        help="who takes part (default: %(default)s)",
    )
    parser.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="only we and that built checkout take turns"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--warm-up", type=float, default=1, help="before each measurement")
    parser.add_argument("--scale", type=float, default=1, help="share of the full backlogs")
    parser.add_argument("--no-priming", action="store_true", help="memory was touched before")
    parser.add_argument("--data", type=Path, help="where the brokers write")
    parser.add_argument("--json", type=Path, help="default: a file in build/perf")
    parser.add_argument("--svg", type=Path, help="default: a file in build/perf")
    chosen = parser.parse_args(arguments)
    kind = f"{comparison.name}_before" if chosen.before else f"{comparison.name}_bench"
    chosen.json = chosen.json or BUILD / f"{kind}.json"
    chosen.svg = chosen.svg or BUILD / f"{kind}.svg"  # none of two versions of one broker
    chosen.brokers = ["ottermq", "before"] if chosen.before else chosen.brokers.split(",")
    if chosen.before:
        return chosen
    for unknown in set(chosen.brokers) - set(comparison.brokers):
        parser.error(f"there is no {unknown}; known are {', '.join(comparison.brokers)}")
    for broker in list(chosen.brokers):
        reason = comparison.missing(broker)
        if reason:
            tell(f"{reason}: it is left out")
            chosen.brokers.remove(broker)
    return chosen


def beside(comparison: Comparison, checkout: Path) -> Comparison:
    """The same scenarios, only for us and an earlier version of us."""
    python = checkout.absolute() / ".venv" / "bin" / "python"

    def now(folder: Path) -> Served:
        return OtterMQ(folder, SAME_DISK, listener=comparison.name)

    def before(folder: Path) -> Served:
        return OtterMQ(folder, SAME_DISK, listener=comparison.name, python=python)

    return replace(
        comparison,
        scenarios=tuple(
            replace(each, contestants=("ottermq", "before"), bars=())
            for each in comparison.scenarios
        ),
        servers={"ottermq": now, "before": before},
    )


def run(comparison: Comparison, arguments: Sequence[str]) -> None:
    chosen = parse(comparison, arguments)
    if chosen.before:
        comparison = beside(comparison, chosen.before)
    wanted = [each for each in comparison.scenarios if not chosen.only or each.name in chosen.only]
    effort = Effort(chosen.seconds, chosen.warm_up, chosen.scale, not chosen.no_priming)
    # Not /tmp: that may be memory, and a sync of it nothing.
    base = chosen.data or BUILD
    base.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{comparison.name}-", dir=base))
    try:
        if not chosen.no_priming:
            prime()
        with Contest(folder, chosen.brokers, tell, comparison.servers) as contest:
            outcomes = [contest.hold(each, chosen.rounds, effort) for each in wanted]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if chosen.before:
        outcomes = [replace(each, verdicts=beside_before(each.found)) for each in outcomes]
    result = Report(now(), machine(), chosen.rounds, chosen.seconds, outcomes)
    report.show(result)
    result.write(chosen.json)
    written = [chosen.json]
    if not chosen.before:
        chosen.svg.write_text(chart.draw(result, comparison.rows, comparison.unit))
        written.append(chosen.svg)
    for path in written:
        place = path.resolve()
        tell(f"written to {place.relative_to(ROOT) if place.is_relative_to(ROOT) else place}")
    if not chosen.before:
        tell("`make record` takes a whole run into the README")
