"""What a deletion left is looked at while the store is at work: files may go at any moment."""

from pathlib import Path

from ottermq.wal import Record, Store, orphans
from tests.wal.stores import SMALL


def folder_with_a_segment(tmp_path: Path) -> Path:
    with Store.open(tmp_path, SMALL) as store:
        log = store.create("orders")
        store.wait(log.append([Record(b"x" * 1000)] * 10).seq)
        store.checkpoint()
    (segment,) = tmp_path.glob("vhosts/*/queues/*/*.log")
    return segment.parent


def test_a_segment_of_it_is_known_by_its_batches(tmp_path: Path) -> None:
    (found,) = orphans.segments(folder_with_a_segment(tmp_path))
    assert (found.base_offset, found.next_offset) == (0, 10)


def test_what_goes_while_it_is_looked_at_is_left_out(tmp_path: Path) -> None:
    folder = folder_with_a_segment(tmp_path)
    (folder / f"{10:020}.log").symlink_to(folder / "gone")  # listed, and can't be opened
    (found,) = orphans.segments(folder)
    assert found.base_offset == 0
    assert list(orphans.segments(tmp_path / "gone")) == []
