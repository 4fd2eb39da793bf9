"""`ottermq audit`: what lies in a data directory, held against what was promised. All is only read.

Exit codes: 0 clean, 1 violations (or what --fail-on says), 2 it could not run.
"""

import math
import os
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from ottermq.cli.group import Group
from ottermq.config import load
from ottermq.config.units import parse_microseconds

Command = Callable[..., None]


def duration(text: str) -> timedelta:
    """As config.yaml has times."""
    try:
        return timedelta(microseconds=parse_microseconds(text))
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} isn't a time, such as 30s, 1h30m or 7d") from None


TIERS = ("local", "wal")  # where records can lie
FILE = click.Path(path_type=Path, dir_okay=False)
DATA = click.option(
    "--data",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The data directory; a broker may be using it.  [default: what the policy file says, "
    "else ./data]",
)
MASTER = click.option(
    "--master",
    metavar="URL",
    default="local[*]",
    show_default=True,
    help="Where Spark runs: local[N], or a cluster such as spark://HOST:7077.",
)
POLICY = click.option(
    "--policy",
    metavar="FILE",
    type=FILE,
    help="The broker's configuration file, for its rules of retention.  [default: none, as for "
    "a broker without one]",
)
GRACE = click.option(
    "--grace",
    metavar="TIME",
    type=duration,
    help="How late retention may be, such as 5m.  [default: twice its check_interval, and 1m]",
)
COMMON = (
    DATA,
    MASTER,
    click.option(
        "--out",
        metavar="DIR",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("ottermq-audit"),
        show_default=True,
        help="Where the report goes: report.html, summary.json and Parquet, in a folder a job.",
    ),
    POLICY,
    click.option(
        "--fail-on",
        metavar="WHAT",
        default="violation",
        show_default=True,
        help="What ends with exit code 1: violation, warning, note, kinds of findings, or never; "
        "several with commas.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, only that."),
)
COST = (
    click.option(
        "--price",
        "prices",
        metavar="TIER=PRICE",
        multiple=True,
        help="Of a GiB and month, such as local=0.08; repeat it.",
    ),
    click.option(
        "--currency",
        metavar="NAME",
        default="USD",
        show_default=True,
        help="What prices are in.",
    ),
    click.option(
        "--what-if",
        metavar="FILE",
        type=FILE,
        help="A configuration file with another retention: what would it save?",
    ),
)
FLOW = (
    click.option(
        "--old",
        metavar="TIME",
        type=duration,
        help="For how long messages may wait, such as 1h30m.  [default: 1d]",
    ),
    click.option(
        "--late",
        metavar="TIME",
        type=duration,
        help="How far behind those before it a record may be.  [default: 1h]",
    ),
    click.option(
        "--again",
        metavar="TIMES",
        type=click.IntRange(2),
        help="Died, or was given out, so often: that is too often.  [default: 5]",
    ),
)
SUBJECTS = (
    click.option("--key", "keys", metavar="KEY", multiple=True, help="A subject's key; repeat it."),
    click.option("--keys", "keys_file", metavar="FILE", type=FILE, help="Keys, one a line."),
    click.option(
        "--header",
        "headers",
        metavar="NAME",
        multiple=True,
        help="Look for the keys in this header, too; repeat it.",
    ),
)


@click.group(cls=Group)
def audit() -> None:
    """Audit a data directory with Spark.

    Each audit writes a report (an HTML page, JSON, Parquet) and prints what it found. Exit codes:
    0 clean, 1 violations, 2 it could not run. Needs the extra `audit`, that is Spark: in a checkout
    .venv/bin/pip install -e '.[audit]'.
    """


def using(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@audit.command()
@using(*COMMON)
def integrity(**options: Any) -> None:
    """Is every byte as it was written, and every record there once?

    Checksums, offsets and their gaps, indexes, manifests against files, orphans, duplicates.
    """
    _run({"integrity": {}}, **options)


@audit.command()
@using(GRACE, *COMMON)
def retention(grace: timedelta | None, **options: Any) -> None:
    """Is each queue and topic kept as its policy says: not longer, not shorter, holds respected?

    What should be gone and isn't, what is gone and shouldn't be or left no record, what there is by
    age, and how much there will be in 30 days.
    """
    _run({"retention": _grace(grace)}, **options)


def _grace(grace: timedelta | None) -> dict[str, Any]:
    return {} if grace is None else {"grace": grace}


@audit.command()
@using(*COST, *COMMON)
def cost(prices: tuple[str, ...], currency: str, what_if: Path | None, **options: Any) -> None:
    """What does keeping cost, by tier and age, and what would another policy save?"""
    _run({"cost": _cost(prices, currency, what_if)}, **options)


def _cost(prices: tuple[str, ...], currency: str, what_if: Path | None) -> dict[str, Any]:
    own: dict[str, Any] = {"prices": dict(map(_price, prices)), "currency": currency}
    if what_if is None:
        return own
    return {**own, "what_if": load(what_if, {}), "what_if_file": what_if}


def _price(text: str) -> tuple[str, float]:
    tier, _, price = (part.strip() for part in text.partition("="))
    try:
        if tier in TIERS and 0 <= float(price) < math.inf:
            return tier, float(price)
    except ValueError:
        pass
    wanted = f"it should be TIER=PRICE, as local=0.08; tiers are {', '.join(TIERS)}"
    raise click.UsageError(f"--price {text}: {wanted}")


@audit.command()
@using(*FLOW, *COMMON)
def flow(old: timedelta | None, late: timedelta | None, again: int | None, **options: Any) -> None:
    """What flows through each queue and topic, and what got stuck on the way?

    Volume and sizes by hour, what isn't settled and since when, redeliveries, dead letters (where
    they died, why, how often), top keys, late data.
    """
    _run({"flow": _flow(old, late, again)}, **options)


def _flow(old: timedelta | None, late: timedelta | None, again: int | None) -> dict[str, Any]:
    asked = {"old": old, "late": late, "again": again}
    return {name: each for name, each in asked.items() if each is not None}


@audit.command("erase-check")
@using(*SUBJECTS, *COMMON)
def erase_check(
    keys: tuple[str, ...], keys_file: Path | None, headers: tuple[str, ...], **options: Any
) -> None:
    """Where are these subjects' records still, in which tier, and until when?

    A record is a subject's when its key (an AMQP message's routing key) or one of the headers
    equals the subject's key.
    """
    wanted = _subjects(keys, keys_file, headers)
    if not wanted["keys"]:
        raise click.UsageError("give the subjects' keys: --key KEY or --keys FILE")
    _run({"erase-check": wanted}, **options)


def _subjects(
    keys: tuple[str, ...], keys_file: Path | None, headers: tuple[str, ...]
) -> dict[str, Any]:
    wanted = {*keys, *(_lines(keys_file) if keys_file else ())}
    return {"keys": sorted(wanted), "headers": list(headers)}


def _lines(file: Path) -> list[str]:
    from ottermq.audit.errors import CantRun

    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CantRun(f"{file}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None
    return [line.strip() for line in lines if line.strip()]


@audit.command("all")
@using(GRACE, *COST, *FLOW, *SUBJECTS, *COMMON)
def all_of_them(
    grace: timedelta | None,
    prices: tuple[str, ...],
    currency: str,
    what_if: Path | None,
    old: timedelta | None,
    late: timedelta | None,
    again: int | None,
    keys: tuple[str, ...],
    keys_file: Path | None,
    headers: tuple[str, ...],
    **options: Any,
) -> None:
    """All audits, one after the other: Spark starts once.

    Each leaves its own report. erase-check is among them when subjects' keys are given. The exit
    code is the worst of them.
    """
    jobs = {
        "integrity": {},
        "retention": _grace(grace),
        "flow": _flow(old, late, again),
        "cost": _cost(prices, currency, what_if),
    }
    subjects = _subjects(keys, keys_file, headers)
    _run({**jobs, "erase-check": subjects} if subjects["keys"] else jobs, **options)


@audit.command()
@click.option(
    "--publish",
    metavar="URL",
    envvar="AUDIT_PUBLISH",
    help="A broker to publish violations to: amqp://USER:PASSWORD@HOST:PORT/VHOST. The variable "
    "AUDIT_PUBLISH keeps the password out of the process list.",
)
@click.option(
    "--queue",
    metavar="NAME",
    default="ottermq.audit.violations",
    show_default=True,
    help="The queue to publish to; it is declared, durable, when it isn't there.",
)
@click.option(
    "--checkpoint",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("ottermq-audit/watch"),
    show_default=True,
    help="What the watch has seen and told; from there it goes on when it starts again.",
)
@click.option(
    "--interval",
    metavar="TIME",
    type=duration,
    default="10s",
    show_default=True,
    help="How often it looks: 1s to 1h.",
)
@click.option("--once", is_flag=True, help="Look at what is new, then end: for cron.")
@using(GRACE, DATA, MASTER, POLICY)
def watch(
    publish: str | None,
    queue: str,
    checkpoint: Path,
    interval: timedelta,
    once: bool,
    grace: timedelta | None,
    data: Path | None,
    master: str,
    policy: Path | None,
) -> None:
    """Audit all the time: report each violation within a minute, and once.

    What comes is checked for damage, gaps and duplicates; what lies there against its policies,
    holds and the record of what was removed. Each violation is a line, and a message in a queue.
    SIGTERM or Ctrl-C ends it with 0. With --once: 0 nothing new, 1 violations, 2 it could not run.
    """
    from ottermq.audit.watch.loop import WatchRequest, run

    if not timedelta(seconds=1) <= interval <= timedelta(hours=1):
        raise click.UsageError("--interval: from 1s to 1h")
    config = load(policy, os.environ)
    request = WatchRequest(
        data=data or config.data,
        checkpoint=checkpoint,
        master=master,
        config=config,
        interval=interval,
        publish=publish,
        queue=queue,
        once=once,
        options=_grace(grace),
    )
    sys.exit(run(request))


@audit.command()
@click.option("--pyarrow", is_flag=True, help="pyarrow, too: for workers that have none.")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the packs go.  [default: the user's cache]",
)
def pack(pyarrow: bool, out: Path | None) -> None:
    """Pack OtterMQ for `spark-submit --py-files`.

    Prints the files' names, with a comma between them. Workers of the same Python and processor
    need nothing of ours installed. An audit with --master does all this by itself.
    """
    from ottermq.audit.run import check_installed
    from ottermq.audit.shipping.pack import OURS
    from ottermq.audit.shipping.pack import pack as packed

    names = [OURS]
    if pyarrow:
        check_installed("pyarrow")
        names.append("pyarrow")
    click.echo(",".join(str(packed(name, out and out.absolute())) for name in names))


def _run(
    jobs: Mapping[str, dict[str, Any]],
    *,
    data: Path | None,
    master: str,
    out: Path,
    policy: Path | None,
    fail_on: str,
    as_json: bool,
) -> None:
    """jobs: their names, and the options that are theirs alone."""
    from ottermq.audit.run import AuditRequest, run_all

    config = load(policy, os.environ)
    done = run_all(
        [
            AuditRequest(
                job=job,
                data=data or config.data,
                out=out,
                master=master,
                config=config,
                fail_on=fail_on.split(","),
                options=own,
                quiet=as_json,
                policy=policy,
            )
            for job, own in jobs.items()
        ]
    )
    if as_json:
        from ottermq.audit.report.files import as_json as written

        summaries = dict(zip(jobs, (each.summary for each in done), strict=True))
        click.echo(written(summaries if len(done) > 1 else done[0].summary))
    else:
        from ottermq.audit.report import terminal

        for job, each in zip(jobs, done, strict=True):
            if len(done) > 1:
                click.secho(f"\n{job}\n", bold=True)
            terminal.show(each.run, each.outcome)
            click.echo(f"report: {each.folder / 'report.html'}")
    sys.exit(max(each.exit_code for each in done))
