"""The power goes while a log is compacted: the newest record of each key is never lost, at its
offset and as it was written; and what a tombstone has taken doesn't come back, whether or not the
tombstone is still there."""

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from ottermq.wal import Log, LogFlags, Record, Store
from ottermq.wal.verify import Finding, verify
from tests.faults.powerloss import EXT4, POSIX, CrashState, Model, crash_states
from tests.faults.shim import recorded
from tests.faults.trace import Event, Trace
from tests.wal.crash_journal import when_there_is_room
from tests.wal.faulty import Life, command
from tests.wal.promises import DAMAGE
from tests.wal.stores import small
from tests.wal.test_compaction import compact

OPTIONS = small(segment_size=64 << 10, wal_file_size=2 << 20, wal_max_size=8 << 20)
SIZE = 6000  # of a value: ten records or so a segment
RETENTION = 100  # of tombstones, in the milliseconds of the tests
KEYS = 6

Word = tuple[int, str, int | None]  # offset, key, the number that is its value; None: a tombstone


def value_of(number: int | None) -> bytes | None:
    return None if number is None else b"%d" % number + b"." * SIZE


class Writer:
    """Appends, and marks what may be there before it is and what must be there once it is."""

    def __init__(self, life: Life) -> None:
        self.life, self.store = life, life.store
        self.log = self.store.create("topic", flags=LogFlags.NO_CURSOR)
        self.number = 0

    def put(self, key: str, *, is_tombstone: bool = False) -> None:
        self.number += 1
        number = None if is_tombstone else self.number
        word: Word = (self.log.stat().next_offset, key, number)
        self.life.journal.mark("may", word)
        record = Record(value_of(number), key=key.encode(), timestamp=self.number)
        done = when_there_is_room(self.store, partial(self.log.append, [record]))
        assert done.first_offset == word[0]
        self.store.wait(done.seq)
        self.life.journal.mark("must", word)

    def round(self) -> None:
        for number in range(3 * KEYS):
            self.put(f"k{number % KEYS}")

    def compact(self, now: int) -> None:
        self.store.checkpoint()
        self.life.journal.mark("compacting", now)
        assert compact(self.log, now=now, retention=RETENTION).dropped
        self.life.journal.mark("compacted", now)


def a_log_that_is_compacted_again_and_again(life: Life) -> None:
    writer = Writer(life)
    writer.round()
    writer.put("k0", is_tombstone=True)
    writer.put("k1", is_tombstone=True)
    for key in ("k2", "k3", "k4", "k5") * 6:
        writer.put(key)
    writer.compact(now=1000)  # k0 and k1 get a horizon
    writer.put("k1")  # and comes to life again
    for key in ("k4", "k5") * 8:
        writer.put(key)
    writer.compact(now=1000 + RETENTION // 2)
    for key in ("k4", "k5") * 8:
        writer.put(key)
    writer.compact(now=1000 + 2 * RETENTION)  # the tombstone of k0 goes
    for key in ("k2", "k3") * 8:
        writer.put(key)
    writer.compact(now=1000 + 4 * RETENTION)


a_log_that_is_compacted_again_and_again.options = OPTIONS  # type: ignore[attr-defined]


@dataclass
class Expected:
    """What the marks say by a moment."""

    may: dict[int, Word] = field(default_factory=dict)
    newest: dict[str, Word] = field(default_factory=dict)  # of each key, on disk

    @classmethod
    def by(cls, marks: Iterable[bytes]) -> "Expected":
        expected = cls()
        for mark in marks:
            kind, word = json.loads(mark)
            if kind == "may":
                expected.may[word[0]] = tuple(word)
            elif kind == "must":
                expected.newest[word[1]] = tuple(word)
        return expected


def check(log: Log, expected: Expected) -> None:
    seen: dict[str, int] = {}
    last = -1
    for record in log.records():
        offset, key = record.offset, (record.key or b"").decode()
        assert offset > last, "offsets are kept, and in order"
        last = offset
        assert offset in expected.may, f"nobody wrote {key} at {offset}"
        _, written, number = expected.may[offset]
        assert (key, record.value) == (written, value_of(number)), f"{offset} is another record"
        seen[key] = offset
        at = log.read(offset)[0]
        assert at.base_offset <= offset <= at.last_offset, f"{offset} is not found"
    for key, (offset, _, number) in expected.newest.items():
        if number is not None:
            assert seen.get(key, -1) >= offset, f"{key} at {offset} is lost"
        else:
            assert seen.get(key, offset) >= offset, f"{key} was deleted at {offset}, and is back"


def problems(data: Path) -> list[Finding]:
    """But for indexes: they aren't synced, nor believed; a look-up that needs one mends it."""
    found = [each for each in verify(data).findings if each.is_problem]
    return [each for each in found if each.path.suffix not in (".index", ".timeindex")]


def survive(states: Iterable[CrashState], folder: Path) -> None:
    for state in states:
        data = state.materialise(folder / "disk")
        expected = Expected.by(state.markers)
        try:
            with Store.open(data, OPTIONS) as store:
                assert not [r for r in store.reports() if r.kind in DAMAGE]
                if ("/", "topic") in store:
                    log = store.get("topic")
                    check(log, expected)
                    compact(log, now=1000, retention=RETENTION)
                    check(log, expected)
            assert not problems(data)
        except Exception as error:
            raise AssertionError(f"{error}\nafter a {state}") from error
        shutil.rmtree(data)


def moments(trace: Trace) -> list[int]:
    """Those at which a compaction is under way."""
    found, under_way = [], False
    for index in range(trace.begin, len(trace)):
        record = trace[index]
        if record.event is Event.MARK:
            under_way = b"compacting" in bytes(record.data)
        if under_way:
            found.append(index + 1)
    return found


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    with recorded(tmp_path_factory.mktemp("compacted")) as life:
        life.run(command(a_log_that_is_compacted_again_and_again))
    return life.trace


def test_a_life_has_all_that_the_power_may_meet(trace: Trace) -> None:
    """Or the test below would prove less than it says."""
    renamed = [record for record in trace.of(Event.RENAME) if ".log.rewrite" in record.path]
    assert len(renamed) > 3
    assert len([r for r in trace.of(Event.CREATE) if ".log.merge-" in r.path]) > 3
    assert len(moments(trace)) > 50


@pytest.mark.parametrize(("model", "n"), [(EXT4, 60), (POSIX, 60)], ids=["ext4", "posix"])
def test_the_newest_of_each_key_stays_and_what_was_deleted_does_not_come_back(
    trace: Trace, memory_path: Path, model: Model, n: int
) -> None:
    among = moments(trace)
    survive(crash_states(trace, seed=n, n=n, model=model, points=among), memory_path)
    survive(crash_states(trace, seed=n + 1, n=n // 4, model=model), memory_path)


@pytest.mark.soak
@pytest.mark.parametrize("model", [EXT4, POSIX], ids=["ext4", "posix"])
def test_soak_at_every_moment_of_it(trace: Trace, memory_path: Path, model: Model) -> None:
    among = moments(trace)
    survive(crash_states(trace, 5, 20 * len(among), model=model, points=among), memory_path)
