"""Audits from start to end: one session for all, the jobs, one report per job."""

import shlex
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottermq.audit.errors import CantRun
from ottermq.audit.findings import FailOn
from ottermq.audit.jobs import job
from ottermq.audit.outcome import Context, Outcome
from ottermq.config import Config
from ottermq.errors import OtterError
from ottermq.wal.catalog import peek
from ottermq.wal.errors import LogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottermq.audit.report.files import Run

NEEDED = ("pyspark", "pyarrow")
LOG = "spark.log"


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What was asked for."""

    job: str
    data: Path
    out: Path
    master: str
    config: Config
    fail_on: Sequence[str]
    options: Mapping[str, Any]
    quiet: bool = False
    policy: Path | None = None  # the file that `config` came from


@dataclass(frozen=True, slots=True)
class Done:
    folder: Path
    exit_code: int
    outcome: Outcome
    summary: Mapping[str, Any]
    run: "Run"


def run(request: AuditRequest) -> Done:
    """CantRun: one line says why there is no answer."""
    [done] = run_all([request])
    return done


def run_all(requests: Sequence[AuditRequest]) -> list[Done]:
    """One after the other in one session: Spark takes longer to start than most audits take. The
    first request says where the session runs; --fail-on may name findings of any of them."""
    check_installed(*NEEDED)
    first = requests[0]
    fail_on = FailOn(first.fail_on, [kind for each in requests for kind in job(each.job).kinds])
    look_at(first.data)
    log = (first.out / first.job if len(requests) == 1 else first.out) / LOG
    try:
        for request in requests:
            (request.out / request.job).mkdir(parents=True, exist_ok=True)
        with ExitStack() as ending:
            spark = ending.enter_context(_session(first, log))
            return [_run(request, spark, log, fail_on) for request in requests]
    except OSError as error:  # Arrow's have no parts, only a text
        why = f"{error.filename or first.out}: {error.strerror}" if error.strerror else str(error)
        raise CantRun(why) from None


def check_installed(*names: str) -> None:
    if missing := [name for name in names if not _is_installed(name)]:
        pip = shlex.join([sys.executable, "-m", "pip", "install", *(_extra() or missing)])
        raise CantRun(f"`ottermq audit` needs {' and '.join(missing)}; please run: {pip}")


def _extra() -> list[str]:
    """The packages of the extra `audit`: pip finds the extra only where we were installed from."""
    try:
        listed = requires("ottermq") or []
    except PackageNotFoundError:  # a driver that has us from a pack
        return []
    return [each.partition(";")[0].strip() for each in listed if 'extra == "audit"' in each]


def _is_installed(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True


def look_at(data: Path) -> None:
    """Before Spark starts: that takes a while."""
    try:
        if not data.is_dir():
            raise CantRun(f"{data}: no such directory")
        if not (data / "meta.db").is_file():
            raise CantRun(f"{data}: not a data directory of OtterMQ (no meta.db)")
        peek(data)
    except sqlite3.Error as error:
        raise CantRun(f"{data / 'meta.db'}: {error}") from None
    except OSError as error:
        raise CantRun(f"{error.filename or data}: {error.strerror}") from None


@contextmanager
def _session(request: AuditRequest, log: Path) -> "Iterator[SparkSession]":
    from ottermq.audit.report import terminal
    from ottermq.audit.spark import session

    with ExitStack() as ending:
        with terminal.waiting(f"starting Spark on {request.master}", request.quiet):
            spark = ending.enter_context(session(log, request.master))
        yield spark


def _run(request: AuditRequest, spark: "SparkSession", log: Path, fail_on: FailOn) -> Done:
    from ottermq.audit.report import files
    from ottermq.audit.report.facts import facts

    began, started = datetime.now(UTC), time.monotonic()
    outcome = _outcome(request, spark, log, began)
    code = 1 if any(map(fail_on.counts, outcome.findings)) else 0
    seconds = time.monotonic() - started
    about = facts(request.data, request.policy, request.options, request.master, began, seconds)
    data = str(request.data.absolute())
    kinds = job(request.job).kinds
    told = files.Run(request.job, data, request.master, began, seconds, code, about, kinds)
    folder = request.out / request.job
    files.write(folder, told, outcome)
    return Done(folder, code, outcome, files.summary_of(told, outcome), told)


def _outcome(request: AuditRequest, spark: "SparkSession", log: Path, now: datetime) -> Outcome:
    from ottermq.audit.failures import first_line
    from ottermq.audit.report import terminal

    context = Context(spark, request.data.absolute(), now, request.config, request.options)
    with terminal.progress(spark, request.job, request.quiet):
        try:
            return job(request.job).run(context)
        except (OtterError, LogError) as error:
            raise CantRun(str(error)) from None
        except OSError:
            raise
        except Exception as error:
            raise CantRun(f"{first_line(error)} (all of it: {log})") from error
