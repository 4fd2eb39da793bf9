"""`ottermq segment`: look into the files of a data directory, check them, and cut out damage. Only
`repair` changes anything.

Exit codes: 0 all is well, 1 something is damaged, 2 it couldn't be looked at.
"""

import base64
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ottermq.cli.group import Group
from ottermq.errors import OtterError
from ottermq.process import lockfile
from ottermq.wal import dump as dumping
from ottermq.wal import repair as repairing
from ottermq.wal import verify as verifying
from ottermq.wal.errors import LogError

PREVIEW = 60  # characters of a key or value
ITEMS_A_WRITE = 256
MOST_ROWS = 40  # of a table; logs with findings are always shown


@click.group(cls=Group)
def segment() -> None:
    """Look into segments and the other files of a data directory."""


# -- dump


@segment.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--records", is_flag=True, help="Each record, not only the batches.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each item.")
def dump(file: Path, records: bool, as_json: bool) -> None:
    """Print what FILE holds: .log, .index, .timeindex, .wal, .removals, a checkpoint, a manifest.

    A file of a running broker can be looked at as well. Damaged parts are shown with their place
    in the file; the exit code is 1 then.
    """
    show = _json_line if as_json else _Lines().show
    damaged = False
    try:
        items = dumping.dump(file, with_records=records)
        while some := list(itertools.islice(items, ITEMS_A_WRITE)):
            click.echo("\n".join(map(show, some)))
            damaged |= any(map(_is_damage, some))
    except BrokenPipeError:
        raise  # our reader has seen enough: click handles it
    except OSError as error:
        raise CantLook(f"{file}: {error.strerror}") from None
    except LogError as error:
        raise CantLook(str(error)) from None
    sys.exit(1 if damaged else 0)


def _is_damage(item: dumping.Item) -> bool:
    if isinstance(item, dumping.BatchItem):
        return item.problem is not None
    return isinstance(item, dumping.DamageItem)


class CantLook(click.ClickException):
    exit_code = 2


def _json_line(item: dumping.Item) -> str:
    fields = {"kind": item.kind, **asdict(item)}
    if isinstance(item, dumping.RecordItem):
        fields |= {"key": _json_bytes(item.key), "value": _json_bytes(item.value)}
        pairs = [{"key": _json_bytes(k), "value": _json_bytes(v)} for k, v in item.headers]
        fields["headers"] = pairs
    return json.dumps(fields, separators=(",", ":"))


def _json_bytes(data: bytes | None) -> Any:
    """Text as text; what isn't, as {"base64": …}."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


class _Lines:
    """An item as a line, with a heading whenever another kind of item begins."""

    HEADINGS = {
        "batch": f"{'position':>12} {'bytes':>10}  {'offsets':<23} {'records':>8}  "
        f"{'newest (UTC)':<23} {'codec':<7} {'epoch':>5} {'producer':>9}  {'crc':<8}  state",
        "index entry": f"{'offset':>20} {'position':>12}",
        "timeindex entry": f"{'timestamp (UTC)':<23} {'offset':>20}",
        "wal record": f"{'position':>12} {'bytes':>8} {'sequence':>12}  {'type':<9} {'log':>6}  "
        "says",
        "manifest segment": f"{'first offset':>20} {'next offset':>20} {'bytes':>12}  "
        f"{'first (UTC)':<23} {'newest (UTC)':<23}",
        "removal": f"{'sequence':>8}  {'removed (UTC)':<23} {'rule':<14} {'log':>6}  "
        f"{'segment':>20} {'offsets':<23} {'bytes':>12} {'left':>10}  name",
        "checkpoint log": f"{'log':>6} {'start':>12} {'next':>12} {'recovery point':>15} "
        f"{'epoch':>5}  {'floor':>12} {'ready':>10} {'unacked':>8}",
    }

    def __init__(self) -> None:
        self._heading = ""
        self._show: dict[str, Callable[[Any], str]] = {
            "batch": _batch,
            "record": _record,
            "damage": _damage,
            "note": _note,
            "index entry": lambda item: f"{item.offset:>20} {item.position:>12,}",
            "timeindex entry": lambda item: f"{_time(item.timestamp):<23} {item.offset:>20}",
            "wal file": _wal_file,
            "wal record": _wal_record,
            "checkpoint": _checkpoint,
            "checkpoint log": _checkpoint_log,
            "manifest": lambda item: f"log {item.log_id}, {_quoted(item.name.encode())}",
            "manifest segment": _manifest_segment,
            "removal": _removal,
            "handed out": lambda item: f"log {item.log_id}: all below {item.next_offset}",
            "fence": lambda item: (
                f"epoch {item.epoch} was fenced: its last good sequence is {item.last_good_seq}"
            ),
        }

    def show(self, item: dumping.Item) -> str:
        line = self._show[item.kind](item)
        heading = self.HEADINGS.get(item.kind, "")
        if heading and heading != self._heading:
            self._heading = heading
            line = click.style(heading, bold=True) + "\n" + line
        return line


def _batch(item: dumping.BatchItem) -> str:
    offsets = f"{item.first_offset}–{item.last_offset}"
    producer = "–" if item.producer_id < 0 else f"{item.producer_id}:{item.producer_epoch}"
    state = click.style("ok", fg="green")
    if item.problem:
        state = click.style(item.problem, fg="red")
    flags = "".join(f"  {flag}" for flag in item.flags)
    return (
        f"{item.position:>12,} {item.size:>10,}  {offsets:<23} {item.records:>8,}  "
        f"{_time(item.max_timestamp):<23} {item.codec:<7} {item.leader_epoch:>5} {producer:>9}  "
        f"{item.crc:08x}  {state}{flags}"
    )


def _record(item: dumping.RecordItem) -> str:
    parts = [f"{'':>12} offset {item.offset}  {_time(item.timestamp)}"]
    if item.key is not None:
        parts.append(f"key {_preview(item.key)}")
    value = "null" if item.value is None else f"{len(item.value):,} bytes {_preview(item.value)}"
    parts.append(f"value {value}")
    if item.headers:
        pairs = (f"{_preview(k)}: {'null' if v is None else _preview(v)}" for k, v in item.headers)
        parts.append("headers {" + ", ".join(pairs) + "}")
    return "  ".join(parts)


def _damage(item: dumping.DamageItem) -> str:
    return f"{item.position:>12,} {item.size:>10,}  " + click.style(item.what, fg="red")


def _note(item: dumping.NoteItem) -> str:
    return f"{item.position:>12,} " + click.style(item.what, dim=True)


def _wal_file(item: dumping.WalFileItem) -> str:
    return (
        f"WAL file {item.number} of epoch {item.epoch}: begins with sequence {item.first_seq}, "
        f"the files before end with {item.previous_last_seq}"
    )


def _wal_record(item: dumping.WalRecordItem) -> str:
    log = "–" if item.log_id == 0 else str(item.log_id)
    mark = "+" if item.starts_group else " "
    says = json.dumps(item.says) if item.says else ""
    return (
        f"{item.position:>12,} {item.size:>8,} {item.seq:>12} {mark}{item.type:<9} {log:>6}  {says}"
    )


def _checkpoint(item: dumping.CheckpointItem) -> str:
    return (
        f"checkpoint of {_time(item.written_at)} UTC, {_count(item.logs, 'log')}; the WAL is "
        f"needed from sequence {item.wal_seq + 1} on"
    )


def _checkpoint_log(item: dumping.CheckpointLogItem) -> str:
    line = (
        f"{item.log_id:>6} {item.start_offset:>12} {item.next_offset:>12} "
        f"{item.recovery_point:>15} {item.leader_epoch:>5}"
    )
    if cursor := item.cursor:
        line += f"  {cursor.floor:>12} {cursor.ready_count:>10} {cursor.unacked_count:>8}"
    return line


def _removal(item: dumping.RemovalItem) -> str:
    segment = "–" if item.segment < 0 else f"{item.segment:020}"
    offsets = f"{item.first_offset}–{item.next_offset - 1}"
    return (
        f"{item.seq:>8}  {_time(item.time):<23} {item.rule:<14} {item.log_id:>6}  {segment:>20} "
        f"{offsets:<23} {item.size:>12,} {item.left:>10,}  {_quoted(item.name.encode())}"
    )


def _manifest_segment(item: dumping.ManifestSegmentItem) -> str:
    return (
        f"{item.base_offset:>20} {item.next_offset:>20} {item.size:>12,}  "
        f"{_time(item.first_timestamp):<23} {_time(item.max_timestamp):<23}"
    )


def _time(milliseconds: int) -> str:
    """2026-11-16 02:13:41.123; what no calendar has, as the number it is."""
    if milliseconds < 0:
        return "–"
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03}"


def _preview(data: bytes) -> str:
    return _quoted(data[:PREVIEW]) + ("…" if len(data) > PREVIEW else "")


def _quoted(data: bytes) -> str:
    """Text in quotes, unprintable characters escaped; bytes that are no text, in hex."""
    try:
        return json.dumps(data.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        text = data.decode(errors="ignore")
        if len(data) > PREVIEW - 4 and len(text.encode()) > len(data) - 4:
            return json.dumps(text, ensure_ascii=False)  # a preview that cut a character
        return f"0x{data.hex()}"


# -- verify


@segment.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each log and finding.")
def verify(folder: Path, as_json: bool) -> None:
    """Check FOLDER: a data directory, or one log's folder in it.

    Every batch's checksum, offsets, indexes, manifests, the checkpoint and the write-ahead log.
    What the next start mends by itself is only a note; the exit code is 1 when there is more.
    """
    began = time.monotonic()
    try:
        with _progress(folder, quiet=as_json) as looked_at:
            result = verifying.verify(folder, looked_at)
    except OSError as error:
        raise CantLook(f"{error.filename or folder}: {error.strerror}") from None
    except LogError as error:
        raise CantLook(str(error)) from None
    seconds = time.monotonic() - began
    if as_json:
        _print_json(result, seconds)
    else:
        _print_tables(result, seconds)
    sys.exit(1 if result.problems else 0)


@contextmanager
def _progress(folder: Path, quiet: bool) -> Iterator[Callable[[int], None]]:
    console = Console(stderr=True)
    if quiet or not console.is_terminal or not folder.is_dir():
        yield lambda size: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("reading", total=verifying.size_of(folder))
        yield lambda size: bar.advance(task, size)


# -- repair


@segment.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would be cut out, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each cut.")
def repair(folder: Path, dry_run: bool, as_json: bool) -> None:
    """Cut out of FOLDER, a data directory, the batches that can't be read.

    The broker must be stopped. A segment that is changed is kept as it was, as *.log.corrupt-n.
    """
    if not (folder / "meta.db").exists() and not (folder / "wal").is_dir():
        raise CantLook(f"{folder}: not a data directory")
    try:
        with lockfile.claim(folder):
            repairs = list(repairing.repair(folder, dry_run=dry_run))
    except OSError as error:
        raise CantLook(f"{error.filename or folder}: {error.strerror}") from None
    except (LogError, OtterError) as error:
        raise CantLook(str(error)) from None
    for done in repairs:
        for cut in done.cuts:
            _print_cut(done, cut, dry_run, as_json)
    if not as_json:
        cuts = [cut for done in repairs for cut in done.cuts]
        records = sum(cut.last_offset - cut.first_offset + 1 for cut in cuts)
        said = "would be cut out" if dry_run else "cut out"
        click.echo(
            f"{_count(len(cuts), 'place')}, {_count(records, 'offset')}: {said}"
            if cuts
            else "nothing to repair"
        )


def _print_cut(done: repairing.Repair, cut: repairing.Cut, dry_run: bool, as_json: bool) -> None:
    kept = done.kept.name if done.kept else None
    if as_json:
        fields = {
            "kind": "cut",
            "path": str(done.path),
            "position": cut.position,
            "bytes": cut.end - cut.position,
            "first_offset": cut.first_offset,
            "last_offset": cut.last_offset,
            "kept_as": kept,
            "dry_run": dry_run,
        }
        click.echo(json.dumps(fields, separators=(",", ":")))
        return
    as_it_was = f"; as it was: {kept}" if kept else ""
    click.echo(
        f"{done.path}: offsets {cut.first_offset} to {cut.last_offset}, bytes {cut.position:,} to "
        f"{cut.end - 1:,}{as_it_was}"
    )


def _totals(result: verifying.Result) -> dict[str, int]:
    return {
        "logs": len(result.logs),
        "segments": sum(log.segments for log in result.logs),
        "batches": sum(log.batches for log in result.logs),
        "records": sum(log.records for log in result.logs),
        "bytes": sum(log.size for log in result.logs),
        "problems": result.problems,
        "notes": sum(not finding.is_problem for finding in result.findings),
    }


def _print_json(result: verifying.Result, seconds: float) -> None:
    def line(kind: str, **fields: object) -> None:
        click.echo(json.dumps({"kind": kind, **fields}, separators=(",", ":")))

    for log in result.logs:
        line(
            "log",
            name=log.name,
            folder=str(log.folder),
            segments=log.segments,
            batches=log.batches,
            records=log.records,
            bytes=log.size,
            problems=log.problems,
        )
    for finding in result.findings:
        line(
            "problem" if finding.is_problem else "note",
            path=str(finding.path),
            position=finding.position,
            what=finding.what,
        )
    wal = asdict(result.wal) if result.wal else None
    line("summary", **_totals(result), wal=wal, seconds=round(seconds, 3))


def _print_tables(result: verifying.Result, seconds: float) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # a file or pipe gets whole lines
    shown = [log for log in result.logs if log.findings]
    quiet = [log for log in result.logs if not log.findings]
    shown += quiet[: max(MOST_ROWS - len(shown), 0)]
    if shown:
        console.print(_log_table(shown))
    if len(result.logs) > len(shown):
        console.print(f"… and {_count(len(result.logs) - len(shown), 'more log')}, all well")
    for finding in result.findings:
        word = "[red]problem[/]" if finding.is_problem else "[dim]note[/]"
        at = "" if finding.position is None else f" at byte {finding.position:,}"
        console.print(f"{word} {escape(str(finding.path))}{at}: {escape(finding.what)}")
    console.print(_summary(result, seconds))


def _log_table(logs: list[verifying.LogResult]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("log", overflow="fold")
    for name in ("segments", "batches", "records", "bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for log in sorted(logs, key=lambda log: log.folder):
        state = f"[red]{_count(log.problems, 'problem')}[/]" if log.problems else "[green]ok[/]"
        counts = (log.segments, log.batches, log.records, log.size)
        table.add_row(escape(log.name), *(f"{count:,}" for count in counts), state)
    return table


def _summary(result: verifying.Result, seconds: float) -> str:
    totals = _totals(result)
    parts = [
        _count(totals["logs"], "log"),
        _count(totals["segments"], "segment"),
        _count(totals["batches"], "batch", "batches"),
        _count(totals["records"], "record"),
    ]
    text = f"{', '.join(parts)}; {totals['bytes'] / (1 << 20):,.1f} MiB in {seconds:.1f} s"
    if result.wal:
        text += f"; {_count(result.wal.records, 'WAL record')} to replay"
    if result.problems:
        return f"{text}: [red]{_count(result.problems, 'problem')}[/]"
    return f"{text}: [green]all well[/]"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
