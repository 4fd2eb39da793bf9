"""The WAL for tests: through the C core, and its files taken apart byte by byte."""

import contextlib
import os
import select
import struct
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.internals import ffi, lib

BLOCK = 4096
MIB = 1 << 20
HEADER_COPY = 2048
FILE_HEADER = struct.Struct("<8sIIQQQII")
RECORD = struct.Struct("<IIBBHIQQ")
FENCE = struct.Struct("<8sIIQII")
GROUP_START, CONTINUES = 1, 2
PART, BATCH = 1, 2
DEFAULTS = {
    "file_size": MIB,
    "max_size": 8 * MIB,
    "reserve": 2 * MIB,
    "batch_max_size": 4 * MIB,
    "backlog_max": 16 * MIB,
    "batch_max_wait_us": 0,
    "lazy_sync_ms": 1000,
    "flush_immediate": 0,
    "direct_io": 0,
}


@dataclass(frozen=True)
class Entry:
    """A record as the reader gives it."""

    seq: int
    payload: bytes
    log_id: int = 1
    type: int = BATCH
    epoch: int = 1


@dataclass(frozen=True)
class Reading:
    """All that a reader said."""

    entries: list[Entry]
    result: int
    error: str
    tail: Any

    @property
    def payloads(self) -> list[bytes]:
        return [entry.payload for entry in self.entries]

    @property
    def seqs(self) -> list[int]:
        return [entry.seq for entry in self.entries]


class WalError(Exception):
    pass


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """Somewhere in memory, where there is such a place: these tests sync a lot."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="ottermq-wal-", dir=where) as name:
        yield Path(name)


def drain(reader: Any) -> Reading:
    """Read to the end, and close."""
    record = ffi.new("om_wal_record *")
    entries = []
    while (result := lib.om_wal_reader_next(reader, record)) == lib.OM_OK:
        payload = bytes(ffi.buffer(record.payload, record.len)) if record.len else b""
        entries.append(Entry(record.seq, payload, record.log_id, record.type, record.epoch))
    assert lib.om_wal_reader_next(reader, record) == result, "the end is the end"
    tail = ffi.new("om_wal_tail *")
    lib.om_wal_reader_tail(reader, tail)
    total = ffi.new("uint64_t *")
    done = lib.om_wal_reader_bytes(reader, total)
    assert result != lib.OM_END or done == total[0]
    error = ffi.string(lib.om_wal_reader_error(reader)).decode()
    lib.om_wal_reader_close(reader)
    return Reading(entries, result, error, tail)


def read(folder: Path, after: int = 0) -> Reading:
    err = ffi.new("char[256]")
    reader = lib.om_wal_reader_open(os.fsencode(folder), after, err, 256)
    if reader == ffi.NULL:
        raise WalError(ffi.string(err).decode())
    return drain(reader)


class Wal:
    """An open log. Whoever reads and reopens it passes what was read as `after`."""

    def __init__(
        self, folder: Path, after: Reading | None = None, *, released: int = 0, **options: int
    ) -> None:
        err = ffi.new("char[256]")
        chosen = ffi.new("om_wal_options *", {**DEFAULTS, **options})
        tail = after.tail if after else ffi.new("om_wal_tail *")
        self.folder = folder
        self.wal = lib.om_wal_open(os.fsencode(folder), chosen, tail, released, err, 256)
        if self.wal == ffi.NULL:
            raise WalError(ffi.string(err).decode())
        self._event = os.eventfd(0, os.EFD_NONBLOCK)
        lib.om_wal_notify_fd(self.wal, self._event)

    def append(self, *pieces: bytes, log_id: int = 1, type: int = BATCH) -> int:
        held = [ffi.from_buffer(piece) for piece in pieces]
        iov = ffi.new("struct iovec[]", len(pieces))
        for slot, piece in zip(iov, held, strict=True):
            slot.iov_base, slot.iov_len = piece, len(piece)
        return int(lib.om_wal_append(self.wal, type, log_id, iov, len(pieces)))

    def lend(self, *pieces: bytes, log_id: int = 1, crc_from: int = 0) -> tuple[int, Any]:
        """The last piece is lent; its sequence, and what counts its holders: one is ours.

        The lender may know the CRC of the piece from some byte on.
        """
        *heads, last = pieces
        lender = lib.om_buffer_copy(last, len(last))
        memory = lender.data
        if crc_from:
            lender.crc_from = crc_from
            lender.crc = lib.om_crc32c(0, memory + crc_from, len(last) - crc_from)
        held = [ffi.from_buffer(piece) for piece in heads]
        iov = ffi.new("struct iovec[]", len(pieces))
        for slot, piece in zip(iov, held, strict=False):
            slot.iov_base, slot.iov_len = piece, len(piece)
        iov[len(heads)].iov_base, iov[len(heads)].iov_len = memory, len(last)
        seq = lib.om_wal_append_lent(self.wal, BATCH, log_id, iov, len(pieces), lender)
        return int(seq), lender

    def submit(self, lazy: bool = False) -> None:
        lib.om_wal_submit(self.wal, lazy)

    def wait(self, seq: int, timeout_ms: int = 10_000) -> int:
        return int(lib.om_wal_wait(self.wal, seq, timeout_ms))

    def commit(self, *payloads: bytes, log_id: int = 1) -> int:
        """One record each, one group; the last one's sequence, once it is durable."""
        for payload in payloads:
            seq = self.append(payload, log_id=log_id)
            assert seq
        self.submit()
        assert self.wait(seq) == lib.OM_OK
        return seq

    def release(self, seq: int) -> None:
        lib.om_wal_release(self.wal, seq)

    def admit(self, klass: str = "APPEND") -> int:
        return int(lib.om_wal_admit(self.wal, getattr(lib, f"OM_WAL_{klass}")))

    def told(self, timeout: float = 10) -> bool:
        """Has the eventfd been written since the last look? Waits for it."""
        ready = bool(select.select([self._event], [], [], timeout)[0])
        if ready:
            os.eventfd_read(self._event)
        return ready

    def until_told(self, durable: int) -> None:
        """Until durable_seq has got there, looking only when told to."""
        while self.durable < durable:
            assert self.told(), f"durable stays at {self.durable}"

    def live(self, after: int = 0) -> Reading:
        err = ffi.new("char[256]")
        reader = lib.om_wal_reader_live(self.wal, after, err, 256)
        assert reader != ffi.NULL, ffi.string(err)
        return drain(reader)

    def fenced(self) -> tuple[bool, str] | None:
        """Whether the fence was kept, and why there is one."""
        kept, text = ffi.new("int *"), ffi.new("char[256]")
        if not lib.om_wal_fenced(self.wal, kept, text, 256):
            return None
        return bool(kept[0]), ffi.string(text).decode()

    def unfence(self) -> None:
        err = ffi.new("char[256]")
        if lib.om_wal_unfence(self.wal, err, 256) != lib.OM_OK:
            raise WalError(ffi.string(err).decode())

    @property
    def last_seq(self) -> int:
        return int(lib.om_wal_last_seq(self.wal))

    @property
    def durable(self) -> int:
        return int(lib.om_wal_durable_seq(self.wal))

    @property
    def used(self) -> int:
        return int(lib.om_wal_used(self.wal))

    @property
    def stat(self) -> Any:
        stat = ffi.new("om_wal_stat *")
        lib.om_wal_stat_get(self.wal, stat)
        return stat

    def close(self) -> int:
        result = int(lib.om_wal_close(self.wal))
        os.close(self._event)
        return result


@contextlib.contextmanager
def opened(
    folder: Path, after: Reading | None = None, *, released: int = 0, **options: int
) -> Iterator[Wal]:
    wal = Wal(folder, after, released=released, **options)
    try:
        yield wal
    finally:
        wal.close()


def write_groups(folder: Path, groups: Sequence[Sequence[bytes]], **options: int) -> list[int]:
    """A new log (or the next start of one) with these groups; each one's last sequence."""
    with opened(folder, read(folder), **options) as wal:
        return [wal.commit(*group) for group in groups]


# -- the bytes on disk --


@dataclass(frozen=True)
class FileHeader:
    epoch: int
    number: int
    prev_last_seq: int
    first_seq: int
    seed: int

    def pack(self, version: int = 1) -> bytes:
        start = FILE_HEADER.pack(
            b"OTTERWAL",
            version,
            self.epoch,
            self.number,
            self.prev_last_seq,
            self.first_seq,
            self.seed,
            0,
        )[:-4]
        return start + struct.pack("<I", crc32c(0, start))

    def block(self, version: int = 1) -> bytes:
        copy = self.pack(version)
        return copy.ljust(HEADER_COPY, b"\0") + copy.ljust(BLOCK - HEADER_COPY, b"\0")


@dataclass(frozen=True)
class Raw:
    """A record where it lies."""

    position: int
    length: int
    type: int
    flags: int
    seq: int

    @property
    def end(self) -> int:
        return self.position + self.length


def crc32c(crc: int, data: bytes) -> int:
    return int(lib.om_crc32c(crc, data, len(data)))


def parse_header(data: bytes) -> FileHeader | None:
    magic, version, epoch, number, prev, first, seed, crc = FILE_HEADER.unpack_from(data)
    if magic != b"OTTERWAL" or crc != crc32c(0, data[: FILE_HEADER.size - 4]):
        return None
    assert version == 1
    return FileHeader(epoch, number, prev, first, seed)


def files(folder: Path) -> dict[int, Path]:
    """By number, those that were ever in use."""
    found = {}
    for path in folder.glob("*.wal"):
        with path.open("rb") as file:
            header = parse_header(file.read(BLOCK))
        if header:
            found[header.number] = path
    return dict(sorted(found.items()))


def parse_groups(data: bytes) -> list[list[Raw]]:
    """A file's groups, checked as docs/wal.md tells it: an independent second reader."""
    header = parse_header(data)
    assert header
    groups: list[list[Raw]] = []
    chain, seq, at = header.seed, header.first_seq, BLOCK
    while at + RECORD.size <= len(data):
        length, crc, type_, flags, _mark, epoch, number, _log_id = RECORD.unpack_from(data, at)
        if length == 0 and at % BLOCK:
            at += -at % BLOCK
            continue
        record = data[at : at + length]
        zeroed = record[:4] + bytes(4) + record[8:]
        if length < RECORD.size or len(record) < length or crc32c(chain, zeroed) != crc:
            break
        if (epoch, number) != (header.epoch, seq):
            break
        if flags & GROUP_START:
            assert at % BLOCK == 0
            groups.append([])
        groups[-1].append(Raw(at, length, type_, flags, seq))
        at += length + -length % 8
        chain, seq = crc, seq + 1
    return groups


def make_file(header: FileHeader, groups: Sequence[Sequence[bytes]], type: int = BATCH) -> bytes:
    """A file put together by hand."""
    data = bytearray(header.block())
    chain, seq = header.seed, header.first_seq
    for group in groups:
        data += bytes(-len(data) % BLOCK)
        for number, payload in enumerate(group):
            length = RECORD.size + len(payload)
            flags, mark = 0, 0
            if number == 0:
                flags = GROUP_START
                mark = crc32c(header.seed, struct.pack("<QQI", seq, len(data), header.epoch))
                mark = (mark ^ mark >> 16) & 0xFFFF
            fields = (type, flags, mark, header.epoch, seq, 1)
            chain = crc32c(chain, RECORD.pack(length, 0, *fields) + payload)
            data += RECORD.pack(length, chain, *fields) + payload
            data += bytes(-len(data) % 8)
            seq += 1
    return bytes(data + bytes(-len(data) % BLOCK))
