"""Apache Kafka's own DumpLogSegments reads what we wrote, and has nothing to complain about.

Its jars come by Maven, some 100 MB, once: `OTTERMQ_KAFKA_TOOLS=1 make test` fetches them to
build/kafka-tools, and from then on these tests run with the others.
"""

import os
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from ottermq.storage.codecs import Codec, compress_records
from ottermq.wal import Log, LogFlags, LogOptions, Record, Store
from ottermq.wal.compaction import Codecs, Compaction
from ottermq.wal.records import OVERHEAD, with_records
from perf import apache_kafka
from tests.wal.producing import batch
from tests.wal.stopped_store import flip
from tests.wal.stores import SMALL, die, put, until, with_room

T0 = 1_800_000_000_000


@pytest.fixture(scope="module")
def jars() -> Path:
    if not apache_kafka.is_fetched() and not os.environ.get("OTTERMQ_KAFKA_TOOLS"):
        pytest.skip("Apache Kafka's tools: OTTERMQ_KAFKA_TOOLS=1 fetches them with Maven")
    try:
        return apache_kafka.jars()
    except apache_kafka.NotFetched as error:
        pytest.skip(str(error))


def dumped(jars: Path, folder: Path, *flags: str) -> list[str]:
    """What it prints for every file of a log."""
    files = [path for path in sorted(folder.iterdir()) if path.suffix in KINDS]
    assert {file.suffix for file in files} == KINDS
    lines = dump(jars, files, *flags)
    assert [line for line in lines if not CONTENT.match(line)] == []
    return lines


def dump(jars: Path, files: list[Path], *flags: str) -> list[str]:
    command = ["java", "-cp", f"{jars}/*", "org.apache.kafka.tools.DumpLogSegments"]
    done = subprocess.run(
        [*command, "--files", ",".join(map(str, files)), *flags],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


KINDS = {".log", ".index", ".timeindex"}
# Whatever else it prints is a complaint.
CONTENT = re.compile(
    r"Dumping |Log starting offset: |baseOffset: .* isvalid: true$|\| offset: "
    r"|offset: \d+ position: \d+$|timestamp: \d+ offset: \d+$|.* passed sanity check\.$"
)


def folder_of(data: Path, log: Log) -> Path:
    [folder] = data.glob(f"vhosts/*/queues/*.{log.id}")
    return folder


def compressed(count: int, sequence: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=1,
        is_transactional=False,
        producer_id=7,
        producer_epoch=1,
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    for i in range(count):
        builder.append(i, T0 + i, b"key", b"value" * 100, [("header", b"x")])
    return bytes(builder.build())


def write_all_kinds(store: Store) -> Log:
    log = store.create("clicks", flags=LogFlags.NO_CURSOR, options=LogOptions(segment_size=65536))
    for i in range(40):
        records = [
            Record(b"value" * 200, b"key", ((b"h", b"v"), (b"none", None)), T0 + 10 * i + n)
            for n in range(10)
        ]
        put(store, log, records)
        put(store, log, [Record(None, None, (), T0)])  # older than those before
        packed = compressed(5, 5 * i)
        store.wait(with_room(partial(log.append_raw, packed)).seq)
        if i % 10 == 0:
            store.checkpoint()
    store.checkpoint()
    return log


def test_every_record_is_printed(jars: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        folder = folder_of(tmp_path, write_all_kinds(store))
    lines = dumped(jars, folder, "--print-data-log")
    offsets = [int(line.split()[2]) for line in lines if line.startswith("| offset: ")]
    assert offsets == list(range(40 * 16))
    assert sum("compresscodec: gzip" in line for line in lines) == 40
    assert sum("isvalid: true" in line for line in lines) == 120


@pytest.mark.parametrize("flag", ["--index-sanity-check", "--verify-index-only"])
def test_the_indexes_pass_its_checks(jars: Path, tmp_path: Path, flag: str) -> None:
    with Store.open(tmp_path, SMALL) as store:
        folder = folder_of(tmp_path, write_all_kinds(store))
    lines = dumped(jars, folder, flag)
    indexes = [path for path in folder.iterdir() if path.suffix in (".index", ".timeindex")]
    passed = sum("passed sanity check" in line for line in lines)
    assert passed == (len(indexes) if flag == "--index-sanity-check" else 0)


def test_what_we_compressed_is_read(jars: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        log = store.create("packed", flags=LogFlags.NO_CURSOR)
        plain = batch(-1, -1, 3, epoch=-1, value=b"value" * 50_000)
        for codec in Codec:
            data = with_records(plain, codec, compress_records(codec, plain[OVERHEAD:]))
            store.wait(with_room(partial(log.append_raw, data)).seq)
        store.checkpoint()
        folder = folder_of(tmp_path, log)
    lines = dumped(jars, folder, "--deep-iteration")
    told = re.findall(r"compresscodec: (\w+)", "\n".join(lines))
    assert told == [codec.name.lower() for codec in Codec]
    assert sum(line.startswith("| offset: ") for line in lines) == 3 * len(Codec)


@pytest.mark.parametrize("merged", [True, False])
def test_a_compacted_log_is_read_without_complaint(
    jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merged: bool
) -> None:
    """Batches with gaps, with a delete horizon, and, where segments weren't merged, as before,
    without any record."""
    if not merged:
        monkeypatch.setattr("ottermq.wal.compaction._New.has_room_for", lambda new, _: not new._old)
    with Store.open(tmp_path, SMALL) as store:
        log = store.create("keys", flags=LogFlags.NO_CURSOR, options=LogOptions(segment_size=65536))
        for i in range(300):
            value = None if i % 7 == 0 else b"value" * 200
            records = [Record(value, b"k%d" % (i % 10), (), T0 + i), Record(b"x", b"y", (), T0 + i)]
            put(store, log, records)
        store.checkpoint()
        compaction = Compaction(
            log, now_ms=T0, delete_retention_ms=1000, codecs=Codecs(lambda *_: None, lambda *_: b"")
        )
        assert compaction.run(0, 1 << 62).dropped > 100
        folder = folder_of(tmp_path, log)
    lines = dumped(jars, folder, "--print-data-log")
    assert merged or any("count: 0 " in line for line in lines)
    assert any("deleteHorizonMs: OptionalLong[" in line for line in lines)
    dumped(jars, folder, "--index-sanity-check")
    dumped(jars, folder, "--verify-index-only")


@pytest.mark.parametrize(("suffix", "position"), [(".index", 7), (".log", 1000)])
def test_it_would_complain_about_damage(
    jars: Path, tmp_path: Path, suffix: str, position: int
) -> None:
    with Store.open(tmp_path, SMALL) as store:
        folder = folder_of(tmp_path, write_all_kinds(store))
    flip(min(folder.glob(f"*{suffix}")), position)
    with pytest.raises(AssertionError, match="Exception|isvalid: false"):
        dumped(jars, folder)


def test_a_log_that_is_being_written_can_be_read(jars: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        folder = folder_of(tmp_path, write_all_kinds(store))
        assert sum("isvalid: true" in line for line in dumped(jars, folder)) == 120


def test_a_log_that_was_recovered_can_be_read(jars: Path, memory_path: Path) -> None:
    """With the gap in its offsets that an unclean stop leaves."""
    log_id = die(memory_path, lambda store: write_all_kinds(store).id)
    with Store.open(memory_path, SMALL) as store:
        log = store.get("clicks")
        assert log.id == log_id
        first = log.append([Record(b"after", timestamp=T0 + 9999)]).first_offset
        assert first > 640
    assert sum("isvalid: true" in line for line in dumped(jars, folder_of(memory_path, log))) == 121


def test_producers_of_a_log_that_is_being_written_can_be_read(jars: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        flags = LogFlags.NO_CURSOR
        log = store.create("clicks", flags=flags, options=LogOptions(segment_size=65536))
        for sequence in range(20):
            log.append_raw(batch(5, sequence, value=b"v" * 8000))
            log.enlist(7, 0)
            log.append_raw(batch(7, sequence, transactional=True))
            store.wait(log.mark(7, 0, commit=False).seq)
        store.checkpoint()
        folder = folder_of(tmp_path, log)
        until(lambda: len(list(folder.glob("*.txnindex"))) >= 2)
        _, *producers = dump(jars, [max(folder.glob("*.snapshot"))])
        assert sorted(line.split()[1] for line in producers) == ["5", "7"]
        _, *aborted = dump(jars, [min(folder.glob("*.txnindex"))])
        assert aborted[0].startswith("version: 0 producerId: 7 firstOffset: 1 lastOffset: 2 ")


def test_producers_and_aborted_transactions_can_be_read(jars: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        log = store.create("clicks", flags=LogFlags.NO_CURSOR)
        log.append_raw(batch(5, 0, 3))
        log.enlist(7, 2)
        log.append_raw(batch(7, 0, 2, epoch=2, transactional=True))
        log.mark(7, 2, commit=False, coordinator_epoch=1)
        log.enlist(8, 0)
        log.append_raw(batch(8, 10, transactional=True))
    folder = folder_of(tmp_path, log)
    _, *producers = dump(jars, [*folder.glob("*.snapshot")])
    told = {line.split()[1]: line for line in producers}
    assert sorted(told) == ["5", "7", "8"]
    assert "firstSequence: 0 lastSequence: 2 lastOffset: 2 offsetDelta: 2" in told["5"]
    assert "producerEpoch: 2 coordinatorEpoch: 1" in told["7"]
    assert "currentTxnFirstOffset: OptionalLong[6]" in told["8"]
    _, *aborted = dump(jars, [*folder.glob("*.txnindex")])
    assert aborted == ["version: 0 producerId: 7 firstOffset: 3 lastOffset: 5 lastStableOffset: 6"]
