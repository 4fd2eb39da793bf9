"""Compressed batches, as Kafka clients send them, reach AMQP consumers message by message."""

import struct
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from ottermq._core import lib
from ottermq.engine.types import QueueFlags, StreamStart
from ottermq.storage.codecs import Codec
from tests.engine.plane import Plane

PACK: dict[Codec, Callable[[bytes], Any]] = {
    Codec.GZIP: cramjam.gzip.compress,
    Codec.SNAPPY: cramjam.snappy.compress_raw,
    Codec.LZ4: cramjam.lz4.compress,
    Codec.ZSTD: cramjam.zstd.compress,
}


def batch(codec: Codec, records: bytes, plain: bytes) -> bytes:
    """The head of a plain batch over records that were packed."""
    checked = struct.pack(">h", codec) + plain[23:61] + records
    crc = lib.om_crc32c(0, checked, len(checked))
    head = plain[:8] + struct.pack(">i", 9 + len(checked)) + plain[12:17] + struct.pack(">I", crc)
    return head + checked


def plain_batch(bodies: list[bytes], time: int = 1_800_000_000_000) -> bytes:
    build = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    for number, body in enumerate(bodies):
        build.append(number, time, b"key", body, [])
    return bytes(build.build())


def packed(codec: Codec, bodies: list[bytes]) -> bytes:
    plain = plain_batch(bodies)
    return batch(codec, bytes(PACK[codec](plain[61:])), plain)


@pytest.mark.parametrize("codec", PACK)
def test_a_queue_gives_out_what_is_in_it(plane: Plane, codec: Codec) -> None:
    plane.queue("work")
    [log] = plane.logs["work"]
    bodies = [b"%d" % number * 50 for number in range(100)]
    log.append_raw(packed(codec, bodies[:60]))
    log.append_raw(packed(codec, bodies[60:]))
    client = plane.client()
    client.consume("work")
    assert [message.body for message in client.messages(100)] == bodies


def test_a_batch_is_asked_for_once(plane: Plane) -> None:
    plane.answering = False
    plane.queue("news", flags=QueueFlags.STREAM)
    [log] = plane.logs["news"]
    plane.store.wait(log.append_raw(packed(Codec.ZSTD, [b"a", b"b"])).seq)
    readers = [plane.client() for _ in range(5)]
    for reader in readers:
        reader.consume("news", prefetch=10, start=StreamStart.FIRST)
    plane.wait(lambda: plane.asked)
    [question] = plane.asked
    plane.answer(question)
    for reader in readers:
        assert [message.body for message in reader.messages(2)] == [b"a", b"b"]
    late = plane.client()
    late.consume("news", prefetch=10, start=StreamStart.FIRST)
    assert [message.body for message in late.messages(2)] == [b"a", b"b"]
    assert plane.asked == [question]


def test_one_that_cannot_be_opened_is_passed_over(plane: Plane) -> None:
    plane.answering = False
    plane.queue("work")
    [log] = plane.logs["work"]
    whole = plain_batch([b"never", b"seen"])
    log.append_raw(batch(Codec.GZIP, b"this is not gzip", whole))
    log.append_raw(batch(Codec.LZ4, bytes(cramjam.lz4.compress(b"no records")), whole))
    log.append_raw(plain_batch([b"behind"]))
    client = plane.client()
    client.consume("work")
    plane.wait(lambda: plane.asked)
    [first] = plane.asked
    assert not plane.engine.batch_decompressed(first.log, first.base_offset, None)
    plane.wait(lambda: len(plane.asked) == 2)
    second = plane.asked[1]
    assert not plane.engine.batch_decompressed(second.log, second.base_offset, b"no records")
    assert client.message().body == b"behind"
    assert plane.ready("work") == 0


def test_a_get_waits_until_it_is_open(plane: Plane) -> None:
    plane.queue("work")
    [log] = plane.logs["work"]
    log.append_raw(packed(Codec.SNAPPY, [b"one"]))
    got = plane.client().get("work")
    assert got and got.body == b"one"


def test_an_answer_nobody_asked_for_is_refused(plane: Plane) -> None:
    assert not plane.engine.batch_decompressed(1, 0, b"")


def test_more_batches_than_are_kept_all_come_through(plane: Plane) -> None:
    plane.queue("work")
    [log] = plane.logs["work"]
    for number in range(200):
        log.append_raw(packed(Codec.ZSTD, [b"%d" % number]))
    client = plane.client()
    client.consume("work")
    got = [message.body for message in client.messages(200)]
    assert got == [b"%d" % number for number in range(200)]


def test_another_batch_in_its_place_is_opened_anew(plane: Plane) -> None:
    plane.queue("news", flags=QueueFlags.STREAM)
    [log] = plane.logs["news"]
    plane.store.wait(log.append_raw(packed(Codec.ZSTD, [b"old"])).seq)
    reader = plane.client()
    reader.consume("news", prefetch=10, start=StreamStart.FIRST)
    assert reader.message().body == b"old"
    log.truncate(0)
    plane.store.wait(log.append_raw(packed(Codec.ZSTD, [b"new"])).seq)
    late = plane.client()
    late.consume("news", prefetch=10, start=StreamStart.FIRST)
    assert late.message().body == b"new"


def test_a_record_is_no_later_than_the_batch_it_came_in(plane: Plane) -> None:
    """Only a batch's own time is checked when it comes compressed."""
    plane.queue("mortal", message_ttl_ms=10)
    [log] = plane.logs["mortal"]
    plain, never = plain_batch([b"x"], 1_700_000_000_000), 1 << 62
    later = plain_batch([b"x"], never)
    lying = later[:35] + plain[35:43] + later[43:]  # its latest record is not so late, it says
    log.append_raw(batch(Codec.ZSTD, bytes(PACK[Codec.ZSTD](lying[61:])), lying))
    plane.client().consume("mortal")
    plane.wait(lambda: plane.engine.queue_stat(plane.queues["mortal"]).expired == 1)


def test_an_end_beyond_all_time_has_not_passed(plane: Plane) -> None:
    plane.queue("lasting", message_ttl_ms=(1 << 63) - 1)
    [log] = plane.logs["lasting"]
    log.append_raw(plain_batch([b"x"]))
    message = plane.client().get("lasting")
    assert message is not None and message.body == b"x"
