"""A failed write or sync is final: the fence, what it refuses, and how the log goes on.

Each test runs a small program under the shim, which makes the calls fail, and then reads what
it left behind.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.csrc.wals import BLOCK, MIB, FileHeader, files, make_file, opened, read
from tests.faults.powerloss import crash_states
from tests.faults.shim import Recording, recorded
from tests.internals import lib

PRELUDE = """
import errno, json, os, sys, threading
from pathlib import Path
from tests.csrc.wals import MIB, Wal, WalError, read
from tests.faults.rules import Faults, Op
from tests.internals import lib

folder = Path(os.environ["OTTERMQ_SHIM_ROOT"]) / "wal"
faults = Faults.from_environment()
mark = os.open(os.environ["OTTERMQ_SHIM_MARK"], os.O_WRONLY)

def refused(wal, *payloads):
    for payload in payloads:
        seq = wal.append(payload)
    wal.submit()
    return wal.wait(seq)

def state(wal):
    fenced = wal.fenced()
    return {"durable": wal.durable, "last": wal.last_seq, "append": wal.append(b"no"),
            "admit": [wal.admit(), wal.admit("SETTLE")], "wait": wal.wait(wal.last_seq, 1000),
            "kept": fenced and fenced[0], "text": fenced and fenced[1]}
"""


def run(recording: Recording, program: str) -> Any:
    done = recording.run([sys.executable, "-c", PRELUDE + program])
    return json.loads(done.stdout)


def run_alone(tmp_path: Path, program: str) -> tuple[Any, Path]:
    with recorded(tmp_path) as recording:
        return run(recording, program), recording.root / "wal"


FAILURES = {
    "the sync fails": "faults.fail(Op.FDATASYNC, 'wal/0*', times=1)",
    "the sync fails, though it was done": "faults.fail(Op.FDATASYNC, 'wal/0*', times=1, "
    "carried_out=True)",
    "the write fails": "faults.fail(Op.WRITE, 'wal/0*', times=1)",
    "the write fails, though it was done": "faults.fail(Op.WRITE, 'wal/0*', times=1, "
    "carried_out=True)",
    "the disk is gone but for the fence": "faults.fail(Op.WRITE | Op.SYNC, 'wal/0*')",
    "the fence cannot be written": "faults.fail(Op.SYNC, 'wal/0*', times=1); "
    "faults.fail(Op.CREATE, 'wal/fence*')",
    "the sync fails in direct mode": "faults.fail(Op.FDATASYNC, 'wal/0*', times=1)",
}


@pytest.mark.parametrize("failure", FAILURES)
def test_after_a_failure_nothing_more_is_taken_and_nothing_refused_comes_back(
    tmp_path: Path, failure: str
) -> None:
    said, folder = run_alone(
        tmp_path,
        f"""
wal = Wal(folder, direct_io={"direct" in failure:d})
good = wal.commit(b"good", b"also good")
while wal.told(0): pass
{FAILURES[failure]}
answer = refused(wal, b"refused", b"refused too")
print(json.dumps({{"answer": answer, "told": wal.told(), **state(wal), "close": wal.close()}}))
""",
    )
    assert said["answer"] == said["wait"] == said["close"] == lib.OM_E_FENCED
    assert said["admit"] == [lib.OM_E_FENCED, lib.OM_E_FENCED]
    assert (said["durable"], said["last"], said["append"]) == (2, 4, 0)
    assert said["told"]
    assert said["kept"]
    assert "0000000000000001.wal: Input/output error" in said["text"]
    reading = read(folder)
    assert (reading.result, reading.payloads) == (lib.OM_END, [b"good", b"also good"])
    with opened(folder, reading) as wal:
        wal.commit(b"after the restart")
    assert read(folder).payloads == [b"good", b"also good", b"after the restart"]


def test_a_dead_disk_says_that_the_outcome_is_open(tmp_path: Path) -> None:
    said, _folder = run_alone(
        tmp_path,
        """
wal = Wal(folder)
wal.commit(b"good")
faults.fail(Op.WRITE | Op.SYNC | Op.CREATE | Op.RENAME)
answer = refused(wal, b"perhaps")
print(json.dumps({"answer": answer, **state(wal), "close": wal.close()}))
""",
    )
    assert said["answer"] == said["close"] == lib.OM_E_FENCED
    assert said["kept"] is False


def test_a_short_write_is_carried_on(tmp_path: Path) -> None:
    said, folder = run_alone(
        tmp_path,
        """
wal = Wal(folder)
faults.shorten("wal/0*", to=1000, times=1)
wal.commit(b"a" * 3000, b"b" * 3000)
faults.shorten("wal/0*", to=4096, times=2)
wal.commit(b"c" * 30000)
print(json.dumps({"fenced": wal.fenced(), "close": wal.close()}))
""",
    )
    assert said == {"fenced": None, "close": lib.OM_OK}
    assert read(folder).payloads == [b"a" * 3000, b"b" * 3000, b"c" * 30000]


UNFENCED = """
wal = Wal(folder)
wal.commit(b"good")
{failure}
answer = refused(wal, b"refused", b"refused too")
wal.append(b"never submitted")
faults.clear()
wal.unfence()
blank = wal.last_seq
answers = [wal.wait(seq) for seq in (1, 2, 3, blank)]
seq = wal.commit(b"goes on")
print(json.dumps({{"answers": answers, "blank": blank, "seq": seq, "again": wal.wait(3),
                  "fenced": wal.fenced(), "admit": wal.admit(), "close": wal.close()}}))
"""


@pytest.mark.parametrize("failure", FAILURES)
def test_once_unfenced_the_log_goes_on_in_a_new_epoch(tmp_path: Path, failure: str) -> None:
    said, folder = run_alone(tmp_path, UNFENCED.format(failure=FAILURES[failure]))
    assert said["answers"] == [lib.OM_OK, lib.OM_E_FENCED, lib.OM_E_FENCED, lib.OM_OK]
    assert said["again"] == lib.OM_E_FENCED, "a later sync is not theirs"
    assert (said["fenced"], said["admit"]) == (None, lib.OM_OK)
    assert said["seq"] == said["blank"] + 1
    assert said["close"] == lib.OM_OK
    reading = read(folder)
    assert (reading.result, reading.payloads) == (lib.OM_END, [b"good", b"goes on"])
    assert [entry.epoch for entry in reading.entries] == [1, 2]
    assert not (folder / "fence").exists()


def test_a_fence_can_fall_on_the_first_group_of_a_file(tmp_path: Path) -> None:
    said, folder = run_alone(
        tmp_path,
        """
wal = Wal(folder)
wal.commit(b"x" * 500_000, b"x" * 500_000)
faults.fail(Op.FDATASYNC, "wal/0000000000000002.wal", times=1)
answer = refused(wal, b"refused" * 10_000)
wal.unfence()
print(json.dumps({"answer": answer, "seq": wal.commit(b"goes on"), "close": wal.close()}))
""",
    )
    assert said["answer"] == lib.OM_E_FENCED
    reading = read(folder)
    assert (reading.result, reading.payloads[2:]) == (lib.OM_END, [b"goes on"])


def test_fences_may_follow_each_other(tmp_path: Path) -> None:
    said, folder = run_alone(
        tmp_path,
        """
wal = Wal(folder)
answers = []
for number in range(4):
    rule = faults.fail(Op.FDATASYNC, "wal/0*", times=1)
    answers.append(refused(wal, b"refused %d" % number))
    wal.unfence()
    if number % 2:
        wal.commit(b"good %d" % number)
print(json.dumps({"answers": answers, "close": wal.close()}))
""",
    )
    assert said["answers"] == [lib.OM_E_FENCED] * 4
    reading = read(folder)
    assert (reading.result, reading.payloads) == (lib.OM_END, [b"good 1", b"good 3"])


def test_a_failed_unfencing_leaves_the_fence_up_and_can_be_tried_again(tmp_path: Path) -> None:
    said, folder = run_alone(
        tmp_path,
        """
wal = Wal(folder)
wal.commit(b"good")
rule = faults.fail(Op.FDATASYNC, "wal/0*")
answer = refused(wal, b"refused")
try:
    wal.unfence()
    failed = ""
except WalError as error:
    failed = str(error)
fenced = wal.fenced()
faults.clear()
wal.unfence()
print(json.dumps({"failed": failed, "fenced": fenced, "seq": wal.commit(b"on"),
                  "close": wal.close()}))
""",
    )
    assert "writing the header of" in said["failed"]
    assert said["fenced"][0] is True
    reading = read(folder)
    assert (reading.result, reading.payloads) == (lib.OM_END, [b"good", b"on"])


def test_what_was_lent_is_let_go_once_its_refusal_is_over(tmp_path: Path) -> None:
    said, folder = run_alone(
        tmp_path,
        """
wal = Wal(folder)
wal.commit(b"good")
faults.fail(Op.FDATASYNC, "wal/0*")
seq, lender = wal.lend(b"head", bytes(100_000))
wal.submit()
waited = wal.wait(seq)
faults.clear()
wal.unfence()
print(json.dumps({"waited": waited, "refs": lender.refs, "seq": wal.commit(b"on"),
                  "close": wal.close()}))
""",
    )
    assert (said["waited"], said["refs"]) == (lib.OM_E_FENCED, 1)
    assert read(folder).payloads == [b"good", b"on"]


def test_whoever_waits_is_told_of_the_fence(tmp_path: Path) -> None:
    said, _folder = run_alone(
        tmp_path,
        """
wal = Wal(folder)
faults.fail(Op.FDATASYNC, "wal/0*")
results = []
waiters = [threading.Thread(target=lambda: results.append(wal.wait(1, -1))) for _ in range(4)]
for waiter in waiters: waiter.start()
wal.append(b"refused")
wal.submit()
for waiter in waiters: waiter.join()
print(json.dumps({"results": results, "close": wal.close()}))
""",
    )
    assert said["results"] == [lib.OM_E_FENCED] * 4


def test_a_file_with_a_failed_group_is_not_used_again(tmp_path: Path) -> None:
    said, _folder = run_alone(
        tmp_path,
        """
wal = Wal(folder)
wal.commit(b"good")
suspect = os.open(folder / "0000000000000001.wal", os.O_RDONLY)
faults.fail(Op.FDATASYNC, "wal/0*", times=1)
refused(wal, b"refused")
wal.unfence()
for number in range(30):
    wal.release(wal.commit(b"x" * 400_000))
close = wal.close()
print(json.dumps({"names": os.fstat(suspect).st_nlink, "close": close}))
""",
    )
    assert said == {"names": 0, "close": lib.OM_OK}


def test_refused_records_stay_refused_whatever_the_disk_keeps(tmp_path: Path) -> None:
    """The power may go at any moment of a failure, and the failed group may be on the disk."""
    with recorded(tmp_path) as recording:
        run(
            recording,
            """
wal = Wal(folder)
wal.commit(b"good")
os.write(mark, b"durable 1")
faults.fail(Op.FDATASYNC, "wal/0*", times=1)
refused(wal, b"refused", b"refused" * 1000)
assert wal.fenced()[0]
os.write(mark, b"refused")
wal.unfence()
wal.commit(b"on")
os.write(mark, b"durable on")
print(json.dumps(wal.close()))
""",
        )
    outcomes = set()
    for number, state in enumerate(crash_states(recording.trace, seed=3, n=80)):
        folder = state.materialise(tmp_path / f"disk{number}") / "wal"
        reading = read(folder)
        assert reading.result == lib.OM_END, f"{reading.error}: {state}"
        payloads = reading.payloads
        if b"durable 1" in state.markers:
            assert payloads[:1] == [b"good"], state
        if b"refused" in state.markers:
            assert not any(payload.startswith(b"refused") for payload in payloads), state
        if b"durable on" in state.markers:
            assert payloads == [b"good", b"on"], state
        outcomes.add((b"refused" in state.markers, len(payloads)))
    assert {(True, 1), (True, 2)} <= outcomes


def test_the_fence_file_alone_keeps_refused_records_out(tmp_path: Path) -> None:
    """Until the next start's header says the same: whatever the disk keeps of that start."""
    with recorded(tmp_path) as recording:
        run(
            recording,
            """
wal = Wal(folder)
wal.commit(b"good")
sync = faults.fail(Op.FDATASYNC, "wal/0*")
refused(wal, b"refused")
wal.close()
faults.clear()
print(json.dumps(None))
""",
        )
    folder = recording.root / "wal"
    # The group reached the disk, the zeros over it did not.
    header = FileHeader(epoch=1, number=1, prev_last_seq=0, first_seq=1, seed=5)
    files(folder)[1].write_bytes(make_file(header, [[b"good"], [b"refused"]]))
    assert (folder / "fence").exists()
    assert read(folder).payloads == [b"good"]
    with recorded(tmp_path / "again", root=recording.root) as recording:
        run(recording, "wal = Wal(folder, read(folder))\nprint(json.dumps(wal.close()))")
    assert not (folder / "fence").exists()
    for number, state in enumerate(crash_states(recording.trace, seed=4, n=60)):
        reading = read(state.materialise(tmp_path / f"disk{number}") / "wal")
        assert (reading.result, reading.payloads) == (lib.OM_END, [b"good"]), state


# -- no space --


def test_a_full_disk_is_a_state_that_heals(tmp_path: Path) -> None:
    """Nothing of a group is written before it has a file, so nothing needs to be refused."""
    said, folder = run_alone(
        tmp_path,
        """
wal = Wal(folder, max_size=8 * MIB)
wal.commit(b"x" * 500_000, b"x" * 500_000)
while wal.stat.spare_files == 0: pass
faults.disk_full_after(0)
seq = wal.commit(b"y" * 500_000, b"y" * 500_000)
held = wal.append(b"held" * 20_000)
wal.submit()
while (wal.admit(), wal.admit("SETTLE")) != (lib.OM_E_NO_SPACE, lib.OM_OK):
    assert wal.told()
full = [wal.admit("SETTLE"), wal.wait(held, 50), wal.fenced()]
faults.disk_has_room()
healed = wal.wait(held)
while wal.admit() != lib.OM_OK:
    assert wal.told()
print(json.dumps({"full": full, "healed": healed, "close": wal.close()}))
""",
    )
    assert said["full"] == [lib.OM_OK, lib.OM_E_TIMEOUT, None]
    assert (said["healed"], said["close"]) == (lib.OM_OK, lib.OM_OK)
    assert read(folder).payloads[-1] == b"held" * 20_000


def test_a_release_helps_on_a_full_disk(tmp_path: Path) -> None:
    said, folder = run_alone(
        tmp_path,
        """
wal = Wal(folder, max_size=8 * MIB)
first = wal.commit(b"x" * 500_000, b"x" * 500_000)
while wal.stat.spare_files == 0: pass
faults.disk_full_after(0)
wal.commit(b"y" * 500_000, b"y" * 500_000)
held = wal.append(b"held" * 20_000)
wal.submit()
while wal.admit() != lib.OM_E_NO_SPACE:
    assert wal.told()
wal.release(first)
print(json.dumps({"held": wal.wait(held), "first": first, "close": wal.close()}))
""",
    )
    assert said["held"] == lib.OM_OK
    assert read(folder, after=said["first"]).payloads[-1] == b"held" * 20_000


def test_closing_on_a_full_disk_refuses_what_has_no_place(tmp_path: Path) -> None:
    said, folder = run_alone(
        tmp_path,
        """
wal = Wal(folder, max_size=8 * MIB)
wal.commit(b"x" * 500_000, b"x" * 500_000)
while wal.stat.spare_files == 0: pass
faults.disk_full_after(0)
wal.commit(b"y" * 500_000, b"y" * 500_000)
wal.append(b"refused" * 20_000)
print(json.dumps({"close": wal.close()}))
""",
    )
    assert said["close"] == lib.OM_E_FENCED
    reading = read(folder)
    assert (reading.result, len(reading.payloads)) == (lib.OM_END, 4)


def test_a_new_log_on_a_full_disk_says_so(tmp_path: Path) -> None:
    said, folder = run_alone(
        tmp_path,
        """
faults.disk_full_after(100_000)
try:
    Wal(folder)
    error = ""
except WalError as failed:
    error = str(failed)
print(json.dumps(error))
""",
    )
    assert "No space left on device" in said
    assert not list(folder.iterdir())


def test_the_failed_group_is_overwritten_where_it_began(tmp_path: Path) -> None:
    _said, folder = run_alone(
        tmp_path,
        """
wal = Wal(folder)
wal.commit(b"good")
faults.fail(Op.FDATASYNC, "wal/0*", times=1)
refused(wal, b"refused" * 2000)
print(json.dumps(wal.close()))
""",
    )
    data = files(folder)[1].read_bytes()
    assert len(data) == MIB
    assert data[2 * BLOCK : 3 * BLOCK] == bytes(BLOCK)
    assert data[3 * BLOCK : 3 * BLOCK + 7] != bytes(7), "the rest may be there, and doesn't matter"
