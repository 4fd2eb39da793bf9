"""Fetch: whole batches, from memory and from files, at once or when there is enough."""

import os
import struct
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottermq.engine.events import KafkaRightsWanted
from ottermq.engine.types import KafkaRights
from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from ottermq.wal.compaction import Codecs, Compaction
from tests.engine.kafka_plane import KafkaClient, KafkaPlane, batch, records_of, request
from tests.wal.stores import small


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[KafkaPlane]:
    plane = KafkaPlane(tmp_path)
    plane.topic("clicks")
    yield plane
    plane.close()


def fill(client: KafkaClient, topic: str, *values: bytes, partition: int = 0) -> None:
    """One batch each, on disk."""
    for value in values:
        assert client.produce(topic, batch(value), partition=partition).error == 0


def to_files(plane: KafkaPlane) -> None:
    """Whatever is in the hot tail goes to the segments."""
    plane.store.checkpoint()


def patient(client: KafkaClient, topic: str, offset: int, **how: object) -> None:
    client.send_fetch({(topic, 0): offset}, wait=600_000, **how)  # type: ignore[arg-type]
    assert client.is_quiet()


@pytest.mark.parametrize("version", range(4, 13))
@pytest.mark.parametrize("written", [False, True])
def test_what_was_produced_is_fetched(plane: KafkaPlane, version: int, written: bool) -> None:
    client = plane.kafka()
    fill(client, "clicks", b"1", b"2", b"3")
    if written:
        to_files(plane)
    got = client.fetch("clicks", 0, version=version)
    assert (got.error, got.watermark, got.stable) == (0, 3, 3)
    assert got.start == (0 if version >= 5 else -1)
    assert [(r.offset, r.value) for r in records_of(got.data)] == [(0, b"1"), (1, b"2"), (2, b"3")]


@pytest.mark.parametrize("version", range(13, 18))
def test_later_versions_name_topics_by_their_ids(plane: KafkaPlane, version: int) -> None:
    number = uuid.UUID(bytes=plane.topic("other"))
    client = plane.kafka()
    fill(client, "other", b"1")
    assert client.fetch(number, 0, version=version).values == [b"1"]
    assert client.fetch(uuid.UUID(int=7), 0, version=version).error == 100
    assert client.fetch(uuid.UUID(int=0), 0, version=version).error == 100


@pytest.mark.parametrize("written", [False, True])
def test_an_offset_within_a_batch_gets_the_whole_batch(plane: KafkaPlane, written: bool) -> None:
    client = plane.kafka()
    client.produce("clicks", batch(b"1", b"2", b"3"))
    client.produce("clicks", batch(b"4", b"5"))
    if written:
        to_files(plane)
    got = client.fetch("clicks", 1)
    assert got.values == [b"1", b"2", b"3", b"4", b"5"]
    assert client.fetch("clicks", 3).values == [b"4", b"5"]


@pytest.mark.parametrize("written", [False, True])
def test_limits_cut_between_batches_and_leave_at_least_one(
    plane: KafkaPlane, written: bool
) -> None:
    client = plane.kafka()
    fill(client, "clicks", *(b"x" * 1000 for _ in range(5)))
    if written:
        to_files(plane)
    size = len(batch(b"x" * 1000))
    assert len(client.fetch("clicks", 0, partition_bytes=size * 3).data) == size * 3
    assert len(client.fetch("clicks", 0, partition_bytes=size * 3 - 1).data) == size * 2
    assert len(client.fetch("clicks", 0, max_bytes=size * 4).data) == size * 4
    assert len(client.fetch("clicks", 0, partition_bytes=1).data) == size
    assert len(client.fetch("clicks", 0, max_bytes=0).data) == size


@pytest.mark.parametrize("written", [False, True])
def test_only_the_first_with_data_may_pass_the_limit(plane: KafkaPlane, written: bool) -> None:
    plane.topic("wide", partitions=4)
    client = plane.kafka()
    for partition in (1, 2, 3):
        fill(client, "wide", b"x" * 1000, partition=partition)
    if written:
        to_files(plane)
    client.send_fetch({("wide", n): 0 for n in range(4)}, max_bytes=100)
    assert [bool(each.data) for each in client.fetched().values()] == [False, True, False, False]
    client.send_fetch({("wide", n): 0 for n in range(4)}, partition_bytes=100)
    assert [bool(each.data) for each in client.fetched().values()] == [False, True, False, False]
    client.send_fetch({("wide", n): 0 for n in range(4)}, max_bytes=2500)
    assert [bool(each.data) for each in client.fetched().values()] == [False, True, True, False]


def test_a_log_of_many_segments_is_read_to_its_end(tmp_path: Path) -> None:
    plane = KafkaPlane(tmp_path, small(segment_size=1 << 16))
    plane.topic("long")
    client = plane.kafka()
    for n in range(200):
        client.send_produce({("long", 0): batch(b"%d" % n + b"." * 2000)})
        assert client.produced()["long", 0].offset == n
        if n % 50 == 49:
            to_files(plane)
    at, seen = 0, []
    while at < 200:
        records = records_of(client.fetch("long", at, wait=600_000).data)
        seen += [record.offset for record in records]
        at = seen[-1] + 1
    assert seen == list(range(200))
    plane.close()


def test_an_empty_log_has_nothing(plane: KafkaPlane) -> None:
    got = plane.kafka().fetch("clicks", 0)
    assert (got.error, got.watermark, got.start, got.data) == (0, 0, 0, b"")


def test_offsets_that_are_not_there(plane: KafkaPlane) -> None:
    client = plane.kafka()
    fill(client, "clicks", b"1", b"2", b"3")
    assert client.fetch("clicks", 3).error == 0
    assert client.fetch("clicks", 4).error == 1
    assert client.fetch("clicks", -1).error == 1
    to_files(plane)
    plane.logs["clicks"][0].trim(2)
    got = client.fetch("clicks", 1)
    assert (got.error, got.start) == (1, 2)
    assert client.fetch("clicks", 2).values == [b"3"]


def test_partitions_and_topics_that_are_not_there(plane: KafkaPlane) -> None:
    client = plane.kafka()
    assert client.fetch("clicks", 0, partition=1).error == 3
    assert client.fetch("clicks", 0, partition=-1).error == 3
    assert client.fetch("nowhere", 0).error == 3


def test_the_leader_epoch_is_held_against_ours(plane: KafkaPlane) -> None:
    client = plane.kafka()
    fill(client, "clicks", b"1")
    epoch = plane.logs["clicks"][0].stat().leader_epoch
    assert client.fetch("clicks", 0, epoch=epoch).error == 0
    assert client.fetch("clicks", 0, epoch=epoch + 1).error == 75
    plane.logs["clicks"][0].bump_epoch()
    assert client.fetch("clicks", 0, epoch=epoch).error == 74


def test_who_may_only_write_is_told_so(plane: KafkaPlane) -> None:
    plane.rights["clicks"] = KafkaRights.WRITE
    client = plane.kafka()
    assert client.fetch("clicks", 0).error == 29
    plane.rights["clicks"] = KafkaRights.READ
    plane.engine.forget_permissions()
    assert client.fetch("clicks", 0).error == 0


# -- waiting


def test_a_fetch_waits_for_what_comes(plane: KafkaPlane) -> None:
    consumer, producer = plane.kafka(), plane.kafka()
    patient(consumer, "clicks", 0)
    fill(producer, "clicks", b"here")
    assert consumer.fetched()["clicks", 0].values == [b"here"]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_it_is_woken_by_every_kind_of_produce(plane: KafkaPlane, acks: int) -> None:
    consumer, producer = plane.kafka(), plane.kafka()
    fill(producer, "clicks", b"first")
    patient(consumer, "clicks", 1)
    producer.send_produce({("clicks", 0): batch(b"second")}, acks=acks)
    assert consumer.fetched()["clicks", 0].values == [b"second"]


def test_it_is_woken_by_an_amqp_publish(plane: KafkaPlane) -> None:
    consumer, publisher = plane.kafka(), plane.client()
    patient(consumer, "clicks", 0)
    publisher.publish(b"from the other protocol", "clicks")
    assert consumer.fetched()["clicks", 0].values == [b"from the other protocol"]


def test_it_waits_until_there_is_enough(plane: KafkaPlane) -> None:
    consumer, producer = plane.kafka(), plane.kafka()
    size = len(batch(b"x" * 100))
    patient(consumer, "clicks", 0, min_bytes=size * 3)
    fill(producer, "clicks", b"x" * 100, b"x" * 100)
    assert consumer.is_quiet()
    fill(producer, "clicks", b"x" * 100)
    assert len(consumer.fetched()["clicks", 0].data) == size * 3


def test_it_ends_when_its_time_is_up(plane: KafkaPlane) -> None:
    client = plane.kafka()
    began = time.monotonic()
    assert client.fetch("clicks", 0, wait=60).data == b""
    assert time.monotonic() - began >= 0.05


def test_with_little_at_the_end_of_its_time_it_takes_that(plane: KafkaPlane) -> None:
    consumer, producer = plane.kafka(), plane.kafka()
    fill(producer, "clicks", b"little")
    assert consumer.fetch("clicks", 0, wait=50, min_bytes=100_000).values == [b"little"]


def test_a_waiting_fetch_holds_back_what_comes_behind_it(plane: KafkaPlane) -> None:
    consumer, producer = plane.kafka(), plane.kafka()
    patient(consumer, "clicks", 0)
    consumer.send(request(Api.METADATA, 1, 9))
    assert consumer.requests == []
    fill(producer, "clicks", b"here")
    assert consumer.fetched()["clicks", 0].values == [b"here"]
    consumer.answer(consumer.asked(), b"metadata")
    assert consumer.response() == b"metadata"


def test_an_error_is_told_at_once(plane: KafkaPlane) -> None:
    client = plane.kafka()
    client.send_fetch({("clicks", 0): 0, ("nowhere", 0): 0}, wait=600_000)
    assert client.fetched()["nowhere", 0].error == 3


def test_a_topic_that_goes_wakes_who_waits_for_it(plane: KafkaPlane) -> None:
    client = plane.kafka()
    patient(client, "clicks", 0)
    plane.engine.remove_kafka_topic(b"clicks")
    assert client.fetched()["clicks", 0].error == 3


def test_rights_that_go_are_noticed_by_who_waits(plane: KafkaPlane) -> None:
    consumer, producer = plane.kafka(), plane.kafka()
    patient(consumer, "clicks", 0)
    plane.rights["clicks"] = KafkaRights.WRITE
    plane.engine.forget_permissions()
    fill(producer, "clicks", b"secret")
    got = consumer.fetched()["clicks", 0]
    assert (got.error, got.data) == (29, b"")


def test_many_wait_for_one_log_and_some_leave(plane: KafkaPlane) -> None:
    clients = [plane.kafka() for _ in range(50)]
    for client in clients:
        patient(client, "clicks", 0)
    for client in clients[::2]:
        plane.engine.hang_up(client.id)
        client.ends()
    fill(plane.kafka(), "clicks", b"here")
    for client in clients[1::2]:
        assert client.fetched()["clicks", 0].values == [b"here"]


def test_one_waits_for_many_logs(plane: KafkaPlane) -> None:
    plane.topic("wide", partitions=30)
    consumer, producer = plane.kafka(), plane.kafka()
    at = {("wide", n): 0 for n in range(30)}
    for n in range(60):
        consumer.send_fetch(dict(at), wait=600_000)
        fill(producer, "wide", b"%d" % n, partition=n * 7 % 30)
        got = {key: each.values for key, each in consumer.fetched().items() if each.data}
        assert got == {("wide", n * 7 % 30): [b"%d" % n]}
        at["wide", n * 7 % 30] += 1


# -- sessions


def test_a_session_tells_only_what_is_new(plane: KafkaPlane) -> None:
    plane.topic("wide", partitions=3)
    consumer, producer = plane.kafka(), plane.kafka()
    consumer.send_fetch({("wide", n): 0 for n in range(3)}, session=(0, 0))
    assert len(consumer.fetched()) == 3
    session = consumer.session
    assert session != 0
    consumer.send_fetch({}, session=(session, 1))
    assert consumer.fetched() == {}
    fill(producer, "wide", b"1", partition=1)
    consumer.send_fetch({}, session=(session, 2))
    assert {key: each.values for key, each in consumer.fetched().items()} == {("wide", 1): [b"1"]}
    consumer.send_fetch({("wide", 1): 1}, session=(session, 3))
    assert consumer.fetched() == {}
    assert consumer.session == session


def test_a_session_waits_like_any_fetch(plane: KafkaPlane) -> None:
    consumer, producer = plane.kafka(), plane.kafka()
    consumer.send_fetch({("clicks", 0): 0}, session=(0, 0))
    consumer.fetched()
    consumer.send_fetch({}, session=(consumer.session, 1), wait=600_000)
    assert consumer.is_quiet()
    fill(producer, "clicks", b"here")
    assert consumer.fetched()["clicks", 0].values == [b"here"]


def test_what_a_session_forgets_is_not_fetched(plane: KafkaPlane) -> None:
    plane.topic("wide", partitions=2)
    consumer, producer = plane.kafka(), plane.kafka()
    consumer.send_fetch({("wide", 0): 0, ("wide", 1): 0}, session=(0, 0))
    consumer.fetched()
    fill(producer, "wide", b"1", partition=0)
    fill(producer, "wide", b"2", partition=1)
    consumer.send_fetch({}, session=(consumer.session, 1), forget=[("wide", 0)])
    assert list(consumer.fetched()) == [("wide", 1)]
    consumer.send_fetch({("wide", 0): 0, ("wide", 1): 1}, session=(consumer.session, 2))
    assert {key: each.values for key, each in consumer.fetched().items()} == {("wide", 0): [b"1"]}


def test_sessions_that_are_wrong_are_told(plane: KafkaPlane) -> None:
    client = plane.kafka()
    client.send_fetch({("clicks", 0): 0}, session=(77, 1))
    assert client.fetched() == {} and client.fetch_error == 70
    client.send_fetch({("clicks", 0): 0}, session=(0, 0))
    client.fetched()
    session = client.session
    client.send_fetch({}, session=(session, 5))
    assert client.fetched() == {} and client.fetch_error == 71
    client.send_fetch({}, session=(session, 1))
    client.fetched()
    assert client.fetch_error == 0
    client.send_fetch({}, session=(session, 2), version=13)
    assert client.fetched() == {} and client.fetch_error == 106
    client.send_fetch({("clicks", 0): 0}, session=(session, -1))
    assert len(client.fetched()) == 1 and client.session == 0
    client.send_fetch({}, session=(session, 2))
    assert client.fetched() == {} and client.fetch_error == 70


def test_a_sessions_partitions_take_turns(plane: KafkaPlane) -> None:
    plane.topic("wide", partitions=3)
    consumer, producer = plane.kafka(), plane.kafka()
    for n in range(3):
        fill(producer, "wide", b"x" * 1000, partition=n)
    consumer.send_fetch({("wide", n): 0 for n in range(3)}, session=(0, 0), max_bytes=1)
    order = [[key[1] for key, each in consumer.fetched().items() if each.data]]
    for epoch in (1, 2, 3):
        consumer.send_fetch({}, session=(consumer.session, epoch), max_bytes=1)
        order.append([key[1] for key, each in consumer.fetched().items() if each.data])
    assert order == [[0], [1], [2], [0]]


def test_a_session_survives_many_comings_and_goings(plane: KafkaPlane) -> None:
    plane.topic("wide", partitions=300)
    client = plane.kafka()
    client.send_fetch({("wide", 0): 0}, session=(0, 0))
    client.fetched()
    epoch, wanted = 0, {0}
    for start in range(0, 300, 50):
        epoch += 1
        new = set(range(start, start + 50))
        gone = wanted - new
        client.send_fetch(
            {("wide", n): 0 for n in new},
            session=(client.session, epoch),
            forget=[("wide", n) for n in gone],
        )
        assert {key[1] for key in client.fetched()} == new - wanted
        wanted = new
    client.send_fetch({}, session=(client.session, epoch + 1))
    assert client.fetched() == {}


# -- transactions


def test_read_committed_stops_before_an_open_transaction(plane: KafkaPlane) -> None:
    log = plane.logs["clicks"][0]
    client = plane.kafka()
    plane.engine.kafka_permit_producer(client.id, b"tx", True)
    fill(client, "clicks", b"before")
    log.enlist(9, 0)
    sent = batch(b"in doubt", producer=(9, 0, 0), transactional=True)
    assert client.produce("clicks", sent, transactional_id="tx").error == 0
    fill(client, "clicks", b"after")
    got = client.fetch("clicks", 0, committed=True)
    assert (got.values, got.watermark, got.stable, got.aborted) == ([b"before"], 3, 1, [])
    got = client.fetch("clicks", 0)
    assert (len(got.values), got.aborted) == (3, None)
    plane.store.wait(log.mark(9, 0, commit=False).seq)
    got = client.fetch("clicks", 0, committed=True)
    assert (got.stable, got.aborted) == (4, [(9, 1)])
    assert client.fetch("clicks", 2, committed=True).aborted == [(9, 1)]
    assert client.fetch("clicks", 0, committed=True, version=11).aborted == [(9, 1)]


def test_a_marker_wakes_who_reads_committed(plane: KafkaPlane) -> None:
    log = plane.logs["clicks"][0]
    producer, consumer = plane.kafka(), plane.kafka()
    plane.engine.kafka_permit_producer(producer.id, b"tx", True)
    log.enlist(9, 0)
    sent = batch(b"in doubt", producer=(9, 0, 0), transactional=True)
    assert producer.produce("clicks", sent, transactional_id="tx").error == 0
    patient(consumer, "clicks", 0, committed=True)
    log.mark(9, 0, commit=True)
    got = consumer.fetched()["clicks", 0]
    assert records_of(got.data)[0].value == b"in doubt"


# -- strangers


@pytest.mark.parametrize("version", [0, 3, 18, 99, -1])
def test_a_version_we_dont_have_ends_the_connection(plane: KafkaPlane, version: int) -> None:
    client = plane.kafka()
    client.send(request(Api.FETCH, version, 5, b"\0" * 60))
    assert "version" in client.ends()


def test_a_count_beyond_the_bytes_left_ends_the_connection(plane: KafkaPlane) -> None:
    client, other = plane.kafka(), plane.kafka()
    body = struct.pack(">iiiibi", -1, 0, 0, 1 << 20, 0, 0x7FFFFFFF)
    client.send(request(Api.FETCH, 4, 5, body))
    assert client.ends() == "invalid Fetch request"
    assert other.fetch("clicks", 0).error == 0


def test_bytes_are_counted_for_quotas(plane: KafkaPlane) -> None:
    client = plane.kafka()
    fill(client, "clicks", b"1", b"2")
    plane.engine.kafka_throttle(client.id, 7)
    got = client.fetch("clicks", 0)
    assert client.throttled == 7
    stat = plane.engine.conn_stat(client.id)
    assert stat is not None and stat.fetched_bytes == len(got.data)


def test_rights_are_asked_for_once(plane: KafkaPlane) -> None:
    client = plane.kafka()
    for _ in range(3):
        assert client.fetch("clicks", 0).error == 0
    assert len(plane.events_like(KafkaRightsWanted)) == 1


# -- the disk


def test_what_is_not_in_memory_is_waited_for(tmp_path: Path) -> None:
    plane = KafkaPlane(tmp_path)
    plane.topic("clicks")
    fill(plane.kafka(), "clicks", *(b"%d" % n + b"." * 50_000 for n in range(30)))
    to_files(plane)
    plane.close()
    plane = KafkaPlane(tmp_path)
    plane.topic("clicks")
    for path in tmp_path.rglob("*.log"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    client, at = plane.kafka(), 0
    while at < 30:
        client.send_fetch({("clicks", 0): at}, wait=600_000)
        records = records_of(client.fetched()["clicks", 0].data)
        assert records[0].offset == at
        at = records[-1].offset + 1
    plane.close()


def test_what_a_file_has_lost_is_an_error_and_all_behind_it_is_served(plane: KafkaPlane) -> None:
    client = plane.kafka()
    fill(client, "clicks", *(b"x" * 5000 for _ in range(10)))
    to_files(plane)
    fill(client, "clicks", b"behind it")
    for path in plane.store.data.rglob("*.log"):
        os.truncate(path, 0)
    assert client.fetch("clicks", 0, wait=600_000).error == Error.CORRUPT_MESSAGE
    got = client.fetch("clicks", 10, wait=600_000)
    assert [(r.offset, r.value) for r in records_of(got.data)] == [(10, b"behind it")]


def test_segments_that_compaction_has_emptied_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka takes an answer with nothing but a batch without records for one that is too large
    for it. Before segments were merged, each that was emptied stayed as such a batch."""
    monkeypatch.setattr("ottermq.wal.compaction._New.has_room_for", lambda new, _: not new._old)
    plane = KafkaPlane(tmp_path, small(segment_size=64 << 10))
    try:
        plane.topic("keys")
        client = plane.kafka()
        value = b"x" * 30_000
        for n in range(12):
            assert client.produce("keys", batch(value + b"%d" % n, key=b"k")).error == 0
        to_files(plane)
        log = plane.store.get("keys")
        codecs = Codecs(lambda codec, data: None, lambda codec, data: data)
        compaction = Compaction(log, now_ms=0, delete_retention_ms=0, codecs=codecs)
        assert compaction.run(0, 1 << 62).dropped > 4
        assert sum(each.size == 61 for each in log.segments()) > 1
        for offset in range(12):
            got = client.fetch("keys", offset, partition_bytes=1)
            assert got.error == 0 and len(got.values) >= 1
        assert client.fetch("keys", 0, partition_bytes=1).values != []
    finally:
        plane.close()
