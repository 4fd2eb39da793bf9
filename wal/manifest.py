"""A log's manifest, read: its name and its sealed segments. csrc/store/manifest.c writes it.

ottermq-manifest 1
log 17
name orders
segment 0 4711 67108001 1699999990000 1700000000000
xxh3 0123456789abcdef
"""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import xxhash

from ottermq.wal.errors import CorruptData

NAME = "manifest"
MAGIC = b"ottermq-manifest 1\n"


@dataclass(frozen=True, slots=True)
class Sealed:
    base_offset: int
    next_offset: int
    size: int
    first_timestamp: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class Manifest:
    log_id: int
    name: str
    segments: tuple[Sealed, ...]


def load(folder: Path) -> Manifest | None:
    """None: there is none yet."""
    try:
        return parse((folder / NAME).read_bytes())
    except FileNotFoundError:
        return None


def parse(raw: bytes) -> Manifest:
    if not raw.startswith(MAGIC):
        raise CorruptData("not a manifest")
    body, mark, digest = raw.rpartition(b"xxh3 ")
    if not mark or digest.strip().decode("ascii", "replace") != xxhash.xxh3_64_hexdigest(body):
        raise CorruptData("the manifest's checksum is wrong")
    log_id, name, segments = 0, "", []
    for line in body.decode("utf-8", "replace").splitlines()[1:]:
        word, _, rest = line.partition(" ")
        try:
            if word == "log":
                log_id = int(rest)
            elif word == "name":
                name = unquote(rest)
            elif word == "segment":
                segments.append(Sealed(*map(int, rest.split())))
        except (ValueError, TypeError):
            raise CorruptData(f"not a line of a manifest: {line}") from None
    return Manifest(log_id, name, tuple(segments))
