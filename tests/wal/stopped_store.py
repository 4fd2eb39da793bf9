"""A data directory that was stopped cleanly, to be copied and damaged."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from ottermq.wal import LogFlags, LogOptions, Record, Store
from tests.wal.stores import SMALL, until

T0 = 1_800_000_000_000


@dataclass(frozen=True)
class StoppedStore:
    data: Path

    @property
    def orders(self) -> Path:
        [folder] = self.data.glob("vhosts/*/queues/orders.*")
        return folder

    def segments(self) -> list[Path]:
        return sorted(self.orders.glob("*.log"))

    def copy(self, to: Path) -> "StoppedStore":
        shutil.copytree(self.data, to)
        return StoppedStore(to)


def fill(data: Path) -> StoppedStore:
    """`orders`: several segments, in part settled; `clicks`: a stream; one that is empty."""
    with Store.open(data, SMALL) as store:
        small = LogOptions(segment_size=65536)
        orders = store.create("orders", options=small)
        clicks = store.create("clicks", options=small, flags=LogFlags.NO_CURSOR)
        store.create("empty")
        for i in range(30):
            records = [
                Record(b"order %04d" % (10 * i + n) + bytes(1000), b"key", ((b"n", b"1"),), T0 + i)
                for n in range(10)
            ]
            orders.append(records)
            seq = clicks.append([Record(None, b"tombstone", ((b"none", None),), T0 + i)]).seq
            store.wait(seq)
            if i % 5 == 0:
                store.checkpoint()
        orders.settle(0, 24)
        until(lambda: any(data.glob("wal/spare*.wal")))
    return StoppedStore(data)


def overwrite(path: Path, position: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int) -> None:
    overwrite(path, position, bytes([path.read_bytes()[position] ^ 0x55]))
