"""Real programs, right and wrong: the simulator must clear the ones and catch the others."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.faults.powerloss import EXT4, POSIX, CrashState, Model, crash_states
from tests.faults.shim import recorded

PREAMBLE = """
import os, threading
os.chdir(os.environ["OTTERMQ_SHIM_ROOT"])
mark_fd = os.open(os.environ["OTTERMQ_SHIM_MARK"], os.O_WRONLY)
folder = os.open(".", os.O_RDONLY)
def mark(number):
    os.write(mark_fd, b"%d" % number)
def new(name):
    return os.open(name, os.O_CREAT | os.O_RDWR, 0o644)
"""

Promise = Callable[[dict[str, bytes], int], bool]


def broken_promises(
    tmp_path: Path, program: str, kept: Promise, n: int = 200, model: Model = EXT4
) -> list[CrashState]:
    """The crashes after which the folder isn't what had been promised by the last marker."""
    with recorded(tmp_path) as rec:
        rec.run([sys.executable, "-c", PREAMBLE + program])
    assert rec.trace.markers()
    return [
        state
        for state in crash_states(rec.trace, seed=1, n=n, model=model)
        if not kept(state.files(), int(state.markers[-1]) if state.markers else -1)
    ]


def lines(*kept: str) -> str:
    return "\n".join(kept)


REPLACE = (
    "for number in range(20):",
    "    fd = new('tmp')",
    "    os.write(fd, b'%04d' % number * 2000)",
    "    os.fsync(fd)",
    "    os.rename('tmp', 'file')",
    "    os.fsync(folder)",
    "    mark(number)",
)


def a_whole_version_not_older(files: dict[str, bytes], promised: int) -> bool:
    if "file" not in files:
        return promised < 0
    version = files["file"][:4]
    return files["file"] == version * 2000 and version.isdigit() and int(version) >= promised


def test_an_atomic_replace_never_loses_both_versions(tmp_path: Path) -> None:
    for model in (EXT4, POSIX, Model(torn_sectors=True)):
        folder = tmp_path / str(id(model))
        folder.mkdir()
        program = lines(*REPLACE)
        assert not broken_promises(folder, program, a_whole_version_not_older, model=model)


@pytest.mark.parametrize(
    "without", ["    os.fsync(fd)", "    os.fsync(folder)"], ids=["file", "folder"]
)
def test_a_replace_without_one_of_its_syncs_is_caught(tmp_path: Path, without: str) -> None:
    program = lines(*(line for line in REPLACE if line != without))
    assert broken_promises(tmp_path, program, a_whole_version_not_older, n=60)


def test_a_replace_in_place_is_caught(tmp_path: Path) -> None:
    program = """
fd = new("file")
for number in range(20):
    os.pwrite(fd, b"%04d" % number * 2000, 0)
    os.fsync(fd)
    os.fsync(folder)
    mark(number)
"""
    assert broken_promises(tmp_path, program, a_whole_version_not_older, n=60)


def appends(*steps: str) -> str:
    return lines(
        "fd = new('log')",
        "os.fsync(folder)",
        "def write(): os.write(fd, b'%08d' % number * 40)",
        "for number in range(40):",
        *(f"    {step}" for step in steps),
    )


def every_record(files: dict[str, bytes], promised: int) -> bool:
    expected = b"".join(b"%08d" % number * 40 for number in range(promised + 1))
    return files.get("log", b"").startswith(expected)


def test_an_append_that_is_synced_before_it_is_confirmed_is_never_lost(tmp_path: Path) -> None:
    program = appends("write()", "os.fdatasync(fd)", "mark(number)")
    assert not broken_promises(tmp_path, program, every_record)


@pytest.mark.parametrize(
    "steps",
    [
        ("write()", "mark(number)"),
        ("os.fdatasync(fd)", "write()", "mark(number)"),
        ("write()", "mark(number)", "os.fdatasync(fd)"),
        ("write()", "os.fdatasync(fd) if number % 8 else None", "mark(number)"),
        ("write()", "os.fsync(folder)", "mark(number)"),
    ],
    ids=["no sync", "too early", "too late", "now and then", "the wrong descriptor"],
)
def test_an_append_confirmed_without_its_sync_is_caught(
    tmp_path: Path, steps: Iterable[str]
) -> None:
    assert broken_promises(tmp_path, appends(*steps), every_record, n=60)


def test_a_sync_that_was_already_running_is_no_excuse_to_confirm(tmp_path: Path) -> None:
    program = """
from tests.faults.rules import Faults, Op
fd = new("log")
os.fsync(folder)
faults = Faults.from_environment()
for number in range(8):
    late = faults.delay(Op.FDATASYNC, "log", seconds=0.02)
    syncer = threading.Thread(target=os.fdatasync, args=[fd])
    syncer.start()
    while not late.fired:
        pass
    os.write(fd, b"%08d" % number * 40)
    syncer.join()
    late.clear()
    mark(number)
"""
    assert broken_promises(tmp_path, program, every_record, n=60)


def test_a_sync_tried_again_after_it_failed_is_caught(tmp_path: Path) -> None:
    program = """
from tests.faults.rules import Faults, Op
fd = new("log")
os.fsync(folder)
Faults.from_environment().fail(Op.FDATASYNC, "log", skip=3, times=1)
for number in range(20):
    os.write(fd, b"%08d" % number * 40)
    for attempt in range(2):
        try:
            os.fdatasync(fd)
            break
        except OSError:
            pass
    mark(number)
"""
    caught = broken_promises(tmp_path, program, every_record, n=60)
    assert caught
    assert all(b"3" in state.markers for state in caught)


def two_files(*steps: str) -> str:
    return lines(
        "data, index = new('data'), new('index')",
        "os.fsync(folder)",
        "for number in range(20):",
        "    record = (b'%04d' % number) * 300",
        *(f"    {step}" for step in steps),
        "    mark(number)",
    )


WRITE_DATA, SYNC_DATA = "os.write(data, record)", "os.fdatasync(data)"
WRITE_INDEX, SYNC_INDEX = "os.write(index, b'%04d' % number)", "os.fdatasync(index)"


def the_index_knows_only_what_is_there(files: dict[str, bytes], promised: int) -> bool:
    index, data = files.get("index", b""), files.get("data", b"")
    known = [index[at : at + 4] for at in range(0, len(index), 4)]
    written = [number for number in known if number != bytes(4)]
    return len(written) > promised and all(
        data[int(number) * 1200 :][:1200] == number * 300 for number in written
    )


def test_an_index_written_after_its_data_is_safe_points_at_what_is_there(tmp_path: Path) -> None:
    program = two_files(WRITE_DATA, SYNC_DATA, WRITE_INDEX, SYNC_INDEX)
    assert not broken_promises(tmp_path, program, the_index_knows_only_what_is_there)


@pytest.mark.parametrize(
    "steps",
    [
        (WRITE_INDEX, SYNC_INDEX, WRITE_DATA, SYNC_DATA),
        (WRITE_DATA, WRITE_INDEX, SYNC_INDEX, SYNC_DATA),
        (WRITE_DATA, WRITE_INDEX, SYNC_DATA, SYNC_INDEX),
    ],
    ids=["index first", "index synced first", "index before the data's sync"],
)
def test_two_files_written_in_the_wrong_order_are_caught(
    tmp_path: Path, steps: Iterable[str]
) -> None:
    program = two_files(*steps)
    assert broken_promises(tmp_path, program, the_index_knows_only_what_is_there)


def test_removing_the_old_file_before_the_new_one_is_safe_is_caught(tmp_path: Path) -> None:
    program = """
for number in range(10):
    fd = new(f"{number}.log")
    os.write(fd, b"%04d" % number * 500)
    os.fsync(fd)
    if number:
        os.unlink(f"{number - 1}.log")
    os.fsync(folder)
    mark(number)
"""

    def one_is_whole(files: dict[str, bytes], promised: int) -> bool:
        return promised < 0 or any(
            content == f"{int(name[:-4]):04}".encode() * 500 for name, content in files.items()
        )

    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.mkdir()
    wrong.mkdir()
    assert not broken_promises(right, program, one_is_whole)
    assert broken_promises(wrong, program.replace("os.fsync(fd)", ""), one_is_whole, n=60)
