"""Produce: what a Kafka client sends is checked, appended as it is, answered when it must be."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottermq._core import lib
from ottermq.engine.events import KafkaRightsWanted
from ottermq.engine.types import KafkaRights, KafkaTopicFlags, KafkaTopicOptions, QueueFlags
from ottermq.kafka.api import Api
from tests.engine.kafka_plane import KafkaPlane, Produced, batch, records_of, request

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[KafkaPlane]:
    plane = KafkaPlane(tmp_path)
    plane.topic("clicks")
    yield plane
    plane.close()


def stored(plane: KafkaPlane, queue: str, at: int = 0) -> bytes:
    """All of it from there on, whether it lies in a segment by now or not."""
    log, data = plane.logs[queue][0], b""
    plane.wait(lambda: log.stat().high_watermark == log.stat().next_offset)
    while batches := log.read(at):
        data += b"".join(each.data for each in batches)
        at = batches[-1].last_offset + 1
    return data


@pytest.mark.parametrize("version", range(3, 12))
@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_is_stored_as_it_was_sent(plane: KafkaPlane, version: int, acks: int) -> None:
    client = plane.kafka()
    first = client.produce("clicks", batch(b"1", b"2", b"3"), acks=acks, version=version)
    second = client.produce("clicks", batch(b"4"), acks=acks, version=version)
    assert (first.error, first.offset, first.append_time) == (0, 0, -1)
    assert (second.error, second.offset) == (0, 3)
    records = records_of(stored(plane, "clicks"))
    assert [(r.offset, r.key, r.value) for r in records] == [
        (0, b"k", b"1"),
        (1, b"k", b"2"),
        (2, b"k", b"3"),
        (3, b"k", b"4"),
    ]


def test_without_acks_nothing_is_answered(plane: KafkaPlane) -> None:
    client = plane.kafka()
    client.send_produce({("clicks", 0): batch(b"1")}, acks=0)
    assert client.produce("clicks", batch(b"2"), acks=1).offset == 1
    assert client.is_quiet()


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_compressed_batches_stay_as_they_are(plane: KafkaPlane, codec: int) -> None:
    sent = spoilt(21, struct.pack(">h", codec))
    assert plane.kafka().produce("clicks", sent).error == 0
    assert stored(plane, "clicks")[16:] == sent[16:]


def test_many_produces_in_flight_are_answered_in_their_order(plane: KafkaPlane) -> None:
    plane.topic("other", partitions=3)
    client = plane.kafka()
    for n in range(50):
        client.send_produce({("other", n % 3): batch(b"%d" % n)}, acks=-1 if n % 2 else 1)
    places = [next(iter(client.produced().items())) for _ in range(50)]
    assert [key for key, _ in places] == [("other", n % 3) for n in range(50)]
    assert [each.offset for _, each in places] == [n // 3 for n in range(50)]


def test_whatever_comes_behind_a_produce_is_answered_behind_it(plane: KafkaPlane) -> None:
    client = plane.kafka()
    client.send_produce({("clicks", 0): batch(b"1")})
    client.send(request(Api.METADATA, 1, 9))
    client.answer(client.asked(), b"metadata")
    assert client.produced()["clicks", 0].error == 0
    assert client.response() == b"metadata"


def test_one_request_for_many_partitions(plane: KafkaPlane) -> None:
    plane.topic("wide", partitions=40)
    client = plane.kafka()
    parts = {("wide", n): batch(b"%d" % n) for n in range(40)}
    client.send_produce({**parts, ("wide", 40): batch(b"x"), ("nowhere", 0): batch(b"x")})
    done = client.produced()
    assert [done["wide", n].error for n in range(40)] == [0] * 40
    assert done["wide", 40].error == done["nowhere", 0].error == 3
    assert records_of(stored(plane, "wide-7"))[0].value == b"7"


def spoilt(at: int, data: bytes) -> bytes:
    """With other bytes in one place, the CRC made right again unless that is the place."""
    sent = bytearray(batch(b"1", b"2"))
    sent[at : at + len(data)] = data
    if at >= 21:
        sent[17:21] = struct.pack(">I", lib.om_crc32c(0, bytes(sent[21:]), len(sent) - 21))
    return bytes(sent)


WRONG = {
    "nothing": (None, 87),
    "no bytes": (b"", 87),
    "a wrong CRC": (spoilt(17, b"\0\0\0\0"), 2),
    "an old magic": (spoilt(16, b"\1"), 87),
    "cut short": (batch(b"1")[:-1], 2),
    "half a header": (batch(b"1")[:30], 2),
    "two batches": (batch(b"1") + batch(b"2"), 87),
    "a wrong last offset delta": (spoilt(23, struct.pack(">i", 7)), 87),
    "a wrong count": (spoilt(57, struct.pack(">i", 1)), 87),
    "a count of 2**31": (spoilt(57, struct.pack(">I", 1 << 31)), 2),
    "records out of bounds": (spoilt(61, b"\x7e"), 87),
    "a control batch": (spoilt(21, struct.pack(">h", 0x20)), 87),
    "an unknown codec": (spoilt(21, struct.pack(">h", 5)), 76),
    "the broker's timestamps": (spoilt(21, struct.pack(">h", 8)), 32),
    "a transaction without its id": (batch(b"1", producer=(7, 0, 0), transactional=True), 87),
    "a negative length": (spoilt(8, b"\xff\xff\xff\xff"), 2),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_bad_batch_is_refused_and_the_others_stand(plane: KafkaPlane, what: str) -> None:
    data, error = WRONG[what]
    plane.topic("other", partitions=2)
    client = plane.kafka()
    client.send_produce({("other", 0): batch(b"1"), ("clicks", 0): data, ("other", 1): batch(b"2")})
    done = client.produced()
    assert done["clicks", 0][:2] == (error, -1)
    assert done["other", 0].error == done["other", 1].error == 0
    assert stored(plane, "clicks") == b""


def test_zstd_needs_version_7(plane: KafkaPlane) -> None:
    sent = spoilt(21, struct.pack(">h", ZSTD))
    assert plane.kafka().produce("clicks", sent, version=6).error == 76
    assert plane.kafka().produce("clicks", sent, version=7).error == 0


def test_a_batch_larger_than_the_topic_allows_is_refused(plane: KafkaPlane) -> None:
    plane.topic("small", max_message_bytes=200)
    client = plane.kafka()
    assert client.produce("small", batch(b"x" * 100)).error == 0
    assert client.produce("small", batch(b"x" * 200)).error == 10


def test_a_request_of_several_mebibytes_comes_whole(plane: KafkaPlane) -> None:
    plane.topic("large", max_message_bytes=8 << 20)
    sent = batch(bytes(range(256)) * 12000)
    client = plane.kafka()
    assert client.produce("clicks", batch(b"hello")).error == 0
    assert client.produce("large", sent).error == 0
    assert stored(plane, "large")[16:] == sent[16:]


def test_a_compacted_topic_takes_no_record_without_a_key(plane: KafkaPlane) -> None:
    plane.topic("compact", flags=KafkaTopicFlags.COMPACTED)
    client = plane.kafka()
    assert client.produce("compact", batch(b"1", key=None)).error == 87
    assert client.produce("compact", batch(b"1")).error == 0
    assert client.produce("clicks", batch(b"1", key=None)).error == 0


def test_log_append_time_is_the_brokers(plane: KafkaPlane) -> None:
    plane.topic("timed", flags=KafkaTopicFlags.LOG_APPEND_TIME)
    before = int(time.time() * 1000)
    done = plane.kafka().produce("timed", batch(b"1", b"2", when=77))
    assert before <= done.append_time <= time.time() * 1000
    assert [r.timestamp for r in records_of(stored(plane, "timed"))] == [done.append_time] * 2


def test_log_append_time_is_marked_also_when_the_producers_clock_agrees(plane: KafkaPlane) -> None:
    plane.topic("timed", flags=KafkaTopicFlags.LOG_APPEND_TIME)
    client = plane.kafka()
    for _ in range(1000):
        now = int(time.time() * 1000)
        done = client.produce("timed", batch(b"1", when=now))
        if done.append_time == now:
            break
    assert done.append_time == now
    held = stored(plane, "timed", done.offset)
    assert held[21:23] == struct.pack(">h", lib.OM_ATTR_LOG_APPEND_TIME)


def test_timestamps_out_of_range_are_refused(plane: KafkaPlane) -> None:
    plane.topic("recent", timestamp_before_max_ms=60_000, timestamp_after_max_ms=60_000)
    client, now = plane.kafka(), int(time.time() * 1000)
    assert client.produce("recent", batch(b"1", when=now - 3_600_000)).error == 32
    assert client.produce("recent", batch(b"1", when=now + 3_600_000)).error == 32
    assert client.produce("recent", batch(b"1", when=now)).error == 0


def test_a_batch_that_lies_about_its_times_is_put_right(plane: KafkaPlane) -> None:
    sent = spoilt(35, struct.pack(">q", 77))
    assert plane.kafka().produce("clicks", sent).error == 0
    held = stored(plane, "clicks")
    latest = max(record.timestamp for record in records_of(held))
    assert latest > 77
    assert held[35:43] == struct.pack(">q", latest)


def test_internal_topics_are_not_for_clients(plane: KafkaPlane) -> None:
    plane.topic("__state", flags=KafkaTopicFlags.INTERNAL)
    assert plane.kafka().produce("__state", batch(b"1")).error == 17


def test_who_may_only_read_is_told_so(plane: KafkaPlane) -> None:
    plane.rights["clicks"] = KafkaRights.READ
    client = plane.kafka()
    assert client.produce("clicks", batch(b"1")).error == 29
    asked = len(plane.events_like(KafkaRightsWanted))
    assert client.produce("clicks", batch(b"1")).error == 29
    assert len(plane.events_like(KafkaRightsWanted)) == asked == 1
    plane.rights["clicks"] = KafkaRights.WRITE
    plane.engine.forget_permissions()
    assert client.produce("clicks", batch(b"1")).error == 0


def test_acks_that_dont_exist_are_refused(plane: KafkaPlane) -> None:
    assert plane.kafka().produce("clicks", batch(b"1"), acks=2).error == 21


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_versions_are_answered_that_they_are(plane: KafkaPlane, version: int) -> None:
    client = plane.kafka()
    body = struct.pack(">hiih6siii", 1, 1000, 1, 6, b"clicks", 1, 0, 4) + b"\0\0\0\0"
    client.send(request(Api.PRODUCE, version, 5, body))
    answer = client.response()
    assert answer[:4] == struct.pack(">i", 5)
    assert answer[4:26] == struct.pack(">ih6siih", 1, 6, b"clicks", 1, 0, 35)
    assert len(answer) == 26 + 8 + (4 if version else 0) + (8 if version == 2 else 0)


@pytest.mark.parametrize("version", [12, 13, 99, -1])
def test_a_version_we_dont_have_ends_the_connection(plane: KafkaPlane, version: int) -> None:
    client = plane.kafka()
    client.send(request(Api.PRODUCE, version, 5, b"\0" * 40))
    assert "version" in client.ends()


def test_a_count_beyond_the_bytes_left_ends_the_connection(plane: KafkaPlane) -> None:
    client, other = plane.kafka(), plane.kafka()
    client.send(request(Api.PRODUCE, 3, 5, struct.pack(">hhii", -1, 1, 1000, 0x7FFFFFFF)))
    assert client.ends() == "invalid Produce request"
    assert other.produce("clicks", batch(b"1")).error == 0


def test_a_sequence_is_appended_once(plane: KafkaPlane) -> None:
    client = plane.kafka()
    first = client.produce("clicks", batch(b"1", b"2", producer=(9, 0, 0)))
    second = client.produce("clicks", batch(b"3", producer=(9, 0, 2)))
    again = client.produce("clicks", batch(b"1", b"2", producer=(9, 0, 0)))
    late = client.produce("clicks", batch(b"5", producer=(9, 0, 7)))
    assert [first.offset, second.offset, again.offset] == [0, 2, 0]
    assert (again.error, late.error) == (0, 45)
    assert len(records_of(stored(plane, "clicks"))) == 3


def test_what_kafka_writes_amqp_reads(plane: KafkaPlane) -> None:
    plane.topic("work", stream=False)
    consumer = plane.client()
    consumer.consume("work", no_ack=True)
    plane.kafka().produce("work", batch(b"hello", b"world", key=b"key"))
    assert [m.body for m in consumer.messages(2)] == [b"hello", b"world"]


def test_a_full_queue_that_refuses_is_told(plane: KafkaPlane) -> None:
    number = plane.queue("short", max_length=1, flags=QueueFlags.REJECT_PUBLISH)
    plane.engine.set_kafka_topic(b"short", b"s" * 16, [(number, 0)], KafkaTopicOptions())
    client = plane.kafka()
    assert client.produce("short", batch(b"1")).error == 0
    assert client.produce("short", batch(b"2")) == Produced(44, -1, -1, "the queue is full")


def test_a_topic_that_goes_is_unknown_from_then_on(plane: KafkaPlane) -> None:
    client = plane.kafka()
    assert client.produce("clicks", batch(b"1")).error == 0
    assert plane.engine.remove_kafka_topic(b"clicks")
    assert not plane.engine.remove_kafka_topic(b"clicks")
    assert client.produce("clicks", batch(b"1")).error == 3


def test_a_queue_that_goes_takes_its_partition_along(plane: KafkaPlane) -> None:
    plane.topic("pair", partitions=2)
    client = plane.kafka()
    assert client.produce("pair", batch(b"1"), partition=1).error == 0
    plane.remove("pair-1")
    assert client.produce("pair", batch(b"1"), partition=1).error == 3
    assert client.produce("pair", batch(b"1"), partition=0).error == 0


def test_bytes_are_counted_for_quotas(plane: KafkaPlane) -> None:
    client = plane.kafka()
    sent = batch(b"1")
    client.produce("clicks", sent)
    stat = plane.engine.conn_stat(client.id)
    assert stat is not None and stat.produced_bytes == len(sent)
    assert plane.engine.kafka_throttle(client.id, 5)
    client.produce("clicks", sent)
    assert client.throttled == 5  # and the next one waits so long before it is heard
    client.produce("clicks", sent)
    assert client.throttled == 0


def test_many_topics_keep_their_names_apart(plane: KafkaPlane) -> None:
    for n in range(200):
        plane.topic(f"t{n}")
    client = plane.kafka()
    client.send_produce({(f"t{n}", 0): batch(b"%d" % n) for n in range(200)})
    assert all(each == (0, 0, -1, None) for each in client.produced().values())
    assert records_of(stored(plane, "t123"))[0].value == b"123"
