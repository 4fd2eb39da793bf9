"""Compressed batches that lie. Only their head and CRC are checked: nobody may come to harm."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottermq.engine.types import StreamStart
from ottermq.storage.codecs import Codec, NotDecompressed, compress_records, decompress_records
from ottermq.wal import Log, LogOptions, Store
from ottermq.wal.compaction import Codecs, Compaction
from ottermq.wal.file_window import Window
from ottermq.wal.records import OVERHEAD, sealed, with_records
from ottermq.wal.verify import verify
from tests.engine.kafka_plane import KafkaPlane, batch
from tests.wal.stores import SMALL

PLAIN = batch(b"one", b"two", b"three")


def claims(count: int, records: bytes = PLAIN[OVERHEAD:], codec: Codec = Codec.GZIP) -> bytes:
    """A batch that says it has so many records."""
    data = bytearray(with_records(PLAIN, codec, compress_records(codec, records)))
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    return sealed(data)


LIES = {
    "noise": with_records(PLAIN, Codec.ZSTD, b"this was never zstd"),
    "nothing": with_records(PLAIN, Codec.GZIP, b""),
    "cut off": with_records(PLAIN, Codec.LZ4, compress_records(Codec.LZ4, PLAIN[OVERHEAD:])[:-6]),
    "fewer records": claims(2),
    "more records": claims(1000),
    "no records": claims(3, b"\xff" * 500, Codec.SNAPPY),
    "wrong deltas": claims(3, PLAIN[OVERHEAD:].replace(b"\x02\x02k", b"\x08\x02k"), Codec.LZ4),
    "a bomb": claims(5, bytes(17 << 20), Codec.ZSTD),
}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[KafkaPlane]:
    plane = KafkaPlane(tmp_path)
    yield plane
    plane.close()


@pytest.mark.parametrize("lie", LIES)
def test_a_queues_consumer_passes_over_it(plane: KafkaPlane, lie: str) -> None:
    plane.topic("work", stream=False)
    kafka, reader = plane.kafka(), plane.client()
    for data in (batch(b"before"), LIES[lie], batch(b"behind")):
        assert kafka.produce("work", data).error == 0
    reader.consume("work", no_ack=True)
    assert [message.body for message in reader.messages(2)] == [b"before", b"behind"]
    plane.wait(lambda: plane.ready("work") == 0)
    assert plane.unacked("work") == 0


@pytest.mark.parametrize("lie", LIES)
def test_a_streams_readers_pass_over_it_and_kafkas_get_what_was_sent(
    plane: KafkaPlane, lie: str
) -> None:
    plane.topic("news")
    kafka, reader = plane.kafka(), plane.client()
    count = 1 + struct.unpack_from(">i", LIES[lie], 23)[0]
    offsets = [kafka.produce("news", data).offset for data in (LIES[lie], batch(b"behind"))]
    assert offsets == [0, count]
    reader.consume("news", prefetch=10, start=StreamStart.FIRST)
    assert reader.message().body == b"behind"
    sent = kafka.fetch("news", 0).data
    assert sent[16 : 12 + struct.unpack_from(">i", sent, 8)[0]] == LIES[lie][16:]
    assert kafka.fetch("news", count).values == [b"behind"]


def opened(codec: int, data: bytes) -> bytes | None:
    try:
        return decompress_records(codec, data)
    except NotDecompressed:
        return None


def test_compaction_leaves_them_alone_and_does_its_work(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", SMALL) as store:
        log = store.create("keys", options=LogOptions(segment_size=64 << 10))
        for lie in LIES.values():
            append(store, log, batch(b"old" * 3000, b"new" * 3000, key=b"k"))
            append(store, log, lie)
        for _ in range(10):
            append(store, log, batch(b"last" * 5000, key=b"k"))
        store.checkpoint()
        compaction = Compaction(
            log, now_ms=0, delete_retention_ms=0, codecs=Codecs(opened, compress_records)
        )
        assert compaction.run(0, 1 << 62).dropped >= 2 * len(LIES)
        kept, offset = [], 0
        while found := log.read(offset):
            kept += [each.data[16:] for each in found]
            offset = found[-1].last_offset + 1
        assert [lie for lie, data in LIES.items() if data[16:] not in kept] == []
    assert list(verify(tmp_path / "data").findings) == []


def test_the_audit_reads_all_that_is_around_them(tmp_path: Path) -> None:
    decode = pytest.importorskip("ottermq.audit.source.decode")
    with Store.open(tmp_path / "data", SMALL) as store:
        log = store.create("t")
        for lie in LIES.values():
            append(store, log, lie)
            append(store, log, batch(b"good"))
        store.checkpoint()
    [file] = (tmp_path / "data").glob("vhosts/*/queues/t.*/*.log")
    with Window(file) as window:
        reading = decode.Reading(window, decode.Span(0, file.stat().st_size, 0), decode.Wanted())
        bodies = [
            body
            for columns in reading.batches(["body", "crc_ok"])
            for body in columns.array("body").to_pylist()
        ]
    assert bodies == [None, b"good"] * len(LIES)


def append(store: Store, log: Log, data: bytes) -> None:
    store.wait(log.append_raw(data).seq)


def test_a_count_that_nothing_could_hold_is_refused(plane: KafkaPlane) -> None:
    plane.topic("t")
    kafka = plane.kafka()
    assert kafka.produce("t", claims((1 << 31) - 1)).error == 87
    assert kafka.produce("t", claims(20 << 20)).error == 87
    assert kafka.produce("t", claims(1 << 20)).offset == 0


# -- records that claim to be AMQP messages ---------------------------------------------------

# Published by the owner to amq.topic, dead-lettered here before; delivery-mode, user-id.
FORGED = b"\x81\x09amq.topic" + struct.pack(">H", 0x1000 | 0x10) + b"\x02" + b"\x05owner"


def forged(codec: Codec = Codec.NONE, **how: object) -> bytes:
    plain = batch(b"x", headers=[("amqp", FORGED), ("a", b"b")], **how)  # type: ignore[arg-type]
    if not codec:
        return plain
    attributes = int.from_bytes(plain[21:23], "big") | codec
    return with_records(plain, attributes, compress_records(codec, plain[OVERHEAD:]))


@pytest.mark.parametrize("producer", [(-1, -1, -1), (7, 0, 0)], ids=["plain", "idempotent"])
@pytest.mark.parametrize("target", [None, *Codec], ids=str)
@pytest.mark.parametrize("sent", Codec)
def test_no_producer_says_for_another_what_amqp_vouches_for(
    plane: KafkaPlane, sent: Codec, target: Codec | None, producer: tuple[int, int, int]
) -> None:
    options = {} if target is None else {"codec": target}
    plane.topic("work", stream=False, **options)
    assert plane.kafka().produce("work", forged(sent, producer=producer)).error == 0
    message = plane.client().get("work")
    assert message is not None
    assert (message.method.exchange, message.properties.user_id) == ("", None)
    told = message.headers
    assert (set(told), told["a"], told["amqp"][1:]) == ({"amqp", "a"}, "b", FORGED[1:])


def test_what_claims_nothing_is_kept_as_it_was_sent(plane: KafkaPlane) -> None:
    """Also a header of that name with something else in it."""
    plane.topic("news")
    kafka = plane.kafka()
    for headers in ([], [("amqp", b"1.0")], [("amqp", b"")], [("a", b"b"), ("amqp", FORGED)]):
        data = batch(b"x", headers=headers)
        offset = kafka.produce("news", data).offset
        assert kafka.fetch("news", offset).data[16:] == data[16:]


def test_a_forged_message_is_none_after_a_restart_either(tmp_path: Path) -> None:
    plane = KafkaPlane(tmp_path)
    plane.topic("work", stream=False)
    assert plane.kafka().produce("work", forged()).error == 0
    plane.store.wait(plane.store.durable_seq)
    plane.close()
    plane = KafkaPlane(tmp_path)
    plane.topic("work", stream=False)
    message = plane.client().get("work")
    assert message is not None and message.properties.user_id is None
    plane.close()
