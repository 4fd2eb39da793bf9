"""The power goes, at any moment: what the store has promised by then is kept.

A child lives with a store (power_loss_child.py), the shim records all its writes and syncs, and the
simulator makes disks from it that a power loss may leave behind. Each is opened and held to the
promises that had been made when the power went (promises.py).

Which promises hold on which disk: all of them, on all of these.

- EXT4 (names are committed in order) is what we run on.
- POSIX (each folder by itself, and a file's sync doesn't keep its name) holds as well: whatever
  recovery can't do without is synced together with the folder it lies in - the checkpoint, a new
  segment, a manifest, a new WAL file, the catalogue (SQLite does) - and what isn't (an index, a
  recycled WAL file's name, an unlink) may be lost or be there.
- Torn sectors hold too: everything that is read back carries a checksum, and the WAL file's header
  lies in its block twice.

One thing is promised to nobody: records that were never logged (transient ones, `async` logs). They
may vanish; but not come back wrong, nor give their offsets to others once they were seen.
"""

import functools
import shutil
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.powerloss import EXT4, POSIX, CrashState, Model, crash_states
from tests.faults.rules import Op
from tests.faults.shim import Recording, recorded
from tests.faults.trace import Event, Trace
from tests.wal.faulty import Life, outlive
from tests.wal.power_loss_child import OPTIONS
from tests.wal.promises import Broken, hold_all

TORN = replace(EXT4, torn_sectors=True)
MODELS = {"ext4": EXT4, "posix": POSIX, "torn": TORN}


def live(rec: Recording, seed: int, life: int, steps: int, end: str, *flags: str) -> None:
    """`end` may also be kill: between a write to the WAL and its sync, somewhere on the way."""
    words = [str(word) for word in (seed, life, steps, end, *flags)]
    if end == "kill":
        rec.faults.kill(Op.FDATASYNC, "wal/*.wal", skip=20 + (seed * 31 + life * 17) % 40)
    command = [sys.executable, "-P", "-m", "tests.wal.power_loss_child", *words]
    assert rec.run(command, check=end != "kill").returncode == (-9 if end == "kill" else 0)
    rec.faults.clear()


def lives(folder: Path, seed: int, steps: int, ends: Sequence[str], *flags: str) -> Trace:
    """One life after the other over the same files, told as one trace."""
    with recorded(folder) as rec:
        for life, end in enumerate(ends):
            live(rec, seed, life, steps, end, *flags)
    return rec.trace


def count(trace: Trace, event: Event, path: str) -> int:
    return sum(path in (record.other or record.path) for record in trace.of(event))


def test_a_life_has_all_that_a_power_loss_may_meet(memory_path: Path) -> None:
    """Or the tests below would prove less than they say."""
    trace = lives(memory_path, seed=1, steps=500, ends=["close"])
    said = b"\n".join(trace.markers())
    for word in ("append", "loose", "settle", "take", "purge", "trim", "truncate", "delete"):
        assert said.count(b'"%s"' % word.encode()) > 3, word
    assert count(trace, Event.RENAME, "checkpoint") > 5
    assert count(trace, Event.RENAME, ".wal") > 8  # of 4: they went round
    assert count(trace, Event.CREATE, ".log") > 30
    assert count(trace, Event.UNLINK, ".log") > 3


@pytest.mark.parametrize(("model", "n"), [("ext4", 50), ("posix", 25), ("torn", 15)])
def test_whatever_the_disk_kept_the_promises_are_kept(
    memory_path: Path, model: str, n: int
) -> None:
    trace = lives(memory_path, seed=n, steps=350, ends=["close"])
    hold_all(crash_states(trace, seed=n, n=n, model=MODELS[model]), memory_path, OPTIONS)


@pytest.mark.parametrize(("model", "n"), [("ext4", 15), ("posix", 15)])
def test_a_kill_and_then_the_power(memory_path: Path, model: str, n: int) -> None:
    """A start believes what it reads in the page cache: it must not stay there only."""
    trace = lives(memory_path, seed=7, steps=120, ends=["kill", "kill", "exit"])
    hold_all(crash_states(trace, seed=7, n=n, model=MODELS[model]), memory_path, OPTIONS)


def test_the_power_goes_again_while_the_store_recovers(memory_path: Path) -> None:
    trace = lives(memory_path, seed=8, steps=250, ends=["close"])
    crash_twice(list(crash_states(trace, seed=8, n=6)), memory_path, n=4)


def test_a_slow_disk_meets_more_that_is_under_way(memory_path: Path) -> None:
    trace = lives(memory_path, 10, 250, ["close"], "slow")
    hold_all(crash_states(trace, seed=10, n=30), memory_path, OPTIONS)


def test_a_wal_that_is_written_past_the_page_cache(tmp_path: Path) -> None:
    trace = lives(tmp_path, 9, 150, ["exit"], "direct")
    hold_all(crash_states(trace, seed=9, n=12), tmp_path, OPTIONS)


def a_segment_trimmed_before_it_was_synced(life: Life) -> None:
    log = life.journal.create("q")
    life.journal.append(log, [100] * 5)
    life.journal.append_unlogged(log, [100])  # to the page cache, with all before it
    life.journal.confirm()
    life.until(lambda: log.stat().hot_batches == 0, "not written")
    life.journal.trim(log, log.stat().next_offset)
    life.journal.append(log, [100] * 5)
    life.journal.confirm()
    life.journal.settle(log, life.journal.take(log, 5))  # before they are written: they never are
    life.journal.append(log, [100] * 3)
    life.journal.confirm()
    life.store.checkpoint()
    life.journal.append(log, [100])
    life.journal.confirm()


def test_what_is_left_of_a_trimmed_segment_is_no_damage(memory_path: Path) -> None:
    outlive(a_segment_trimmed_before_it_was_synced, memory_path, crashes=40)


def logs_that_are_read_at_once(life: Life) -> None:
    life.faults.delay(Op.FDATASYNC, "wal/*.wal", seconds=0.005)
    for number in range(20):
        log = life.journal.create(f"q{number}")
        life.journal.append_unlogged(log, [100] * 3)
        life.until(functools.partial(life.journal.take, log, 3), "its records are not given out")


def test_no_reader_is_shown_an_offset_whose_lease_is_not_on_disk(memory_path: Path) -> None:
    outlive(logs_that_are_read_at_once, memory_path, crashes=40)


def transactions_beside_checkpoints(life: Life) -> None:
    """A checkpoint that knows of a transaction must not be on disk before it."""
    source, target = life.journal.create("source"), life.journal.create("target")
    life.journal.append(source, [100] * 10)
    life.journal.confirm()
    taken = life.journal.take(source, 10)
    life.faults.delay(Op.FDATASYNC, "wal/*.wal", seconds=0.02)
    for offset in taken:
        life.journal.append(target, [100])
        life.journal.confirm()
        late = life.faults.delay(Op.FDATASYNC, "vhosts/*.log", seconds=0.02)
        checkpoint = threading.Thread(target=life.store.checkpoint)
        checkpoint.start()
        life.until(functools.partial(lambda rule: rule.fired > 0, late), "nothing is synced")
        life.journal.transaction([(target, [200])], [(source, offset)])
        late.clear()
        checkpoint.join()
        life.journal.confirm()


def test_no_checkpoint_keeps_half_of_a_transaction(memory_path: Path) -> None:
    outlive(transactions_beside_checkpoints, memory_path, crashes=60)


def appends_beside_a_checkpoint(life: Life) -> None:
    """The WAL goes round only once the checkpoint that needs it no more is on disk."""
    log = life.journal.create("s", "stream")
    for _ in range(30):
        life.journal.append(log, [100_000])
    life.journal.confirm()
    late = life.faults.delay(Op.FSYNC, "checkpoint.tmp", seconds=0.3)
    checkpoint = threading.Thread(target=life.store.checkpoint)
    checkpoint.start()
    life.until(lambda: late.fired, "the checkpoint is not written")
    for _ in range(25):
        life.journal.append(log, [100_000])
        life.journal.confirm()
    checkpoint.join()


def test_no_wal_file_is_used_again_before_its_checkpoint_is_on_disk(memory_path: Path) -> None:
    outlive(appends_beside_a_checkpoint, memory_path, crashes=30)


def a_log_that_grows_again_where_it_was_cut(life: Life) -> None:
    log = life.journal.create("s", "stream")
    for _ in range(2):
        for _ in range(4):
            life.journal.append(log, [50_000] * 2)
        life.journal.confirm()
        life.store.checkpoint()
        life.journal.truncate(log, 0)
    for _ in range(4):  # the same offsets in other segments
        life.journal.append(log, [100] * 3)
        life.journal.confirm()
        life.store.checkpoint()


@pytest.mark.parametrize("model", MODELS)
def test_a_manifest_from_before_a_truncation_misses_nothing(memory_path: Path, model: str) -> None:
    outlive(a_log_that_grows_again_where_it_was_cut, memory_path, model=MODELS[model], crashes=25)


def a_log_in_a_folder_that_another_has_made(life: Life) -> None:
    first = life.journal.create("first")
    life.journal.append_unlogged(first, [100])  # to its file at once: all the folders are made
    life.until(lambda: first.stat().hot_batches == 0, "not written")
    log = life.journal.create("q")
    life.journal.append(log, [100] * 3)
    life.journal.append_unlogged(log, [100])
    life.journal.confirm()
    life.until(lambda: log.stat().hot_batches == 0, "not written")
    life.journal.delete(first)  # and with it whoever would have synced them
    life.store.checkpoint()
    life.journal.append(log, [100])
    life.journal.confirm()


def test_all_the_folders_of_a_log_are_on_disk_before_a_checkpoint_counts_on_it(
    memory_path: Path,
) -> None:
    outlive(a_log_in_a_folder_that_another_has_made, memory_path, model=POSIX, crashes=40)


def crash_twice(
    states: Sequence[CrashState], folder: Path, n: int, model: Model = EXT4, steps: int = 5
) -> None:
    for number, state in enumerate(states):
        place = folder / f"again-{number}"
        root = state.materialise(place / "data")
        with recorded(place, root=root) as rec:
            live(rec, seed=number, life=1, steps=steps, end="exit")
        again = crash_states(rec.trace, seed=number, n=n, model=model)
        try:
            hold_all(again, place, OPTIONS, before=state.markers)
        except Broken as error:
            raise Broken(f"{error}\nafter a first {state}") from error
        shutil.rmtree(place)


# -- the long run -----------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(1000, 1010))
def test_soak_one_life(memory_path: Path, seed: int, model: str) -> None:
    trace = lives(memory_path, seed=seed, steps=700, ends=["close"])
    hold_all(crash_states(trace, seed=seed, n=100, model=MODELS[model]), memory_path, OPTIONS)


@pytest.mark.soak
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(1500, 1505))
def test_soak_a_slow_disk(memory_path: Path, seed: int, model: str) -> None:
    trace = lives(memory_path, seed, 500, ["kill", "close"], "slow")
    hold_all(crash_states(trace, seed=seed, n=100, model=MODELS[model]), memory_path, OPTIONS)


@pytest.mark.soak
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(2000, 2006))
def test_soak_several_lives(memory_path: Path, seed: int, model: str) -> None:
    trace = lives(memory_path, seed=seed, steps=200, ends=["kill", "close", "exit", "kill"])
    hold_all(crash_states(trace, seed=seed, n=100, model=MODELS[model]), memory_path, OPTIONS)


@pytest.mark.soak
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(3000, 3004))
def test_soak_the_power_goes_twice(memory_path: Path, seed: int, model: str) -> None:
    trace = lives(memory_path, seed=seed, steps=300, ends=["close"])
    states = list(crash_states(trace, seed=seed, n=15, model=MODELS[model]))
    crash_twice(states, memory_path, n=8, model=MODELS[model], steps=20)
