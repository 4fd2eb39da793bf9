"""Recovery: what a reader believes, where it stops, and what it calls a hole."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.csrc.wals import (
    BLOCK,
    CONTINUES,
    FENCE,
    HEADER_COPY,
    MIB,
    PART,
    RECORD,
    FileHeader,
    WalError,
    crc32c,
    files,
    make_file,
    memory_folder,
    opened,
    parse_groups,
    parse_header,
    read,
    write_groups,
)
from tests.examples import examples
from tests.internals import ffi, lib


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as memory:
        yield memory / "wal"


def damage(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int) -> None:
    damage(path, position, bytes([path.read_bytes()[position] ^ 0x10]))


def three_files(folder: Path) -> dict[int, Path]:
    """Sequences 1-2, 3-4 and 5-6, a file each."""
    for number in range(3):
        write_groups(folder, [[b"%d" % number], [b"%d again" % number]])
    return files(folder)


def write_fence(folder: Path, epoch: int, last_seq: int) -> None:
    start = FENCE.pack(b"OTTERFNC", 1, epoch, last_seq, 0, 0)[:-4]
    (folder / "fence").write_bytes(start + crc32c(0, start).to_bytes(4, "little"))


# -- the ends of a log --


def test_a_folder_that_is_not_there_is_an_empty_log(folder: Path) -> None:
    reading = read(folder)
    assert (reading.result, reading.entries) == (lib.OM_END, [])
    assert (reading.tail.last_seq, reading.tail.last_number, reading.tail.epoch) == (0, 0, 0)


def test_an_empty_folder_is_an_empty_log(folder: Path) -> None:
    folder.mkdir()
    assert read(folder).result == lib.OM_END


def test_the_tail_says_where_the_log_goes_on(folder: Path) -> None:
    three_files(folder)
    tail = read(folder).tail
    assert (tail.last_seq, tail.next_seq, tail.last_number, tail.good_number) == (6, 7, 3, 3)
    assert (tail.epoch, tail.hole) == (3, 0)


@pytest.mark.parametrize("after", range(7))
def test_only_what_comes_after_the_checkpoint_is_given(folder: Path, after: int) -> None:
    three_files(folder)
    assert read(folder, after=after).seqs == list(range(after + 1, 7))


def test_spare_files_are_no_part_of_the_log(folder: Path) -> None:
    three_files(folder)
    (folder / "spare-000009.wal").write_bytes(bytes(MIB))
    (folder / "empty.wal").touch()
    (folder / "notes.txt").write_text("not a WAL file")
    assert read(folder).seqs == [1, 2, 3, 4, 5, 6]


def test_a_file_is_known_by_its_header_not_by_its_name(folder: Path) -> None:
    paths = three_files(folder)
    paths[1].rename(folder / "zzz.wal")
    paths[3].rename(paths[1])
    assert read(folder).seqs == [1, 2, 3, 4, 5, 6]


def test_hand_made_files_read_as_the_format_says(folder: Path) -> None:
    """Both directions: our bytes from Python, and the C core's bytes in Python (parse_groups)."""
    folder.mkdir()
    first = make_file(FileHeader(4, 8, 100, 101, 0xABCDEF), [[b"a", b"b" * 5000], [b"c"]])
    second = make_file(FileHeader(4, 9, 103, 104, 77), [[b"d"]])
    (folder / "x.wal").write_bytes(first)
    (folder / "y.wal").write_bytes(second)
    reading = read(folder, after=100)
    assert [(e.seq, e.payload, e.epoch) for e in reading.entries] == [
        (101, b"a", 4),
        (102, b"b" * 5000, 4),
        (103, b"c", 4),
        (104, b"d", 4),
    ]
    assert reading.result == lib.OM_END
    assert [[raw.seq for raw in group] for group in parse_groups(first)] == [[101, 102], [103]]


# -- holes --


def test_a_missing_file_is_a_hole(folder: Path) -> None:
    three_files(folder)[2].unlink()
    reading = read(folder)
    assert reading.result == lib.OM_E_CORRUPT
    assert reading.seqs == [1, 2]
    assert "sequences 3 to 4 are missing" in reading.error


def test_a_missing_first_file_is_a_hole_unless_nobody_needs_it(folder: Path) -> None:
    three_files(folder)[1].unlink()
    reading = read(folder, after=1)
    assert (reading.result, reading.seqs) == (lib.OM_E_CORRUPT, [])
    assert "sequences 2 to 2 are missing" in reading.error
    assert read(folder, after=2).seqs == [3, 4, 5, 6]


def test_a_missing_file_that_nobody_needs_is_no_hole(folder: Path) -> None:
    three_files(folder)[2].unlink()
    reading = read(folder, after=4)
    assert (reading.result, reading.seqs) == (lib.OM_END, [5, 6])


def test_damage_before_a_later_file_is_a_hole(folder: Path) -> None:
    path = three_files(folder)[2]
    second = parse_groups(path.read_bytes())[1][0]
    flip(path, second.position + RECORD.size)
    reading = read(folder)
    assert (reading.result, reading.seqs) == (lib.OM_E_CORRUPT, [1, 2, 3])
    assert "sequences 4 to 4 are missing" in reading.error
    assert path.name in reading.error


def test_damage_before_a_later_group_is_a_hole(folder: Path) -> None:
    """The later group was written after the damaged one had been synced."""
    write_groups(folder, [[b"a"], [b"b", b"c"], [b"d"], [b"e"]])
    path = files(folder)[1]
    groups = parse_groups(path.read_bytes())
    flip(path, groups[1][1].position + RECORD.size)
    reading = read(folder)
    assert (reading.result, reading.seqs) == (lib.OM_E_CORRUPT, [1, 2])
    assert "sequences 3 to 3 are missing" in reading.error


def test_a_payload_cannot_pretend_to_be_a_later_group(folder: Path) -> None:
    """A publisher may send any bytes, and they may lie at the start of a block."""
    fake = make_file(FileHeader(1, 1, 0, 1, 0), [[b""], [b"x"]] * 3)[BLOCK:]
    for shift in range(1, 6):
        fake += RECORD.pack(40, 1, 2, 1, 0x1234, 1, 2**40 + shift, 1).ljust(BLOCK, b"\0")
    write_groups(folder, [[b"a"], [bytes(BLOCK - RECORD.size) + fake]])
    path = files(folder)[1]
    group = parse_groups(path.read_bytes())[1]
    assert group[0].length > len(fake)
    flip(path, group[0].position)
    reading = read(folder)
    assert (reading.result, reading.seqs) == (lib.OM_END, [1])


def test_a_log_that_ends_before_the_checkpoint_is_damaged(folder: Path) -> None:
    three_files(folder)
    reading = read(folder, after=9)
    assert reading.result == lib.OM_E_CORRUPT
    assert "ends at sequence 6" in reading.error


def test_a_log_that_has_vanished_is_damaged(folder: Path) -> None:
    assert read(folder, after=1).result == lib.OM_E_CORRUPT


def test_files_that_go_back_in_time_are_damaged(folder: Path) -> None:
    folder.mkdir()
    (folder / "1.wal").write_bytes(make_file(FileHeader(5, 1, 0, 1, 1), [[b"a"], [b"b"]]))
    (folder / "2.wal").write_bytes(make_file(FileHeader(4, 2, 2, 3, 2), [[b"c"]]))
    reading = read(folder)
    assert (reading.result, reading.seqs) == (lib.OM_E_CORRUPT, [1, 2])


def test_two_files_of_one_number_are_refused(folder: Path) -> None:
    path = three_files(folder)[2]
    (folder / "copy.wal").write_bytes(path.read_bytes())
    with pytest.raises(WalError, match="both WAL file 2"):
        read(folder)


def test_after_a_hole_the_log_goes_on_and_keeps_the_evidence(folder: Path) -> None:
    paths = three_files(folder)
    contents = {number: path.read_bytes() for number, path in paths.items()}
    second = parse_groups(contents[2])[1][0]
    flip(paths[2], second.position)
    broken = paths[2].read_bytes()
    reading = read(folder)
    assert (reading.tail.hole, reading.tail.good_number, reading.tail.last_seq) == (1, 2, 3)

    with opened(folder, reading) as wal:
        assert wal.wait(wal.last_seq) == lib.OM_OK
        seq = wal.commit(b"on it goes")
        assert seq > 6, "no sequence is given twice"
    assert (folder / f"{paths[2].name}.damaged").read_bytes() == broken
    assert (folder / f"{paths[3].name}.damaged").read_bytes() == contents[3]
    again = read(folder)
    assert (again.result, again.seqs) == (lib.OM_END, [1, 2, 3, seq])

    with opened(folder, again) as wal:
        wal.release(wal.last_seq)
    assert (folder / f"{paths[2].name}.damaged").read_bytes() == broken


def test_when_nothing_can_be_believed_all_files_are_set_aside(folder: Path) -> None:
    three_files(folder)[1].unlink()
    reading = read(folder)
    assert (reading.result, reading.seqs) == (lib.OM_E_CORRUPT, [])
    with opened(folder, reading) as wal:
        assert wal.commit(b"on it goes") > 6
    assert len(list(folder.glob("*.wal.damaged"))) == 2
    reading = read(folder)
    assert (reading.result, reading.payloads) == (lib.OM_END, [b"on it goes"])


def test_after_everything_vanished_the_log_goes_on_behind_it(folder: Path) -> None:
    reading = read(folder, after=500)
    with opened(folder, reading, released=500) as wal:
        assert wal.commit(b"on it goes") > 500
    reading = read(folder, after=500)
    assert (reading.result, reading.payloads) == (lib.OM_END, [b"on it goes"])


# -- headers --


@pytest.mark.parametrize("copy", [0, HEADER_COPY])
def test_one_copy_of_a_header_is_enough(folder: Path, copy: int) -> None:
    path = three_files(folder)[3]
    damage(path, copy, os.urandom(512))
    assert read(folder).seqs == [1, 2, 3, 4, 5, 6]


def test_of_two_headers_the_newer_one_counts(folder: Path) -> None:
    """A header written over an older one, and torn between the copies."""
    path = three_files(folder)[3]
    data = path.read_bytes()
    header = parse_header(data)
    assert header
    stale = FileHeader(1, 1, 0, 1, 9).pack()
    for copy in (0, HEADER_COPY):
        path.write_bytes(data)
        damage(path, copy, stale)
        assert read(folder).seqs == [1, 2, 3, 4, 5, 6]


def test_a_needed_file_without_any_header_is_a_hole(folder: Path) -> None:
    path = three_files(folder)[2]
    damage(path, 0, os.urandom(BLOCK))
    assert read(folder).result == lib.OM_E_CORRUPT


def test_a_file_whose_header_cannot_be_read_is_left_alone(folder: Path) -> None:
    folder.mkdir()
    (folder / "strange.wal").write_bytes(b"?" * MIB)
    with opened(folder, read(folder)) as wal:
        for _ in range(6):
            wal.release(wal.commit(b"x" * 600_000))
    assert (folder / "strange.wal").read_bytes() == b"?" * MIB


def test_a_file_of_a_later_version_stops_everything(folder: Path) -> None:
    three_files(folder)
    (folder / "4.wal").write_bytes(FileHeader(4, 4, 6, 7, 1).block(version=2))
    with pytest.raises(WalError, match="another version"):
        read(folder)


def test_a_file_that_cannot_be_read_is_an_error(folder: Path) -> None:
    three_files(folder)
    (folder / "folder.wal").mkdir()
    with pytest.raises(WalError, match="Is a directory"):
        read(folder)


# -- parts --


def raw_records(header: FileHeader, records: list[tuple[int, int, int, bytes]]) -> bytes:
    """A file of one group, from (type, flags, log id, payload)."""
    data, chain = bytearray(header.block()), header.seed
    for seq, (type_, flags, log_id, payload) in enumerate(records, header.first_seq):
        fields = (type_, flags, 0, header.epoch, seq, log_id)
        length = RECORD.size + len(payload)
        chain = crc32c(chain, RECORD.pack(length, 0, *fields) + payload)
        data += RECORD.pack(length, chain, *fields) + payload
        data += bytes(-len(data) % 8)
    return bytes(data + bytes(-len(data) % BLOCK))


def test_a_record_whose_last_part_is_missing_never_happened(folder: Path) -> None:
    """Each start is a new epoch: the parts before it stay without their end."""
    folder.mkdir()
    unfinished = [(2, 0, 1, b"whole"), (PART, 0, 1, b"par"), (PART, CONTINUES, 1, b"ts")]
    (folder / "1.wal").write_bytes(raw_records(FileHeader(1, 1, 0, 1, 5), unfinished))
    reading = read(folder)
    assert (reading.payloads, reading.tail.last_seq) == ([b"whole"], 3)
    (folder / "2.wal").write_bytes(raw_records(FileHeader(2, 2, 3, 4, 6), [(2, 0, 1, b"next")]))
    assert read(folder).payloads == [b"whole", b"next"]
    stranger = raw_records(FileHeader(2, 2, 3, 4, 6), [(2, CONTINUES, 1, b"of another epoch")])
    (folder / "2.wal").write_bytes(stranger)
    reading = read(folder)
    assert (reading.result, reading.payloads) == (lib.OM_E_CORRUPT, [b"whole"])


def test_parts_go_on_in_the_next_file(folder: Path) -> None:
    folder.mkdir()
    first = [(PART, 0, 9, b"par"), (PART, CONTINUES, 9, b"ts")]
    second = [(7, CONTINUES, 9, b" of one"), (2, 0, 1, b"next")]
    (folder / "1.wal").write_bytes(raw_records(FileHeader(1, 1, 0, 1, 5), first))
    (folder / "2.wal").write_bytes(raw_records(FileHeader(1, 2, 2, 3, 6), second))
    entries = read(folder).entries
    assert [(e.seq, e.payload, e.log_id, e.type) for e in entries] == [
        (3, b"parts of one", 9, 7),
        (4, b"next", 1, 2),
    ]


def test_the_end_of_a_record_without_its_beginning_is_a_hole(folder: Path) -> None:
    folder.mkdir()
    second = [(7, CONTINUES, 9, b" of one"), (2, 0, 1, b"next")]
    (folder / "2.wal").write_bytes(raw_records(FileHeader(1, 2, 2, 3, 6), second))
    assert read(folder, after=2).result == lib.OM_E_CORRUPT
    assert read(folder, after=3).seqs == [4]


# -- the fence --


def test_the_fence_ends_its_epoch(folder: Path) -> None:
    three_files(folder)
    write_fence(folder, epoch=3, last_seq=5)
    reading = read(folder)
    assert (reading.result, reading.seqs, reading.tail.last_seq) == (lib.OM_END, [1, 2, 3, 4, 5], 5)
    with opened(folder, reading) as wal:
        wal.commit(b"after the fence")
    assert not (folder / "fence").exists()
    assert read(folder).payloads[-2:] == [b"2", b"after the fence"]


def test_the_fence_of_an_older_epoch_changes_nothing(folder: Path) -> None:
    three_files(folder)
    write_fence(folder, epoch=1, last_seq=2)
    assert read(folder).seqs == [1, 2, 3, 4, 5, 6]


def test_an_epoch_is_never_reused_after_its_fence(folder: Path) -> None:
    three_files(folder)
    write_fence(folder, epoch=9, last_seq=6)
    with opened(folder, read(folder)) as wal:
        wal.commit(b"new")
    assert read(folder).entries[-1].epoch == 10


def test_records_missing_before_the_fence_are_a_hole(folder: Path) -> None:
    path = three_files(folder)[3]
    write_fence(folder, epoch=3, last_seq=5)
    flip(path, BLOCK)
    reading = read(folder)
    assert reading.result == lib.OM_E_CORRUPT
    assert "sequences 5 to 5 are missing" in reading.error


@pytest.mark.parametrize("position", [0, 8, 12, 20, 28, 31])
def test_a_damaged_fence_stops_everything(folder: Path, position: int) -> None:
    three_files(folder)
    write_fence(folder, epoch=3, last_seq=5)
    flip(folder / "fence", position)
    with pytest.raises(WalError, match="fence file is damaged"):
        read(folder)


# -- everything at once --

TICK = st.lists(st.binary(max_size=200) | st.integers(1, 900_000), min_size=1, max_size=4)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(st.lists(TICK, max_size=5), st.integers(0, 10)), min_size=1, max_size=5))
def test_any_run_of_starts_ticks_and_releases_reads_back(
    starts: list[tuple[list[list[bytes | int]], int]],
) -> None:
    """The model is a list of what was committed and a number below which nothing is asked for."""
    written: list[tuple[int, bytes]] = []
    released = 0
    with memory_folder() as folder:
        for ticks, keep in starts:
            reading = read(folder, after=released)
            assert reading.result == lib.OM_END
            assert [(e.seq, e.payload) for e in reading.entries] == [
                (seq, payload) for seq, payload in written if seq > released
            ]
            with opened(folder, reading, released=released, max_size=3 * MIB, reserve=0) as wal:
                for tick in ticks:
                    for item in tick:
                        payload = item if isinstance(item, bytes) else b"%d" % item * (item // 6)
                        written.append((wal.append(payload), payload))
                    wal.submit()
                wal.wait(wal.last_seq)
                if len(written) > keep:
                    released = max(released, written[-keep - 1][0])
                wal.release(released)


def test_progress_is_told_in_bytes(folder: Path) -> None:
    three_files(folder)
    err, total, record = ffi.new("char[64]"), ffi.new("uint64_t *"), ffi.new("om_wal_record *")
    reader = lib.om_wal_reader_open(os.fsencode(folder), 0, err, 64)
    seen = []
    while lib.om_wal_reader_next(reader, record) == lib.OM_OK:
        seen.append(lib.om_wal_reader_bytes(reader, total))
    lib.om_wal_reader_close(reader)
    assert total[0] == 3 * MIB
    assert seen == sorted(seen)
    assert seen[-1] > 2 * MIB
