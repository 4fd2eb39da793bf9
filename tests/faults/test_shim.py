"""The shim tells the whole truth about a program, and fails exactly what it was told to."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.powerloss import UntracedChange, crash_states
from tests.faults.rules import RULES, Op
from tests.faults.shim import Recording, recorded
from tests.faults.trace import Event, SyncKind

PREAMBLE = """
import errno, os, sys
os.chdir(os.environ["OTTERMQ_SHIM_ROOT"])
mark = os.open(os.environ["OTTERMQ_SHIM_MARK"], os.O_WRONLY)
def attempt(call, *args):
    try:
        return call(*args)
    except OSError as error:
        return errno.errorcode[error.errno]
def new(name, flags=0):
    return os.open(name, os.O_CREAT | os.O_RDWR | flags, 0o644)
"""


@pytest.fixture
def rec(tmp_path: Path) -> Iterator[Recording]:
    with recorded(tmp_path) as recording:
        yield recording


def run(rec: Recording, program: str) -> str:
    return rec.run([sys.executable, "-c", PREAMBLE + program]).stdout


def on_disk(root: Path) -> dict[str, bytes]:
    return {
        os.fspath(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


def replayed(rec: Recording) -> dict[str, bytes]:
    """The folder as the trace tells it, with nothing lost."""
    trace = rec.trace
    (state,) = crash_states(trace, seed=0, n=1, styles=["everything"])
    assert state.index == len(trace)
    return state.files()


# -- the trace --


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_random_program_replayed_gives_the_folder_it_left(rec: Recording, seed: int) -> None:
    run(
        rec,
        f"import random\nrng = random.Random({seed})"
        """
names = [f"{folder}{name}" for folder in ("", "a/", "a/b/") for name in "xyz"]
os.makedirs("a/b")
files = [new(name, rng.choice((0, os.O_APPEND, os.O_DSYNC))) for name in names]
def data():
    return rng.choice((rng.randbytes(rng.randrange(1, 9000)), bytes(rng.randrange(1, 9000))))
def step():
    fd, other = rng.choice(files), rng.choice(files)
    match rng.randrange(20):
        case 0: os.write(fd, data())
        case 1: os.pwrite(fd, data(), rng.randrange(100_000))
        case 2: os.writev(fd, [data(), b"", data()])
        case 3: os.pwritev(fd, [data(), data()], rng.randrange(100_000))
        case 4: os.pwritev(fd, [data()], rng.randrange(100_000), os.RWF_DSYNC)
        case 5: os.ftruncate(fd, rng.randrange(100_000))
        case 6: os.posix_fallocate(fd, rng.randrange(100_000), rng.randrange(1, 100_000))
        case 7: os.lseek(fd, rng.randrange(10_000), os.SEEK_SET)
        case 8: os.fdatasync(fd)
        case 9: os.copy_file_range(fd, other, 5000, rng.randrange(9000), rng.randrange(9000))
        case 10: os.sendfile(fd, other, 0, 5000)
        case 11: os.rename(rng.choice(names), rng.choice(names))
        case 12: os.unlink(rng.choice(names))
        case 13: os.link(rng.choice(names), rng.choice(names))
        case 14: os.close(new(rng.choice(names), os.O_TRUNC))
        case 15 | 16 | 17: files[rng.randrange(len(files))] = new(rng.choice(names))
        case 18: os.rename("a/b", "a/c") or os.rename("a/c", "a/b")
        case 19: files[rng.randrange(len(files))] = os.dup(fd)
for _ in range(1500):
    attempt(step)
os.rename("a/b", "c")
os.truncate(new("c/last"), 10)
""",
    )
    there = on_disk(rec.root)
    assert len(there) > 4 and sum(map(len, there.values())) > 10_000
    assert replayed(rec) == there


C_PROGRAM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    struct iovec parts[2] = {{"one", 3}, {"two", 3}};
    int flags = O_CREAT | O_RDWR;
    if (argc > 2) flags |= O_APPEND; /* not known at compile time: the fortified open */
    if (chdir(argv[1])) return 1;
    int a = open("a", flags, 0644), b = openat(AT_FDCWD, "b", flags, 0644), c = creat("c", 0644);
    int again = open("a", argc > 2 ? O_RDONLY : O_RDWR);
    if (pwritev(a, parts, 2, 10) < 0 || pwritev2(a, parts, 2, 5000, RWF_DSYNC) < 0) return 2;
    if (pwrite(again, "zero", 4, 0) < 0 || writev(b, parts, 2) < 0) return 3;
    if (fallocate(a, 0, 0, 20000) || fallocate(a, FALLOC_FL_KEEP_SIZE, 0, 90000)) return 4;
    if (fallocate(a, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5003, 5)) return 5;
    off_t from = 2;
    if (sendfile(c, b, &from, 4) != 4 || posix_fallocate(c, 0, 100)) return 6;
    if (renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE)) return 7;
    if (mkdir("d", 0755) || renameat(AT_FDCWD, "c", AT_FDCWD, "d/c")) return 8;
    int tmp = open("d", O_TMPFILE | O_RDWR, 0644);
    char name[64], template[] = "d/XXXXXX";
    snprintf(name, sizeof name, "/proc/self/fd/%d", tmp);
    if (write(tmp, "tmp", 3) != 3 || linkat(AT_FDCWD, name, AT_FDCWD, "d/t", AT_SYMLINK_FOLLOW))
        return 9;
    int made = mkstemp(template);
    if (write(made, "made", 4) != 4 || remove("b") || truncate("d/t", 2)) return 10;
    int dir = open("d", O_DIRECTORY);
    if (fsync(dir) || fdatasync(made) || syncfs(dir)) return 11;
    return 0;
}
"""


@pytest.mark.parametrize("flags", [[], ["-D_FILE_OFFSET_BITS=64", "-D_FORTIFY_SOURCE=2"]])
def test_what_a_c_program_calls_is_traced_under_every_name_of_the_call(
    rec: Recording, tmp_path: Path, flags: list[str]
) -> None:
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(C_PROGRAM)
    subprocess.run(["gcc", "-O2", *flags, "-o", str(program), str(source)], check=True)
    rec.run([program, rec.root])
    there = on_disk(rec.root)
    assert {"a", "d/c", "d/t"} < there.keys() and len(there) == 4
    assert replayed(rec) == there


def test_a_sqlite_database_is_traced_and_every_commit_outlives_a_crash(
    rec: Recording, tmp_path: Path
) -> None:
    run(
        rec,
        """
import sqlite3
db = sqlite3.connect("meta.db")
db.execute("pragma journal_mode=wal")
db.execute("pragma synchronous=full")
db.execute("create table names (n)")
db.commit()
os.write(mark, b"0")
for n in range(1, 8):
    db.execute("insert into names values (?)", (n,))
    db.commit()
    os.write(mark, b"%d" % n)
os._exit(0)
""",
    )
    check = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]);"
    check += "print(*(n for n, in db.execute('select n from names order by n')))"
    states = [s for s in crash_states(rec.trace, seed=3, n=60) if s.markers]
    assert len(states) > 20
    for number, state in enumerate(states[::4]):
        target = state.materialise(tmp_path / f"crash{number}")
        command = [sys.executable, "-c", check, str(target / "meta.db")]
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert len(found.split()) >= int(state.markers[-1]), str(state)


def test_markers_lie_in_order_between_the_operations(rec: Recording) -> None:
    run(
        rec,
        """
fd = new("log")
os.write(mark, b"before")
os.write(fd, b"x")
os.write(mark, b"after")
""",
    )
    own = rec.trace[rec.trace.begin :]
    assert [r.event for r in own] == [Event.CREATE, Event.MARK, Event.WRITE, Event.MARK]
    assert rec.trace.markers() == [b"before", b"after"]
    assert rec.trace.markers(before=len(rec.trace) - 1) == [b"before"]


def test_a_write_made_while_a_sync_runs_lies_between_its_start_and_its_end(rec: Recording) -> None:
    run(
        rec,
        """
import threading
from tests.faults.rules import Faults, Op
late = Faults.from_environment().delay(Op.FDATASYNC, "log", seconds=0.2)
fd = new("log")
os.write(fd, b"covered")
syncer = threading.Thread(target=os.fdatasync, args=[fd])
syncer.start()
while not late.fired:
    pass
os.write(fd, b"not covered")
syncer.join()
""",
    )
    events = [r.event for r in rec.trace.of(Event.WRITE, Event.SYNC_START, Event.SYNC_END)]
    assert events == [Event.WRITE, Event.SYNC_START, Event.WRITE, Event.SYNC_END]


def test_a_write_that_syncs_itself_covers_its_own_range_only(rec: Recording) -> None:
    run(rec, 'fd = new("log", os.O_DSYNC)\nos.pwrite(fd, b"x" * 10, 50)')
    write, start, end = rec.trace.of(Event.WRITE, Event.SYNC_START, Event.SYNC_END)
    assert (write.offset, write.size) == (start.offset, start.size) == (50, 10)
    assert start.sync == end.sync and start.detail == SyncKind.FDATASYNC
    assert not start.whole_file


def test_what_happens_outside_the_root_is_none_of_its_business(
    rec: Recording, tmp_path: Path
) -> None:
    beside = tmp_path / "data-beside"
    rec.faults.fail(Op(~0))
    run(rec, f"fd = new({str(beside)!r})\nos.write(fd, b'x')\nos.fsync(fd)")
    assert len(rec.trace) == rec.trace.begin
    assert beside.read_bytes() == b"x"


def test_a_path_is_found_through_links_and_detours(rec: Recording, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(rec.root)
    run(
        rec,
        f"""
os.mkdir("d")
new({str(tmp_path)!r} + "/way/d/../d/./one")
folder = os.open("d", os.O_RDONLY)
os.open("two", os.O_CREAT | os.O_WRONLY, dir_fd=folder)
os.rename("two", "../three", src_dir_fd=folder, dst_dir_fd=folder)
""",
    )
    assert [r.path for r in rec.trace.of(Event.CREATE)] == ["d/one", "d/two"]
    assert [(r.path, r.other) for r in rec.trace.of(Event.RENAME)] == [("d/two", "three")]


def test_processes_share_one_trace(rec: Recording) -> None:
    run(
        rec,
        """
import subprocess
fd = new("log", os.O_APPEND)
def child(letter):
    if pid := os.fork():
        return pid
    for _ in range(200):
        os.write(fd, letter * 10)
    os._exit(0)
pids = [child(letter) for letter in (b"a", b"b")]
for pid in pids:
    os.waitpid(pid, 0)
subprocess.run([sys.executable, "-c", "open('other', 'w').write('x')"], check=True)
""",
    )
    assert len(rec.trace.of(Event.WRITE)) == 401
    assert replayed(rec) == on_disk(rec.root)


def test_a_killed_process_leaves_a_whole_trace_that_the_next_one_goes_on_with(
    rec: Recording,
) -> None:
    rec.faults.kill(Op.WRITE, "log", skip=3)
    program = PREAMBLE + 'fd = new("log", os.O_APPEND)\nfor _ in range(5): os.write(fd, b"x")'
    assert rec.run([sys.executable, "-c", program], check=False).returncode == -9
    assert len(rec.trace.of(Event.WRITE)) == 3
    rec.faults.clear()
    rec.run([sys.executable, "-c", program])
    assert replayed(rec) == on_disk(rec.root) == {"log": b"x" * 8}


@pytest.mark.parametrize("ending", ["kill", "exit", "os._exit"])
def test_a_process_that_ends_amid_its_threads_calls_leaves_no_change_unrecorded(
    rec: Recording, ending: str
) -> None:
    """The call of another thread must not be cut off between the deed and its record."""
    program = (
        PREAMBLE
        + """
import itertools, threading
def work(me):
    for number in itertools.count():
        name = f"{os.getpid()} {me} {number}"
        fd = new(name)
        os.write(fd, b"some bytes")
        os.rename(name, f"{name} renamed")
        os.close(fd)
before = len(os.listdir())
for me in range(4):
    threading.Thread(target=work, args=(me,), daemon=True).start()
while len(os.listdir()) < before + 8:
    pass
"""
    )
    program += {
        "kill": 'os.fsync(new("the last straw"))',
        "exit": "sys.exit(0)",
        "os._exit": "os._exit(0)",
    }[ending]
    for _ in range(5):
        rec.faults.clear()
        rec.faults.kill(Op.FSYNC, "the last straw")
        rec.run([sys.executable, "-c", program], check=False)
        assert replayed(rec) == on_disk(rec.root)


def test_a_call_cut_off_by_a_kill_from_outside_is_not_passed_over(rec: Recording) -> None:
    program = (
        PREAMBLE
        + """
fd = new("f")
print("up", flush=True)
while True:
    os.pwrite(fd, b"x" * 1_000_000, 0)
"""
    )
    for _ in range(50):  # nearly all of its time is spent in the call: the first will do
        with rec.popen([sys.executable, "-c", program]) as child:
            assert child.stdout and child.stdout.readline() == "up\n"
            child.kill()
        run(rec, 'new("g")')
        if rec.trace.of(Event.UNTRACED):
            break
    with pytest.raises(UntracedChange, match="cut off"):
        replayed(rec)


def test_what_lay_in_the_folder_before_is_where_the_trace_begins(tmp_path: Path) -> None:
    root = tmp_path / "old"
    (root / "d").mkdir(parents=True)
    (root / "d" / "file").write_bytes(b"old bytes")
    (root / "twin").hardlink_to(root / "d" / "file")
    with recorded(tmp_path, root=root) as rec:
        run(rec, 'os.pwrite(new("twin"), b"new", 0)')
    assert replayed(rec) == on_disk(root) == {"d/file": b"new bytes", "twin": b"new bytes"}
    (state,) = crash_states(rec.trace, seed=0, n=1, styles=["nothing unsynced"])
    assert state.files() == {"d/file": b"old bytes", "twin": b"old bytes"}


@pytest.mark.parametrize(
    "program",
    [
        "import mmap\nfd = new('f')\nos.ftruncate(fd, 4096)\nmmap.mmap(fd, 4096)[0] = 1",
        "import ctypes\nctypes.CDLL(None).fopen(b'f', b'w')",
        "os.rename(os.environ['OTTERMQ_SHIM_TRACE'] + '-in', 'f')",
    ],
    ids=["mapping", "stdio", "moved in"],
)
def test_a_change_it_cannot_follow_makes_the_simulator_refuse(
    rec: Recording, tmp_path: Path, program: str
) -> None:
    (tmp_path / "recording" / "trace-in").write_bytes(b"from outside")
    run(rec, program)
    with pytest.raises(UntracedChange):
        for state in crash_states(rec.trace, seed=0, n=5):
            state.files()


# -- the faults --


def test_a_failing_sync_fails_by_path_from_the_nth_on_and_as_often_as_told(
    rec: Recording,
) -> None:
    rule = rec.faults.fail(Op.FDATASYNC, "*.wal", error=errno.EIO, skip=1, times=2)
    out = run(
        rec,
        """
wal, log = new("1.wal"), new("1.log")
print([attempt(os.fdatasync, wal) for _ in range(5)], attempt(os.fdatasync, log))
""",
    )
    assert out.strip() == "[None, 'EIO', 'EIO', None, None] None"
    assert rule.fired == 2
    ends = [r.error for r in rec.trace.of(Event.SYNC_END)]
    assert ends == [0, errno.EIO, errno.EIO, 0, 0, 0]


@pytest.mark.parametrize(
    ("op", "call"),
    [
        (Op.CREATE, "new, 'other'"),
        (Op.WRITE, "os.pwrite, fd, b'x', 0"),
        (Op.WRITE, "os.pwritev, fd, [b'x'], 0"),
        (Op.TRUNCATE, "os.ftruncate, fd, 9"),
        (Op.TRUNCATE, "os.truncate, 'file', 9"),
        (Op.ALLOCATE, "os.posix_fallocate, fd, 0, 9"),
        (Op.FSYNC, "os.fsync, fd"),
        (Op.SYNC, "os.fdatasync, fd"),
        (Op.RENAME, "os.rename, 'file', 'other'"),
        (Op.UNLINK, "os.unlink, 'file'"),
        (Op.MKDIR, "os.mkdir, 'other'"),
        (Op.LINK, "os.link, 'file', 'other'"),
        (Op.LINK, "os.symlink, 'file', 'other'"),
        (Op.OPEN, "os.open, 'file', os.O_RDONLY"),
    ],
)
def test_a_failed_call_leaves_everything_as_it_was(rec: Recording, op: Op, call: str) -> None:
    run(rec, "os.write(new('file'), b'content')")
    rec.faults.fail(op, error=errno.ENOSPC)
    opened = "" if op is Op.OPEN else "fd = os.open('file', os.O_RDWR)\n"
    assert run(rec, f"{opened}print(attempt({call}))").strip() == "ENOSPC"
    assert on_disk(rec.root) == replayed(rec) == {"file": b"content"}


def test_a_failure_may_be_a_lie_about_work_that_was_done(rec: Recording) -> None:
    rec.faults.fail(Op.WRITE | Op.RENAME, carried_out=True)
    out = run(
        rec,
        """
fd = new("a")
print(attempt(os.write, fd, b"done"), attempt(os.rename, "a", "b"))
""",
    )
    assert out.split() == ["EIO", "EIO"]
    assert on_disk(rec.root) == replayed(rec) == {"b": b"done"}


def test_a_failing_write_that_syncs_itself_is_a_failed_sync_in_the_trace(rec: Recording) -> None:
    rec.faults.fail(Op.FDATASYNC, carried_out=True)
    assert run(rec, 'print(attempt(os.write, new("a", os.O_DSYNC), b"x"))').strip() == "EIO"
    assert [r.error for r in rec.trace.of(Event.SYNC_END)] == [errno.EIO]


def test_a_short_write_takes_the_beginning_and_says_so(rec: Recording) -> None:
    rec.faults.shorten("a", to=5)
    out = run(rec, 'fd = new("a")\nprint(os.writev(fd, [b"abc", b"def"]), os.write(fd, b"f"))')
    assert out.split() == ["5", "1"]
    assert on_disk(rec.root) == replayed(rec) == {"a": b"abcdef"}


def test_a_short_direct_write_ends_between_blocks(rec: Recording) -> None:
    rec.faults.shorten("a", to=5000)
    out = run(
        rec,
        """
import mmap
aligned = mmap.mmap(-1, 16384)
aligned.write(b"x" * 16384)
print(attempt(os.pwrite, new("a", os.O_DIRECT), aligned, 0))
""",
    )
    assert out.strip() == "4608"


def test_a_full_disk_refuses_growth_and_still_takes_what_it_has_room_for(rec: Recording) -> None:
    rec.faults.disk_full_after(12288)
    out = run(
        rec,
        """
wal, log = new("wal"), new("log")
print(attempt(os.write, wal, b"w" * 8192))
print(attempt(os.write, log, b"l" * 10000))
print(attempt(os.write, log, b"l" * 100))
print(attempt(os.posix_fallocate, log, 0, 65536))
print(attempt(os.pwrite, wal, b"W" * 8192, 0))
print(os.statvfs(".").f_bavail)
from tests.faults.rules import Faults
Faults.from_environment().disk_has_room()
print(attempt(os.write, log, b"l" * 100))
print(os.statvfs(".").f_bavail > 0)
""",
    )
    assert out.split() == ["8192", "4096", "ENOSPC", "ENOSPC", "8192", "0", "100", "True"]


def test_free_space_can_be_told_to_be_low(rec: Recording) -> None:
    rec.faults.report_free_space(1 << 20)
    out = run(
        rec,
        """
import shutil
rooms = os.statvfs("."), os.fstatvfs(new("f"))
print(*(room.f_bavail * room.f_frsize for room in rooms), shutil.disk_usage("/tmp").free >> 20)
""",
    ).split()
    assert out[:2] == ["1048576", "1048576"] and int(out[2]) > 1


@pytest.mark.parametrize("carried_out", [False, True])
def test_a_process_can_die_just_before_or_just_after_a_call(
    rec: Recording, carried_out: bool
) -> None:
    rec.faults.kill(Op.RENAME, "b", carried_out=carried_out)
    program = PREAMBLE + 'new("a")\nos.rename("a", "b")'
    assert rec.run([sys.executable, "-c", program], check=False).returncode == -9
    assert list(on_disk(rec.root)) == (["b"] if carried_out else ["a"])
    assert replayed(rec) == on_disk(rec.root)


def test_the_parent_switches_faults_while_the_child_runs(rec: Recording) -> None:
    program = PREAMBLE + 'fd = new("a")\nfor line in sys.stdin: print(attempt(os.fsync, fd))'
    child = rec.popen([sys.executable, "-u", "-c", program])
    assert child.stdin and child.stdout

    def ask() -> str:
        assert child.stdin and child.stdout
        child.stdin.write("\n")
        child.stdin.flush()
        return child.stdout.readline().strip()

    assert ask() == "None"
    rule = rec.faults.fail(Op.FSYNC, "a")
    assert ask() == "EIO"
    rule.clear()
    assert ask() == "None"
    child.communicate()
    assert child.returncode == 0


def test_too_many_rules_are_refused_and_cleared_ones_make_room(rec: Recording) -> None:
    rules = [rec.faults.fail(Op.FSYNC, f"{n}") for n in range(RULES)]
    with pytest.raises(ValueError, match="in use"):
        rec.faults.fail(Op.FSYNC)
    rules[5].clear()
    rec.faults.fail(Op.FSYNC)


def test_without_its_environment_the_shim_does_nothing(rec: Recording) -> None:
    env = rec.environment()
    bare = {key: value for key, value in env.items() if not key.startswith("OTTERMQ_SHIM")}
    command = [sys.executable, "-c", f"open({str(rec.root / 'f')!r}, 'w').write('x')"]
    subprocess.run(command, env=bare, check=True)
    assert len(rec.trace) == rec.trace.begin
    assert (rec.root / "f").read_text() == "x"
