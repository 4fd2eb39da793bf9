"""Offsets that an unclean stop skipped are no end to wait for: the high watermark passes them with
the first record behind them, however often the process dies in between."""

from pathlib import Path

from ottermq.wal import LogFlags, Record, Store
from tests.wal.stores import SMALL, die


def write(store: Store) -> int:
    log = store.create("news", flags=LogFlags.NO_CURSOR)
    store.wait(log.append([Record(b"one"), Record(b"two")]).seq)
    return log.stat().high_watermark


def look(store: Store) -> tuple[int, int]:
    stat = store.get("news").stat()
    store.checkpoint()
    return stat.high_watermark, stat.next_offset


def test_the_high_watermark_stays_with_the_records_until_there_are_more(tmp_path: Path) -> None:
    assert die(tmp_path, write) == 2
    for _ in range(3):
        high_watermark, next_offset = die(tmp_path, look)
        assert high_watermark == 2 < next_offset
    with Store.open(tmp_path, SMALL) as store:
        log = store.get("news")
        added = log.append([Record(b"three")])
        store.wait(added.seq)
        assert log.stat().high_watermark == added.first_offset + 1
        assert [record.value for record in log.records(0)] == [b"one", b"two", b"three"]
