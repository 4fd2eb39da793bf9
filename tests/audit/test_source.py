"""The data source over logs that a real broker wrote for real clients."""

import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ottermq.audit import snapshot
from ottermq.audit.catalogue import INTERNAL
from ottermq.audit.failures import first_line
from ottermq.audit.source.bundles import TASKS, Bundle, bundled
from ottermq.audit.source.datasource import register
from ottermq.audit.source.plan import Limits, log_parts
from ottermq.audit.source.reader import Reader
from ottermq.wal.file_window import Window
from ottermq.wal.segmentfile import Placed, batches
from tests.audit import logs
from tests.audit.logs import ABORTED, ACKED, CODECS, COMMITTED, EACH, OPEN, ORDERS
from tests.brokers import Broker


@pytest.fixture(scope="module", params=["in use", "at rest", "killed"])
def data(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The same messages, looked at while the broker runs, after it stopped, after it was killed."""
    folder = tmp_path_factory.mktemp("audited") / "data"
    with Broker(folder, env=logs.SMALL_SEGMENTS) as broker:
        logs.write_all(broker)
        if request.param == "in use":
            yield folder
            return
        if request.param == "killed":
            broker.stop(signal.SIGKILL)
    yield folder


@pytest.fixture
def rows(spark: SparkSession, data: Path) -> DataFrame:
    register(spark)
    return spark.read.format("ottermq").load(str(data))


def test_each_message_is_a_row_with_what_was_published(rows: DataFrame) -> None:
    orders = rows.where("queue = 'orders'").orderBy("offset").collect()
    assert [row.offset for row in orders] == list(range(orders[0].offset, ORDERS))
    assert orders[0].offset <= ACKED, "what isn't acked is there"
    assert [row.body for row in orders] == [logs.body_of(row.offset) for row in orders]
    assert {(row.vhost, row.partition, row.key) for row in orders} == {("/", 0, b"orders")}
    headers = {header.key: header.value for header in orders[-1].headers}
    assert headers["message-id"] == b"m" and headers["colour"] == b"blue"
    assert all(row.crc_ok and row.size > len(row.body) for row in orders)


def test_settled_is_what_was_acked(rows: DataFrame) -> None:
    orders = rows.where("queue = 'orders'").select("offset", "settled").collect()
    assert {row.offset for row in orders if not row.settled} == set(range(ACKED, ORDERS))
    streams = rows.where("queue = 'events'").select("settled").distinct().collect()
    assert [row.settled for row in streams] == [None], "a stream has no cursor"


def test_deliveries_are_known_of_what_is_not_settled(rows: DataFrame) -> None:
    found = rows.where("queue = 'orders'").select("offset", "settled", "deliveries").collect()
    assert all((row.deliveries is None) == row.settled for row in found)
    (last,) = [row for row in found if row.offset == ORDERS - 1]
    assert last.deliveries == 0, "the consumer had gone before it was its turn"
    streams = rows.where("queue = 'events'").select("deliveries").distinct().collect()
    assert [row.deliveries for row in streams] == [None]


def test_a_priority_is_a_partition_and_so_is_a_super_streams_stream(rows: DataFrame) -> None:
    found = rows.where("queue in ('jobs', 'clicks')").groupBy("queue", "partition").count()
    counts = {(row.queue, row.partition): row["count"] for row in found.collect()}
    clicks = {("clicks", partition): EACH for partition in range(len(CODECS))}
    assert counts == {("jobs", 2): 1, **clicks}


def test_batches_of_every_codec_are_opened(rows: DataFrame) -> None:
    clicks = rows.where("queue = 'clicks'").collect()
    assert {row.partition: row.codec for row in clicks} == dict(enumerate(CODECS))
    for row in clicks:
        assert row.body == b"click %d " % row.offset * 20 and row.key == b"key"
        assert [(header.key, header.value) for header in row.headers] == [
            ("colour", b"red"),
            ("none", None),
        ]


def test_aborted_transactions_are_marked_and_so_is_what_is_open(rows: DataFrame) -> None:
    payments = rows.where("queue = 'payments'").collect()
    records = [row for row in payments if not row.control]
    told = Counter((row.body, row.aborted) for row in records)
    assert told == {(COMMITTED, False): EACH, (ABORTED, True): EACH, (OPEN, None): EACH}
    assert all(row.transactional for row in payments)
    assert len({(row.producer_id, row.producer_epoch) for row in records}) == 3
    assert [row.aborted for row in payments if row.control] == [False, False]
    assert {row.base_sequence is None for row in records} == {False}


def test_what_is_left_out_by_name_offset_or_time_is_not_even_opened(data: Path) -> None:
    taken = snapshot.take(data)
    orders = Limits(queues=frozenset(("orders",)))
    assert {each.queue for each in log_parts(taken, orders, marks=False)} == {"orders"}
    late = Limits(queues=frozenset(("orders",)), offsets=(ORDERS - 1, ORDERS))
    assert len(log_parts(taken, late, marks=False)) == 1
    future = Limits(times=(taken.taken_at + 3_600_000, 1 << 60))
    assert all(each.file is None for each in log_parts(taken, future, marks=False))


def test_many_small_segments_are_a_few_tasks(data: Path) -> None:
    each = log_parts(snapshot.take(data), Limits(), marks=False)
    tasks = bundled(each)
    assert [part for task in tasks if isinstance(task, Bundle) for part in task.parts] == each
    assert len(tasks) <= min(len(each), 2 * TASKS + 1)
    assert len(bundled(each * 50)) <= 2 * TASKS + 1


def test_filters_reach_the_source(spark: SparkSession, rows: DataFrame) -> None:
    """Spark counts for itself: a filter that was misunderstood would lose rows."""
    everything = rows.select("queue", "offset", "timestamp").collect()
    middle = sorted(row.timestamp for row in everything)[len(everything) // 2]
    moment = f"timestamp'{middle.strftime('%Y-%m-%d %H:%M:%S.%f')}'"
    for test, holds in {
        "queue = 'events' and offset >= 150": lambda r: r.queue == "events" and r.offset >= 150,
        "offset > 3 and offset < 7": lambda r: 3 < r.offset < 7,
        "queue in ('jobs', 'nothing')": lambda r: r.queue == "jobs",
        f"timestamp >= {moment}": lambda r: r.timestamp >= middle,
        f"timestamp < {moment}": lambda r: r.timestamp < middle,
    }.items():
        assert rows.where(test).count() == sum(map(holds, everything)), test


def test_a_filter_in_a_query_leaves_out_tasks(spark: SparkSession, rows: DataFrame) -> None:
    """So it came all the way from Spark, and nobody opened what it leaves out."""
    every = rows.rdd.getNumPartitions()
    for test in ("queue = 'jobs'", "queue = 'clicks' and partition = 1", "offset > 999999"):
        assert rows.where(test).rdd.getNumPartitions() == 1 < every, test


def test_a_task_is_a_segment_or_what_only_the_wal_has(rows: DataFrame, data: Path) -> None:
    taken = snapshot.take(data)
    tasks = log_parts(taken, Limits(), marks=False)
    segments = {
        (log.queue, log.partition, segment.base_offset)
        for log in taken.logs
        for segment in log.segments
        if log.kind != INTERNAL
    }
    assert {(t.queue, t.partition, t.segment) for t in tasks if t.file} == segments
    assert len(segments) == sum(1 for task in tasks if task.file)


def test_a_row_tells_where_it_lies(rows: DataFrame, data: Path) -> None:
    """As a reader that is not Spark finds it there, batch by batch."""
    found = rows.where("queue = 'orders' and tier = 'local'").orderBy("offset").collect()
    there = {}
    for file in logs.segments_of(data, "orders"):
        with Window(file) as window:
            for each in batches(window):
                if isinstance(each, Placed):
                    there[each.base_offset] = (int(file.stem), each.position)
    for row in found:
        assert (row.segment, row.position) == there[row.batch_base_offset]
        assert row.batch_base_offset <= row.offset and row.codec == "none"
        assert (row.producer_id, row.producer_epoch, row.base_sequence) == (None, None, None)
        assert (row.transactional, row.control, row.aborted) == (False, False, False)
    waiting = rows.where("tier = 'wal'").select("segment", "position").distinct().collect()
    assert {tuple(row) for row in waiting} <= {(None, None)}


def test_every_column_is_there_and_none_that_is_always_there_may_be_null(rows: DataFrame) -> None:
    assert set(rows.columns) >= {
        "vhost", "queue", "partition", "offset", "timestamp", "key", "body", "headers", "size",
        "segment", "tier", "batch_base_offset", "codec", "crc_ok", "settled", "producer_id",
        "producer_epoch", "transactional", "control",
    }  # fmt: skip
    never = {field.name for field in rows.schema if not field.nullable}
    assert never == {"vhost", "queue", "partition", "offset", "size", "tier"}


def test_columns_that_are_not_asked_for_are_not_there(spark: SparkSession, data: Path) -> None:
    register(spark)
    asked = spark.read.format("ottermq").option("columns", "queue, offset").load(str(data))
    assert asked.columns == ["queue", "offset"]
    assert asked.where("queue = 'events'").count() == ORDERS
    by_schema = spark.read.format("ottermq").schema("offset bigint").load(str(data))
    assert by_schema.agg({"offset": "max"}).collect()[0][0] >= ORDERS - 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "/nowhere"}, "/nowhere: no such directory"),
        ({"path": "/tmp"}, "/tmp: not a data directory of OtterMQ"),
        ({"path": "/tmp", "columns": "colour"}, "no such column: colour"),
        ({}, "The option path is not set"),
    ],
)
def test_what_cannot_be_read_is_told_in_a_line(
    spark: SparkSession, options: dict[str, str], words: str
) -> None:
    register(spark)
    with pytest.raises(PySparkException) as caught:
        spark.read.format("ottermq").options(**options).load().count()
    assert words in first_line(caught.value)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("offset string", "offset string: it is bigint"),
        ("timestamp timestamp not null", "timestamp timestamp not null: it may be null"),
    ],
)
def test_a_schema_that_the_rows_do_not_have_is_refused_in_a_line(
    spark: SparkSession, data: Path, schema: str, words: str
) -> None:
    register(spark)
    with pytest.raises(PySparkException) as caught:
        spark.read.format("ottermq").schema(schema).load(str(data)).count()
    assert words in first_line(caught.value)


def test_a_damaged_batch_is_a_row_and_the_rest_is_read(
    spark: SparkSession, rows: DataFrame, data: Path, tmp_path: Path
) -> None:
    before = rows.where("queue = 'events'").count()
    copy = shutil.copytree(data, tmp_path / "copy")
    segments = logs.segments_of(copy, "events")
    if not segments:
        pytest.skip("all of it is in the WAL still")
    with open(segments[0], "r+b") as file:
        file.seek(200)
        byte = file.read(1)
        file.seek(200)
        file.write(bytes([byte[0] ^ 1]))
    register(spark)
    found = spark.read.format("ottermq").load(str(copy)).where("queue = 'events'")
    damaged = found.where("not crc_ok").collect()
    assert len(damaged) == 1 and damaged[0].body is None and damaged[0].position <= 200
    assert damaged[0].size > 0
    assert before - 20 <= found.where("crc_ok").count() < before


def test_a_segment_that_goes_meanwhile_is_told_as_gone(
    rows: DataFrame, data: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(data, tmp_path / "copy")
    reader = Reader(copy, rows.select("queue", "tier", "crc_ok", "offset").schema, Limits())
    found = [
        each
        for bundle in reader.partitions()
        if isinstance(bundle, Bundle)
        for each in bundle.parts
        if each.file and each.queue == "events"
    ]
    if not found:
        pytest.skip("all of it is in the WAL still")
    assert found[0].file
    (copy / found[0].file).unlink()
    (batch,) = reader.read(Bundle(found[:1]))
    assert batch.to_pylist() == [
        {"queue": "events", "tier": "gone", "crc_ok": None, "offset": found[0].span.first_offset}
    ]
