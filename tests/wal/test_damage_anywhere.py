"""A random flaw in a random file: a bit, a sector of zeros, a cut; before a run or during it.

Whatever it hits, the store starts, serves each record that is whole exactly once and as it was,
tells of the others, and keeps the file.
"""

import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottermq.wal import LogFlags, ReportKind, Store
from ottermq.wal.errors import StorageFailure, Unreadable
from tests.wal.stores import die, flush, numbered, put, small

OPTIONS = small(segment_size=20_000)
COUNT = 120
SECTOR = 512
LOSSES = (ReportKind.CORRUPT, ReportKind.UNREADABLE)


def fill(data: Path, flags: LogFlags) -> None:
    with Store.open(data, OPTIONS) as store:
        log = store.create("q", flags=flags)
        for number in range(COUNT):
            put(store, log, numbered(1, number, size=700))
        flush(store)


WAYS = ("bit", "zeros", "cut")


def harm(path: Path, chance: random.Random, ways: Sequence[str] = WAYS) -> str:
    size = path.stat().st_size
    at = chance.randrange(size)
    how = chance.choice(ways)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        if how == "bit":
            file.write(bytes([byte ^ 1 << chance.randrange(8)]))
        elif how == "zeros":
            file.write(bytes(min(SECTOR, size - at)))
    if how == "cut":
        os.truncate(path, at)
    return f" {how} at {at} of {size} in {path.name}"


def read_all(store: Store) -> tuple[list[int], set[int]]:
    """Offsets of what was read, and what was refused."""
    log = store.get("q")
    found: list[int] = []
    refused: set[int] = set()
    at = log.stat().start_offset
    while at < COUNT:
        try:
            batches = log.read(at, max_bytes=1)
        except Unreadable as error:
            refused |= set(range(at, error.next_offset))
            assert error.next_offset > at
            at = error.next_offset
            continue
        if not batches:
            break
        for batch in batches:
            for record in batch.records():
                assert record.value is not None
                assert int(record.value.split(b".")[0] or b"-1") == record.offset
                found.append(record.offset)
            at = batch.last_offset + 1
    return found, refused


def check(place: Path, data: Path, seed: int) -> None:
    chance = random.Random(seed)
    target = place / str(seed)
    shutil.copytree(data, target)
    files = sorted(path for path in target.glob("vhosts/*/queues/*/*") if path.stat().st_size)
    victim = chance.choice(files)
    what = f"seed {seed}:{harm(victim, chance)}"
    told: set[int] = set()
    with Store.open(target, OPTIONS) as store:
        found, refused = read_all(store)
        for report in store.reports():
            if report.kind in LOSSES:
                told |= set(range(report.first_offset, report.last_offset + 1))
    missing = set(range(COUNT)) - set(found)
    assert len(found) == len(set(found)), what
    assert missing <= told, (what, missing, told)
    assert len(missing) <= 2 or " cut " in what, (what, missing)  # a sector may touch two batches
    assert refused <= told, (what, refused, told)
    if victim.suffix == ".log":
        assert victim.exists() or list(victim.parent.glob(f"{victim.name}.corrupt-*")), what
    else:
        assert not missing, (what, missing)
    shutil.rmtree(target)


@pytest.mark.parametrize("flags", [LogFlags(0), LogFlags.NO_CURSOR], ids=["queue", "stream"])
def test_a_flaw_anywhere_costs_what_it_hits(tmp_path: Path, flags: LogFlags) -> None:
    fill(tmp_path / "data", flags)
    for seed in range(30):
        check(tmp_path, tmp_path / "data", seed)


@pytest.mark.soak
@pytest.mark.parametrize("flags", [LogFlags(0), LogFlags.NO_CURSOR], ids=["queue", "stream"])
def test_a_flaw_anywhere_again_and_again(tmp_path: Path, flags: LogFlags) -> None:
    fill(tmp_path / "data", flags)
    for seed in range(1000, 6000):
        check(tmp_path, tmp_path / "data", seed)


# -- under a running store ----------------------------------------------------------------------


def check_running(place: Path, data: Path, seed: int) -> None:
    chance = random.Random(seed)
    target = place / str(seed)
    shutil.copytree(data, target)
    with Store.open(target, OPTIONS) as store:
        if chance.random() < 0.5:
            read_all(store)  # mapped, and in the caches
        segments = sorted(target.glob("vhosts/*/queues/*/*.log"))
        indexes = sorted(target.glob("vhosts/*/queues/*/*index"))
        victim = chance.choice(segments if chance.random() < 0.7 else indexes)
        what = f"seed {seed}:{harm(victim, chance)}"
        found, refused = read_all(store)
        again, _ = read_all(store)
        told = {
            offset
            for report in store.reports()
            if report.kind in LOSSES
            for offset in range(report.first_offset, report.last_offset + 1)
        }
    assert found == again, what
    missing = set(range(COUNT)) - set(found)
    assert len(found) == len(set(found)), what
    assert missing <= refused <= told, (what, missing, refused, told)
    assert len(missing) <= 2 or " cut " in what, (what, missing)
    assert victim in segments or not missing, (what, missing)
    assert victim in indexes or victim.exists(), what
    shutil.rmtree(target)


@pytest.mark.parametrize("flags", [LogFlags(0), LogFlags.NO_CURSOR], ids=["queue", "stream"])
def test_a_flaw_under_a_running_store_costs_what_it_hits(tmp_path: Path, flags: LogFlags) -> None:
    fill(tmp_path / "data", flags)
    for seed in range(30):
        check_running(tmp_path, tmp_path / "data", seed)


@pytest.mark.soak
@pytest.mark.parametrize("flags", [LogFlags(0), LogFlags.NO_CURSOR], ids=["queue", "stream"])
def test_a_flaw_under_a_running_store_again_and_again(tmp_path: Path, flags: LogFlags) -> None:
    fill(tmp_path / "data", flags)
    for seed in range(1000, 6000):
        check_running(tmp_path, tmp_path / "data", seed)


# -- in any file of a store that was killed: WAL, checkpoint, marks, records of removals ---------


def live(store: Store) -> None:
    log = store.create("q")
    for number in range(COUNT):
        put(store, log, numbered(1, number, size=700))
        if number == COUNT // 2:
            flush(store)


def check_killed(place: Path, data: Path, seed: int) -> None:
    """What the WAL alone has is lost where the WAL is spoilt: that is told, but for its very last
    groups (a sector may touch two), which look as if they had never been written whole. A WAL that
    ends early looks so, too: it isn't cut here."""
    chance = random.Random(seed)
    target = place / str(seed)
    shutil.copytree(data, target)
    files = [path for path in target.rglob("*") if path.is_file() and path.stat().st_size]
    victim = chance.choice(sorted(path for path in files if not path.name.startswith("meta.db")))
    ways = ("bit", "zeros") if victim.suffix == ".wal" else WAYS
    what = f"seed {seed}:{harm(victim, chance, ways)}"
    try:
        store = Store.open(target, OPTIONS)
    except StorageFailure:
        assert victim.name == "checkpoint", what
        shutil.rmtree(target)
        return
    with store:
        found, _ = read_all(store)
        reports = store.reports()
    missing = set(range(COUNT)) - set(found)
    has_hole = any(report.kind is ReportKind.WAL_HOLE for report in reports)
    told: set[int] = set()
    for report in reports:
        if report.kind in LOSSES:
            told |= set(range(report.first_offset, report.last_offset + 1))
    in_wal = victim.suffix == ".wal" and (has_hole or missing <= {COUNT - 2, COUNT - 1})
    assert missing <= told or in_wal and min(missing) > COUNT // 2, (what, missing, told, reports)
    shutil.rmtree(target)


def test_a_flaw_in_any_file_of_a_killed_store_is_told(tmp_path: Path) -> None:
    die(tmp_path / "data", live, OPTIONS)
    for seed in range(40):
        check_killed(tmp_path, tmp_path / "data", seed)


@pytest.mark.soak
def test_a_flaw_in_any_file_of_a_killed_store_again_and_again(tmp_path: Path) -> None:
    die(tmp_path / "data", live, OPTIONS)
    for seed in range(1000, 6000):
        check_killed(tmp_path, tmp_path / "data", seed)
