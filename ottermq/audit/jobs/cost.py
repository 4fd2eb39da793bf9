"""The cost of keeping: bytes by tier and age at a price, and the savings of another policy.

Another policy (`--what-if`) is a configuration file: its rules of retention are laid on every queue
and topic as if nothing else were said. What is under legal hold stays, whatever it says.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from ottermq.audit.expiry import due
from ottermq.audit.findings import Kind
from ottermq.audit.growth import BANDS, RESTS_ON, Stock, projected, rests_on, stocks
from ottermq.audit.outcome import Bars, Context, Outcome, ReportTable
from ottermq.audit.policies import Policies
from ottermq.audit.report.formatting import cell, size, span
from ottermq.audit.snapshot import Log, take
from ottermq.config import Config
from ottermq.storage.retention import policy_for
from ottermq.wal.catalog import INTERNAL_VHOST

KINDS: dict[str, Kind] = {}  # nothing is wrong with what something costs
PRICES = {"local": 0.08, "wal": 0.08}  # per GiB and month: the price of a cloud's network SSD
CURRENCY = "USD"
GIB = 1 << 30


def run(context: Context) -> Outcome:
    prices: Mapping[str, float] = {**PRICES, **context.options.get("prices", {})}
    currency: str = context.options.get("currency", CURRENCY)
    what_if: Config | None = context.options.get("what_if")
    logs = [log for log in take(context.data).logs if log.vhost != INTERNAL_VHOST]
    rules = Policies(context.data, logs, context.config)
    counted = stocks(context.spark, context.data, logs)
    totals = {log.id: counted.get(log.id) or Stock() for log in logs}
    costs = {log.id: _cost(totals[log.id], prices) for log in logs}
    later = {
        log.id: projected(totals[log.id], rules.of(log), context.now, days=30)
        / max(totals[log.id].bytes, 1)
        * costs[log.id]
        for log in logs
    }
    saved = {log.id: _saved(log, rules, what_if, context.now) for log in logs} if what_if else {}
    history = max((rests_on(each, context.now) for each in totals.values()), default=timedelta(0))
    a_month = _money(sum(costs.values()), currency)
    headline: dict[str, str | int | float] = {
        "stored": size(sum(each.bytes for each in totals.values())),
        "a month": a_month,
        "a month in 30 days": _money(sum(later.values()), currency),
        "of history behind that": span(history),
    }
    if what_if:
        headline["the other policy frees"] = size(sum(saved.values()))
        freed = sum(saved.values()) / GIB * prices["local"]
        headline["and saves a month"] = _money(freed, currency)
    return Outcome(
        headline=headline,
        verdict=f"{a_month} a month",
        report_tables=[_report_table(logs, totals, costs, saved, prices, currency)],
        charts=[_chart(logs, totals, prices, currency, context.now)],
        tables={"cost": _table(logs, totals, prices, context.now)},
        summary={
            "prices": dict(prices),
            "currency": currency,
            "in_30_days": {_name(log): later[log.id] for log in logs},
            "in_30_days_rests_on_seconds": round(history.total_seconds()),
            "a_month": {_name(log): costs[log.id] for log in logs},
            "would_free": {_name(log): count for log in logs if (count := saved.get(log.id))},
        },
    )


def _money(value: float, currency: str) -> str:
    return f"{cell(float(value))} {currency}"


def _name(log: Log) -> str:
    return f"{log.vhost}:{log.name}"


def _cost(stock: Stock, prices: Mapping[str, float]) -> float:
    return sum(count / GIB * prices.get(tier, 0.0) for (tier, _), count in stock.hours.items())


def _saved(log: Log, rules: Policies, what_if: Config, now: datetime) -> int:
    """Bytes that the other policy wouldn't keep."""
    if rules.of(log).legal_hold:
        return 0
    other = policy_for(what_if.for_queue(log.name).retention)
    return sum(each.segment.size for each in due(log, other, int(now.timestamp() * 1000)))


def _report_table(
    logs: Sequence[Log],
    totals: Mapping[int, Stock],
    costs: Mapping[int, float],
    saved: Mapping[int, int],
    prices: Mapping[str, float],
    currency: str,
) -> ReportTable:
    rows = [
        (
            log.vhost, log.queue, log.partition, size(totals[log.id].bytes), costs[log.id],
            size(saved.get(log.id, 0)), saved.get(log.id, 0) / GIB * prices["local"],
        )
        for log in sorted(logs, key=lambda log: -costs[log.id])
    ]  # fmt: skip
    columns = (
        "vhost", "queue", "partition", "stored", f"{currency} a month", "other policy frees",
        f"and saves, {currency} a month",
    )  # fmt: skip
    listed = ", ".join(f"{each:g} {currency} ({tier})" for tier, each in prices.items())
    return ReportTable("Cost", columns, rows, f"A GiB and month: {listed}. {RESTS_ON}")


def _chart(
    logs: Sequence[Log],
    totals: Mapping[int, Stock],
    prices: Mapping[str, float],
    currency: str,
    now: datetime,
) -> Bars:
    costs = {(tier, band): 0.0 for tier in prices for band in BANDS}
    for log in logs:
        for (tier, band), count in totals[log.id].by_band(now).items():
            costs[tier, band] = costs.get((tier, band), 0.0) + count / GIB * prices.get(tier, 0.0)
    tiers = sorted({tier for tier, _ in costs})
    series = {tier: [costs[tier, band] for band in BANDS] for tier in tiers}
    return Bars("Cost a month, by age and tier", currency, list(BANDS), series)


def _table(
    logs: Sequence[Log], totals: Mapping[int, Stock], prices: Mapping[str, float], now: datetime
) -> Any:
    rows = [
        {
            "vhost": log.vhost, "queue": log.queue, "partition": log.partition, "tier": tier,
            "band": band, "bytes": int(count), "cost": count / GIB * prices.get(tier, 0.0),
            "date": now.date(),
        }
        for log in logs
        for (tier, band), count in totals[log.id].by_band(now).items()
    ]  # fmt: skip
    schema = {
        "vhost": pa.string(), "queue": pa.string(), "partition": pa.int32(), "tier": pa.string(),
        "band": pa.string(), "bytes": pa.int64(), "cost": pa.float64(), "date": pa.date32(),
    }  # fmt: skip
    return pa.Table.from_pylist(rows, pa.schema(schema))
