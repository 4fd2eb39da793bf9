"""The cache of open files and mappings: bounded, and never at the cost of who is reading."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.csrc.batches import Record
from tests.csrc.segments import NOW, Segment, file_cache, stat_of
from tests.internals import ffi, lib


@pytest.fixture
def files() -> Iterator[Any]:
    with file_cache() as cache:
        yield cache


@pytest.fixture
def segment(files: Any, tmp_path: Path) -> Iterator[Segment]:
    made = Segment(files, tmp_path)
    yield made
    made.close()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def mapped_segments(folder: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(folder))


def filled(files: Any, folder: Path, count: int) -> list[Segment]:
    made = []
    for n in range(count):
        segment = Segment(files, folder, n * 1000)
        segment.fill(20)
        made.append(segment)
    return made


def test_descriptors_and_mappings_stay_within_their_bounds(tmp_path: Path) -> None:
    before = open_descriptors()
    with file_cache(max_open=5, max_mapped=4 * 65536) as files:
        segments = filled(files, tmp_path, 30)
        for segment in segments * 2:
            assert segment.read() == segment.data
        lib.om_file_cache_reap(files)
        stat = stat_of(files)
        assert (stat.open_files, stat.mappings, stat.mapped_bytes) == (5, 4, 4 * 65536)
        assert stat.evictions > 100
        assert open_descriptors() == before + 5
        assert mapped_segments(tmp_path) == 4
        for segment in segments:
            segment.close()
        assert stat_of(files).open_files == 0
    assert open_descriptors() == before
    assert mapped_segments(tmp_path) == 0


def test_what_is_in_use_is_never_evicted(tmp_path: Path) -> None:
    with file_cache(max_open=1, max_mapped=1) as files:
        segments = filled(files, tmp_path, 10)
        views = [segment.view()[1] for segment in segments]
        fds = [ffi.new("int *") for _ in segments]
        for segment, fd in zip(segments, fds, strict=True):
            assert lib.om_range_open(segment.c, fd) == lib.OM_OK
        assert stat_of(files).open_files == stat_of(files).mappings == 10
        for segment, view, fd in zip(segments, views, fds, strict=True):
            assert bytes(ffi.buffer(view.data, view.len)) == segment.data
            assert os.pread(fd[0], segment.size, 0) == segment.data
            lib.om_view_release(view)
            lib.om_range_release(segment.c, fd[0])
        assert stat_of(files).open_files == 1
        assert stat_of(files).mappings == 0
        for segment in segments:
            segment.close()


def test_the_most_recently_used_stay(tmp_path: Path) -> None:
    with file_cache(max_open=3, max_mapped=3 * 65536) as files:
        segments = filled(files, tmp_path, 6)
        for n in (0, 1, 2, 0, 3, 0, 4, 0, 5, 0):
            assert segments[n].read() == segments[n].data
        assert [bool(segment.c.map_slot) for segment in segments] == [1, 0, 0, 0, 1, 1]
        for segment in segments:
            segment.close()


def test_unsynced_files_are_closed_last(tmp_path: Path) -> None:
    with file_cache(max_open=3) as files:
        segments = filled(files, tmp_path, 3)
        for segment in segments[1:]:
            assert lib.om_segment_sync(segment.c) == lib.OM_OK
        segments += filled(files, tmp_path / "more", 1)
        assert bool(segments[0].c.file_slot)
        assert [bool(segment.c.file_slot) for segment in segments[1:]] == [False, True, True]
        for segment in segments:
            segment.close()


def test_a_warm_view_takes_the_mapping_that_is_there(segment: Segment) -> None:
    segment.fill(20)
    before = segment.read()
    segment.path().rename(segment.folder / "hidden")  # a second open would fail
    lib.om_file_cache_reap(segment.files)
    mapping = segment.c.map_slot
    for position in range(0, segment.size, 997):
        result, view = segment.view(position, 100)
        assert result == lib.OM_OK and view.mapping == mapping
        assert bytes(ffi.buffer(view.data, view.len)) == before[position : position + 100]
        lib.om_view_release(view)
    assert stat_of(segment.files).mappings == 1


def test_a_growing_segment_is_remapped_and_old_views_stay(segment: Segment) -> None:
    views = []
    for _ in range(9):
        segment.fill(60)
        result, view = segment.view()
        assert result == lib.OM_OK and view.len == segment.size
        views.append((view, segment.data))
    assert segment.size > 4 * 65536
    assert len({view.mapping for view, _ in views}) == 4  # 64, 128, 256, 512 KiB
    assert stat_of(segment.files).mappings == 4
    for view, data in views:
        assert bytes(ffi.buffer(view.data, view.len)) == data
        lib.om_view_release(view)
    assert stat_of(segment.files).mappings == 1


def test_a_view_is_clipped_to_what_is_written(segment: Segment) -> None:
    segment.fill(3)
    assert segment.read(10, 20) == segment.data[10:30]
    assert segment.read(segment.size - 5, 100) == segment.data[-5:]
    for position in (segment.size, segment.size + 1, 2**63):
        assert segment.view(position, 1)[0] == lib.OM_END


def test_a_deleted_segment_is_readable_for_who_holds_it(segment: Segment) -> None:
    segment.fill(30)
    segment.save_index()
    data = segment.data
    _, view = segment.view()
    fd = ffi.new("int *")
    assert lib.om_range_open(segment.c, fd) == lib.OM_OK
    assert lib.om_segment_unlink(segment.c) == lib.OM_OK
    assert list(segment.folder.iterdir()) == []
    assert bytes(ffi.buffer(view.data, view.len)) == data
    assert os.pread(fd[0], len(data), 0) == data
    assert segment.view()[0] == lib.OM_E_DELETED
    assert lib.om_range_open(segment.c, ffi.new("int *")) == lib.OM_E_DELETED
    assert segment.find(0)[0] == lib.OM_E_DELETED
    assert segment.write(segment.batches) == lib.OM_E_DELETED
    lib.om_segment_ref(segment.c)
    segment.close()  # the owner lets go first, the readers last
    lib.om_view_release(view)
    lib.om_range_release(segment.c, fd[0])
    lib.om_file_cache_reap(segment.files)
    assert stat_of(segment.files).open_files == stat_of(segment.files).mappings == 0
    assert mapped_segments(segment.folder) == 0


def test_letting_go_leaves_the_closing_to_the_reaper(segment: Segment) -> None:
    segment.fill(30)
    _, view = segment.view()
    assert lib.om_segment_unlink(segment.c) == lib.OM_OK
    lib.om_view_release(view)
    assert mapped_segments(segment.folder) == 1
    lib.om_file_cache_reap(segment.files)
    assert mapped_segments(segment.folder) == 0


def test_pages_are_loaded_and_the_index_with_them(segment: Segment) -> None:
    segment.fill(100)
    segment.seal()
    assert lib.om_segment_sync(segment.c) == lib.OM_OK
    _, view = segment.view()
    assert lib.om_view_resident(view) == 0, "the index isn't there yet"
    assert lib.om_view_load(view) == lib.OM_OK
    assert lib.om_view_resident(view) == 1
    lib.om_view_release(view)
    _, view = segment.view(8192 + 77, 5000)
    assert lib.om_view_resident(view) == 1
    lib.om_view_release(view)


def test_look_ups_go_on_while_the_segment_grows_is_saved_and_sealed(segment: Segment) -> None:
    """Readers in other threads never see half of anything."""
    wrong: list[str] = []
    done = threading.Event()
    first = segment.append([Record(NOW)])
    segment.batches.clear()  # the threads keep no list: offset n lies in batch n

    def read(seed: int) -> None:
        position, info = ffi.new("uint64_t *"), ffi.new("om_batch_info *")
        view = ffi.new("om_view *")
        offset, stamp = ffi.new("int64_t *"), ffi.new("int64_t *")
        wanted = seed
        while not done.is_set():
            written = segment.c.written // len(first.data)
            wanted = (wanted * 48271) % 2147483647
            n = wanted % written
            result = lib.om_segment_find(segment.c, n, position, info)
            if (result, info.base_offset, position[0]) != (lib.OM_OK, n, n * len(first.data)):
                wrong.append(f"offset {n} of {written}: {result} {info.base_offset}")
            result = lib.om_segment_find_time(segment.c, NOW + n, offset, stamp)
            if (result, offset[0]) != (lib.OM_OK, n):
                wrong.append(f"time {n} of {written}: {result} {offset[0]}")
            if lib.om_view_open(segment.c, position[0], 61, view) != lib.OM_OK:
                wrong.append(f"view {n} of {written}")
                continue
            if bytes(ffi.buffer(view.data, 8)) != n.to_bytes(8, "big"):
                wrong.append(f"bytes {n} of {written}")
            lib.om_view_release(view)

    readers = [threading.Thread(target=read, args=(seed,)) for seed in (1, 77, 991)]
    for reader in readers:
        reader.start()
    segment.batches.append(first)
    for n in range(1, 1500):
        segment.append([Record(NOW + n)])
        if n % 100 == 0:
            segment.save_index()
    segment.seal()
    for _ in range(300):
        segment.find(7)
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert len({len(batch.data) for batch in segment.batches}) == 1
