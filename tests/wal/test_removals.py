"""The record of what is gone: no segment leaves without it, whatever is killed when."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ottermq.wal import Log, LogFlags, LogOptions, Record, RemovalReason, Store, removals
from ottermq.wal.compaction import Codecs, Compaction
from ottermq.wal.removals import Bad, History, Removal
from tests.examples import shortened
from tests.wal.stopped_store import flip
from tests.wal.stores import SMALL, die, flush, folder_of, put, segment_files, until

PAGE = LogOptions(segment_size=4096)
NO_CODECS = Codecs(lambda codec, data: data, lambda codec, data: data)


def filled(store: Store, name: str = "orders", flags: LogFlags = LogFlags.NO_CURSOR) -> Log:
    """Five segments of four records, and an active one."""
    log = store.create(name, flags=flags, options=PAGE)
    for n in range(21):
        put(store, log, [Record(bytes(900), b"k%d" % (n % 3), timestamp=n * 10)])
    flush(store)
    return log


def ranges(history: History, rule: RemovalReason) -> list[tuple[int, int]]:
    return [(each.first, each.next) for each in history.removals if each.rule is rule]


def test_a_removal_says_what_when_and_why(store: Store) -> None:
    log = filled(store)
    first, second, *_ = log.segments()
    before = int(time.time() * 1000)
    log.trim(second.base_offset, RemovalReason.MAX_AGE)
    flush(store)
    [removal] = removals.load(store.data).removals
    assert before <= removal.time <= time.time() * 1000
    assert removal == Removal(
        seq=2, time=removal.time, log_id=log.id, segment=0, first=0, next=first.next_offset,
        bytes=first.size, left=0, first_timestamp=0, max_timestamp=30, rule=RemovalReason.MAX_AGE,
        folder=str(folder_of(store, log).relative_to(store.data)), name="orders",
    )  # fmt: skip
    assert removal.vhost == "/"


def test_a_file_goes_only_behind_its_record(store: Store) -> None:
    log = filled(store)
    files = segment_files(store, log)
    log.trim(20, RemovalReason.SETTLED)
    while files:
        gone = [path for path in files if not path.exists()]
        recorded = {each.segment for each in removals.load(store.data).removals}
        assert {int(path.stem) for path in gone} <= recorded
        files = [path for path in files if path not in gone and int(path.stem) < 20]


def test_each_way_to_go_has_its_rule(store: Store) -> None:
    trimmed, cut, deleted = (filled(store, name) for name in ("trimmed", "cut", "deleted"))
    queue = filled(store, "queue", LogFlags(0))
    for at, rule in (
        (4, RemovalReason.MAX_AGE),
        (8, RemovalReason.MAX_SIZE),
        (12, RemovalReason.DELETE_RECORDS),
    ):
        trimmed.trim(at, rule)
    cut.truncate(14)
    store.delete(deleted)
    queue.purge()
    flush(store)
    until(lambda: not list(store.data.glob(f"vhosts/*/queues/*.{deleted.id}")))
    history = removals.load(store.data)
    assert ranges(history, RemovalReason.MAX_AGE) == [(0, 4)]
    assert ranges(history, RemovalReason.MAX_SIZE) == [(4, 8)]
    assert ranges(history, RemovalReason.DELETE_RECORDS) == [(8, 12)]
    assert sorted(ranges(history, RemovalReason.TRUNCATE)) == [(14, 16), (16, 20), (20, 21)]
    assert ranges(history, RemovalReason.DELETE) == [
        (0, 4),
        (4, 8),
        (8, 12),
        (12, 16),
        (16, 20),
        (20, 21),
    ]
    assert ranges(history, RemovalReason.PURGE) == [(0, 21)]
    assert history.problems == ()


def test_compaction_says_what_it_made_smaller(store: Store) -> None:
    log = filled(store)
    before = {each.base_offset: each.size for each in log.segments()}
    Compaction(log, now_ms=0, delete_retention_ms=0, codecs=NO_CODECS).run(0, 20)
    smaller = {each.base_offset: each.size for each in log.segments()}
    history = removals.load(store.data)
    assert {each.rule for each in history.removals} == {RemovalReason.COMPACTION}
    found = {each.segment: (each.bytes, each.left) for each in history.removals}
    # What was merged into the one before has no file of its own any more.
    changed = {base: (size, smaller.get(base, 0)) for base, size in before.items()}
    changed = {base: sizes for base, sizes in changed.items() if sizes[0] != sizes[1]}
    assert found == changed and changed
    assert sum(left == 0 for _, left in found.values()) == len(before) - len(smaller) > 0


def test_many_segments_are_one_write_and_one_sync(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", SMALL) as store:
        for n in range(40):
            log = filled(store, f"q{n}") if n < 4 else store.create(f"q{n}")
            log.trim(log.stat().next_offset, RemovalReason.MAX_AGE)
        store.checkpoint()
        times = {each.time for each in removals.load(store.data).removals}
        assert len(removals.load(store.data).removals) == 24
    assert len(times) <= 8  # checkpoints that the trims themselves brought on, not segments


def test_a_queue_that_isnt_durable_leaves_no_record(store: Store) -> None:
    log = filled(store, "passing", LogFlags.SCRATCH)
    log.trim(20, RemovalReason.SETTLED)
    store.delete(log)
    flush(store)
    assert removals.load(store.data).removals == ()


# -- crashes


def test_a_removal_that_a_kill_interrupts_is_recorded_and_finished(tmp_path: Path) -> None:
    data = tmp_path / "data"

    def life(store: Store) -> None:
        log = filled(store)
        store.wait(log.trim(12, RemovalReason.DELETE_RECORDS))

    die(data, life)
    with Store.open(data, SMALL) as store:
        flush(store)
        until(lambda: len(segment_files(store, store.get("orders"))) == 3)
    assert ranges(removals.load(data), RemovalReason.DELETE_RECORDS) == [(0, 4), (4, 8), (8, 12)]


def test_what_no_checkpoint_names_is_recorded_before_the_next_start_removes_it(
    tmp_path: Path,
) -> None:
    """As a disk without room for the record, and then a kill, would leave it."""
    data = tmp_path / "data"
    with Store.open(data, SMALL) as store:
        log = filled(store)
        kept = segment_files(store, log)[0]
        shutil.copy(kept, tmp_path / "kept")
        log.trim(4, RemovalReason.MAX_AGE)
    shutil.copy(tmp_path / "kept", kept)
    shutil.rmtree(data / "removals")
    (data / "removals").mkdir()
    with Store.open(data, SMALL) as store:
        flush(store)
        until(lambda: not kept.exists())
    assert ranges(removals.load(data), RemovalReason.MAX_AGE) == [(0, 4)]


def test_a_deletion_that_was_cut_short_is_recorded(tmp_path: Path) -> None:
    """The row is gone, the files are not: what a kill between the two leaves."""
    data = tmp_path / "data"
    with Store.open(data, SMALL) as store:
        folder = folder_of(store, filled(store, "a b"))
    with Store.open(data, SMALL) as store:
        shutil.copytree(folder, tmp_path / "kept")
        store.delete(store.get("a b"))
        until(lambda: not folder.exists())
    shutil.copytree(tmp_path / "kept", folder)
    (data / "removals" / "0000000000000001.removals").unlink()
    Store.open(data, SMALL).close()
    assert not folder.exists()
    found = removals.load(data).removals
    assert {(each.log_id, each.name, each.rule) for each in found} == {
        (1, "a b", RemovalReason.ORPHAN)
    }
    assert [each.next for each in found] == [4, 8, 12, 16, 20, 21]
    assert found[-1].max_timestamp == 200


def test_a_segment_that_somebody_removed_is_named_as_missing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Store.open(data, SMALL) as store:
        files = segment_files(store, filled(store))
    files[1].unlink()
    flip(files[3], 100)
    with Store.open(data, SMALL) as store:
        flush(store)
    Store.open(data, SMALL).close()
    history = removals.load(data)
    assert ranges(history, RemovalReason.MISSING) == [(4, 8)]
    assert ranges(history, RemovalReason.SET_ASIDE) in (
        [],
        [(12, 16)],
    )  # found when it is read, at the latest


def test_what_went_before_there_was_a_record_is_named_as_such(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Store.open(data, SMALL) as store:
        filled(store).trim(8)
    shutil.rmtree(data / "removals")
    Store.open(data, SMALL).close()
    assert ranges(removals.load(data), RemovalReason.BEFORE) == [(0, 8)]


CHILD = """
import sys, random
from pathlib import Path
from ottermq.wal import LogFlags, LogOptions, Record, RemovalReason, Store
from tests.wal.stores import SMALL, put
store = Store.open(Path(sys.argv[1]), SMALL)
dice = random.Random(int(sys.argv[2]))
logs = []
print("up", flush=True)
while True:
    if len(logs) < 4:
        name = f"log{dice.random()}"
        page = LogOptions(segment_size=4096)
        logs.append(store.create(name, flags=LogFlags.NO_CURSOR, options=page))
    log = dice.choice(logs)
    put(store, log, [Record(bytes(900))] * dice.randint(1, 9))
    store.checkpoint()
    print(log.id, log.stat().next_offset, flush=True)
    stat = log.stat()
    if dice.random() < 0.5:
        log.trim(dice.randint(stat.start_offset, stat.next_offset), RemovalReason.MAX_SIZE)
    elif dice.random() < 0.2:
        store.delete(log)
        logs.remove(log)
"""


@pytest.mark.parametrize("seed", shortened(range(6), 2))
def test_whatever_is_killed_when_each_segment_is_on_disk_or_in_the_record(
    tmp_path: Path, seed: int
) -> None:
    data = tmp_path / "data"
    command = [sys.executable, "-c", CHILD, str(data), str(seed)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as child:
        assert child.stdout
        child.stdout.readline(), child.stdout.readline()  # it is up, and at work
        time.sleep(random.Random(seed).uniform(0.3, 1.5))
        os.kill(child.pid, signal.SIGKILL)
        ends = {int(id): int(end) for id, end in (line.split() for line in child.stdout)}
    for _ in range(2):
        history = removals.load(data)
        assert history.problems == ()
        for id, end in ends.items():
            on_disk = [(int(path.stem)) for path in data.glob(f"vhosts/*/queues/*.{id}/*.log")]
            gone = [(r.segment, r.next) for r in history.removals if r.log_id == id]
            known = {base for base, _ in gone} | set(on_disk)
            assert 0 in known
            # A recorded segment's end is where the next one begins: nothing is between them.
            for _, after in gone:
                assert after in known or after >= end, (id, after, sorted(known))
        with Store.open(data, SMALL) as store:
            until(lambda: not _both(data))
            alive = {log.id for log in store}
        assert not [
            id for id in ends if id not in alive and list(data.glob(f"vhosts/*/queues/*.{id}"))
        ]


def _both(data: Path) -> set[tuple[int, int]]:
    """Segments that are on disk and in the record: none, once the store had time."""
    gone = {(each.log_id, each.segment) for each in removals.load(data).removals}
    files = data.glob("vhosts/*/queues/*.*/*.log")
    return gone & {(int(path.parent.suffix[1:]), int(path.stem)) for path in files}


# -- the files themselves


FIRST = 16 + 96  # behind the header and the record that a life began


def recorded(data: Path, count: int) -> Path:
    with Store.open(data, SMALL) as store:
        log = filled(store)
        for n in range(count):
            log.trim(4 * (n + 1), RemovalReason.MAX_AGE)
            flush(store)
    [path] = (data / "removals").iterdir()
    return path


def test_a_torn_end_is_no_problem_and_never_written_behind(tmp_path: Path) -> None:
    path = recorded(tmp_path / "data", 3)
    raw = path.read_bytes()
    path.write_bytes(raw[:-20])
    with Store.open(tmp_path / "data", SMALL) as store:
        store.get("orders").trim(16, RemovalReason.MAX_AGE)
    assert path.read_bytes() == raw[:-20]
    history = removals.load(tmp_path / "data")
    assert ranges(history, RemovalReason.MAX_AGE) == [(0, 4), (4, 8), (12, 16)]
    assert [each.seq for each in history.removals] == [2, 3, 5] and history.problems == ()


def test_a_spoilt_record_is_found_and_those_behind_it_are_read(tmp_path: Path) -> None:
    path = recorded(tmp_path / "data", 3)
    size = (path.stat().st_size - FIRST) // 3
    flip(path, FIRST + size + 40)
    history = removals.load(tmp_path / "data")
    assert [each.seq for each in history.removals] == [2, 4]
    assert any("damaged" in each for each in history.problems)
    assert any("records 3 to 3" in each for each in history.problems)
    with Store.open(tmp_path / "data", SMALL) as store:
        store.get("orders").trim(16, RemovalReason.MAX_AGE)
    assert [each.seq for each in removals.load(tmp_path / "data").removals] == [2, 4, 6]


def test_records_that_were_taken_out_are_missed(tmp_path: Path) -> None:
    path = recorded(tmp_path / "data", 3)
    raw = path.read_bytes()
    size = (len(raw) - FIRST) // 3
    path.write_bytes(raw[: FIRST + size] + raw[FIRST + 2 * size :])
    assert removals.load(tmp_path / "data").problems == (
        "records 3 to 3 of removed segments are missing",
    )


@pytest.mark.parametrize("raw", [b"", b"OTTER", b"OTTERRMV\1\0\0\0\0\0\0\0"])
def test_a_file_that_was_only_begun_holds_nothing(raw: bytes) -> None:
    assert list(removals.parse(raw)) == []


def test_any_bytes_can_be_read(tmp_path: Path) -> None:
    raw = recorded(tmp_path / "data", 2).read_bytes()
    dice = random.Random(7)
    for _ in range(300):
        spoilt = bytearray(raw)
        for _ in range(dice.randint(1, 8)):
            spoilt[dice.randrange(16, len(raw))] = dice.randrange(256)
        found = list(removals.parse(bytes(spoilt[: dice.randrange(16, len(raw) + 1)])))
        assert all(isinstance(each, Bad | Removal) for each in found)


def test_the_files_are_bounded_and_say_what_went_with_them(tmp_path: Path) -> None:
    options = replace(SMALL, removals_file_size=200)  # a record or two a file
    with Store.open(tmp_path / "data", options) as store:
        log = store.create("orders", flags=LogFlags.NO_CURSOR, options=PAGE)
        for n in range(80):
            put(store, log, [Record(bytes(900))] * 4)
            log.trim(4 * n, RemovalReason.MAX_AGE)
            store.checkpoint()
        last = log.stat().start_offset
    folder = tmp_path / "data" / "removals"
    assert len(list(folder.iterdir())) <= 33
    history = removals.load(tmp_path / "data")
    assert history.problems == ()
    dropped = ranges(history, RemovalReason.DROPPED)
    assert dropped and dropped[0][0] == 1
    assert ranges(history, RemovalReason.MAX_AGE)[-1][1] == last
    next(iter(sorted(folder.iterdir()))).unlink()
    assert removals.load(tmp_path / "data").problems
