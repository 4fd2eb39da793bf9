"""What a crash leaves of the last group: a prefix of it, or nothing, but never anything else."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.csrc.wals import (
    BLOCK,
    MIB,
    Raw,
    Reading,
    Wal,
    files,
    memory_folder,
    opened,
    parse_groups,
    read,
    write_groups,
)
from tests.faults.powerloss import Model, crash_states
from tests.faults.shim import recorded
from tests.internals import lib

LAST_GROUP = [b"a" * 3, b"", b"b" * 100, b"c" * 17, b"d" * 250, b"e"]


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as memory:
        yield memory / "wal"


class LastGroup:
    """A log of three groups whose last one is about to suffer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with opened(folder) as wal:
            for group in ([b"first"], [b"second", b"third"], LAST_GROUP):
                wal.commit(*group, log_id=0x77 << 56)  # no record ends in zeros
        self.path = files(folder)[1]
        self.data = self.path.read_bytes()
        *_, self.records = parse_groups(self.data)
        self.start = self.records[0].position
        self.end = self.records[-1].end
        self._file = self.path.open("r+b", buffering=0)

    def after(self, position: int, data: bytes) -> Reading:
        """Read it with `data` at `position`; then all is as before."""
        self._file.seek(position)
        self._file.write(data)
        reading = read(self.folder)
        self._file.seek(position)
        self._file.write(self.data[position : position + len(data)])
        return reading

    def expect(self, reading: Reading, whole: list[Raw]) -> None:
        assert reading.result == lib.OM_END
        assert reading.payloads == [b"first", b"second", b"third", *LAST_GROUP[: len(whole)]]
        assert reading.tail.last_seq == 3 + len(whole)


@pytest.fixture
def last(folder: Path) -> LastGroup:
    return LastGroup(folder)


def test_a_file_cut_at_any_byte_gives_the_records_before_the_cut(last: LastGroup) -> None:
    for cut in range(last.end, last.start - 1, -1):
        with last.path.open("r+b") as file:
            file.truncate(cut)
        last.expect(read(last.folder), [raw for raw in last.records if raw.end <= cut])


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\x20"])
def test_a_group_torn_at_any_byte_gives_the_records_before_it(
    last: LastGroup, filler: bytes
) -> None:
    for cut in range(last.start, last.end):
        reading = last.after(cut, filler * (last.end - cut))
        last.expect(reading, [raw for raw in last.records if raw.end <= cut])


def test_a_byte_flipped_anywhere_ends_the_log_there(last: LastGroup) -> None:
    for position in range(last.start, last.end):
        whole = [raw for raw in last.records if raw.end <= position]
        in_padding = len(whole) < len(last.records) and (
            position < last.records[len(whole)].position
        )
        for bit in (0x01, 0x80):
            reading = last.after(position, bytes([last.data[position] ^ bit]))
            last.expect(reading, last.records if in_padding else whole)


def test_bytes_after_the_last_record_never_matter(last: LastGroup) -> None:
    for position in range(last.end, last.end + 64):
        last.expect(last.after(position, b"\x41"), last.records)


def test_a_byte_flipped_in_the_header_block_changes_nothing(last: LastGroup) -> None:
    for position in range(BLOCK):
        last.expect(last.after(position, bytes([last.data[position] ^ 0x04])), last.records)


def test_blocks_of_the_last_group_may_be_missing_in_any_order(folder: Path) -> None:
    payloads = [bytes([number]) * 1500 for number in range(1, 12)]
    write_groups(folder, [[b"first"], payloads])
    path = files(folder)[1]
    data = path.read_bytes()
    *_, records = parse_groups(data)
    start, blocks = records[0].position, -(-records[-1].end // BLOCK) - records[0].position // BLOCK
    assert blocks == 5
    for kept in range(2**blocks):
        torn = bytearray(data)
        missing = [block for block in range(blocks) if not kept >> block & 1]
        for block in missing:
            torn[start + block * BLOCK : start + (block + 1) * BLOCK] = bytes(BLOCK)
        path.write_bytes(torn)
        edge = start + missing[0] * BLOCK if missing else records[-1].end
        whole = sum(raw.end <= edge for raw in records)
        reading = read(folder)
        assert (reading.result, reading.payloads) == (lib.OM_END, [b"first", *payloads[:whole]])


# -- earlier laps --


def lap(wal: Wal, name: bytes, groups: int) -> list[tuple[int, bytes]]:
    """Groups of always the same shape, told apart by their payloads only."""
    written = []
    for number in range(groups):
        for length in (40, 3000, 700):
            payload = (b"%s %d " % (name, number)).ljust(length, b".")
            written.append((wal.append(payload), payload))
        wal.submit()
        assert wal.wait(wal.last_seq) == lib.OM_OK
    return written


FILLER = [b"fill up the file".ljust(522_000, b".")] * 2


@pytest.mark.parametrize("restarts", [False, True], ids=["in one epoch", "over restarts"])
def test_records_of_an_earlier_lap_are_never_believed(folder: Path, restarts: bool) -> None:
    """The files go round; then the last one is put together from its new bytes and those of an
    earlier lap: its own, or, where a start made a new file, another's."""
    options = {"max_size": 3 * MIB, "reserve": 0}
    wal = Wal(folder, None, **options)
    for number in range(9):
        if not restarts:
            wal.commit(*FILLER)
        released = wal.last_seq
        if restarts:
            wal.close()
        old = {path.stat().st_ino: path.read_bytes() for path in folder.glob("*.wal")}
        if restarts:
            wal = Wal(folder, read(folder, released), released=released, **options)
        wal.release(released)
        written = lap(wal, b"lap %d" % number, 20)
    wal.close()

    path = files(folder)[max(files(folder))]
    new = path.read_bytes()
    stale = old.get(path.stat().st_ino) or max(old.values(), key=len)
    groups = parse_groups(new)
    assert len(groups) == 20
    assert [raw.position for raw in parse_groups(stale)[0]] == [raw.position for raw in groups[0]]
    records = [raw for group in groups for raw in group]
    ends = {raw.end for raw in records}
    edges = {*range(0, records[-1].end + BLOCK, 512), *range(0, 64), *ends}
    edges |= {end - 1 for end in ends} | set(range(groups[5][0].position, groups[5][-1].end, 8))
    for edge in sorted(edges):
        mixed = new[:edge] + stale[edge:]
        path.write_bytes(mixed)
        same = [mixed[raw.position : raw.end] == new[raw.position : raw.end] for raw in records]
        whole = [*same, False].index(False)
        reading = read(folder, after=released)
        assert reading.result == lib.OM_END
        assert [(e.seq, e.payload) for e in reading.entries] == written[:whole]


# -- the power goes --

PROGRAM = """
import os, sys
from pathlib import Path
from tests.csrc.wals import MIB, Wal, read

folder = Path(os.environ["OTTERMQ_SHIM_ROOT"]) / "wal"
mark = os.open(os.environ["OTTERMQ_SHIM_MARK"], os.O_WRONLY)
direct = int(sys.argv[1])
released = 0
for start in range(3):
    wal = Wal(folder, read(folder, released), released=released, max_size=3 * MIB, reserve=0,
              direct_io=direct)
    for tick in range(14):
        for number in range(tick % 4 + 1):
            seq = wal.append(b"%d %d %d " % (start, tick, number) * (9000 * (tick % 5) + 1))
        wal.submit()
        wal.wait(seq)
        os.write(mark, b"durable %d" % wal.durable)
        if tick % 5 == 3:
            released = wal.durable
            os.write(mark, b"checkpoint %d" % released)
            wal.release(released)
    assert wal.close() == 0
"""


def expected_payloads() -> dict[int, bytes]:
    """Which sequence the program gave to which record (a long one takes one for each part)."""
    expected, seq = {}, 0
    for start in range(3):
        for tick in range(14):
            for number in range(tick % 4 + 1):
                payload = b"%d %d %d " % (start, tick, number) * (9000 * (tick % 5) + 1)
                seq += -(-len(payload) // lib.OM_WAL_RECORD_MAX)
                expected[seq] = payload
    return expected


def promised(markers: list[bytes], word: bytes) -> int:
    return max((int(m.split()[1]) for m in markers if m.startswith(word)), default=0)


@pytest.mark.parametrize(
    ("direct", "model"),
    [(0, Model()), (1, Model()), (0, Model(torn_sectors=True, reorder_metadata=True))],
    ids=["buffered", "direct", "torn and reordered"],
)
def test_no_confirmed_record_is_lost_when_the_power_goes(
    tmp_path: Path, direct: int, model: Model
) -> None:
    expected = expected_payloads()
    with recorded(tmp_path) as recording:
        recording.run([sys.executable, "-c", PROGRAM, str(direct)])
    for state in crash_states(recording.trace, seed=1, n=60, model=model):
        durable = promised(state.markers, b"durable")
        after = promised(state.markers, b"checkpoint")
        with memory_folder() as target:
            state.materialise(target / "disk")
            folder = target / "disk" / "wal"
            reading = read(folder, after)
            assert reading.result == lib.OM_END, f"{reading.error}: {state}"
            believed = {entry.seq: entry.payload for entry in reading.entries}
            wanted = {seq: payload for seq, payload in expected.items() if seq > after}
            last = max(believed, default=after)
            assert last >= durable, f"{state}"
            assert believed == {seq: p for seq, p in wanted.items() if seq <= last}, f"{state}"
            with opened(folder, reading, released=after) as wal:
                seq = wal.commit(b"after the crash")
                assert seq > reading.tail.last_seq
            again = read(folder, after)
            assert again.result == lib.OM_END
            assert again.payloads == [*reading.payloads, b"after the crash"]


KILLED = """
import os, sys
from pathlib import Path
from tests.csrc.wals import Wal, read
from tests.faults.rules import Faults, Op

folder = Path(os.environ["OTTERMQ_SHIM_ROOT"]) / "wal"
mark = os.open(os.environ["OTTERMQ_SHIM_MARK"], os.O_WRONLY)
reading = read(folder)
wal = Wal(folder, reading)
os.write(mark, b"read %d" % len(reading.entries))
wal.commit(b"synced by start " + sys.argv[1].encode())
os.write(mark, b"durable " + sys.argv[1].encode())
Faults.from_environment().kill(Op.FDATASYNC, "wal/0*")
wal.append(b"written by start " + sys.argv[1].encode())
wal.submit()
wal.wait(wal.last_seq)
"""


def test_what_a_start_has_read_is_on_disk_before_it_builds_on_it(tmp_path: Path) -> None:
    """After a kill, records may be readable that were never synced. A new file that claims them
    for its past must not outlive them."""
    with recorded(tmp_path) as recording:
        for start in range(4):
            recording.run([sys.executable, "-c", KILLED, str(start)], check=False)
    written = [
        payload
        for start in range(4)
        for payload in (b"synced by start %d" % start, b"written by start %d" % start)
    ]
    for number, state in enumerate(crash_states(recording.trace, seed=5, n=80)):
        reading = read(state.materialise(tmp_path / f"disk{number}") / "wal")
        assert reading.result == lib.OM_END, f"{reading.error}: {state}"
        durable = (
            promised(state.markers, b"durable") * 2 + 1 if b"durable 0" in state.markers else 0
        )
        believed = max(durable, promised(state.markers, b"read"))
        assert len(reading.payloads) >= believed, state
        assert reading.payloads == written[: len(reading.payloads)], state
