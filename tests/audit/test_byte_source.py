"""Where the bytes come from is nobody's business but the home's."""

import pickle
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottermq.audit import snapshot
from ottermq.audit.byte_source import ByteSource, Directory, Found
from ottermq.audit.source.plan import Limits, of_log
from ottermq.wal.file_window import MemoryRanges, Ranges
from tests.audit import logs
from tests.audit.test_snapshot import read
from tests.brokers import Broker


@dataclass(frozen=True)
class ObjectStore:
    """A home that is no directory: objects by name."""

    objects: dict[str, bytes]

    @property
    def tier(self) -> str:
        return "objects"

    def list(self, folder: str) -> list[Found]:
        below = [name for name in sorted(self.objects) if name.rpartition("/")[0] == folder]
        return [Found(name.rpartition("/")[2], len(self.objects[name])) for name in below]

    def open(self, name: str) -> Ranges | None:
        return MemoryRanges(self.objects[name]) if name in self.objects else None


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home") / "data"
    with Broker(folder, env=logs.SMALL_SEGMENTS) as broker:
        logs.write_orders(broker)
    return folder


def test_another_home_with_the_same_bytes_gives_the_same_rows(data: Path) -> None:
    files = [path for path in data.rglob("*") if path.is_file()]
    store = ObjectStore({str(path.relative_to(data)): path.read_bytes() for path in files})
    homes: list[ByteSource] = [Directory(data), store]
    for log in snapshot.take(data).logs:
        here, there = (list(of_log(home, log, Limits(), 1 << 20, marks=True)) for home in homes)
        assert [read(part) for part in here] == [read(part) for part in there]
        assert {part.home.tier for part in there} <= {"objects"}
        assert homes[0].list(log.folder) == homes[1].list(log.folder)


def test_what_is_not_there_is_none_and_an_open_file_is_read_to_its_end(data: Path) -> None:
    home = Directory(data)
    assert home.open("vhosts/nowhere.log") is None and home.list("nowhere") == []
    assert home.list("meta.db") == [], "a file is no folder"
    segment = logs.segments_of(data, "orders")[-1]
    content, name = segment.read_bytes(), str(segment.relative_to(data))
    window = home.open(name)
    assert window
    with window:
        moved = segment.rename(segment.with_suffix(".moved"))
        moved.unlink()
        assert window.read(0, window.size) == content
    assert home.open(name) is None


def test_a_home_means_the_same_after_it_was_sent_to_a_worker(data: Path) -> None:
    home = Directory(data)
    assert pickle.loads(pickle.dumps(home)) == home
