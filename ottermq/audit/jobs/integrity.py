"""Is every byte as it was written, and every record there once?

Each segment is walked in one of Spark's tasks: checksums, offsets, indexes, what the manifest and
the checkpoint say of it. What follows from all segments of a log together (offsets that none of
them has) is worked out here; duplicates are a query over the records.

audit/gaps.py says which offsets may be missing.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException

from ottermq.audit.byte_source import ByteSource
from ottermq.audit.catalogue import INTERNAL
from ottermq.audit.failures import first_line
from ottermq.audit.findings import Finding, Kind, Severity
from ottermq.audit.gaps import Settled, is_explained, known_since
from ottermq.audit.jobs.duplicates import duplicates
from ottermq.audit.outcome import Bars, Context, Outcome, ReportTable
from ottermq.audit.policies import Policies
from ottermq.audit.report.formatting import queue_label, size, vhost_name
from ottermq.audit.snapshot import Log, Segment, Snapshot, take
from ottermq.wal.manifest import Sealed
from ottermq.wal.segmentcheck import Flaw, SegmentCheck, Trusted, trusted_part
from ottermq.wal.segmentfile import MERGE, MERGED, Gap, base_offset_of

KINDS = {
    "damage": Kind(
        "Bytes of a segment aren't what was written: a wrong checksum, or a file that was cut.",
        "Look for the cause (disk, memory, a tool that wrote there) and restore the segment from a "
        "backup. `ottermq segment verify` shows the bytes, `ottermq segment dump` all the rest.",
    ),
    "index": Kind(
        "An index doesn't point where it says. The records themselves are whole.",
        "Stop the broker, remove the index, and start: it is built again from its segment.",
    ),
    "manifest": Kind(
        "A segment isn't what its manifest or the checkpoint says of it.",
        "Find out who wrote to the data directory, and restore the segment from a backup.",
    ),
    "missing": Kind(
        "A segment that the manifest or the checkpoint names isn't there.",
        "Restore the file from a backup; without one, the offsets that are named here are lost.",
    ),
    "gap": Kind(
        "Offsets are missing, and nothing in the log says why.",
        "Compare with a backup; `ottermq audit retention` shows whether a removal was recorded.",
    ),
    "overlap": Kind(
        "Two segments hold the same offsets.",
        "One of them was copied back by hand: stop the broker and take away the copy.",
    ),
    "unreadable": Kind(
        "A checkpoint, manifest, cursor, WAL or segment can't be read.",
        "Read the message: an error of the disk wants a new disk, a bad checksum wants a backup.",
    ),
    "orphan": Kind(
        "Files or folders that belong to no log.",
        "The broker doesn't use them: they can be moved away.",
    ),
    "left-over": Kind(
        "Files that are about to go, or that an earlier recovery set aside.",
        "Nothing, or, for `*.corrupt-n`, what you would do about damage.",
    ),
    "torn": Kind(
        "What a crash leaves at the end of a file.",
        "Nothing: the next start mends it.",
    ),
    "duplicate-sequence": Kind(
        "A batch of an idempotent Kafka producer is there twice, which the broker has to prevent.",
        "Have consumers skip the second one, and report this with the segment.",
    ),
    "duplicate-id": Kind(
        "Messages that aren't settled have the same message-id: a publisher has sent them again.",
        "Nothing, where consumers know what they have seen; else look at how the publisher "
        "handles confirms.",
    ),
}
SLICES_A_CORE = 16  # many enough that the last one is short, few enough to cost nothing
MOST_GAPS = 20  # per log, reported one by one
KNOWN = {".log", ".index", ".timeindex", ".snapshot", ".txnindex"}


@dataclass(frozen=True, slots=True)
class Task:
    home: ByteSource
    folder: str
    base: int
    sealed: Sealed | None
    trusted: Trusted | None
    log: int  # its place in the snapshot


@dataclass(frozen=True, slots=True)
class Answer:
    log: int
    base: int
    there: bool
    next_offset: int
    size: int
    batches: int
    records: int
    left_out: int
    epochs: tuple[int, int]
    gaps: tuple[Gap, ...]
    flaws: tuple[Flaw, ...]
    unreadable: str  # why, as the system says; empty: it isn't


def run(context: Context) -> Outcome:
    snapshot = take(context.data)
    tasks = sorted(_tasks(snapshot), key=lambda each: each.base)
    workers = context.spark.sparkContext
    slices = max(min(len(tasks), workers.defaultParallelism * SLICES_A_CORE), 1)
    answers = workers.parallelize(tasks, slices).map(check).collect()
    of_log: dict[int, list[Answer]] = {at: [] for at in range(len(snapshot.logs))}
    for answer in answers:  # in the order of the tasks: by offset
        of_log[answer.log].append(answer)
    policies = Policies(context.data, snapshot.logs, context.config)
    later = known_since(snapshot, context.data)
    findings = list(_of_directory(snapshot))
    for at, log in enumerate(snapshot.logs):
        compacted = log.kind == INTERNAL or policies.is_compacted(log)
        findings += _LogFindings(log, later[log.id], of_log[at], compacted, snapshot).all()
    try:
        findings += duplicates(context, snapshot)
    except PySparkException as error:
        if not any(answer.unreadable for answer in answers):
            raise
        what = f"duplicates can't be looked for: {first_line(error)}"
        findings.append(Finding("unreadable", Severity.VIOLATION, what))
    return _outcome(snapshot, of_log, findings)


# -- on a worker


def check(task: Task) -> Answer:
    found = SegmentCheck(task.base, task.sealed, task.trusted)
    name = f"{task.folder}/{task.base:020}"
    there, unreadable = True, ""
    try:
        # The indexes first: an entry is written after its batch, never before.
        offsets, times = (_whole(task.home, name + suffix) for suffix in (".index", ".timeindex"))
        window = task.home.open(f"{name}.log")
        if window is None:
            there = False  # trimmed meanwhile
        else:
            with window:
                found.run(window, offsets, times)
    except OSError as error:
        unreadable = error.strerror or str(error)
    return Answer(
        task.log,
        task.base,
        there,
        found.next_offset,
        found.size,
        found.batches,
        found.records,
        found.left_out,
        found.epochs,
        tuple(found.gaps),
        tuple(found.flaws),
        unreadable,
    )


def _whole(home: ByteSource, name: str) -> bytes:
    file = home.open(name)
    if file is None:
        return b""
    with file:
        return file.read(0, file.size)


# -- what to look at


def _tasks(snapshot: Snapshot) -> Iterator[Task]:
    for at, log in enumerate(snapshot.logs):
        for segment in log.segments:
            if not segment.missing:
                sealed = _sealed(segment) if segment.sealed else None
                trusted = trusted_part(segment.base_offset, sealed, log.saved)
                yield Task(snapshot.home, log.folder, segment.base_offset, sealed, trusted, at)


def _sealed(segment: Segment) -> Sealed:
    return Sealed(
        segment.base_offset,
        segment.next_offset,
        segment.size,
        segment.first_timestamp,
        segment.max_timestamp,
    )


# -- findings


def _of_directory(snapshot: Snapshot) -> Iterator[Finding]:
    for problem in snapshot.problems:
        yield Finding("unreadable", Severity.VIOLATION, problem)
    for folder in snapshot.orphans:
        severity = Severity.NOTE if snapshot.running else Severity.WARNING
        yield Finding("orphan", severity, f"{folder}: a folder that no log has")


class _LogFindings:
    def __init__(
        self, log: Log, later: Log, answers: Sequence[Answer], compacted: bool, snapshot: Snapshot
    ) -> None:
        self.log = log
        self.later = later  # the same, after the segments were read
        self.answers = [each for each in answers if each.there]
        self.compacted = compacted
        self.snapshot = snapshot
        self.times = {each.base_offset: each.max_timestamp for each in log.segments}

    def all(self) -> Iterator[Finding]:
        for problem in self.log.problems:
            yield self.finding("unreadable", Severity.VIOLATION, problem)
        for answer in self.answers:
            if answer.unreadable:
                message = f"{answer.base:020}.log: {answer.unreadable}"
                yield self.finding("unreadable", Severity.VIOLATION, message, answer.base)
            for flaw in answer.flaws:
                yield self._flaw(answer, flaw)
        yield from self._missing()
        yield from self._overlaps()
        yield from self._unexplained()
        yield from self._files()

    def finding(
        self,
        kind: str,
        severity: Severity,
        message: str,
        segment: int | None = None,
        offsets: tuple[int, int] | None = None,
    ) -> Finding:
        log, (first, end) = self.log, offsets or (None, None)
        last = None if first is None or end is None else max(end - 1, first)
        at = self.times.get(segment, -1) if segment is not None else -1
        time = datetime.fromtimestamp(at / 1000, UTC) if at >= 0 else None
        return Finding(
            kind, severity, message, log.vhost, log.queue, log.partition, first, last, segment, time
        )

    def _flaw(self, answer: Answer, flaw: Flaw) -> Finding:
        at = "" if flaw.position is None else f" at byte {flaw.position:,}"
        message = f"{answer.base:020}{flaw.suffix}{at}: {flaw.what}"
        kind = "index" if flaw.suffix != ".log" else "damage" if flaw.offsets else "manifest"
        if not flaw.is_problem:
            return self.finding("torn", Severity.NOTE, message, answer.base, flaw.offsets)
        return self.finding(kind, Severity.VIOLATION, message, answer.base, flaw.offsets)

    def _missing(self) -> Iterator[Finding]:
        for each in self.log.segments:
            if each.missing:
                message = f"{each.file} is gone, with offsets {each.base_offset:,} to "
                message += f"{each.next_offset - 1:,}"
                offsets = each.base_offset, each.next_offset
                yield self.finding(
                    "missing", Severity.VIOLATION, message, each.base_offset, offsets
                )

    def _overlaps(self) -> Iterator[Finding]:
        end = 0
        for answer in self.answers:
            if answer.base < end:
                message = f"{answer.base:020}.log: the segment before it ends at {end - 1:,}"
                offsets = answer.base, end
                yield self.finding("overlap", Severity.VIOLATION, message, answer.base, offsets)
            end = max(end, answer.next_offset)

    # -- gaps

    def _unexplained(self) -> Iterator[Finding]:
        if self.compacted:
            return
        with Settled(self.later.cursor) as settled:
            found = [each for each in self._gaps() if not is_explained(each[1], settled)]
        for answer, gap in found[:MOST_GAPS]:
            message = f"offsets {gap.first:,} to {gap.end - 1:,} are in no segment"
            offsets = gap.first, gap.end
            yield self.finding("gap", Severity.VIOLATION, message, answer.base, offsets)
        if len(found) > MOST_GAPS:
            message = f"and {len(found) - MOST_GAPS:,} more gaps"
            yield self.finding("gap", Severity.VIOLATION, message)
        for answer in self.answers:
            if answer.left_out and self.log.cursor is None:
                message = f"{answer.base:020}.log: {answer.left_out:,} offsets inside its batches "
                message += "have no record"
                yield self.finding("gap", Severity.VIOLATION, message, answer.base)

    def _gaps(self) -> Iterator[tuple[Answer, Gap]]:
        """Within segments and between them. Offsets of a missing segment are reported as that."""
        unread = {each.base for each in self.answers if each.unreadable}
        missing = {
            each.base_offset: each.next_offset
            for each in self.log.segments
            if each.missing or each.base_offset in unread
        }
        end, epoch = self.later.start_offset, 0
        for answer in self.answers:
            while end in missing:
                end = missing[end]
            if answer.batches == 0:
                continue
            if answer.base > end:
                yield answer, Gap(end, answer.base, epoch, answer.epochs[0])
            for gap in answer.gaps:
                yield answer, gap
            damaged = [flaw.offsets[1] for flaw in answer.flaws if flaw.offsets]
            end, epoch = max([answer.next_offset, *damaged]), answer.epochs[1]

    # -- files

    def _files(self) -> Iterator[Finding]:
        """Of the later snapshot: a broker at work makes files and lets them go."""
        left = {each.name for each in (*self.log.leftovers, *self.later.leftovers)}
        segments = {each.base_offset for each in (*self.log.segments, *self.later.segments)}
        for name in self.later.files:
            base = base_offset_of(Path(name))
            if name in left:
                message = f"{name}: about to go, or set aside by an earlier recovery"
                yield self.finding("left-over", Severity.NOTE, message)
            elif base is None and name not in OURS or base is not None and not _belongs(name):
                yield self.finding("orphan", Severity.WARNING, f"{name}: not a file of a log")
            elif base is not None and base not in segments and not name.endswith(".snapshot"):
                severity = Severity.NOTE if self.snapshot.running else Severity.WARNING
                yield self.finding("orphan", severity, f"{name}: its segment isn't there")


OURS = {"manifest", "manifest.tmp"}


def _belongs(name: str) -> bool:
    return (
        Path(name).suffix in KNOWN
        or name.endswith((".log.rewrite", ".log.damaged"))
        or (MERGED in name or MERGE in name)
    )


# -- the outcome


def _outcome(
    snapshot: Snapshot, of_log: dict[int, list[Answer]], findings: list[Finding]
) -> Outcome:
    problems = Counter(
        (each.vhost, each.queue, each.partition)
        for each in findings
        if each.severity is not Severity.NOTE
    )
    rows: list[dict[str, Any]] = []
    for at, log in enumerate(snapshot.logs):
        there = [each for each in of_log[at] if each.there]
        rows.append(
            {
                "vhost": log.vhost,
                "queue": log.queue,
                "partition": log.partition,
                "segments": len(there),
                "batches": sum(each.batches for each in there),
                "records": sum(each.records for each in there),
                "bytes": sum(each.size for each in there),
                "wal_batches": len(log.wal),
                "problems": problems[log.vhost, log.queue, log.partition],
            }
        )
    shown = [row for row in rows if row["segments"] or row["wal_batches"] or row["problems"]]
    columns = ["vhost", "queue", "partition", "segments", "batches", "records", "bytes", "problems"]
    total = {name: sum(row[name] for row in rows) for name in ("segments", "batches", "records")}
    bytes_ = sum(row["bytes"] for row in rows)
    return Outcome(
        headline={"logs": len(rows), **total, "read": size(bytes_)},
        findings=findings,
        report_tables=[
            ReportTable(
                "Logs",
                columns,
                [[vhost_name(row["vhost"]), *(row[name] for name in columns[1:])] for row in shown],
            )
        ],
        charts=[_bars(shown)] if shown else [],
        tables={"logs": pa.Table.from_pylist(rows, schema=LOGS)},
        summary={"logs": rows, "running": snapshot.running},
    )


LOGS = pa.schema(
    [("vhost", pa.string()), ("queue", pa.string()), ("partition", pa.int32())]
    + [(name, pa.int64()) for name in ("segments", "batches", "records", "bytes")]
    + [("wal_batches", pa.int64()), ("problems", pa.int64())]
)


def _bars(rows: Sequence[dict[str, Any]]) -> Bars:
    sums: Counter[str] = Counter()
    for row in rows:
        sums[queue_label(row["vhost"], row["queue"])] += row["bytes"]
    names = [name for name, _ in sums.most_common()]
    return Bars("Bytes checked", "bytes", names, {"bytes": [float(sums[name]) for name in names]})
