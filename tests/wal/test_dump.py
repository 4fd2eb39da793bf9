"""What files hold, item by item, whatever is in them."""

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottermq._core import lib
from ottermq.wal import Record, Store
from ottermq.wal.dump import (
    BatchItem,
    CheckpointItem,
    CheckpointLogItem,
    DamageItem,
    FenceItem,
    HandedItem,
    ManifestItem,
    ManifestSegmentItem,
    NoteItem,
    OffsetEntryItem,
    RecordItem,
    TimeEntryItem,
    UnknownFile,
    WalFileItem,
    WalRecordItem,
    dump,
)
from tests.examples import examples
from tests.wal.stopped_store import T0, StoppedStore, fill, flip
from tests.wal.stores import SMALL, numbered, put


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> StoppedStore:
    return fill(tmp_path_factory.mktemp("stopped") / "data")


def test_a_segment_is_its_batches(whole: StoppedStore) -> None:
    items = [item for path in whole.segments() for item in dump(path)]
    batches = [item for item in items if isinstance(item, BatchItem)]
    assert len(items) == len(batches) == 30
    assert [batch.first_offset for batch in batches] == list(range(0, 300, 10))
    assert [batch.max_timestamp for batch in batches] == list(range(T0, T0 + 30))
    assert {batch.problem for batch in batches} == {None}
    assert {(batch.codec, batch.flags, batch.producer_id) for batch in batches} == {
        ("none", (), -1)
    }


def test_records_come_after_their_batch(whole: StoppedStore) -> None:
    batch, *records = list(dump(whole.segments()[0], with_records=True))[:11]
    assert isinstance(batch, BatchItem) and batch.records == 10
    for offset, record in enumerate(records):
        assert isinstance(record, RecordItem)
        assert (record.offset, record.timestamp) == (offset, T0)
        assert record.value and record.value.startswith(b"order %04d" % offset)
        assert (record.key, record.headers) == (b"key", ((b"n", b"1"),))


def test_an_index_is_its_entries(whole: StoppedStore) -> None:
    second = whole.segments()[1]
    batches = [item for item in dump(second) if isinstance(item, BatchItem)]
    assert list(dump(second.with_suffix(".index"))) == [
        OffsetEntryItem(batch.last_offset, batch.position) for batch in batches[1:]
    ]
    assert list(dump(second.with_suffix(".timeindex"))) == [
        TimeEntryItem(batch.max_timestamp, batch.last_offset) for batch in batches[1:]
    ]


def test_a_manifest_is_who_and_which_segments(whole: StoppedStore) -> None:
    who, *sealed = dump(whole.orders / "manifest")
    assert who == ManifestItem(1, "orders")
    assert all(isinstance(item, ManifestSegmentItem) for item in sealed)
    assert len(sealed) == len(whole.segments()) - 1


def test_a_checkpoint_is_every_log(whole: StoppedStore) -> None:
    head, orders, clicks = dump(whole.data / "checkpoint")
    assert isinstance(head, CheckpointItem) and head.logs == 2
    assert isinstance(orders, CheckpointLogItem) and orders.cursor
    assert (orders.cursor.floor, orders.cursor.ready_count) == (25, 275)
    assert isinstance(clicks, CheckpointLogItem) and clicks.cursor is None


def test_a_wal_file_is_its_records_in_words(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        orders, copies = store.create("orders"), store.create("copies")
        orders.append([Record(b"1"), Record(b"2")])
        store.fanout([orders, copies], [Record(b"both")])
        transaction = store.transaction()
        transaction.append(orders, [Record(bytes(600_000))])
        transaction.settle(copies, 0)
        transaction.commit()
        orders.acquire(1)
        orders.settle(0)
        orders.trim(1)
        store.wait(orders.purge()[1])
        store.delete(copies)
        head, *items = dump(next(tmp_path.glob("wal/0*.wal")))
    assert isinstance(head, WalFileItem) and (head.number, head.first_seq) == (1, 1)
    *records, end = items
    assert isinstance(end, NoteItem) and "chain ends" in end.what
    said = [(i.type, i.says) for i in records if isinstance(i, WalRecordItem)]
    assert [i.seq for i in records if isinstance(i, WalRecordItem)] == [*range(1, len(records) + 1)]
    by_type = dict(said)
    assert by_type["batch"] == {"first_offset": 0, "last_offset": 1, "records": 2}
    assert by_type["fanout"] == {
        "records": 1,
        "logs": [{"log_id": 1, "first_offset": 2}, {"log_id": 2, "first_offset": 0}],
    }
    assert ("part", {}) in said
    parts = by_type["atomic"]["parts"]
    assert isinstance(parts, list) and {part["type"] for part in parts} >= {"batch"}
    assert by_type["trim"] == {"start": 1, "rule": 0}
    assert by_type["delete"] == {}
    assert {"lease", "cursor"} <= set(by_type)


def test_a_spare_file_says_so(whole: StoppedStore) -> None:
    [note] = dump(next(whole.data.glob("wal/spare*.wal")))
    assert isinstance(note, NoteItem) and "spare" in note.what


def test_a_fence_says_where_its_epoch_ended(tmp_path: Path) -> None:
    raw = struct.pack("<8sIIQI", b"OTTERFNC", 1, 3, 41, 0)
    path = tmp_path / "fence"
    path.write_bytes(raw + struct.pack("<I", lib.om_crc32c(0, raw, len(raw))))
    assert list(dump(path)) == [FenceItem(3, 41)]
    flip(path, 12)
    assert isinstance(next(dump(path)), DamageItem)


def test_what_was_handed_out_is_told_by_log(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        log = store.create("q")
        put(store, log, numbered(5))
        log.acquire(3)
        assert list(dump(tmp_path / "handed")) == [HandedItem(log.id, 3)]
    flip(tmp_path / "handed", 0)
    assert isinstance(next(dump(tmp_path / "handed")), DamageItem)


def test_what_is_compressed_stays_so(whole: StoppedStore, tmp_path: Path) -> None:
    """One of ours, with codec bits that say gzip."""
    raw = bytearray(whole.segments()[0].read_bytes())
    raw = raw[: 12 + int.from_bytes(raw[8:12])]
    raw[22] |= 1
    raw[17:21] = lib.om_crc32c(0, bytes(raw[21:]), len(raw) - 21).to_bytes(4)
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(raw)
    batch, note = dump(path, with_records=True)
    assert isinstance(batch, BatchItem) and (batch.codec, batch.problem) == ("gzip", None)
    assert isinstance(note, NoteItem) and "gzip" in note.what


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(UnknownFile):
        dump(path)


def test_a_file_is_known_by_its_start_under_any_name(whole: StoppedStore, tmp_path: Path) -> None:
    path = tmp_path / "backup"
    path.write_bytes((whole.data / "checkpoint").read_bytes())
    assert isinstance(next(dump(path)), CheckpointItem)


def test_damage_is_shown_in_its_place_and_reading_goes_on(
    whole: StoppedStore, tmp_path: Path
) -> None:
    path = tmp_path / whole.segments()[0].name
    path.write_bytes(whole.segments()[0].read_bytes())
    first, second, third, fourth, *rest = dump(path)
    assert isinstance(second, BatchItem) and isinstance(fourth, BatchItem)
    flip(path, second.position + 16)  # no magic: not a batch any more
    flip(path, fourth.position + 100)  # a wrong checksum
    items = list(dump(path))
    lost = DamageItem(second.position, second.size, "not a batch")
    assert items == [first, lost, third, replace(fourth, problem="wrong checksum"), *rest]


def test_a_batch_that_is_being_written_is_shown_as_cut_short(
    whole: StoppedStore, tmp_path: Path
) -> None:
    path = tmp_path / whole.segments()[0].name
    path.write_bytes(whole.segments()[0].read_bytes()[:-3])
    *_, last = dump(path)
    assert isinstance(last, DamageItem) and last.what.startswith("cut short")


def test_zeros_at_the_end_are_shown_as_such(whole: StoppedStore, tmp_path: Path) -> None:
    path = tmp_path / whole.segments()[0].name
    path.write_bytes(whole.segments()[0].read_bytes() + bytes(5000))
    *_, last = dump(path)
    assert last == DamageItem(path.stat().st_size - 5000, 5000, "zeros up to the end")


NAMES = ["00000000000000000007.log", "00000000000000000007.index", "1.wal", "checkpoint"]
NAMES += ["00000000000000000007.timeindex", "manifest", "handed", "fence"]


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_bytes_at_all_make_it_fail(
    whole: StoppedStore, tmp_path: Path, data: st.DataObject
) -> None:
    """Ours with a few changed, or any."""
    name = data.draw(st.sampled_from(NAMES))
    originals = {
        ".log": whole.segments()[0],
        ".index": whole.segments()[0].with_suffix(".index"),
        ".timeindex": whole.segments()[0].with_suffix(".timeindex"),
        "checkpoint": whole.data / "checkpoint",
        "manifest": whole.orders / "manifest",
        "handed": whole.data / "handed",
        ".wal": next(whole.data.glob("wal/0*.wal")),
    }
    raw = bytearray(data.draw(st.binary(max_size=200)))
    for end, original in originals.items():
        if name.endswith(end) and data.draw(st.booleans()):
            raw = bytearray(original.read_bytes()[: data.draw(st.integers(0, 100_000))])
    for _ in range(data.draw(st.integers(0, 4))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / name
    path.write_bytes(raw)
    try:
        for item in dump(path, with_records=True):
            if isinstance(item, DamageItem | BatchItem | WalRecordItem):
                assert 0 <= item.position <= item.position + item.size
    except UnknownFile:
        pass
    os.unlink(path)
