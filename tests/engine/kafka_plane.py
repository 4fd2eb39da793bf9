"""The Kafka half of the data plane without sockets: for tests that want it all to themselves.

    plane = KafkaPlane(folder)
    plane.topic("clicks", partitions=2)      a stream queue a partition
    client = plane.kafka()                   a connection, allowed to do everything
    client.send(request(18, 0, 7))           bytes go in ...
    client.response()                        ... whole responses come out, without their size

Requests that C hands on gather in `client.requests`; `plane.rights` answers for permissions.
"""

import struct
import time
import uuid
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kafka.record import MemoryRecords, default_records
from kafka.record.default_records import DefaultRecordBatchBuilder

from ottermq._core import ffi, lib
from ottermq.engine.events import (
    ConnectionClosed,
    ConnectionHello,
    Event,
    KafkaRepackWanted,
    KafkaRequest,
    KafkaRightsWanted,
)
from ottermq.engine.types import KafkaRights, KafkaTopicOptions, Protocol, QueueFlags
from ottermq.kafka.api import Api
from ottermq.kafka.codec import decode_response, encode_request
from ottermq.kafka.repacking import repack_all
from ottermq.wal import Options
from tests.engine.plane import Plane
from tests.wal.stores import SMALL


def _crc32c(data: Any) -> int:
    """kafka-python's own, in Python, takes seconds for a megabyte."""
    return int(lib.om_crc32c(0, ffi.from_buffer(data), len(data)))


default_records.calc_crc32c = _crc32c


def request(key: int, version: int, correlation: int, body: bytes = b"") -> bytes:
    """With a header of version 1 and no client id."""
    head = struct.pack(">hhih", key, version, correlation, -1)
    return struct.pack(">i", len(head) + len(body)) + head + body


def batch(
    *values: bytes,
    key: bytes | None = b"k",
    codec: int = 0,
    when: int | None = None,
    headers: Sequence[tuple[str, bytes]] = (),
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytes:
    """Records in one batch, as kafka-python makes them. producer: id, epoch, base sequence."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=transactional,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=1 << 30,
    )
    now = int(time.time() * 1000) if when is None else when
    for offset, value in enumerate(values):
        builder.append(offset, now, key, value, list(headers))
    return bytes(builder.build())


class Record(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


def records_of(data: bytes) -> list[Record]:
    """As kafka-python reads them, CRCs checked."""
    found, reader = [], MemoryRecords(data)
    while (each := reader.next_batch()) is not None:
        assert each.validate_crc()
        found += [Record(r.offset, r.key, r.value, r.timestamp) for r in each]
    return found


class Produced(NamedTuple):
    error: int
    offset: int
    append_time: int
    text: str | None


class Fetched(NamedTuple):
    error: int
    watermark: int
    stable: int
    start: int
    aborted: list[tuple[int, int]] | None
    data: bytes

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in records_of(self.data)]


class KafkaPlane(Plane):
    def __init__(self, folder: Path, options: Options = SMALL, **engine: Any) -> None:
        super().__init__(folder, options, **engine)
        self.kafkas: dict[int, KafkaClient] = {}
        self.topics: dict[str, list[str]] = {}
        self.rights: dict[str, KafkaRights] = {}
        self.repacking = True
        self.to_repack: list[KafkaRepackWanted] = []

    def topic(self, name: str, partitions: int = 1, stream: bool = True, **options: Any) -> bytes:
        """One stream queue a partition; the topic's id."""
        flags = QueueFlags.STREAM if stream else QueueFlags(0)
        queues = self.topics[name] = [
            name if partitions == 1 else f"{name}-{index}" for index in range(partitions)
        ]
        places = [(self.queue(queue, flags=flags), 0) for queue in queues]
        number = uuid.uuid5(uuid.NAMESPACE_DNS, name).bytes
        settings = KafkaTopicOptions(**options)
        self.engine.set_kafka_topic(name.encode(), number, places, settings)
        return number

    def kafka(self, opened: bool = True) -> "KafkaClient":
        return KafkaClient(self, opened)

    def wait_for(self, client: "KafkaClient") -> None:
        self.wait(lambda: client.drain_responses() or client.gone is not None)

    def repack(self, limit: int = 1 << 30) -> bool:
        """What was asked for first."""
        event = self.to_repack.pop(0)
        return self.engine.kafka_repacked(event.conn, repack_all(event.batches, limit))

    def _handle(self, protocol: int, event: Event) -> None:
        if protocol != Protocol.KAFKA:
            super()._handle(protocol, event)
            return
        conn = getattr(event, "conn", 0)
        client = self.kafkas.get(conn)
        if client is None:
            return
        match event:
            case ConnectionHello() if client.opened:
                self.engine.kafka_open(conn, "guest")
            case KafkaRequest() if client.opened and event.api in (0, 1):
                self.engine.kafka_retry(conn)
            case KafkaRequest():
                client.requests.append(event)
            case KafkaRightsWanted():
                both = KafkaRights.READ | KafkaRights.WRITE
                for name in event.topics:
                    self.engine.kafka_permit(conn, name, self.rights.get(name.decode(), both))
                self.engine.kafka_retry(conn)
            case KafkaRepackWanted():
                self.to_repack.append(event)
                if self.repacking:
                    self.repack()
            case ConnectionClosed():
                client.gone = event.reason
                del self.kafkas[conn]


def _aborted(found: list[dict[str, int]] | None) -> list[tuple[int, int]] | None:
    return None if found is None else [(a["producer_id"], a["first_offset"]) for a in found]


class KafkaClient:
    """A connection without a socket."""

    def __init__(self, plane: KafkaPlane, opened: bool) -> None:
        self.plane = plane
        self.engine = plane.engine
        self.opened = opened
        self.id = self.engine.virtual("test", Protocol.KAFKA)
        plane.kafkas[self.id] = self
        self.requests: list[KafkaRequest] = []
        self.responses: deque[bytes] = deque()
        self.gone: str | None = None
        self._input = b""
        self._output = bytearray()
        self._correlation = 0
        self._version = 0
        self.throttled = 0
        self.session = 0
        self.fetch_error = 0

    def send(self, data: bytes) -> None:
        self._input += data
        self._push()

    def _push(self) -> None:
        while self._input and self.gone is None:
            taken = self.engine.feed(self.id, self._input)
            self._input = self._input[max(taken, 0) :]
            self.plane.take_events()
            if taken <= 0:
                return

    def drain_responses(self) -> bool:
        room = bytearray(1 << 20)
        while self.gone is None and (count := self.engine.drain(self.id, room)) > 0:
            self._output += room[:count]
        while len(self._output) >= 4:
            end = 4 + int.from_bytes(self._output[:4])
            if len(self._output) < end:
                break
            self.responses.append(bytes(self._output[4:end]))
            del self._output[:end]
        self._push()
        return bool(self.responses)

    def response(self) -> bytes:
        """The next whole one, without its size."""
        self.plane.wait(self.drain_responses)
        return self.responses.popleft()

    def asked(self) -> KafkaRequest:
        """The next request that C handed on."""

        def came() -> bool:
            self.drain_responses()  # which may come first: that is not what is waited for
            return bool(self.requests)

        self.plane.wait(came)
        return self.requests.pop(0)

    def answer(self, event: KafkaRequest, data: bytes) -> bool:
        body = struct.pack(">i", len(data)) + data
        return self.engine.kafka_answer(self.id, event.slot, body)

    def is_quiet(self) -> bool:
        """Nothing more has come; asked behind a call, whose tick has done all there was."""
        self.plane.take_events()
        self.engine.stat()
        return not self.drain_responses()

    # -- Produce

    def send_produce(
        self,
        parts: dict[tuple[str, int], bytes | None],
        acks: int = -1,
        version: int = 9,
        transactional_id: str | None = None,
    ) -> None:
        topics: dict[str, list[dict[str, Any]]] = {}
        for (name, index), data in parts.items():
            topics.setdefault(name, []).append({"index": index, "records": data})
        self._version = version
        self._correlation += 1
        body = {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout_ms": 1000,
            "topic_data": [{"name": n, "partition_data": p} for n, p in topics.items()],
        }
        self.send(encode_request(Api.PRODUCE, version, self._correlation, "test", body))

    def produced(self) -> dict[tuple[str, int], Produced]:
        _, body = decode_response(Api.PRODUCE, self._version, self.response())
        self.throttled = body["throttle_time_ms"]
        return {
            (topic["name"], part["index"]): Produced(
                part["error_code"],
                part["base_offset"],
                part["log_append_time_ms"],
                part.get("error_message"),
            )
            for topic in body["responses"]
            for part in topic["partition_responses"]
        }

    def produce(
        self, topic: str, data: bytes | None, partition: int = 0, acks: int = -1, version: int = 9,
        transactional_id: str | None = None,
    ) -> Produced:  # fmt: skip
        self.send_produce({(topic, partition): data}, acks, version, transactional_id)
        return self.produced()[topic, partition]

    # -- Fetch

    def send_fetch(
        self,
        parts: dict[tuple[Any, int], int],
        version: int = 12,
        wait: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_bytes: int = 1 << 20,
        committed: bool = False,
        session: tuple[int, int] = (0, -1),
        forget: Sequence[tuple[Any, int]] = (),
        epoch: int = -1,
    ) -> None:
        """parts: topic (its name or id) and partition to the offset wanted."""
        key = "topic_id" if version >= 13 else "topic"
        topics: dict[Any, list[dict[str, Any]]] = {}
        for (name, index), offset in parts.items():
            topics.setdefault(name, []).append(
                {
                    "partition": index,
                    "current_leader_epoch": epoch,
                    "fetch_offset": offset,
                    "partition_max_bytes": partition_bytes,
                }
            )
        self._version = version
        self._correlation += 1
        body = {
            "max_wait_ms": wait,
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "isolation_level": int(committed),
            "session_id": session[0],
            "session_epoch": session[1],
            "topics": [{key: name, "partitions": each} for name, each in topics.items()],
            "forgotten_topics_data": [{key: name, "partitions": [at]} for name, at in forget],
            "rack_id": "",
        }
        self.send(encode_request(Api.FETCH, version, self._correlation, "test", body))

    def fetched(self) -> dict[tuple[Any, int], Fetched]:
        correlation, body = decode_response(Api.FETCH, self._version, self.response())
        assert correlation == self._correlation
        self.throttled = body["throttle_time_ms"]
        self.fetch_error = body.get("error_code", 0)
        self.session = body.get("session_id", 0)
        return {
            (topic["topic_id" if self._version >= 13 else "topic"], part["partition_index"]): (
                Fetched(
                    part["error_code"],
                    part["high_watermark"],
                    part["last_stable_offset"],
                    part.get("log_start_offset", 0),
                    _aborted(part["aborted_transactions"]),
                    bytes(part["records"] or b""),
                )
            )
            for topic in body["responses"]
            for part in topic["partitions"]
        }

    def fetch(self, topic: Any, offset: int, partition: int = 0, **how: Any) -> Fetched:
        self.send_fetch({(topic, partition): offset}, **how)
        return self.fetched()[topic, partition]

    def ends(self) -> str:
        """It is closed: how."""
        self.plane.wait(lambda: self.drain_responses() or self.gone is not None)
        assert self.gone is not None
        return self.gone
