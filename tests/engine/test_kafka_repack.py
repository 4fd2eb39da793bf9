"""Batches that a topic doesn't take as they are: held, repacked, appended in their order."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottermq.engine.types import KafkaTopicFlags, Repacked
from ottermq.kafka.errors import Error
from ottermq.storage.codecs import Codec, compress_records
from ottermq.wal.records import OVERHEAD, Batch, batches, sealed, with_records
from tests.engine.kafka_plane import KafkaPlane, records_of
from tests.engine.kafka_plane import batch as plain_batch

NOW = 1_800_000_000_000
HEAD_KEPT = slice(23, OVERHEAD)  # last delta, times, producer, sequence, count
CODECS = list(Codec)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[KafkaPlane]:
    plane = KafkaPlane(tmp_path)
    yield plane
    plane.close()


def stored(plane: KafkaPlane, queue: str) -> list[Batch]:
    [log] = plane.logs[queue]
    plane.store.wait(plane.store.durable_seq)
    return list(batches(b"".join(each.data for each in log.read(0))))


def batch(*values: bytes, codec: Codec = Codec.NONE, **how: Any) -> bytes:
    """Compressed also where it doesn't pay."""
    plain = plain_batch(*values, **how)
    attributes = int.from_bytes(plain[21:23], "big") | codec
    return with_records(plain, attributes, compress_records(codec, plain[OVERHEAD:]))


def lying(codec: Codec, plain: bytes, *, count: int | None = None) -> bytes:
    """A compressed batch that says something else than its records."""
    data = bytearray(with_records(plain, codec, compress_records(codec, plain[OVERHEAD:])))
    if count is not None:
        struct.pack_into(">i", data, 23, count - 1)
        struct.pack_into(">i", data, 57, count)
    return sealed(data)


@pytest.mark.parametrize("target", CODECS)
@pytest.mark.parametrize("sent", CODECS)
def test_a_batch_is_kept_in_the_topics_codec(plane: KafkaPlane, sent: Codec, target: Codec) -> None:
    plane.topic("t", codec=target)
    values = [b"%d" % number * 100 for number in range(50)]
    data = batch(*values, codec=sent, when=NOW, headers=[("h", b"x")], producer=(7, 0, 0))
    assert plane.kafka().produce("t", data).error == Error.NONE
    [kept] = stored(plane, "t")
    assert kept.codec == target
    assert kept.data[HEAD_KEPT] == data[HEAD_KEPT]
    assert [(r.key, r.value, r.timestamp) for r in records_of(kept.data)] == [
        (b"k", value, NOW) for value in values
    ]
    assert (sent == target) == (not plane.to_repack and kept.data[OVERHEAD:] == data[OVERHEAD:])


def test_what_has_the_topics_codec_is_not_held(plane: KafkaPlane) -> None:
    plane.repacking = False
    plane.topic("t", codec=Codec.ZSTD)
    plane.topic("as-sent")
    client = plane.kafka()
    assert client.produce("t", batch(b"a", codec=Codec.ZSTD)).error == Error.NONE
    for codec in CODECS:
        assert client.produce("as-sent", batch(b"a", codec=codec)).error == Error.NONE
    assert plane.to_repack == []


def test_requests_behind_one_that_is_held_keep_their_order(plane: KafkaPlane) -> None:
    plane.repacking = False
    plane.topic("t", codec=Codec.LZ4)
    client, other = plane.kafka(), plane.kafka()
    for number, codec in enumerate((Codec.LZ4, Codec.GZIP, Codec.LZ4, Codec.ZSTD)):
        client.send_produce({("t", 0): batch(b"%d" % number, codec=codec)})
    assert client.produced()["t", 0].offset == 0
    assert client.is_quiet()
    assert other.produce("t", batch(b"other", codec=Codec.LZ4)).offset == 1  # held up by nobody
    assert plane.repack()
    assert [client.produced()["t", 0].offset for _ in range(2)] == [2, 3]
    assert client.is_quiet()
    assert plane.repack()
    assert client.produced()["t", 0].offset == 4
    kept = [record.value for each in stored(plane, "t") for record in records_of(each.data)]
    assert kept == [b"0", b"other", b"1", b"2", b"3"]


def test_one_request_for_many_topics_each_with_its_own_way(plane: KafkaPlane) -> None:
    plane.topic("plain")
    plane.topic("gz", partitions=2, codec=Codec.GZIP)
    plane.topic("zs", codec=Codec.ZSTD, max_message_bytes=2000)
    plane.topic("keyed", flags=KafkaTopicFlags.COMPACTED)
    client = plane.kafka()
    client.send_produce(
        {
            ("plain", 0): batch(b"as it is", codec=Codec.SNAPPY),
            ("gz", 0): lying(Codec.LZ4, batch(b"two", b"records"), count=3),
            ("gz", 1): batch(b"good", codec=Codec.LZ4),
            ("gz", 2): batch(b"nowhere", codec=Codec.LZ4),
            ("zs", 0): batch(bytes(1000)),
            ("nothing", 0): batch(b"unknown", codec=Codec.LZ4),
            ("keyed", 0): batch(b"no key", key=None, codec=Codec.GZIP),
        }
    )
    errors = {place: each.error for place, each in client.produced().items()}
    assert errors == {
        ("plain", 0): Error.NONE,
        ("gz", 0): Error.INVALID_RECORD,
        ("gz", 1): Error.NONE,
        ("gz", 2): Error.UNKNOWN_TOPIC_OR_PARTITION,
        ("zs", 0): Error.NONE,
        ("nothing", 0): Error.UNKNOWN_TOPIC_OR_PARTITION,
        ("keyed", 0): Error.INVALID_RECORD,
    }
    assert [stored(plane, name)[0].codec for name in ("plain", "gz-1", "zs")] == [
        Codec.SNAPPY, Codec.GZIP, Codec.ZSTD,
    ]  # fmt: skip
    assert stored(plane, "gz-0") == stored(plane, "keyed") == []


@pytest.mark.parametrize("codec", [c for c in CODECS if c])
def test_a_compacted_topic_sees_keys_in_compressed_batches(plane: KafkaPlane, codec: Codec) -> None:
    plane.topic("t", flags=KafkaTopicFlags.COMPACTED)
    client = plane.kafka()
    data = batch(b"with a key", codec=codec)
    assert client.produce("t", batch(b"without", key=None, codec=codec)).error == 87
    assert client.produce("t", data).error == Error.NONE
    [kept] = stored(plane, "t")
    assert kept.data[OVERHEAD:] == data[OVERHEAD:]  # as it was sent


def test_one_that_cannot_be_opened_is_corrupt(plane: KafkaPlane) -> None:
    plane.topic("t", codec=Codec.NONE)
    client = plane.kafka()
    plain = batch(b"a", b"b")
    assert client.produce("t", with_records(plain, Codec.GZIP, b"not gzip")).error == 2
    noise = compress_records(Codec.ZSTD, b"\xff" * 100)
    assert client.produce("t", with_records(plain, Codec.ZSTD, noise)).error == 87
    assert client.produce("t", lying(Codec.ZSTD, plain, count=1)).error == 87
    assert client.produce("t", batch(b"fine", codec=Codec.GZIP)).offset == 0


def test_what_is_too_large_once_repacked_is_refused(plane: KafkaPlane) -> None:
    plane.topic("t", codec=Codec.NONE, max_message_bytes=100_000)
    client = plane.kafka()
    assert client.produce("t", batch(bytes(200_000), codec=Codec.ZSTD)).error == 10
    assert client.produce("t", batch(bytes(20_000), codec=Codec.ZSTD)).error == Error.NONE


def test_what_comes_out_of_a_request_is_bounded(plane: KafkaPlane) -> None:
    plane.repacking = False
    plane.topic("t", partitions=8, codec=Codec.NONE)
    client = plane.kafka()
    client.send_produce(
        {("t", index): batch(bytes(50_000), codec=Codec.ZSTD) for index in range(8)}
    )
    plane.wait(lambda: plane.to_repack)
    assert plane.repack(limit=200_000)
    errors = [each.error for each in client.produced().values()]
    assert errors == [0] * 3 + [10] * 5


def test_a_client_that_leaves_meanwhile_leaves_nothing(plane: KafkaPlane) -> None:
    plane.repacking = False
    plane.topic("t", codec=Codec.GZIP)
    client = plane.kafka()
    client.send_produce({("t", 0): batch(b"a")})
    plane.wait(lambda: plane.to_repack)
    plane.engine.hang_up(client.id)
    plane.wait_for(client)
    assert not plane.repack()
    assert stored(plane, "t") == []
    plane.repacking = True
    assert plane.kafka().produce("t", batch(b"b")).offset == 0


def test_a_topic_that_goes_meanwhile_is_unknown(plane: KafkaPlane) -> None:
    plane.repacking = False
    plane.topic("t", codec=Codec.GZIP)
    client = plane.kafka()
    client.send_produce({("t", 0): batch(b"a")})
    plane.wait(lambda: plane.to_repack)
    plane.engine.remove_kafka_topic(b"t")
    assert plane.repack()
    assert client.produced()["t", 0].error == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_only_so_much_is_under_way_and_the_rest_waits_its_turn(plane: KafkaPlane) -> None:
    plane.repacking = False
    plane.topic("t", codec=Codec.GZIP, max_message_bytes=64 << 20)
    large = batch(bytes(17 << 20))
    clients = []
    for _ in range(6):
        client = plane.kafka()
        clients.append(client)
        client.produce("t", batch(b"known", codec=Codec.GZIP))
        client.send_produce({("t", 0): large})
    plane.wait(lambda: len(plane.to_repack) == 4)
    assert all(client.is_quiet() for client in clients)
    assert len(plane.to_repack) == 4
    for _ in clients:
        plane.wait(lambda: plane.to_repack)
        assert plane.repack()
    offsets = sorted(client.produced()["t", 0].offset for client in clients)
    assert offsets == list(range(6, 12))


def test_without_acks_a_refused_one_ends_the_connection(plane: KafkaPlane) -> None:
    plane.topic("t", codec=Codec.GZIP)
    client = plane.kafka()
    client.send_produce({("t", 0): batch(b"a", codec=Codec.LZ4)}, acks=0)
    assert client.produce("t", batch(b"b"), acks=1).offset == 1
    assert client.is_quiet()
    noise = with_records(batch(b"a"), Codec.LZ4, b"noise")
    client.send_produce({("t", 0): noise}, acks=0)
    plane.wait_for(client)
    assert client.gone


def test_times_are_those_of_the_records_inside(plane: KafkaPlane) -> None:
    plane.topic("t", codec=Codec.NONE, timestamp_after_max_ms=1000)
    plane.topic("arrival", codec=Codec.ZSTD, flags=KafkaTopicFlags.LOG_APPEND_TIME)
    client = plane.kafka()
    plain = bytearray(batch(b"a", when=1000))
    struct.pack_into(">q", plain, 35, 5)  # the largest time, it says
    assert client.produce("t", lying(Codec.GZIP, sealed(plain))).error == Error.NONE
    [kept] = stored(plane, "t")
    assert (kept.max_timestamp, records_of(kept.data)[0].timestamp) == (1000, 1000)
    late = bytearray(batch(b"a", when=1 << 60))
    struct.pack_into(">q", late, 35, 5)
    assert client.produce("t", lying(Codec.GZIP, sealed(late))).error == 32
    done = client.produce("arrival", batch(b"a", codec=Codec.GZIP, when=1000))
    [kept] = stored(plane, "arrival")
    assert kept.codec == Codec.ZSTD
    assert records_of(kept.data)[0].timestamp == done.append_time == kept.max_timestamp


def test_a_batch_sent_again_is_known_again(plane: KafkaPlane) -> None:
    plane.topic("t", codec=Codec.GZIP)
    client = plane.kafka()
    first = batch(b"a", b"b", codec=Codec.LZ4, producer=(7, 0, 0))
    assert [client.produce("t", first).offset for _ in range(2)] == [0, 0]
    assert client.produce("t", batch(b"c", producer=(7, 0, 2))).offset == 2
    assert client.produce("t", batch(b"gap", producer=(7, 0, 9))).error == 45


def test_an_answer_nobody_asked_for_is_refused(plane: KafkaPlane) -> None:
    plane.topic("t", codec=Codec.GZIP)
    client = plane.kafka()
    assert client.produce("t", batch(b"a")).error == Error.NONE
    assert not plane.engine.kafka_repacked(client.id, [])
    assert not plane.engine.kafka_repacked(client.id, [Repacked(0)])
    assert not plane.engine.kafka_repacked(1 << 40, [Repacked(0)])
