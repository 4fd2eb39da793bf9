"""Segments for tests: a log's folder, batches put into it, and a plain list that knows it all."""

import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.csrc.batches import Record, encode
from tests.internals import ffi, lib

NOW = 1_700_000_000_000
INTERVAL = lib.OM_INDEX_INTERVAL
OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")


@dataclass(frozen=True)
class Placed:
    """A batch and where it lies."""

    data: bytes
    base_offset: int
    last_offset: int
    position: int
    records: tuple[tuple[int, int], ...]
    """(offset, timestamp) of each."""

    @property
    def max_timestamp(self) -> int:
        return max(timestamp for _, timestamp in self.records)


def limits(**fields: int) -> Any:
    usual = {"segment_size": 64 << 20, "initial_size": 65536, "pre_allocate": 1}
    return ffi.new("om_segment_limits *", usual | fields)


@contextmanager
def file_cache(max_open: int = 64, max_mapped: int = 1 << 30) -> Iterator[Any]:
    files = lib.om_file_cache_new(max_open, max_mapped)
    try:
        yield files
    finally:
        lib.om_file_cache_free(files)


def stat_of(files: Any) -> Any:
    stat = ffi.new("om_file_cache_stat *")
    lib.om_file_cache_stat_get(files, stat)
    return stat


@dataclass
class Segment:
    """An om_segment, with every batch that was placed in it."""

    files: Any
    folder: Path
    base_offset: int = 0
    limits: Any = field(default_factory=limits)
    batches: list[Placed] = field(default_factory=list)
    c: Any = None

    def __post_init__(self) -> None:
        self.dir = ffi.new("char[]", str(self.folder).encode())
        if self.c is None:
            self.c = lib.om_segment_new(self.files, self.dir, self.base_offset)

    def close(self) -> None:
        lib.om_segment_unref(self.c)
        lib.om_file_cache_reap(self.files)

    def reopen(self, trust: bool = True, sealed: bool = True) -> "Segment":
        """The same file, as after a restart; the manifest knows what is in it."""
        result = ffi.new("int *")
        again = Segment(self.files, self.folder, self.base_offset, self.limits, c=ffi.NULL)
        again.batches = list(self.batches)
        again.c = lib.om_segment_open(self.files, again.dir, self.base_offset, result)
        assert again.c != ffi.NULL, result[0]
        if trust and self.batches:
            timestamps = [t for batch in self.batches for _, t in batch.records]
            lib.om_segment_trust(
                again.c, self.next_offset, self.size, timestamps[0], max(timestamps)
            )
            if sealed:
                lib.om_segment_seal(again.c)
        return again

    @property
    def next_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.base_offset

    @property
    def size(self) -> int:
        return sum(len(batch.data) for batch in self.batches)

    @property
    def data(self) -> bytes:
        return b"".join(batch.data for batch in self.batches)

    def path(self, suffix: str = ".log") -> Path:
        return self.folder / f"{self.base_offset:020}{suffix}"

    def place(self, records: Sequence[Record], gap: int = 0, **fields: int) -> Placed:
        base = self.next_offset + gap
        data = encode(records, base_offset=base, **fields)
        info = ffi.new("om_batch_info *")
        assert lib.om_batch_check(data, len(data), info) == lib.OM_OK
        position = lib.om_segment_place(self.c, info)
        assert position == self.size, position
        stamps = tuple((base + i, record.timestamp) for i, record in enumerate(records))
        self.batches.append(Placed(data, base, base + len(records) - 1, position, stamps))
        return self.batches[-1]

    def write(self, batches: Sequence[Placed]) -> int:
        kept = [ffi.from_buffer(batch.data) for batch in batches]
        iov = ffi.new("struct iovec[]", len(batches))
        for target, buffer in zip(iov, kept, strict=True):
            target.iov_base, target.iov_len = ffi.cast("void *", buffer), len(buffer)
        position = batches[0].position if batches else 0
        result: int = lib.om_segment_write(self.c, self.limits, iov, len(batches), position)
        return result

    def append(self, records: Sequence[Record], gap: int = 0, **fields: int) -> Placed:
        placed = self.place(records, gap, **fields)
        assert self.write([placed]) == lib.OM_OK
        return placed

    def fill(self, count: int, size: int = 500) -> None:
        """So many batches of two records, a millisecond apart."""
        first = len(self.batches)
        for n in range(first, first + count):
            value = n.to_bytes(4, "big") * (size // 8)
            self.place([Record(NOW + 2 * n, None, value), Record(NOW + 2 * n + 1, None, value)])
        assert self.write(self.batches[first:]) == lib.OM_OK

    def save_index(self) -> None:
        copy = ffi.new("om_index *")
        assert lib.om_segment_unsaved_index(self.c, copy) == lib.OM_OK
        try:
            saved = lib.om_segment_save_index(
                self.c, copy.offsets, copy.offset_count, copy.times, copy.time_count
            )
            assert saved == lib.OM_OK
        finally:
            lib.om_index_free(copy)

    def seal(self) -> None:
        """All that the writer does with a full segment."""
        lib.om_segment_seal(self.c)
        assert lib.om_segment_trim_file(self.c, self.size) == lib.OM_OK
        self.save_index()

    def find(self, offset: int) -> tuple[int, int]:
        """(result, position) of om_segment_find; the batch it tells of is the right one."""
        position, info = ffi.new("uint64_t *"), ffi.new("om_batch_info *")
        result = lib.om_segment_find(self.c, offset, position, info)
        if result == lib.OM_OK:
            (batch,) = (b for b in self.batches if b.position == position[0])
            assert (info.base_offset, info.size) == (batch.base_offset, len(batch.data))
        return result, position[0]

    def expected_find(self, offset: int) -> tuple[int, int]:
        for batch in self.batches:
            if batch.last_offset >= offset:
                return lib.OM_OK, batch.position
        return lib.OM_END, 0

    def find_time(self, timestamp: int) -> tuple[int, int, int]:
        offset, found = ffi.new("int64_t *"), ffi.new("int64_t *")
        result = lib.om_segment_find_time(self.c, timestamp, offset, found)
        return (result, offset[0], found[0]) if result == lib.OM_OK else (result, 0, 0)

    def expected_find_time(self, timestamp: int) -> tuple[int, int, int]:
        for batch in self.batches:
            for offset, found in batch.records:
                if found >= timestamp:
                    return lib.OM_OK, offset, found
        return lib.OM_END, 0, 0

    def check_look_ups(self) -> None:
        """Every offset and timestamp there is, and the ones beside them."""
        offsets = {o + d for batch in self.batches for o, _ in batch.records for d in (-1, 0, 1)}
        for offset in sorted(offsets | {self.base_offset, self.next_offset}):
            assert self.find(offset) == self.expected_find(offset), offset
        stamps = {t + d for batch in self.batches for _, t in batch.records for d in (-1, 0, 1)}
        for timestamp in sorted(stamps | {0}):
            assert self.find_time(timestamp) == self.expected_find_time(timestamp), timestamp

    def view(self, position: int = 0, length: int = 2**62) -> tuple[int, Any]:
        view = ffi.new("om_view *")
        return lib.om_view_open(self.c, position, length, view), view

    def read(self, position: int = 0, length: int = 2**62) -> bytes:
        result, view = self.view(position, length)
        if result == lib.OM_END:
            return b""
        assert result == lib.OM_OK, result
        try:
            return bytes(ffi.buffer(view.data, view.len))
        finally:
            lib.om_view_release(view)

    def scan(
        self, position: int = 0, first_offset: int | None = None, epoch: int = 0
    ) -> tuple[int, Any]:
        scan = ffi.new("om_scan *")
        first = self.base_offset if first_offset is None else first_offset
        return lib.om_segment_scan(self.c, position, first, epoch, scan), scan


PRELUDE = """
import importlib.util, sys, types
spec = importlib.util.spec_from_file_location(*sys.argv[1:3])
built = importlib.util.module_from_spec(spec)
spec.loader.exec_module(built)
sys.modules["tests.internals"] = types.ModuleType("tests.internals")
sys.modules["tests.internals"].__dict__.update(ffi=built.ffi, lib=built.lib)
from tests.csrc.segments import *
"""


def run_child(script: str, *args: str | Path) -> subprocess.CompletedProcess[str]:
    """A Python process of its own, on the very C module that this one has loaded; the script
    finds its arguments from sys.argv[3] on."""
    built = sys.modules["tests.internals"].__dict__["_module"]
    # AddressSanitizer takes SIGBUS for itself unless told otherwise.
    options = os.environ.get("ASAN_OPTIONS", "") + ":handle_sigbus=0"
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + script, built.__name__, built.__file__, *map(str, args)],
        env=os.environ | {"ASAN_OPTIONS": options},
        capture_output=True,
        text=True,
        timeout=120,
    )


def kafka_indexes(batches: Sequence[Placed], base_offset: int) -> tuple[bytes, bytes]:
    """What Apache Kafka's LogSegment would have written for these batches, once rolled."""
    offsets, times = b"", b""
    largest, largest_offset, since, in_index = -1, base_offset, 0, -1
    for batch in batches:
        if batch.max_timestamp > largest:
            largest, largest_offset = batch.max_timestamp, batch.last_offset
        if since > INTERVAL:
            offsets += OFFSET_ENTRY.pack(batch.last_offset - base_offset, batch.position)
            if largest > in_index:
                times += TIME_ENTRY.pack(largest, largest_offset - base_offset)
                in_index = largest
            since = 0
        since += len(batch.data)
    if largest > in_index:
        times += TIME_ENTRY.pack(largest, largest_offset - base_offset)
    return offsets, times


def batch_plans(max_size: int = 40) -> st.SearchStrategy[list[tuple[list[Record], int]]]:
    """Batches of any shape with gaps between them; timestamps that go back and forth."""
    timestamps = st.integers(0, 60) | st.integers(NOW, NOW + 1000)
    record = st.builds(
        Record,
        timestamp=timestamps,
        value=st.integers(0, 3000).map(lambda size: b"x" * size),
    )
    gaps = st.just(0) | st.integers(0, 5) | st.just(100_000)
    batch = st.tuples(st.lists(record, min_size=1, max_size=4), gaps)
    return st.lists(batch, min_size=1, max_size=max_size)
