"""A segment that is too large for one task: read in pieces, it gives what it gives as a whole."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ottermq.audit import snapshot
from ottermq.audit.source.datasource import register
from ottermq.audit.source.plan import LARGE_PIECE, PIECE, Limits, LogPart, log_parts, piece_of
from tests.audit import logs
from tests.audit.test_snapshot import read
from tests.brokers import Broker

MESSAGES, SIZE = 42_000, 1000
ALL = range(MESSAGES)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A topic with one segment of about 42 MiB, as a broker wrote it for a real producer."""
    folder = tmp_path_factory.mktemp("large") / "data"
    with Broker(folder, env={"OTTERMQ_WAL__MAX_SIZE": "64MiB"}) as broker:
        kafka = logs.kafka_of(broker)
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.create_topics([NewTopic("clicks", 1)])["clicks"].result(logs.PATIENCE)
        producer = Producer({"bootstrap.servers": kafka, "batch.size": 100_000, "linger.ms": 5})
        for number in ALL:
            producer.produce("clicks", b"%d " % number + b"." * SIZE, b"%d" % (number % 7))
            if number % 5000 == 0:
                producer.flush(logs.PATIENCE)
        assert producer.flush(logs.PATIENCE) == 0
    yield folder


@pytest.fixture
def whole(data: Path, tmp_path: Path) -> Path:
    """The same without indexes: then there is nowhere to split."""
    copy = shutil.copytree(data, tmp_path / "whole")
    for index in copy.glob("vhosts/*/queues/*/*.index"):
        index.unlink()
    return copy


def pieces(data: Path, limits: Limits | None = None) -> list[LogPart]:
    return log_parts(snapshot.take(data), limits or Limits(), marks=False)


def test_its_pieces_have_each_record_once_and_a_batch_at_each_end(data: Path, whole: Path) -> None:
    segments = logs.segments_of(data, "clicks")
    assert [file.stat().st_size > PIECE * 3 // 2 for file in segments] == [True]
    (one,) = pieces(whole)
    several = pieces(data)
    assert len(several) >= 2 and {each.segment for each in several} == {0}
    assert [each.span.start for each in several[1:]] == [each.span.stop for each in several[:-1]]
    assert (several[0].span.start, several[-1].span.stop) == (one.span.start, one.span.stop)
    assert all(PIECE // 2 <= each.span.stop - each.span.start < 2 * PIECE for each in several)
    offsets, bodies, right = map(list, zip(*(read(each) for each in several), strict=True))
    assert (sum(offsets, []), sum(bodies, []), sum(right, [])) == read(one)
    assert sum(offsets, []) == list(ALL) and all(sum(right, []))
    assert [part[0] for part in offsets] == [each.span.first_offset for each in several]


def test_spark_reads_it_in_several_tasks_and_finds_the_same_rows(
    spark: SparkSession, data: Path, whole: Path
) -> None:
    register(spark)

    def found(path: Path) -> tuple[int, list[tuple[int, int, int]]]:
        columns = "offset,timestamp,key,body,headers,size,segment,position,batch_base_offset,crc_ok"
        rows = spark.read.format("ottermq").option("columns", columns).load(str(path))
        content = F.xxhash64(*(name for name in rows.columns if name != "headers"))
        picked = rows.select(F.spark_partition_id().alias("task"), "offset", content.alias("hash"))
        got = sorted((row.offset, row.hash, row.task) for row in picked.collect())
        return len({task for _, _, task in got}), [(o, h, 0) for o, h, _ in got]

    tasks, split = found(data)
    one_task, unsplit = found(whole)
    assert (tasks >= 2, one_task) == (True, 1)
    assert [offset for offset, _, _ in split] == list(ALL)
    assert split == unsplit


def test_of_a_range_of_offsets_only_the_pieces_that_have_some_are_read(data: Path) -> None:
    first, *_, last = pieces(data)
    (found,) = pieces(data, Limits(offsets=(0, 10)))
    assert found.span == first.span
    (found,) = pieces(data, Limits(offsets=(MESSAGES - 10, MESSAGES)))
    assert found.span == last.span
    border = last.span.first_offset
    both = pieces(data, Limits(offsets=(border - 1, border + 1)))
    assert [offset for each in both for offset in read(each)[0]] == [border - 1, border]


def test_an_index_that_points_into_batches_splits_nothing_and_loses_nothing(
    data: Path, whole: Path
) -> None:
    """Indexes are hints."""
    name = logs.segments_of(data, "clicks")[0].with_suffix(".index").relative_to(data)
    index = bytearray((data / name).read_bytes())
    for at in range(7, len(index), 8):
        index[at] ^= 1
    (whole / name).write_bytes(index)
    (one,) = pieces(whole)
    assert read(one)[0] == list(ALL)


def test_the_more_there_is_the_larger_the_pieces_up_to_a_limit() -> None:
    sizes = [piece_of(size) for size in (0, 1 << 20, 1 << 29, 1 << 34)]
    assert sizes == [PIECE, PIECE, 32 << 20, LARGE_PIECE]
