"""What is wrong on disk is found, told with its place, and told apart from what is normal."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from ottermq.wal import LogOptions, Record, Store
from ottermq.wal.verify import NothingToVerify, Result, is_running, verify
from tests.wal.stopped_store import StoppedStore, fill, flip, overwrite
from tests.wal.stores import SMALL, die


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> StoppedStore:
    return fill(tmp_path_factory.mktemp("stopped") / "data")


@pytest.fixture
def stopped(whole: StoppedStore, tmp_path: Path) -> StoppedStore:
    return whole.copy(tmp_path / "data")


def problems(result: Result) -> list[str]:
    return [
        f"{each.path.name}{'' if each.position is None else f'@{each.position}'}: {each.what}"
        for each in result.findings
        if each.is_problem
    ]


def notes(result: Result) -> list[str]:
    return [f"{each.path.name}: {each.what}" for each in result.findings if not each.is_problem]


def test_a_clean_directory_is_all_well(whole: StoppedStore) -> None:
    result = verify(whole.data)
    assert list(result.findings) == []
    counts = {log.name: (log.batches, log.records) for log in result.logs}
    assert counts == {"orders": (30, 300), "clicks": (30, 30)}
    assert result.wal and result.wal.records == 0


def test_looking_changes_nothing(stopped: StoppedStore) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.stat().st_size)
            for path in stopped.data.rglob("*")
        }

    before = state()
    verify(stopped.data)
    assert state() == before


def test_one_logs_folder_can_be_checked_alone(whole: StoppedStore) -> None:
    result = verify(whole.orders)
    assert list(result.findings) == []
    assert [log.records for log in result.logs] == [300]


def test_progress_adds_up_to_what_was_read(whole: StoppedStore) -> None:
    sizes: list[int] = []
    result = verify(whole.data, sizes.append)
    assert sum(sizes) == sum(log.size for log in result.logs) > 0


@pytest.mark.parametrize("place", [".", "vhosts"])
def test_another_folder_is_refused(tmp_path: Path, whole: StoppedStore, place: str) -> None:
    with pytest.raises(NothingToVerify):
        verify((tmp_path if place == "." else whole.data) / place)
    with pytest.raises(NothingToVerify):
        verify(whole.data / "meta.db")


def test_a_flipped_bit_is_found_with_its_batch_and_the_rest_is_read(stopped: StoppedStore) -> None:
    path = stopped.segments()[1]
    batch = 12 + int.from_bytes(path.read_bytes()[8:12])  # where the second one starts
    flip(path, batch + 1000)
    result = verify(stopped.data)
    [problem] = problems(result)
    assert problem.startswith(f"{path.name}@{batch}: ")
    assert "checksum" in problem
    assert {log.name: log.batches for log in result.logs}["orders"] == 29


@pytest.mark.parametrize("field", [8, 16, 23])
def test_a_damaged_header_is_found_and_the_batches_behind_it_too(
    stopped: StoppedStore, field: int
) -> None:
    path = stopped.segments()[0]
    flip(path, field)
    result = verify(stopped.data)
    [problem] = problems(result)
    assert problem.startswith(f"{path.name}@0: ")
    assert {log.name: log.batches for log in result.logs}["orders"] == 29


def test_a_sealed_segment_that_was_cut_is_found(stopped: StoppedStore) -> None:
    path = stopped.segments()[0]
    os.truncate(path, path.stat().st_size - 1)
    found = problems(verify(stopped.data))
    assert any("should be there" in problem for problem in found)


def test_a_segment_that_is_gone_is_missed(stopped: StoppedStore) -> None:
    stopped.segments()[0].unlink()
    [problem] = problems(verify(stopped.data))
    assert "missing: offsets 0 to" in problem


def test_the_active_segment_is_missed_as_well(stopped: StoppedStore) -> None:
    last = stopped.segments()[-1]
    last.unlink()
    [problem] = problems(verify(stopped.data))
    assert problem.startswith(f"{last.name}: missing")


def test_a_segment_from_elsewhere_is_found_by_its_offsets(stopped: StoppedStore) -> None:
    first, second, *_ = stopped.segments()
    shutil.copy(first, second)
    assert any(problem.startswith(second.name) for problem in problems(verify(stopped.data)))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: flip(path, 3),
        lambda path: flip(path, 11),
        lambda path: path.write_bytes(path.read_bytes() + b"\x7f" * 12),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: overwrite(path, 0, path.read_bytes()[12:24]),
    ],
)
def test_a_wrong_index_is_found(
    stopped: StoppedStore, suffix: str, damage: Callable[[Path], None]
) -> None:
    path = stopped.segments()[0].with_suffix(suffix)
    damage(path)
    [problem] = problems(verify(stopped.data))
    assert problem.startswith(path.name)


def test_a_missing_index_is_no_problem(stopped: StoppedStore) -> None:
    """It is made anew when somebody needs it."""
    stopped.segments()[0].with_suffix(".index").unlink()
    assert problems(verify(stopped.data)) == []


@pytest.mark.parametrize("position", [0, 20, 50, 200, -1])
def test_a_damaged_checkpoint_is_found(stopped: StoppedStore, position: int) -> None:
    path = stopped.data / "checkpoint"
    flip(path, position % path.stat().st_size)
    assert any(problem.startswith("checkpoint: ") for problem in problems(verify(stopped.data)))


def test_a_damaged_manifest_is_found(stopped: StoppedStore) -> None:
    flip(stopped.orders / "manifest", 30)
    [problem] = problems(verify(stopped.data))
    assert problem == "manifest: the manifest's checksum is wrong"


def test_a_damaged_catalogue_is_found(stopped: StoppedStore) -> None:
    (stopped.data / "meta.db").write_bytes(b"not a database" * 100)
    assert problems(verify(stopped.data)) == ["meta.db: file is not a database"]


def test_a_segment_set_aside_is_only_a_note(stopped: StoppedStore) -> None:
    (stopped.orders / "00000000000000000000.log.corrupt-1").write_bytes(b"?")
    result = verify(stopped.data)
    assert problems(result) == []
    assert notes(result) == ["00000000000000000000.log.corrupt-1: set aside by an earlier recovery"]


def test_what_a_trim_left_over_is_only_a_note_whatever_is_in_it(tmp_path: Path) -> None:
    stopped = fill(tmp_path / "data")
    first = stopped.segments()[0]
    raw = first.read_bytes()
    with Store.open(stopped.data, SMALL) as store:
        log = store.get("orders")
        log.trim(log.segments()[1].base_offset)
    first.write_bytes(raw[:-100])  # as if a crash had kept it from going
    result = verify(stopped.data)
    assert problems(result) == []
    assert notes(result) == [f"{first.name}: trimmed: about to go"]


def test_a_folder_that_no_log_has_is_only_a_note(stopped: StoppedStore) -> None:
    with sqlite3.connect(stopped.data / "meta.db") as db:
        db.execute("DELETE FROM logs WHERE name = 'clicks'")
    db.close()
    result = verify(stopped.data)
    assert problems(result) == []
    assert len(notes(result)) == 1 and "goes at the next start" in notes(result)[0]


# -- after a crash


def after_a_crash(data: Path) -> StoppedStore:
    """Half of it in a checkpoint, half after it in segments, more in the WAL alone."""

    def life(store: Store) -> None:
        log = store.create("orders", options=LogOptions(segment_size=65536))
        for i in range(24):
            store.wait(log.append([Record(bytes(1000))] * 10).seq)
            if i == 11:
                store.checkpoint()
            log.append([Record(bytes(100))], unlogged=True)  # makes the writer write
        while log.stat().written_offset < 200:
            pass

    die(data, life)
    return StoppedStore(data)


def test_what_a_crash_leaves_is_no_problem(memory_path: Path) -> None:
    stopped = after_a_crash(memory_path / "data")
    result = verify(stopped.data)
    assert problems(result) == []
    assert result.wal and result.wal.records > 0


def test_a_torn_tail_after_the_recovery_point_is_only_a_note(memory_path: Path) -> None:
    stopped = after_a_crash(memory_path / "data")
    path = stopped.segments()[-1]
    os.truncate(path, path.stat().st_size - 5)
    result = verify(stopped.data)
    assert problems(result) == []
    assert any("mended at the next start" in note for note in notes(result))
    with Store.open(stopped.data, SMALL):
        pass  # and so it is
    assert list(verify(stopped.data).findings) == []


def test_a_hole_in_the_wal_is_found(memory_path: Path) -> None:
    stopped = after_a_crash(memory_path / "data")
    used = list(stopped.data.glob("wal/0*.wal"))
    last = max(used, key=lambda path: path.name)
    raw = last.read_bytes()
    position = raw.index(b"\0" * 1000, 8192)  # inside a group that others follow
    flip(last, position)
    [problem] = problems(verify(stopped.data))
    assert problem.startswith("wal: WAL sequences") and "missing" in problem


# -- beside a running store


def test_a_store_at_work_is_no_problem(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Store.open(data, SMALL) as store:
        log = store.create("orders", options=LogOptions(segment_size=65536))
        for i in range(60):
            done = log.append([Record(bytes(1000))] * 10)
            if i % 4 == 3:
                store.wait(done.seq)
                store.checkpoint()
                log.trim(max(0, done.first_offset - 100))
                assert problems(verify(data)) == []


def test_whether_a_broker_holds_the_directory_is_seen(tmp_path: Path) -> None:
    from ottermq.process.lockfile import claim

    assert not is_running(tmp_path)
    with claim(tmp_path):
        assert is_running(tmp_path)
    assert not is_running(tmp_path)
