"""One audit from start to end: a session, the job, the report."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from ottermq.audit.errors import CantRun
from ottermq.audit.findings import FailOn
from ottermq.audit.jobs import Job, job
from ottermq.audit.outcome import Context, Outcome
from ottermq.config import Config
from ottermq.errors import OtterError
from ottermq.wal.errors import LogError

NEEDED = ("pyspark", "pyarrow")
LOG = "spark.log"


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for."""

    job: str
    data: Path
    out: Path
    master: str
    config: Config
    fail_on: Sequence[str]
    options: Mapping[str, Any]
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    folder: Path
    exit_code: int
    outcome: Outcome
    summary: Mapping[str, Any]


def run(order: Order) -> Done:
    """CantRun: one line says why there is no answer."""
    check_installed(*NEEDED)
    chosen = job(order.job)
    fail_on = FailOn(order.fail_on, chosen.kinds)
    look_at(order.data)
    folder = order.out / order.job
    began, started = datetime.now(UTC), time.monotonic()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        outcome = _work(order, chosen, folder / LOG, began)
    except OSError as error:
        raise CantRun(f"{error.filename or order.out}: {error.strerror}") from None
    from ottermq.audit.report import files

    code = 1 if any(map(fail_on.counts, outcome.findings)) else 0
    seconds = time.monotonic() - started
    told = files.Run(order.job, str(order.data), order.master, began, seconds, code)
    files.write(folder, told, outcome)
    return Done(folder, code, outcome, files.summary_of(told, outcome))


def check_installed(*names: str) -> None:
    if missing := [name for name in names if not _is_installed(name)]:
        raise CantRun(
            f"`ottermq audit` needs {' and '.join(missing)}; "
            "please run: pip install 'ottermq[audit]'"
        )


def _is_installed(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True


def look_at(data: Path) -> None:
    """Before Spark starts: that takes a while."""
    if not data.is_dir():
        raise CantRun(f"{data}: no such directory")
    if not (data / "meta.db").is_file():
        raise CantRun(f"{data}: not a data directory of OtterMQ (no meta.db)")


def _work(order: Order, chosen: Job, log: Path, now: datetime) -> Outcome:
    from ottermq.audit.failures import first_line
    from ottermq.audit.report import terminal
    from ottermq.audit.spark import session

    with ExitStack() as ending:
        with terminal.waiting(f"starting Spark on {order.master}", order.quiet):
            spark = ending.enter_context(session(log, order.master))
        context = Context(spark, order.data.absolute(), now, order.config, order.options)
        with terminal.progress(spark, order.quiet):
            try:
                return chosen.run(context)
            except (OtterError, LogError) as error:
                raise CantRun(str(error)) from None
            except Exception as error:
                raise CantRun(f"{first_line(error)} (all of it: {log})") from error
