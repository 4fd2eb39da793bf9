"""The input and the outcome of a job. A job never prints and never touches a file.

    def run(context: Context) -> Outcome: ...

An outcome is small: it is the sum of the workers' answers, and lies in the driver's memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottermq.audit.findings import Finding
from ottermq.config import Config

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Context:
    spark: "SparkSession"
    data: Path
    now: datetime  # what ages are measured against
    config: Config  # the broker's: its rules of retention
    options: Mapping[str, Any] = field(default_factory=dict)  # the job's own, by their names


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table for people: in the terminal and in the report."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | int | float | None]]  # numbers are lined up and grouped
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Stacked, one bar per label: bytes by age band, cost by tier."""

    title: str
    unit: str  # "bytes" is written as KiB, MiB …
    labels: Sequence[str]
    series: Mapping[str, Sequence[float]]  # one value per label
    ordered: bool = False  # the series have an order, as age bands do
    note: str = ""


@dataclass(frozen=True, slots=True)
class Lines:
    """Over time: growth. What lies after `now` is a projection and drawn so."""

    title: str
    unit: str
    times: Sequence[datetime]
    series: Mapping[str, Sequence[float | None]]
    now: datetime | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    headline: Mapping[str, str | int | float]  # the few numbers that come first
    findings: Sequence[Finding] = ()
    report_tables: Sequence[ReportTable] = ()
    charts: Sequence[Bars | Lines] = ()
    tables: "Mapping[str, pyarrow.Table]" = field(default_factory=dict)  # Parquet; with `queue`,
    # and a `date` or a `time`: by both they are partitioned
    summary: Mapping[str, Any] = field(default_factory=dict)  # more for machines, as JSON takes it
    verdict: str = ""  # of a job that doesn't look for faults; else the findings are the verdict
