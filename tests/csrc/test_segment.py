"""A segment: batches get a place, go to the file, and are found again by offset and by time."""

import os
import random
import resource
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.csrc.batches import Record
from tests.csrc.segments import (
    INTERVAL,
    NOW,
    OFFSET_ENTRY,
    TIME_ENTRY,
    Segment,
    batch_plans,
    file_cache,
    kafka_indexes,
    limits,
    run_child,
)
from tests.examples import examples
from tests.internals import ffi, lib

MOST = 2**31 - 1
quick = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def files() -> Iterator[Any]:
    with file_cache() as cache:
        yield cache


@pytest.fixture
def segment(files: Any, tmp_path: Path) -> Iterator[Segment]:
    made = Segment(files, tmp_path / "vhost" / "queue.1", 1000)
    yield made
    made.close()


def info(**fields: int) -> Any:
    usual = {"base_offset": 1000, "size": 100, "max_timestamp": NOW, "base_timestamp": NOW}
    return ffi.new("om_batch_info *", usual | fields)


# ---- places and rolling ----------------------------------------------------------------


def test_an_empty_segment_has_no_file_and_no_folder(segment: Segment) -> None:
    assert not segment.folder.exists()
    assert segment.find(1000)[0] == lib.OM_END
    assert segment.find_time(0)[0] == lib.OM_END
    assert segment.view()[0] == lib.OM_END
    assert lib.om_range_open(segment.c, ffi.new("int *")) == lib.OM_END
    assert lib.om_segment_sync(segment.c) == lib.OM_OK
    segment.save_index()
    assert not segment.folder.exists()


def test_an_empty_segment_takes_any_batch(segment: Segment) -> None:
    batch = info(size=MOST, last_offset_delta=MOST)
    tight = limits(segment_size=4096, index_max=1, max_age_ms=1)
    assert not lib.om_segment_must_roll(segment.c, tight, batch, NOW + 10**9)
    assert lib.om_segment_place(segment.c, batch) == 0


@pytest.mark.parametrize(
    ("rule", "batch", "rolls"),
    [
        ({}, {}, False),
        ({"segment_size": 200}, {}, False),
        ({"segment_size": 199}, {}, True),
        ({}, {"last_offset_delta": MOST - 1}, False),
        ({}, {"last_offset_delta": MOST}, True),
        ({"segment_size": 2**40}, {"size": MOST - 100}, False),
        ({"segment_size": 2**40}, {"size": MOST - 99}, True),
    ],
)
def test_a_segment_rolls_by_size_and_by_relative_offset(
    segment: Segment, rule: dict[str, int], batch: dict[str, int], rolls: bool
) -> None:
    assert lib.om_segment_place(segment.c, info()) == 0
    late = info(base_offset=1001, **batch)
    assert bool(lib.om_segment_must_roll(segment.c, limits(**rule), late, NOW)) is rolls


@pytest.mark.parametrize(
    ("first", "batch", "now", "rolls"),
    [
        (NOW, NOW + 1000, NOW + 1000, False),
        (NOW, NOW + 1001, NOW + 1001, True),
        (NOW, NOW + 9999, NOW + 1000, False),  # a producer whose clock is ahead
        (77, 78, NOW, False),  # old records, copied today: not a segment for each batch
        (77, 1078, NOW, True),
        (-1, NOW, NOW, False),  # no timestamps
    ],
)
def test_a_segment_rolls_by_age(
    segment: Segment, first: int, batch: int, now: int, rolls: bool
) -> None:
    lib.om_segment_place(segment.c, info(base_timestamp=first, max_timestamp=first))
    late = info(base_offset=1001, max_timestamp=batch)
    age = limits(max_age_ms=1000)
    assert bool(lib.om_segment_must_roll(segment.c, age, late, now)) is rolls


def test_a_segment_rolls_when_its_index_is_full(segment: Segment) -> None:
    rule = limits(index_max=2)
    for n in range(3):
        late = info(base_offset=1000 + n, size=INTERVAL + 1)
        assert not lib.om_segment_must_roll(segment.c, rule, late, NOW)
        assert lib.om_segment_place(segment.c, late) >= 0
    assert segment.c.index.offset_count == 2
    assert lib.om_segment_must_roll(segment.c, rule, info(base_offset=1003), NOW)


def test_a_batch_that_has_no_place_here_is_refused(segment: Segment) -> None:
    place = lib.om_segment_place
    assert place(segment.c, info(base_offset=999)) == lib.OM_E_RANGE
    assert place(segment.c, info(last_offset_delta=4)) == 0
    assert place(segment.c, info(base_offset=1004)) == lib.OM_E_RANGE
    assert place(segment.c, info(base_offset=1000 + MOST + 1)) == lib.OM_E_RANGE
    assert place(segment.c, info(base_offset=1005, size=60)) == lib.OM_E_INVALID
    assert place(segment.c, info(base_offset=1005, last_offset_delta=-1)) == lib.OM_E_INVALID
    assert place(segment.c, info(base_offset=1005)) == 100
    lib.om_segment_seal(segment.c)
    assert place(segment.c, info(base_offset=1006)) == lib.OM_E_INVALID
    assert lib.om_segment_must_roll(segment.c, limits(), info(base_offset=1006), NOW)
    assert (segment.c.next_offset, segment.c.size) == (1006, 200)


# ---- writing ---------------------------------------------------------------------------


def test_batches_lie_where_they_were_placed(segment: Segment) -> None:
    segment.fill(50)
    assert segment.path().read_bytes() == segment.data
    assert segment.read() == segment.data
    assert segment.c.written == segment.size
    assert lib.om_segment_sync(segment.c) == lib.OM_OK
    assert segment.c.unsynced_folders == 0


def test_thousands_of_small_batches_go_in_one_call(segment: Segment) -> None:
    batches = [segment.place([Record(NOW, None, b"")]) for _ in range(5000)]
    assert segment.write(batches) == lib.OM_OK
    assert segment.path().read_bytes() == segment.data


def test_a_write_can_be_made_again(segment: Segment) -> None:
    segment.fill(10)
    assert segment.write(segment.batches[3:7]) == lib.OM_OK
    assert segment.c.written == segment.size
    assert segment.path().read_bytes() == segment.data


def test_bytes_with_a_hole_before_them_are_not_shown(segment: Segment) -> None:
    first, second = (segment.place([Record(NOW, None, b"x" * 100)]) for _ in range(2))
    assert segment.write([second]) == lib.OM_OK
    assert segment.view()[0] == lib.OM_END
    assert segment.write([first]) == lib.OM_OK
    assert segment.read() == first.data
    assert segment.write([second]) == lib.OM_OK
    assert segment.read() == segment.data


def test_blocks_are_allocated_ahead_without_showing_in_the_file(segment: Segment) -> None:
    segment.fill(1)
    assert segment.c.allocated == 65536
    assert os.stat(segment.path()).st_blocks * 512 >= 65536
    while segment.size <= 65536:
        segment.fill(20)
    assert segment.c.allocated == 131072
    assert segment.path().stat().st_size == segment.size
    segment.limits = limits(segment_size=140_000)
    while segment.size <= 131072:
        segment.fill(10)
    assert segment.c.allocated == 140_000
    segment.limits = limits(segment_size=300_000)
    segment.append([Record(NOW, None, b"x" * 400_000)])
    assert segment.c.allocated == segment.size > 300_000


def test_a_sealed_segment_gives_back_what_it_does_not_use(segment: Segment) -> None:
    segment.limits = limits(initial_size=1 << 20)
    segment.fill(10)
    before = os.stat(segment.path()).st_blocks * 512
    assert before >= 1 << 20
    segment.seal()
    assert lib.om_segment_sync(segment.c) == lib.OM_OK
    assert os.stat(segment.path()).st_blocks * 512 < 65536
    assert segment.path().read_bytes() == segment.data


def test_no_space_is_told_and_heals(segment: Segment) -> None:
    segment.fill(3)
    kept = segment.path().rename(segment.folder / "kept")
    segment.path().symlink_to("/dev/full")
    full = segment.reopen(sealed=False)
    placed = full.place([Record(NOW, None, b"x" * 100)])
    assert full.write([placed]) == lib.OM_E_NO_SPACE
    assert full.c.written == segment.size
    kept.rename(segment.path())
    full.close()
    healed = segment.reopen(sealed=False)
    placed = healed.append([Record(NOW, None, b"x" * 100)])
    assert segment.path().read_bytes() == segment.data + placed.data
    healed.close()


SHORT_WRITE = """
import resource
with file_cache() as files:
    segment = Segment(files, Path(sys.argv[3]), limits=limits(pre_allocate=0))
    batches = [segment.place([Record(1, None, b"x" * 300)]) for _ in range(100)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, -1))
    assert segment.write(batches) == lib.OM_E_IO and ffi.errno == 27, ffi.errno
    assert segment.path().stat().st_size == 5000 and segment.c.written == 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
    assert segment.write(batches) == lib.OM_OK
    assert segment.path().read_bytes() == segment.data
    segment.close()
"""


def test_a_short_write_is_carried_on_until_it_fails(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    done = run_child(SHORT_WRITE, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_new_segment_starts_empty_whatever_lies_under_its_name(segment: Segment) -> None:
    segment.folder.mkdir(parents=True)
    segment.path().write_bytes(b"left over" * 10_000)
    segment.fill(2)
    assert segment.path().read_bytes() == segment.data


# ---- the indexes -----------------------------------------------------------------------


def test_a_small_segment_has_only_its_log(segment: Segment) -> None:
    segment.fill(5)
    segment.save_index()
    assert [path.name for path in segment.folder.iterdir()] == [segment.path().name]


@quick
@given(plan=batch_plans())
def test_the_index_files_are_what_kafka_would_have_written(
    files: Any, tmp_path: Path, plan: list[tuple[list[Record], int]]
) -> None:
    segment = Segment(files, tmp_path)
    for n, (records, gap) in enumerate(plan):
        segment.append(records, gap)
        if n % 3 == 0:
            segment.save_index()
    segment.seal()
    offsets, times = kafka_indexes(segment.batches, 0)
    for suffix, wanted in ((".index", offsets), (".timeindex", times)):
        path = segment.path(suffix)
        assert (path.read_bytes() if path.exists() else b"") == wanted
        assert path.exists() == bool(wanted)
        path.unlink(missing_ok=True)
    segment.close()


def test_kafkas_own_verification_finds_nothing_to_say(segment: Segment) -> None:
    """The rules of DumpLogSegments: an entry's batch ends with the entry's offset, and a time
    entry's batch has the entry's timestamp as its largest."""
    segment.fill(100)
    segment.seal()
    by_position = {batch.position: batch for batch in segment.batches}
    by_last_offset = {batch.last_offset: batch for batch in segment.batches}
    offsets = list(OFFSET_ENTRY.iter_unpack(segment.path(".index").read_bytes()))
    times = list(TIME_ENTRY.iter_unpack(segment.path(".timeindex").read_bytes()))
    assert len(offsets) == 12 and len(times) == 13
    for offset, position in offsets:
        assert by_position[position].last_offset == 1000 + offset
    for timestamp, offset in times:
        assert by_last_offset[1000 + offset].max_timestamp == timestamp


def save(segment: Segment, copy: Any) -> None:
    saved = lib.om_segment_save_index(
        segment.c, copy.offsets, copy.offset_count, copy.times, copy.time_count
    )
    assert saved == lib.OM_OK
    lib.om_index_free(copy)


def unsaved(segment: Segment) -> Any:
    copy = ffi.new("om_index *")
    assert lib.om_segment_unsaved_index(segment.c, copy) == lib.OM_OK
    return copy


def test_two_threads_that_save_the_same_entries_write_them_once(segment: Segment) -> None:
    """A checkpoint saves what the writer is just about to seal."""
    segment.fill(40)
    first = unsaved(segment)
    segment.fill(40)
    second, third = unsaved(segment), unsaved(segment)
    save(segment, second)
    save(segment, first)
    assert segment.c.index_saved == segment.c.index.offset_count
    segment.fill(20)
    lib.om_segment_seal(segment.c)
    last = unsaved(segment)
    segment.save_index()
    save(segment, last)
    save(segment, third)
    offsets, times = kafka_indexes(segment.batches, 1000)
    assert segment.path(".index").read_bytes() == offsets
    assert segment.path(".timeindex").read_bytes() == times


def test_entries_that_a_cut_has_dropped_are_not_saved(segment: Segment) -> None:
    segment.fill(100)
    late = unsaved(segment)
    del segment.batches[30:]
    lib.om_segment_cut(segment.c, segment.size, segment.next_offset)
    save(segment, late)
    segment.fill(50, 700)
    segment.seal()
    offsets, times = kafka_indexes(segment.batches, 1000)
    assert segment.path(".index").read_bytes() == offsets
    segment.check_look_ups()


def test_a_sealed_and_saved_segment_keeps_no_index_of_its_own(segment: Segment) -> None:
    segment.fill(100)
    assert segment.c.index.offset_count == 12
    segment.seal()
    assert (segment.c.index.offset_count, segment.c.index_loaded) == (0, 0)
    segment.check_look_ups()
    assert segment.c.index.offset_count == 0


# ---- look-ups --------------------------------------------------------------------------


@quick
@given(plan=batch_plans())
def test_every_offset_and_timestamp_is_found(
    files: Any, tmp_path: Path, plan: list[tuple[list[Record], int]]
) -> None:
    segment = Segment(files, tmp_path, 7)
    for records, gap in plan:
        segment.append(records, gap)
    segment.check_look_ups()
    segment.seal()
    segment.check_look_ups()
    again = segment.reopen()
    again.check_look_ups()
    for suffix in (".index", ".timeindex"):
        segment.path(suffix).unlink(missing_ok=True)
    again.close()
    segment.close()


def test_what_is_placed_but_not_written_is_not_found(segment: Segment) -> None:
    segment.fill(40)
    written = list(segment.batches)
    for n in range(40):
        segment.place([Record(NOW + 1000 + n, None, b"y" * 600)])
    waiting = segment.batches[len(written) :]
    for batch in waiting:
        assert segment.find(batch.base_offset)[0] == lib.OM_END
        assert segment.find_time(batch.max_timestamp)[0] == lib.OM_END
    assert segment.find(written[-1].last_offset) == (lib.OM_OK, written[-1].position)
    assert segment.write(waiting) == lib.OM_OK
    segment.check_look_ups()


def test_the_hint_is_where_the_look_up_starts_to_read(segment: Segment) -> None:
    position, last = ffi.new("uint64_t *"), ffi.new("int64_t *")
    assert lib.om_segment_hint(segment.c, 1000, position, last) == lib.OM_END
    segment.fill(100)
    ends = {batch.position: batch.last_offset for batch in segment.batches}
    for batch in segment.batches:
        assert lib.om_segment_hint(segment.c, batch.last_offset, position, last) == lib.OM_OK
        assert batch.position - INTERVAL - len(batch.data) <= position[0] <= batch.position
        assert last[0] == (ends[position[0]] if position[0] else -1)
    segment.seal()
    assert lib.om_segment_hint(segment.c, 1199, position, last) == lib.OM_OK
    assert (position[0], last[0]) == (0, -1)
    segment.find(1199)
    assert lib.om_segment_hint(segment.c, 1199, position, last) == lib.OM_OK
    assert last[0] == ends[position[0]]


def test_a_compressed_batch_answers_for_all_its_records(segment: Segment) -> None:
    segment.fill(3)
    plain = segment.place([Record(NOW + 100 + n) for n in range(4)])
    body = plain.data[:21] + struct.pack(">h", 4) + plain.data[23:]
    crc = lib.om_crc32c_portable(0, body[21:], len(body) - 21)
    zipped = body[:17] + struct.pack(">I", crc) + body[21:]
    segment.batches[-1] = plain.__class__(**{**plain.__dict__, "data": zipped})
    assert segment.write(segment.batches[-1:]) == lib.OM_OK
    assert segment.find_time(NOW + 102) == (lib.OM_OK, plain.base_offset, NOW + 103)


# ---- wrong indexes ---------------------------------------------------------------------


@pytest.fixture
def sealed(segment: Segment) -> Segment:
    """Batches with gaps and timestamps that go back, 7 or so index entries."""
    chance = random.Random(5)
    for n in range(60):
        stamps = (NOW + n * 10 + chance.randrange(-40, 40) for _ in range(1 + n % 3))
        records = [Record(t, None, bytes(chance.randrange(50, 600))) for t in stamps]
        segment.append(records, gap=chance.choice((0, 0, 3)))
    segment.seal()
    return segment


def check_reopened(segment: Segment, sealed: bool = True) -> None:
    again = segment.reopen(sealed=sealed)
    again.check_look_ups()
    assert not again.c.fenced
    again.close()


@pytest.mark.parametrize("sealed_again", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_is_made_anew(sealed: Segment, suffix: str, sealed_again: bool) -> None:
    sealed.path(suffix).unlink()
    check_reopened(sealed, sealed_again)
    assert sealed.path(suffix).exists() == sealed_again


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_cut_at_any_length_gives_right_answers_and_is_mended(
    sealed: Segment, suffix: str
) -> None:
    whole = sealed.path(suffix).read_bytes()
    assert len(whole) > 50
    for cut in range(len(whole)):
        sealed.path(suffix).write_bytes(whole[:cut])
        check_reopened(sealed)
        assert sealed.path(suffix).read_bytes() == whole


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("flip", [0x01, 0x10, 0x80])
def test_an_index_with_a_flipped_byte_gives_right_answers(
    sealed: Segment, suffix: str, flip: int
) -> None:
    whole = sealed.path(suffix).read_bytes()
    for at in range(len(whole)):
        wrong = bytearray(whole)
        wrong[at] ^= flip
        sealed.path(suffix).write_bytes(wrong)
        check_reopened(sealed, sealed=at % 2 == 0)


def test_an_index_of_another_segment_gives_right_answers(sealed: Segment) -> None:
    other = Segment(sealed.files, sealed.folder, 5)
    other.fill(40, 300)
    other.seal()
    for suffix in (".index", ".timeindex"):
        other.path(suffix).rename(sealed.path(suffix))
    check_reopened(sealed)
    other.close()


def surveyed(segment: Segment) -> list[tuple[int, int, int, int]]:
    survey = ffi.new("om_survey *")
    nowhere = (1 << 64) - 1
    size, end = segment.size, segment.next_offset
    assert lib.om_segment_survey(segment.c, size, end, nowhere, survey) == lib.OM_OK
    found = [survey.items[i] for i in range(survey.count)]
    bad = [(each.position, each.end, each.first, each.last) for each in found]
    lib.om_survey_free(survey)
    return bad


@pytest.mark.parametrize(
    "at, byte",
    [(16, 7), (8, 1), (11, 255), (0, 1), (7, 200), (17, 9), (23, 255), (60, 255), (70, 1)],
    ids=["magic", "longer", "shorter", "far off", "offset", "crc", "delta", "count", "record"],
)
def test_a_bad_batch_costs_itself_and_no_other(sealed: Segment, at: int, byte: int) -> None:
    victim, after = sealed.batches[40], sealed.batches[41]
    gap = sealed.batches[39].last_offset + 1
    with sealed.path().open("r+b") as file:
        file.seek(victim.position + at)
        before = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([before[0] ^ byte]))
    again = sealed.reopen()
    assert surveyed(again) == [(victim.position, after.position, gap, after.base_offset - 1)]
    assert again.find(victim.base_offset)[0] == lib.OM_E_UNREADABLE
    for batch in [*sealed.batches[:40], *sealed.batches[41:]]:
        assert again.find(batch.base_offset) == (lib.OM_OK, batch.position)
    again.close()
    # What was damaged and isn't any more is read again.
    with sealed.path().open("r+b") as file:
        file.seek(victim.position + at)
        file.write(before)
    again = sealed.reopen()
    assert surveyed(again) == []
    assert again.find(victim.base_offset) == (lib.OM_OK, victim.position)
    again.close()


def test_a_missing_file_is_unreadable_and_others_serve(sealed: Segment) -> None:
    again = sealed.reopen()
    sealed.path().rename(sealed.folder / "elsewhere")
    lib.om_segment_cut(sealed.c, sealed.size, sealed.next_offset)  # forget the warm mapping
    other = Segment(sealed.files, sealed.folder, 5)
    other.fill(3)
    assert again.find(1000)[0] == lib.OM_E_UNREADABLE
    assert other.find(5)[0] == lib.OM_OK
    other.close()
    again.close()


# ---- cutting ---------------------------------------------------------------------------


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 55, 99, 100])
def test_a_cut_segment_goes_on_from_there(segment: Segment, keep: int, saved: bool) -> None:
    segment.fill(100)
    if saved:
        segment.save_index()
    gone = segment.batches[keep:]
    del segment.batches[keep:]
    lib.om_segment_cut(segment.c, segment.size, segment.next_offset)
    assert lib.om_segment_trim_file(segment.c, segment.size) == lib.OM_OK
    segment.check_look_ups()
    for batch in gone[:1]:
        assert segment.find(batch.last_offset)[0] == lib.OM_END
    for n in range(60):
        segment.append([Record(NOW + 120 + n, None, b"z" * 300)])
    segment.check_look_ups()
    segment.seal()
    assert segment.path().read_bytes() == segment.data
    segment.check_look_ups()
    check_reopened(segment)


def test_a_sealed_segment_can_be_cut(sealed: Segment) -> None:
    sealed.check_look_ups()
    del sealed.batches[30:]
    lib.om_segment_cut(sealed.c, sealed.size, sealed.next_offset)
    assert lib.om_segment_trim_file(sealed.c, sealed.size) == lib.OM_OK
    sealed.check_look_ups()


# ---- going on after a restart ----------------------------------------------------------


def test_an_active_segment_goes_on_with_its_index_after_a_restart(segment: Segment) -> None:
    segment.fill(50)
    segment.save_index()
    again = segment.reopen(sealed=False)
    assert lib.om_segment_load_index(again.c) == lib.OM_OK
    assert again.c.index.offset_count == 6
    again.fill(50)
    again.seal()
    offsets, times = kafka_indexes(again.batches, 1000)
    assert again.path(".index").read_bytes() == offsets
    assert again.path(".timeindex").read_bytes() == times
    again.close()


def test_batches_placed_before_the_index_was_loaded_are_found(segment: Segment) -> None:
    segment.fill(50)
    segment.save_index()
    again = segment.reopen(sealed=False)
    again.fill(50)
    again.check_look_ups()
    again.fill(50)
    again.check_look_ups()
    again.seal()
    again.check_look_ups()
    check_reopened(again)
    again.close()
