"""The rows of the README's comparisons. Table and picture are both made of them and of a run's
JSON: a rate that is in one of them is in the other."""

from collections.abc import Iterator
from dataclasses import dataclass

from perf.report import Outcome, Report

PLAIN = " (plain relay)"


@dataclass(frozen=True)
class Row:
    label: str
    scenario: str
    peer: str
    figure: str = "rate"
    ceiling: str = ""  # a relay that ours is held against
    other: str = ""  # another figure behind it: p50 / p99
    peer_only: bool = False  # our figure is in the row above
    ratio_only: bool = False  # other figures of the scenario say what it is a ratio of
    drawn: bool = False  # a rate, and so a row of the picture


def rate(label: str, scenario: str, peer: str, ceiling: str = "", *, figure: str = "rate") -> Row:
    return Row(label, scenario, peer, figure, ceiling, drawn=True)


AMQP = (
    rate("1 KiB persistent, confirms", "1k", "rabbitmq", "durable"),
    Row("… RabbitMQ's quorum queue", "1k", "quorum", peer_only=True),
    rate("16 B persistent, confirms", "16b", "rabbitmq", "durable"),
    rate("16 B transient, auto-ack", "16b-fire", "rabbitmq", "relay"),
    rate("8 publishers, consumers and queues, 1 KiB", "8x8x8", "rabbitmq", "durable"),
    rate("100 publishers, consumers and queues, 256 B", "100x100", "rabbitmq", "durable"),
    rate("fanned out to 10 queues, 256 B", "fan-out", "rabbitmq", "durable"),
    rate("expiring into a dead-letter queue, 256 B", "expiry", "rabbitmq", figure="expired rate"),
    rate("64 KiB persistent, confirms", "64k", "rabbitmq", "durable"),
    rate("256 KiB persistent, confirms", "256k", "rabbitmq", "durable"),
    rate("a 64 KiB backlog, auto-ack", "64k-backlog", "rabbitmq", "relay"),
    rate(
        "1,000 connections, messages per CPU second", "1000", "rabbitmq", "durable",
        figure="per CPU second",
    ),
    Row("5 million waiting, drained: of the live rate", "backlog", "ottermq", "drain",
        ratio_only=True),
    Row("confirm latency at 5,000/s, p50 / p99", "latency", "rabbitmq", "p50", "durable", "p99"),
)  # fmt: skip

KAFKA = (
    rate("produce 100 B in 16 KiB batches, acks=1", "100-16k", "kafka"),
    rate("produce 1,000 B in 16 KiB batches, acks=1", "1000-16k", "kafka"),
    rate("produce 100 B in 1 KiB batches, acks=1", "100-1k", "kafka"),
    rate("produce 1,000 B, one per batch, acks=1", "1000-1k", "kafka"),
    rate("produce 100 B in 16 KiB batches, on disk", "100-16k-all", "kafka-flush"),
    rate("produce 1,000 B in 16 KiB batches, on disk", "1000-16k-all", "kafka-flush"),
    rate("produce 100 B in 1 KiB batches, on disk", "100-1k-all", "kafka-flush"),
    rate("produce 1,000 B, one per batch, on disk", "1000-1k-all", "kafka-flush"),
    rate("produce 100 B to 1,000 partitions, acks=1", "1000-partitions", "kafka"),
    rate("consume 1,000 B from the page cache", "consume", "kafka"),
    Row("… records per CPU second of the broker", "consume", "kafka", "per CPU second",
        ratio_only=True),
    Row("from producer to consumer at 10,000/s, p50 / p99", "end-to-end", "kafka", "p50",
        other="p99"),
    Row("anonymous memory after the run", "end-to-end", "kafka", "own MiB"),
    Row("from start to ready", "1000-partitions", "kafka", "start s"),
)  # fmt: skip


def two_digits(ratio: float) -> str:
    """0.50, 2.0, 53: a ratio of two rates on a busy machine isn't known better."""
    if ratio >= 9.95:
        return f"{ratio:.0f}"
    return f"{ratio:#.2g}"


def ratio(row: Row, outcome: Outcome) -> str:
    """Ours to the peer's; of a row that shows nothing else, what the run's verdict says."""
    if row.ratio_only:
        told = (each.ratio for each in outcome.verdicts if each.bar.startswith(f"{row.figure} ≥"))
        return next((two_digits(each) for each in told if each is not None), "")
    ours = outcome.found.get("ottermq", {}).get(row.figure)
    peer = outcome.found.get(row.peer, {}).get(row.figure)
    return two_digits(ours / peer) if ours is not None and peer else ""


def cell(row: Row, outcome: Outcome, contestant: str) -> str:
    if contestant in outcome.errors:
        return "failed"
    figures = outcome.found.get(contestant, {})
    value = figures.get(row.figure)
    if value is None:
        return ""
    if row.other:
        return f"{value / 1000:.2g} / {figures[row.other] / 1000:.2g} ms"
    if row.figure.startswith("p") and row.figure[1:].isdigit():
        return f"{value / 1000:.2g} ms"
    if row.figure.endswith(" MiB"):
        return f"{value:.0f} MiB"
    if row.figure.endswith(" s"):
        return f"{value:.2g} s"
    return f"{float(f'{value:.3g}'):,.0f}"


def _cells(row: Row, outcome: Outcome) -> Iterator[str]:
    """Ours, the peer's, the ratio, and how much of the ceiling ours is."""
    yield "" if row.peer_only or row.ratio_only else cell(row, outcome, "ottermq")
    yield "" if row.ratio_only else cell(row, outcome, row.peer)
    yield "" if row.other else ratio(row, outcome)
    ours = outcome.found.get("ottermq", {}).get(row.figure)
    ceiling = outcome.found.get(row.ceiling, {}).get(row.figure)
    if row.other or ours is None or not ceiling:
        yield cell(row, outcome, row.ceiling)
    else:
        yield two_digits(ours / ceiling) + (PLAIN if row.ceiling == "relay" else "")


def present(report: Report, rows: tuple[Row, ...]) -> Iterator[tuple[Row, Outcome]]:
    """The rows whose scenario was run."""
    outcomes = {outcome.name: outcome for outcome in report.outcomes}
    for row in rows:
        if row.scenario in outcomes:
            yield row, outcomes[row.scenario]


def markdown(report: Report, rows: tuple[Row, ...], columns: tuple[str, ...]) -> str:
    """The README's table: `columns` are the heads behind that of the label."""
    lines = ["| | " + " | ".join(columns) + " |", "|---" + "|--:" * len(columns) + "|"]
    for row, outcome in present(report, rows):
        cells = list(_cells(row, outcome))[: len(columns)]
        lines.append("| " + " | ".join([row.label, *cells]).rstrip() + " |")
    return "\n".join(lines) + "\n"
