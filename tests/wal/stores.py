"""What the store's tests share: small stores, and lives that end with SIGKILL.

`die(data, life)` forks: the child opens the store, lives, and kills itself with the signal that
can't be caught. That is an exact crash at a known place, and nothing is copied: what the parent
finds is what the kernel has.
"""

import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ottermq.wal import Log, LogOptions, Options, Record, Report, ReportKind, Store
from ottermq.wal.errors import Full
from ottermq.wal.log import Appended
from ottermq.wal.store import DirectIO

T = TypeVar("T")

SMALL = Options(
    wal_file_size=1 << 20,
    wal_max_size=4 << 20,
    batch_max_size=1 << 20,
    checkpoint_interval_ms=0,
    direct_io=DirectIO.OFF,
    open_files=64,
    recovery_threads=2,
)


def small(segment_size: int = 64 << 20, **changes: Any) -> Options:
    """SMALL, with some of the log's or the store's options changed."""
    log = {name: changes.pop(name) for name in LogOptions.__dataclass_fields__ if name in changes}
    return replace(SMALL, log=LogOptions(segment_size=segment_size, **log), **changes)


def numbered(count: int, first: int = 0, size: int = 0) -> list[Record]:
    """Records that tell their number, `size` bytes long at least."""
    return [Record(b"%d" % n + b"." * (size - 8), timestamp=n) for n in range(first, first + count)]


def with_room(act: Callable[[], T], make_room: Callable[[], Any] = lambda: time.sleep(0.001)) -> T:
    """Full is a state, and comes soon where WAL files are small and the disk is quick: the next
    file isn't there yet, or room comes with a checkpoint."""
    limit = time.monotonic() + 60
    while True:
        try:
            return act()
        except Full:
            assert time.monotonic() < limit
            make_room()


def append(log: Log, records: list[Record], **how: Any) -> Appended:
    """Without a checkpoint."""
    return with_room(lambda: log.append(records, **how))


def put(store: Store, log: Log, records: list[Record], **how: Any) -> int:
    """Append, wait until it is on disk; the first offset."""
    done = with_room(lambda: log.append(records, **how), store.checkpoint)
    store.wait(done.seq)
    return done.first_offset


def values(log: Log, offset: int | None = None) -> list[bytes | None]:
    return [record.value for record in log.records(offset)]


def numbers(log: Log, offset: int | None = None) -> list[int]:
    """What `numbered` made, as far as it can be read."""
    return [int((record.value or b"").rstrip(b".")) for record in log.records(offset)]


def offsets(log: Log, offset: int | None = None) -> list[int]:
    return [record.offset for record in log.records(offset)]


def kinds(reports: Iterable[Report]) -> list[ReportKind]:
    return [report.kind for report in reports]


def folder_of(store: Store, log: Log) -> Path:
    [found] = store.data.glob(f"vhosts/*/queues/*.{log.id}")
    return found


def segment_files(store: Store, log: Log) -> list[Path]:
    return sorted(folder_of(store, log).glob("*.log"))


def flush(store: Store) -> None:
    """Everything durable is in its segment afterwards, and synced."""
    store.wait(store.durable_seq)
    store.checkpoint()


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """For what no event tells: the writer's and the checkpoint's own time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.001)


# -- lives that end badly ---------------------------------------------------------------------


def die(data: Path, life: Callable[[Store], T], options: Options = SMALL) -> T:
    """What `life` returned before its process was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _live(data, life, options, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"status {status:#x}"
    failed, result = pickle.loads(answer)
    assert not failed, f"in the process that was to die:\n{result}"
    return result  # type: ignore[no-any-return]


def _live(data: Path, life: Callable[[Store], T], options: Options, answer: int) -> NoReturn:
    try:
        outcome: tuple[bool, Any] = False, life(Store.open(data, options))
    except BaseException:
        outcome = True, traceback.format_exc()
    with os.fdopen(answer, "wb") as pipe:
        pipe.write(pickle.dumps(outcome))
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")
