"""A mapped file that is cut under us: a reported error, not a death by SIGBUS."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.csrc.segments import Segment, file_cache, run_child
from tests.internals import ffi, lib

PAGE = os.sysconf("SC_PAGESIZE")


@pytest.fixture(autouse=True)
def installed() -> None:
    assert lib.om_sigbus_install() == lib.OM_OK
    assert lib.om_sigbus_install() == lib.OM_OK


@pytest.fixture
def files() -> Iterator[Any]:
    with file_cache() as cache:
        yield cache


@pytest.fixture
def segment(files: Any, tmp_path: Path) -> Iterator[Segment]:
    made = Segment(files, tmp_path / "queue")
    made.fill(200)
    yield made
    made.close()


def read_guarded(view: Any) -> tuple[int, bytes]:
    out = ffi.new("uint8_t[]", view.len)
    lib.om_sigbus_begin(view)
    ffi.memmove(out, view.data, view.len)
    return lib.om_sigbus_end(view), bytes(ffi.buffer(out, view.len))


def test_a_view_that_can_be_read_is_just_read(segment: Segment) -> None:
    _, view = segment.view()
    assert read_guarded(view) == (lib.OM_OK, segment.data)
    lib.om_view_release(view)
    assert not segment.c.fenced


def test_a_file_cut_under_a_view_reads_as_zeros_and_is_told(segment: Segment) -> None:
    _, view = segment.view()
    os.truncate(segment.path(), PAGE + 100)
    result, data = read_guarded(view)
    assert result == lib.OM_E_UNREADABLE
    assert data[: PAGE + 100] == segment.data[: PAGE + 100]
    assert not any(data[PAGE + 100 :])
    lib.om_view_release(view)


def test_the_segment_is_unreadable_and_the_others_serve(segment: Segment) -> None:
    other = Segment(segment.files, segment.folder, 10_000)
    other.fill(10)
    _, view = segment.view()
    os.truncate(segment.path(), 0)
    assert read_guarded(view)[0] == lib.OM_E_UNREADABLE
    lib.om_view_release(view)
    assert segment.view()[0] == lib.OM_E_UNREADABLE
    assert segment.find(0)[0] == lib.OM_E_UNREADABLE
    assert segment.find_time(0)[0] == lib.OM_E_UNREADABLE
    other.check_look_ups()
    other.close()


@pytest.mark.parametrize("sealed", [True, False])
def test_a_look_up_in_a_file_that_was_cut_is_unreadable(segment: Segment, sealed: bool) -> None:
    if sealed:
        segment.seal()
    assert segment.find(399)[0] == lib.OM_OK
    os.truncate(segment.path(), PAGE)
    assert segment.find(399)[0] == lib.OM_E_UNREADABLE


@pytest.mark.parametrize("warm", [True, False])
def test_an_index_is_not_rebuilt_from_zeros(segment: Segment, warm: bool) -> None:
    segment.seal()
    if warm:
        segment.read()
    segment.path(".index").unlink()
    os.truncate(segment.path(), PAGE)
    assert segment.find(5)[0] == lib.OM_E_UNREADABLE
    assert not segment.path(".index").exists()


def test_loading_a_file_that_was_cut_is_unreadable(segment: Segment) -> None:
    _, view = segment.view()
    os.truncate(segment.path(), PAGE)
    assert lib.om_view_load(view) == lib.OM_E_UNREADABLE
    lib.om_view_release(view)


def test_who_reads_the_zeros_of_another_ones_fault_is_told_as_well(segment: Segment) -> None:
    _, first = segment.view()
    _, second = segment.view()
    assert first.mapping == second.mapping
    os.truncate(segment.path(), 0)
    assert read_guarded(first)[0] == lib.OM_E_UNREADABLE
    result, data = read_guarded(second)
    assert (result, any(data)) == (lib.OM_E_UNREADABLE, False)
    lib.om_view_release(first)
    lib.om_view_release(second)


def test_threads_guard_their_own_views(segment: Segment, files: Any, tmp_path: Path) -> None:
    others = []
    for n in range(4):
        other = Segment(files, tmp_path / f"other{n}")
        other.fill(100)
        others.append(other)
    views = [other.view()[1] for other in others]
    for other in others[::2]:
        os.truncate(other.path(), 0)
    results: dict[int, list[int]] = {}

    def read(n: int) -> None:
        results[n] = [read_guarded(views[n])[0] for _ in range(50)]

    threads = [threading.Thread(target=read, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(4):
        wanted = lib.OM_E_UNREADABLE if n % 2 == 0 else lib.OM_OK
        assert results[n] == [wanted] * 50
        lib.om_view_release(views[n])
        others[n].close()


def test_a_cut_on_purpose_fences_nothing(segment: Segment) -> None:
    _, gone = segment.view()
    _, kept = segment.view(0, PAGE)
    whole = segment.data
    del segment.batches[20:]
    assert segment.size > PAGE
    lib.om_segment_cut(segment.c, segment.size, segment.next_offset)
    assert lib.om_segment_trim_file(segment.c, segment.size) == lib.OM_OK
    assert read_guarded(gone)[0] == lib.OM_E_UNREADABLE
    assert read_guarded(kept) == (lib.OM_OK, whole[:PAGE])
    assert not segment.c.fenced
    segment.fill(50)
    segment.check_look_ups()
    lib.om_view_release(gone)
    lib.om_view_release(kept)


# ---- faults that are none of ours ------------------------------------------------------

FOREIGN = """
import mmap, os, signal

folder, how = Path(sys.argv[3]), sys.argv[4]
if how == "handler before":
    import ctypes
    note = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: os._exit(42))
    ctypes.CDLL(None).signal(signal.SIGBUS, note)
if how == "ignored":
    signal.signal(signal.SIGBUS, signal.SIG_IGN)
assert lib.om_sigbus_install() == lib.OM_OK

def fault():
    with open(folder / "foreign", "w+b") as file:
        file.truncate(4096)
        pages = mmap.mmap(file.fileno(), 4096)
        file.truncate(0)
    return pages[0]

with file_cache() as files:
    segment = Segment(files, folder / "queue")
    segment.fill(20)
    _, view = segment.view()
    os.truncate(segment.path(), 0)
    lib.om_sigbus_begin(view)
    first = view.data[0]
    assert lib.om_sigbus_end(view) == lib.OM_E_UNREADABLE and first == 0
    if how == "inside a guard":
        lib.om_sigbus_begin(view)
    if how == "after a guard":
        view.data[8192]
    if how == "sent":
        os.kill(os.getpid(), signal.SIGBUS)
    if how == "ignored":
        os.kill(os.getpid(), signal.SIGBUS)
        print("alive", flush=True)
    fault()
os._exit(7)
"""


@pytest.mark.parametrize(
    ("how", "ending"),
    [
        ("default", -signal.SIGBUS),
        ("inside a guard", -signal.SIGBUS),
        ("after a guard", -signal.SIGBUS),
        ("sent", -signal.SIGBUS),
        ("ignored", -signal.SIGBUS),
        ("handler before", 42),
    ],
)
def test_a_fault_that_is_not_ours_goes_where_it_would_have_gone(
    tmp_path: Path, how: str, ending: int
) -> None:
    done = run_child(FOREIGN, tmp_path, how)
    assert done.returncode == ending, done.stderr
    assert ("alive" in done.stdout) == (how == "ignored")
