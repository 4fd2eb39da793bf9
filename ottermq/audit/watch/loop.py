"""One watch from start to end: a stream of new records, a look at the directory every few seconds,
and each finding reported once."""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ottermq.audit.errors import CantRun
from ottermq.audit.outcome import Context
from ottermq.audit.run import LOG, NEEDED, check_installed, look_at
from ottermq.config import Config
from ottermq.errors import OtterError
from ottermq.process.lockfile import claim
from ottermq.wal.errors import LogError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ottermq.audit.retention_check import Due, RetentionCheck
    from ottermq.audit.watch.ledger import Ledger
    from ottermq.audit.watch.publisher import Publisher

TICK = 0.25  # seconds: how soon a signal is seen
TRY_AGAIN = 5.0  # seconds, while the broker is away
ONCE_WAITS = 30.0  # seconds for the broker, when nobody will try again later
MOST_ROWS = 1_000_000  # a micro-batch: the first one may have years to read
SIGNALS = (signal.SIGTERM, signal.SIGINT)
# A micro-batch is small; and in a stream, partitions that turn out small aren't joined.
SETTINGS = {"spark.sql.shuffle.partitions": "8"}


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What was asked for."""

    data: Path
    checkpoint: Path
    master: str
    config: Config
    interval: timedelta
    publish: str | None = None
    queue: str = ""
    once: bool = False
    options: Mapping[str, Any] | None = None


def run(request: WatchRequest) -> int:
    """The exit code: 0; with `once`, 1 when something was found. CantRun: one line says why."""
    check_installed(*NEEDED, *(["pika"] if request.publish else []))
    look_at(request.data)
    from ottermq.audit.failures import first_line

    folder = request.checkpoint.absolute()
    if folder.is_relative_to(request.data.absolute()):
        raise CantRun(f"--checkpoint {request.checkpoint}: not in the data directory, please")
    with _Stop() as stop:
        try:
            return _run(request, folder, stop)
        except CantRun:
            raise
        except Exception as error:
            if stop.asked:  # the signal may have ended Java at the same time
                return 0
            if isinstance(error, OtterError | LogError):
                raise CantRun(str(error)) from None
            if isinstance(error, OSError) and error.filename:
                raise CantRun(f"{error.filename}: {error.strerror}") from None
            raise CantRun(f"{first_line(error)} (all of it: {folder / LOG})") from error


def _run(request: WatchRequest, folder: Path, stop: "_Stop") -> int:
    from ottermq.audit.spark import session
    from ottermq.audit.watch.ledger import Ledger

    with ExitStack() as ending:
        publisher = None
        if request.publish:
            from ottermq.audit.watch.publisher import Publisher

            publisher = Publisher(request.publish, request.queue)
            ending.callback(publisher.close)
        folder.parent.mkdir(parents=True, exist_ok=True)
        ending.enter_context(claim(folder, "checkpoint", "watch"))
        ledger = Ledger(folder, request.data.absolute())
        ending.callback(ledger.close)
        spark = ending.enter_context(session(folder / LOG, request.master, SETTINGS))
        stop.listen()  # Spark has taken Ctrl-C for itself
        watch = _Watch(request, spark, ledger, _Teller(ledger, publisher), stop)
        watch.run(folder / "stream")
        return 1 if request.once and watch.found else 0


class _Stop:
    """SIGTERM and SIGINT, as a flag."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        for number in SIGNALS:
            before = signal.signal(number, self._ask)
            self._before.setdefault(number, before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def __enter__(self) -> "_Stop":
        self.listen()
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)


class _Watch:
    def __init__(
        self,
        request: WatchRequest,
        spark: "SparkSession",
        ledger: "Ledger",
        teller: "_Teller",
        stop: _Stop,
    ) -> None:
        self.request = request
        self.spark = spark
        self.ledger = ledger
        self.teller = teller
        self.stop = stop
        self.found = 0
        self._waiting: dict[tuple[int, int], float] = {}  # what the keeper may be about to let go

    def run(self, checkpoint: Path) -> None:
        query = self._start(checkpoint)
        if not self.request.once:
            _log(f"watching {self.request.data}")
        try:
            self._until(lambda: not query.isActive, look=not self.request.once)
            if error := query.exception():
                raise error
        finally:
            query.stop()
        if self.request.once and not self.stop.asked:
            self._look()
            self._tell_all()

    def _until(self, is_over: Callable[[], bool], *, look: bool) -> None:
        next_look = time.monotonic()
        while not self.stop.asked and not is_over():
            if look and time.monotonic() >= next_look:
                next_look = time.monotonic() + self.request.interval.total_seconds()
                self._look()
            self.teller.tell()
            time.sleep(TICK)
        self.teller.tell()

    def _tell_all(self) -> None:
        patience = time.monotonic() + ONCE_WAITS
        teller = self.teller
        self._until(lambda: not teller.waiting or time.monotonic() > patience, look=False)
        if teller.waiting and not self.stop.asked:
            raise CantRun(
                f"{teller.why}: {teller.waiting} not published yet, the next run tries on"
            )

    # -- what comes

    def _start(self, checkpoint: Path) -> "StreamingQuery":
        from ottermq.audit.source.datasource import register
        from ottermq.audit.watch.arrivals import COLUMNS

        register(self.spark)
        rows = self.spark.readStream.format("ottermq").options(
            path=str(self.request.data.absolute()),
            columns=",".join(COLUMNS),
            maxOffsetsPerTrigger=str(MOST_ROWS),
        )
        query = rows.load().writeStream.foreachBatch(self._take)
        query = query.option("checkpointLocation", str(checkpoint))
        if self.request.once:
            return query.trigger(availableNow=True).start()
        every = f"{int(self.request.interval.total_seconds() * 1000)} milliseconds"
        return query.trigger(processingTime=every).start()

    def _take(self, rows: "DataFrame", batch: int) -> None:
        from ottermq.audit.watch.arrivals import seen

        if not self.ledger.knows_batch(batch):
            self.found += self.ledger.note_batch(batch, seen(self._context(), rows, self.ledger))

    def _context(self) -> Context:
        options = self.request.options or {}
        data, now = self.request.data.absolute(), datetime.now(UTC)
        return Context(self.spark, data, now, self.request.config, options)

    # -- what lies there

    def _look(self) -> None:
        from ottermq.audit.retention_check import RetentionCheck
        from ottermq.audit.watch.arrivals import identified

        audit = RetentionCheck(self._context())
        late = (
            audit.too_long() if self.request.once else map(audit.kept_too_long, self._late(audit))
        )
        self.found += self.ledger.note(identified([*audit.gone(), *late], audit.snapshot))
        self.ledger.forget_all_but(log.id for log in audit.snapshot.logs)

    def _late(self, audit: "RetentionCheck") -> "Iterator[Due]":
        """Sudden findings are reported if they are still there once the keeper has had its time."""
        now, before = time.monotonic(), self._waiting
        self._waiting = {}
        for each in audit.overdue():
            since = self._waiting[each.segment_id] = before.get(each.segment_id, now)
            if not each.is_sudden or now - since >= audit.keepers_time.total_seconds():
                yield each


class _Teller:
    """From the ledger to the terminal and the queue."""

    def __init__(self, ledger: "Ledger", publisher: "Publisher | None") -> None:
        self._ledger = ledger
        self._publisher = publisher
        self._next_try = 0.0
        self.why = ""  # the broker is away; empty: it isn't

    @property
    def waiting(self) -> int:
        return len(self._ledger.unpublished()) if self._publisher else 0

    def tell(self) -> None:
        for notice in self._ledger.unprinted():
            print(notice.line, flush=True)
            self._ledger.printed(notice)
        if self._publisher and time.monotonic() >= self._next_try:
            self._publish(self._publisher)

    def _publish(self, publisher: "Publisher") -> None:
        from ottermq.audit.watch.publisher import BrokerUnavailable

        publisher.stay()
        try:
            for notice in self._ledger.unpublished():
                publisher.publish(notice)
                self._ledger.published(notice)
                self._say("")
        except BrokerUnavailable as error:
            self._next_try = time.monotonic() + TRY_AGAIN
            self._say(str(error))

    def _say(self, why: str) -> None:
        """A line when it changes, not each time."""
        if why != self.why and self._publisher:
            name = self._publisher.name
            told = f"can't publish to {name}: {why}; trying on" if why else f"{name} is back"
            _log(told)
        self.why = why


def _log(line: str) -> None:
    print(f"ottermq: {line}", file=sys.stderr, flush=True)
