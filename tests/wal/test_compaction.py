"""Key compaction: the last record of each key stays, at its offset, whatever happens meanwhile."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottermq.storage.codecs import Codec, NotDecompressed, compress_records, decompress_records
from ottermq.wal import Log, LogFlags, Record, ReportKind, Store
from ottermq.wal.compaction import Codecs, Compaction, Outcome
from ottermq.wal.errors import Deleted, Unreadable
from ottermq.wal.records import with_records
from ottermq.wal.verify import verify
from tests.wal.stores import die, flush, folder_of, put, segment_files, small

SEGMENT = 64 << 10
OPTIONS = small(segment_size=SEGMENT)
FILLER = b"." * 8000
DAY = 86_400_000


def opened(codec: int, data: bytes) -> bytes | None:
    try:
        return decompress_records(codec, data)
    except NotDecompressed:
        return None


def compact(
    log: Log,
    *,
    dirty_from: int = 0,
    end: int = 1 << 62,
    now: int = 0,
    retention: int = DAY,
    **how: Any,
) -> Outcome:
    compaction = Compaction(
        log,
        now_ms=now,
        delete_retention_ms=retention,
        codecs=Codecs(opened, compress_records),
        **how,
    )
    return compaction.run(dirty_from, end)


def squeezed(batch: bytes, codec: Codec) -> bytes:
    """The same batch as a producer with that codec would have sent it."""
    return with_records(batch, codec, compress_records(codec, batch[61:]))


def stream(store: Store) -> Log:
    return store.create("topic", flags=LogFlags.NO_CURSOR)


def fill(store: Store, log: Log, keys: int = 4, rounds: int = 8) -> None:
    """So many rounds of each key, a batch a record: some eight records a segment."""
    for number in range(rounds * keys):
        record = Record(b"%d" % number + FILLER, key=b"k%d" % (number % keys), timestamp=number)
        put(store, log, [record])
    roll(store, log)


def roll(store: Store, log: Log) -> None:
    """What was there is sealed, synced, and before the recovery point."""
    for _ in range(9):
        put(store, log, [Record(FILLER, key=b"filler")])
    flush(store)


def found(log: Log) -> dict[bytes | None, list[int]]:
    """Key → the offsets of its records, but for those that only fill."""
    places: dict[bytes | None, list[int]] = {}
    for record in log.records():
        if record.key != b"filler":
            places.setdefault(record.key, []).append(record.offset)
    return places


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "data", OPTIONS)


def test_the_last_record_of_each_key_stays_at_its_offset(store: Store) -> None:
    with store:
        log = stream(store)
        fill(store, log, keys=4, rounds=8)
        before = {record.offset: record for record in log.records()}
        outcome = compact(log)
        assert found(log) == {b"k0": [28], b"k1": [29], b"k2": [30], b"k3": [31]}
        assert all(before[record.offset] == record for record in log.records())
        assert outcome.dropped >= 28
        assert outcome.bytes_after < outcome.bytes_before
        assert log.stat().start_offset == 0


def test_a_read_in_a_gap_goes_on_behind_it(store: Store) -> None:
    with store:
        log = stream(store)
        fill(store, log)
        compact(log)
        first = log.read(0)[0]
        assert first.last_offset < log.stat().high_watermark
        assert [r.offset for r in log.records(3) if r.key == b"k0"] == [28]
        assert log.find_time(0) is not None


def test_files_are_smaller_and_sound_and_there_after_a_restart(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", OPTIONS) as store:
        log = stream(store)
        fill(store, log)
        before = sum(path.stat().st_size for path in segment_files(store, log))
        compact(log)
        kept = found(log)
        assert sum(path.stat().st_size for path in segment_files(store, log)) < before / 2
        assert not list(folder_of(store, log).glob("*.rewrite"))
    assert verify(tmp_path / "data").problems == 0
    with Store.open(tmp_path / "data", OPTIONS) as store:
        assert found(store.get("topic")) == kept
        assert not store.reports()


def test_a_kill_after_the_compaction_loses_nothing(tmp_path: Path) -> None:
    def life(store: Store) -> dict[bytes | None, list[int]]:
        log = stream(store)
        fill(store, log)
        compact(log)
        return found(log)

    kept = die(tmp_path / "data", life, OPTIONS)
    with Store.open(tmp_path / "data", OPTIONS) as store:
        assert found(store.get("topic")) == kept
        assert not store.reports()
    assert verify(tmp_path / "data").problems == 0


@pytest.mark.parametrize("batches_written", [0, 1, 2, 5])
def test_a_kill_in_the_middle_leaves_old_or_new(tmp_path: Path, batches_written: int) -> None:
    """Between any two segments, and with one half written."""

    class Killed(BaseException):
        pass

    def life(store: Store) -> None:
        log = stream(store)
        fill(store, log)
        breaths = 0

        def breathe() -> None:
            nonlocal breaths
            breaths += 1
            if breaths > 4 + batches_written:
                raise Killed

        compaction = Compaction(
            log, now_ms=0, delete_retention_ms=DAY, codecs=Codecs(opened, compress_records),
            breathe=breathe,
        )  # fmt: skip
        with suppress(Killed):
            compaction.run(0, 1 << 62)

    die(tmp_path / "data", life, OPTIONS)
    with Store.open(tmp_path / "data", OPTIONS) as store:
        log = store.get("topic")
        assert not store.reports()
        assert {key: places[-1] for key, places in found(log).items()} == {
            b"k0": 28, b"k1": 29, b"k2": 30, b"k3": 31
        }  # fmt: skip
        compact(log)
        assert found(log) == {b"k0": [28], b"k1": [29], b"k2": [30], b"k3": [31]}
    assert verify(tmp_path / "data").problems == 0


def test_what_was_cleaned_once_is_only_filtered_by_what_is_new(store: Store) -> None:
    with store:
        log = stream(store)
        fill(store, log, keys=4, rounds=4)
        first = compact(log)
        put(store, log, [Record(b"new" + FILLER, key=b"k1")])
        roll(store, log)
        second = compact(log, dirty_from=first.cleaned_to)
        assert second.cleaned_to > first.cleaned_to
        assert {key: len(places) for key, places in found(log).items()} == {
            b"k0": 1, b"k1": 1, b"k2": 1, b"k3": 1
        }  # fmt: skip
        third = compact(log, dirty_from=second.cleaned_to)
        assert third.dropped == 0


def test_a_tombstone_takes_the_rest_of_its_key_and_goes_later(store: Store) -> None:
    with store:
        log = stream(store)
        fill(store, log, keys=2, rounds=4)
        put(
            store, log, [Record(None, key=b"k0", timestamp=5), Record(b"v", key=b"k9", timestamp=6)]
        )
        roll(store, log)
        compact(log, now=1000, retention=500)
        kept = {r.key: r for r in log.records() if r.key != b"filler"}
        tombstone = kept[b"k0"]
        assert (tombstone.value, tombstone.timestamp) == (None, 5)
        assert kept[b"k9"].timestamp == 6
        put(store, log, [Record(b"x", key=b"other")])
        roll(store, log)
        compact(log, now=1499, retention=500)
        assert b"k0" in found(log)
        put(store, log, [Record(b"x", key=b"other")])
        roll(store, log)
        compact(log, now=1500, retention=500)
        assert found(log).keys() == {b"k1", b"k9", b"other"}


def test_records_without_a_key_go(store: Store) -> None:
    with store:
        log = stream(store)
        put(store, log, [Record(b"a"), Record(b"b", key=b""), Record(b"c", key=b"k")])
        roll(store, log)
        compact(log)
        assert found(log) == {b"": [1], b"k": [2]}


def test_a_batch_keeps_its_first_and_last_offset_and_headers(store: Store) -> None:
    with store:
        log = stream(store)
        records = [
            Record(b"%d" % n, key=b"k%d" % (n % 3), headers=[(b"h", b"%d" % n)], timestamp=n * 10)
            for n in range(9)
        ]
        put(store, log, records)
        put(store, log, [Record(b"new", key=b"k2")])
        roll(store, log)
        compact(log)
        batch = log.read(0)[0]
        assert (batch.base_offset, batch.last_offset, batch.record_count) == (0, 8, 2)
        assert [(r.offset, r.timestamp, r.headers) for r in batch.records()] == [
            (6, 60, ((b"h", b"6"),)),
            (7, 70, ((b"h", b"7"),)),
        ]
        assert batch.max_timestamp == 70


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_compressed_batches_are_filtered_too_and_stay_compressed(
    store: Store, codec: Codec
) -> None:
    with store:
        log = stream(store)
        put(store, log, [Record(b"%d" % n * 100, key=b"k%d" % (n % 2)) for n in range(8)])
        store.wait(log.append_raw(squeezed(log.read(0)[0].data, codec)).seq)
        put(store, log, [Record(b"last", key=b"k0")])
        roll(store, log)
        compact(log)
        batches = [batch for batch in log.read(0) if batch.codec]
        assert [batch.codec for batch in batches] == [codec]
        assert batches[0].record_count == 1
        assert batches[0].last_offset == 15
        assert opened(codec, batches[0].data[61:])
        assert verify(store.data).problems == 0


def test_a_table_that_is_full_does_a_part_at_a_time(store: Store) -> None:
    with store:
        log = stream(store)
        for number in range(24):
            put(store, log, [Record(FILLER, key=b"a%d" % number)])
        fill(store, log, keys=2, rounds=6)
        first = compact(log, most_keys=8)
        assert 0 < first.cleaned_to < 24
        cleaned, rounds = first.cleaned_to, 0
        while (outcome := compact(log, dirty_from=cleaned, most_keys=8)).cleaned_to > cleaned:
            cleaned, rounds = outcome.cleaned_to, rounds + 1
        assert rounds >= 2
        assert [len(places) for places in found(log).values()] == [1] * 26


def test_segments_past_the_recovery_point_are_left_alone(store: Store) -> None:
    with store:
        log = stream(store)
        for _ in range(30):
            put(store, log, [Record(FILLER, key=b"k")])
        assert compact(log).dropped == 0
        flush(store)
        assert compact(log).dropped > 0


def test_a_segment_that_is_trimmed_or_deleted_meanwhile_is_no_harm(store: Store) -> None:
    with store:
        log = stream(store)
        fill(store, log)
        calls = 0

        def trim() -> None:
            nonlocal calls
            calls += 1
            if calls == 8:
                log.trim(20)

        Compaction(
            log, now_ms=0, delete_retention_ms=DAY, codecs=Codecs(opened, compress_records),
            breathe=trim,
        ).run(0, 1 << 62)  # fmt: skip
        flush(store)
        compact(log)
        assert found(log) == {b"k0": [28], b"k1": [29], b"k2": [30], b"k3": [31]}
        with log.held() as held:
            store.delete(log)
            with suppress(Deleted):  # unless its segments are gone already
                assert compact(held).dropped == 0
    assert verify(store.data).problems == 0


def descriptors(store: Store, log: Log) -> int:
    """Open files of that log."""
    folder = str(folder_of(store, log))
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            count += str(link.readlink()).startswith(folder)
    return count


def test_segments_that_lost_all_their_records_go(tmp_path: Path) -> None:
    """Their files and their descriptors, as neighbours that fit into one segment become one."""
    with Store.open(tmp_path / "data", OPTIONS) as store:
        log = stream(store)
        fill(store, log, keys=4, rounds=60)
        before = len(segment_files(store, log))
        outcome = compact(log)
        kept = found(log)
        assert kept == {b"k%d" % n: [236 + n] for n in range(4)}
        assert before > 30 and len(segment_files(store, log)) <= 3
        assert descriptors(store, log) <= 3
        assert not [path for path in segment_files(store, log) if path.stat().st_size <= 61]
        assert not list(folder_of(store, log).glob("*.merge*"))
        assert [log.read(offset)[0].last_offset for offset in (0, 100, 235)] == [236] * 3
        assert outcome.bytes_after < outcome.bytes_before / 20
    assert verify(tmp_path / "data").problems == 0
    with Store.open(tmp_path / "data", OPTIONS) as store:
        assert found(store.get("topic")) == kept
        assert not store.reports()


def test_a_topic_that_is_written_for_ever_has_as_many_files_as_its_keys_need(store: Store) -> None:
    with store:
        log = stream(store)
        cleaned, most = 0, 0
        for _ in range(12):
            fill(store, log, keys=4, rounds=16)
            cleaned = compact(log, dirty_from=cleaned).cleaned_to
            most = max(most, len(segment_files(store, log)), descriptors(store, log))
        assert most <= 4
        assert all(len(places) == 1 for places in found(log).values())


def test_what_fits_into_one_segment_becomes_one_and_no_more(store: Store) -> None:
    """Nothing is obsolete in here: small segments, as a start or a gap leaves them."""
    with store:
        log = stream(store)
        for number in range(40):
            put(store, log, [Record(b"v" * 20_000, key=b"k%d" % number)])
        roll(store, log)
        sizes = [each.size for each in log.segments() if each.sealed]
        compact(log)
        assert [each.size for each in log.segments() if each.sealed][:10] == sizes[:10]
        assert found(log).keys() == {b"k%d" % number for number in range(40)}


def harmed(store: Store, log: Log, number: int) -> Path:
    """A byte of the second batch of that segment."""
    path = segment_files(store, log)[number]
    with path.open("r+b") as file:
        file.seek(8000 + 500)
        file.write(b"!")
    return path


def test_damage_costs_a_compaction_its_segment_and_no_other(store: Store) -> None:
    with store:
        log = stream(store)
        fill(store, log, keys=4, rounds=20)
        path = harmed(store, log, 3)
        before = path.read_bytes()
        outcome = compact(log)
        assert path.read_bytes() == before
        left = {record for places in readable(log).values() for record in places}
        assert {76, 77, 78, 79} <= left
        kept = range(*bounds(log, path))
        assert left - {76, 77, 78, 79} <= set(kept), "all others were filtered"
        assert outcome.cleaned_to > 79
        assert len(segment_files(store, log)) <= 6
        assert [r.kind for r in store.reports()] == [ReportKind.UNREADABLE]


def bounds(log: Log, path: Path) -> tuple[int, int]:
    base = int(path.name[:20])
    [segment] = [each for each in log.segments() if each.base_offset == base]
    return base, segment.next_offset


def readable(log: Log) -> dict[bytes | None, list[int]]:
    places: dict[bytes | None, list[int]] = {}
    at = 0
    while at < log.stat().high_watermark:
        try:
            batches = log.read(at)
        except Unreadable as error:
            at = error.next_offset
            continue
        for batch in batches:
            for record in batch.records():
                if record.key != b"filler":
                    places.setdefault(record.key, []).append(record.offset)
            at = batch.last_offset + 1
    return places


@pytest.mark.parametrize("renamed", [False, True])
def test_a_start_finishes_what_a_crash_left_of_a_merge(tmp_path: Path, renamed: bool) -> None:
    """The new file was whole, and the marker's name on disk; the old ones are still there."""
    data, old = tmp_path / "data", tmp_path / "old"
    with Store.open(data, OPTIONS) as store:
        log = stream(store)
        fill(store, log, keys=4, rounds=20)
        shutil.copytree(folder_of(store, log), old)
        compact(log)
        kept = found(log)
        folder = folder_of(store, log)
        first = log.segments()[0]
    manifest, new = folder / "manifest", folder / f"{first.base_offset:020}.log"
    manifest.unlink()
    if not renamed:
        new.rename(folder / f"{new.name}.merged-{first.next_offset:020}")
    (folder / f"{new.name}.merge-{first.next_offset:020}").touch()
    for path in old.glob("*.log"):
        if not (folder / path.name).exists() and int(path.name[:20]) < first.next_offset:
            shutil.copy(path, folder / path.name)
    if renamed:
        assert verify(data).problems == 0
    with Store.open(data, OPTIONS) as store:
        log = store.get("topic")
        assert found(log) == kept
        assert not store.reports()
        assert not list(folder.glob("*.merge*"))
        assert len(segment_files(store, log)) <= 3
    assert verify(data).problems == 0


def test_a_merged_file_that_nobody_speaks_of_goes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Store.open(data, OPTIONS) as store:
        log = stream(store)
        fill(store, log)
        kept = found(log)
        folder = folder_of(store, log)
    stray = folder / f"{0:020}.log.merged-{16:020}"
    stray.write_bytes(b"half of it")
    with Store.open(data, OPTIONS) as store:
        assert found(store.get("topic")) == kept
        assert not stray.exists()
