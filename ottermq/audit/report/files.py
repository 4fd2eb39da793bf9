"""The files that a job writes:

    OUT/NAME/
      report.html                     for people; all in one file
      summary.json                    for machines: numbers, counts by kind, each finding
      findings/date=…/queue=…/*.parquet
      TABLE/date=…/queue=…/*.parquet  what the job has counted
      spark.log                       what Spark had to say

A run replaces what the run before it has left.
"""

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ottermq.audit.findings import Finding, Kind
from ottermq.audit.outcome import Outcome

FINDINGS = pa.schema(
    [
        ("kind", pa.string()),
        ("severity", pa.string()),
        ("message", pa.string()),
        ("vhost", pa.string()),
        ("queue", pa.string()),
        ("partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("segment", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("rule", pa.string()),
        ("segments", pa.list_(pa.int64())),
    ]
)
NO_QUEUE = "-"  # of the data directory: a partition must have some name


@dataclass(frozen=True, slots=True)
class Run:
    """What was looked at, how, and how it went."""

    job: str
    data: str  # absolute
    master: str
    began: datetime
    seconds: float
    exit_code: int
    facts: Mapping[str, str] = field(default_factory=dict)  # where, by whom and by which rules
    kinds: Mapping[str, Kind] = field(default_factory=dict)  # what the job's findings mean


def as_table(findings: Sequence[Finding]) -> pa.Table:
    rows = [{**asdict(each), "severity": each.severity.value} for each in findings]
    return pa.Table.from_pylist(rows, schema=FINDINGS)


def write_parquet(folder: Path, table: pa.Table, otherwise: datetime) -> None:
    """By date and queue. otherwise: the date of rows that have no time of their own."""
    shutil.rmtree(folder, ignore_errors=True)
    ds.write_dataset(
        _dated(table, otherwise),
        folder,
        format="parquet",
        partitioning=["date", "queue"],
        partitioning_flavor="hive",
        max_partitions=1 << 16,
        existing_data_behavior="delete_matching",
    )


def _dated(table: pa.Table, otherwise: datetime) -> pa.Table:
    names = table.column_names
    if "date" not in names:
        at = pa.scalar(otherwise, pa.timestamp("us", tz="UTC"))
        times = pc.fill_null(table["time"], at) if "time" in names else pa.repeat(at, len(table))
        table = table.append_column("date", pc.strftime(times, format="%Y-%m-%d"))
    queues = pc.fill_null(table["queue"], NO_QUEUE)
    return table.set_column(table.column_names.index("queue"), "queue", queues)


def as_json(summary: Mapping[str, Any], indent: int | None = 2) -> str:
    return json.dumps(summary, indent=indent, default=_plain, ensure_ascii=False)


def as_dict(finding: Finding) -> dict[str, Any]:
    """What is known of it."""
    return {name: value for name, value in asdict(finding).items() if value not in (None, ())}


def summary_of(run: Run, outcome: Outcome) -> dict[str, Any]:
    return {
        "job": run.job,
        "data": run.data,
        "master": run.master,
        "began": run.began,
        "seconds": round(run.seconds, 3),
        "exit_code": run.exit_code,
        "run": run.facts,
        "headline": outcome.headline,
        **({"verdict": outcome.verdict} if outcome.verdict else {}),
        "counts": {
            "severity": Counter(each.severity.value for each in outcome.findings),
            "kind": Counter(each.kind for each in outcome.findings),
        },
        "kinds": {
            kind: run.kinds[kind]._asdict()
            for kind in sorted({each.kind for each in outcome.findings})
            if kind in run.kinds
        },
        **outcome.summary,
        "findings": list(map(as_dict, outcome.findings)),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return value.value  # a severity


def write(folder: Path, run: Run, outcome: Outcome) -> None:
    from ottermq.audit.report.page import page

    folder.mkdir(parents=True, exist_ok=True)
    tables = {"findings": as_table(outcome.findings), **outcome.tables}
    for name, table in tables.items():
        write_parquet(folder / quote(name, safe=""), table, run.began)
    summary = as_json(summary_of(run, outcome))
    (folder / "summary.json").write_text(summary + "\n", encoding="utf-8")
    (folder / "report.html").write_text(page(run, outcome), encoding="utf-8")
