"""The scenarios: each has a load, its contestants, and the bars OtterMQ is held to.

The bars are those of the project's goals. LavinMQ can't be installed from Debian, so what it did
on another two-core machine is noted here; half as much again is asked of us.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from perf import load
from perf.load import Load
from perf.log_bench import prime
from perf.report import Bar, Figures

Options = tuple[object, ...]
Address = tuple[str, int]
LAVINMQ = 1.5


@dataclass(frozen=True)
class Effort:
    """How long and how much: a quick look takes less."""

    seconds: float = 5
    warm_up: float = 1
    scale: float = 1
    priming: bool = False  # memory that a measurement will fill is touched before it


# Drives one contestant once; the options that come with it are the contestant's own.
Measure = Callable[[Address, Options, Effort], Figures]


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    measure: Measure
    bars: tuple[Bar, ...]
    contestants: tuple[str, ...] = ("ottermq", "rabbitmq", "durable")


def at_least(peer: str, factor: float, figure: str = "rate", base: str = "") -> Bar:
    return Bar(figure, peer, factor, base=base)


def at_most(peer: str, factor: float, figure: str) -> Bar:
    return Bar(figure, peer, factor, most=True)


def lavinmq(figure: str, value: float, most: bool = False) -> Bar:
    factor = 1 / LAVINMQ if most else LAVINMQ
    return Bar(figure, "LavinMQ", factor, most=most, elsewhere=value)


def timed(effort: Effort) -> Options:
    return ("--seconds", effort.seconds, "--warm-up", effort.warm_up)


def delivery(found: Load) -> Figures:
    rate = found.delivered_rate
    per_cpu = rate / max(found.watched_cpu, 0.01)
    return {"rate": rate, "per CPU second": per_cpu, "load CPU": found.cpu}


def flow(*options: object) -> Measure:
    """Messages delivered a second while publishers go as fast as they may."""

    def measure(address: Address, own: Options, effort: Effort) -> Figures:
        found = load.run(address, *options, *own, *timed(effort))
        return delivery(found)

    return measure


def durable(size: int, window: int = 2000) -> Options:
    """Persistent, confirmed, acked in batches."""
    credit = ("--prefetch", window, "--ack-every", max(1, window // 4))
    return ("--size", size, "--persistent", "--confirms", window, *credit)


def connections(count: int, rate: int) -> Measure:
    """Many that each publish a little. A window of a second: a slower broker isn't buried."""
    options = (
        *durable(256, 200), "--confirms", rate, "--publishers", count, "--consumers", 10,
        "--queues", 10, "--rate", rate, "--leave-rest",
    )  # fmt: skip

    def measure(address: Address, own: Options, effort: Effort) -> Figures:
        # A broker slower than the demand needs the first seconds to come to its own pace.
        slow = replace(effort, warm_up=effort.warm_up + 2)
        found = load.run(address, *options, *own, *timed(slow))
        return delivery(found)

    return measure


def latency(rate: int) -> Measure:
    options = ("--size", 1024, "--persistent", "--confirms", 65536, "--prefetch", 2000)

    def measure(address: Address, own: Options, effort: Effort) -> Figures:
        found = load.run(address, *options, "--rate", rate, *own, *timed(effort))
        assert found.confirm_us
        return {"p50": found.confirm_us.p50, "p99": found.confirm_us.p99}

    return measure


def backlog_delivery(size: int, total: int) -> Measure:
    """Waiting messages are delivered without acks."""

    def measure(address: Address, own: Options, effort: Effort) -> Figures:
        count = max(100, int(total / size * effort.scale))
        common = ("--size", size, "--messages", count, "--name", "backlog", *own)
        load.run(address, *common, "--persistent", "--confirms", 200, "--consumers", 0, "--keep")
        found = load.run(address, *common, "--auto-ack", "--publishers", 0)
        rate = count / found.all_seconds
        return {**delivery(found), "rate": rate}

    return measure


def expiry(address: Address, own: Options, effort: Effort) -> Figures:
    """The same messages straight to their consumer, and through a queue in which they expire."""
    plain = load.run(address, *durable(256), *own, *timed(effort))
    expired = load.run(address, *durable(256), "--ttl", 1, *own, *timed(effort))
    return {"plain rate": plain.delivered_rate, "expired rate": expired.passed_rate}


def deep_backlog(total: int) -> Measure:
    """Publish without a consumer, then drain; beside the same messages while both are there."""

    def measure(address: Address, own: Options, effort: Effort) -> Figures:
        count = int(total * effort.scale)
        live = load.run(address, *durable(256), *own, *timed(effort))
        common = (*durable(256), *own, "--messages", count, "--name", "deep")
        if effort.priming:
            prime(count * 256 * 3)  # for its segments and the WAL
        filled = load.run(address, *common, "--consumers", 0, "--keep")
        drained = load.run(address, *common, "--publishers", 0)
        first, last = first_and_last_fifth(filled, count)
        return {
            "live": live.delivered_rate,
            "drain": count / drained.all_seconds,
            "publish, first fifth": first,
            "publish, last fifth": last,
        }

    return measure


def first_and_last_fifth(filled: Load, count: int) -> tuple[float, float]:
    """Confirmed a second while the first and while the last fifth of the messages came in."""

    def when(target: float) -> float:
        before = (0.0, 0)
        for sample in filled.series:
            if sample.confirmed >= target:
                time, confirmed = before
                share = (target - confirmed) / (sample.confirmed - confirmed)
                return time + share * (sample.time - time)
            before = (sample.time, sample.confirmed)
        return filled.all_seconds

    fifth = count / 5
    return fifth / when(fifth), fifth / max(filled.all_seconds - when(4 * fifth), 1e-9)


ALL = ("ottermq", "rabbitmq", "quorum", "relay", "durable")
SCENARIOS = (
    Scenario(
        "1k", "1 KiB persistent, confirms", flow(*durable(1024)),
        (
            at_least("rabbitmq", 15), at_least("quorum", 10), at_least("durable", 0.45),
            lavinmq("rate", 87_000),
        ),
        ALL,
    ),
    Scenario(
        "16b-fire", "16 B transient, auto-ack, no confirms", flow("--size", 16, "--auto-ack"),
        (at_least("rabbitmq", 12), at_least("relay", 0.12), lavinmq("rate", 610_000)),
        ("ottermq", "rabbitmq", "relay"),
    ),
    Scenario(
        "16b", "16 B persistent, confirms", flow(*durable(16)),
        (at_least("rabbitmq", 25), at_least("durable", 0.35), lavinmq("rate", 329_000)),
        ("ottermq", "rabbitmq", "relay", "durable"),
    ),
    Scenario(
        "64k", "64 KiB persistent, confirms", flow(*durable(65_536, 200)),
        (at_least("rabbitmq", 1.3), at_least("durable", 0.6), lavinmq("rate", 2_400)),
        ("ottermq", "rabbitmq", "relay", "durable"),
    ),
    Scenario(
        "256k", "256 KiB persistent, confirms", flow(*durable(262_144, 50)),
        (at_least("rabbitmq", 1.3), at_least("durable", 0.6)),
        ("ottermq", "rabbitmq", "relay", "durable"),
    ),
    Scenario(
        "64k-backlog", "a 64 KiB backlog, auto-ack", backlog_delivery(65_536, 1 << 30),
        (at_least("relay", 0.7), at_least("copying", 1, "per CPU second")),
        ("ottermq", "copying", "rabbitmq", "relay"),
    ),
    Scenario(
        "8x8x8", "8 publishers, 8 consumers, 8 queues, 1 KiB",
        flow(*durable(1024), "--publishers", 8, "--consumers", 8, "--queues", 8),
        (at_least("rabbitmq", 10), lavinmq("rate", 113_000)),
    ),
    Scenario(
        "100x100", "100 publishers and consumers, 100 queues, 256 B",
        flow(*durable(256, 200), "--publishers", 100, "--consumers", 100, "--queues", 100),
        (at_least("rabbitmq", 15), lavinmq("rate", 226_000)),
    ),
    Scenario(
        "fan-out", "1 publisher fanned out to 10 queues, 256 B",
        flow(*durable(256), "--exchange", "fanout", "--consumers", 10, "--queues", 10),
        (at_least("rabbitmq", 10),),
    ),
    Scenario(
        "1000", "1,000 connections at 100 msg/s each, 256 B", connections(1000, 100),
        (
            # No broker can deliver more than is asked for, so the ratio is one of effort.
            at_least("rabbitmq", 10, "per CPU second"),
            Bar("rate", "the demand", 0.98, elsewhere=100_000),
        ),
    ),
    Scenario(
        "latency", "confirm latency at 5,000 msg/s, 1 KiB", latency(5000),
        (
            at_most("rabbitmq", 0.5, "p50"), at_most("rabbitmq", 1, "p99"),
            at_most("durable", 1.5, "p99"),
            lavinmq("p50", 700, most=True), lavinmq("p99", 5_700, most=True),
        ),
    ),
    Scenario(
        "expiry", "256 B expiring into a dead-letter queue", expiry,
        (at_least("ottermq", 0.25, "expired rate", "plain rate"),), ("ottermq", "rabbitmq"),
    ),
    Scenario(
        "backlog", "a backlog of 5 M × 256 B", deep_backlog(5_000_000),
        (
            at_least("ottermq", 0.5, "drain", "live"),
            at_least("ottermq", 0.9, "publish, last fifth", "publish, first fifth"),
        ),
        ("ottermq",),
    ),
)  # fmt: skip
