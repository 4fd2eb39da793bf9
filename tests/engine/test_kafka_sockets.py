"""Kafka over real sockets: large requests and answers, clients that don't read, many at once."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottermq.engine.events import ConnectionHello, KafkaRequest, KafkaRightsWanted
from ottermq.engine.types import KafkaRights, Protocol
from ottermq.kafka.api import Api
from ottermq.kafka.codec import decode_response, encode_request
from tests.engine.kafka_plane import KafkaPlane, batch, records_of
from tests.engine.plane import PATIENCE

BOTH = KafkaRights.READ | KafkaRights.WRITE


class Served:
    """A plane whose events are answered in a thread, so that clients may block."""

    def __init__(self, folder: Path) -> None:
        self.plane = KafkaPlane(folder)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.plane.engine.listen(self._listener.fileno(), Protocol.KAFKA)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        engine = self.plane.engine
        while not self._over.wait(0.001):
            for _, event in engine.events():
                if isinstance(event, ConnectionHello):
                    engine.kafka_open(event.conn, "guest")
                elif isinstance(event, KafkaRightsWanted):
                    for name in event.topics:
                        engine.kafka_permit(event.conn, name, BOTH)
                    engine.kafka_retry(event.conn)
                elif isinstance(event, KafkaRequest):
                    engine.kafka_retry(event.conn)

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self.plane.close()
        self._listener.close()

    @contextmanager
    def client(self) -> Iterator["Socket"]:
        with socket.create_connection(self._listener.getsockname(), timeout=PATIENCE) as sock:
            yield Socket(sock)


class Socket:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sent = 0

    def send(self, api: Api, version: int, body: dict[str, Any]) -> None:
        self.sent += 1
        self.sock.sendall(encode_request(api, version, self.sent, "test", body))

    def take(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self.sock.recv(min(count - len(data), 1 << 16))
            assert part, "closed"
            data += part
        return bytes(data)

    def response(self, api: Api, version: int) -> dict[str, Any]:
        size = struct.unpack(">i", self.take(4))[0]
        return decode_response(api, version, self.take(size))[1]

    def send_produce(self, topic: str, data: bytes, acks: int = -1) -> None:
        part = {"index": 0, "records": data}
        topics = [{"name": topic, "partition_data": [part]}]
        body = {"transactional_id": None, "acks": acks, "timeout_ms": 1, "topic_data": topics}
        self.send(Api.PRODUCE, 9, body)

    def produced(self) -> tuple[int, int]:
        part = self.response(Api.PRODUCE, 9)["responses"][0]["partition_responses"][0]
        return part["error_code"], part["base_offset"]

    def send_fetch(self, topic: str, offset: int, limit: int = 50 << 20, wait: int = 0) -> None:
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": limit}
        self.send(
            Api.FETCH,
            11,
            {
                "max_wait_ms": wait,
                "min_bytes": 1,
                "max_bytes": limit,
                "isolation_level": 0,
                "session_id": 0,
                "session_epoch": -1,
                "topics": [{"topic": topic, "partitions": [part]}],
                "forgotten_topics_data": [],
                "rack_id": "",
            },
        )

    def fetched(self) -> bytes:
        part = self.response(Api.FETCH, 11)["responses"][0]["partitions"][0]
        assert part["error_code"] == 0
        return bytes(part["records"] or b"")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    served.plane.topic("clicks", max_message_bytes=8 << 20)
    yield served
    served.close()


@pytest.mark.parametrize("size", [100, 300_000, 3_000_000])
def test_what_goes_in_comes_out(served: Served, size: int) -> None:
    with served.client() as client:
        value = bytes(range(256)) * (size // 256 + 1)
        client.send_fetch("clicks", 0)
        assert client.fetched() == b""
        for n in range(3):
            client.send_produce("clicks", batch(value[: size + n]))
        assert [client.produced() for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]
        data, at = b"", 0
        while at < 3:
            client.send_fetch("clicks", at)
            data += client.fetched()
            at = records_of(data)[-1].offset + 1
        assert [record.value for record in records_of(data)] == [
            value[: size + n] for n in range(3)
        ]


def test_segments_are_sent_as_files(served: Served) -> None:
    with served.client() as client:
        for n in range(40):
            client.send_produce("clicks", batch(b"%d" % n + b"." * 20_000))
            assert client.produced() == (0, n)
        served.plane.store.checkpoint()
        assert served.plane.logs["clicks"][0].stat().hot_batches == 0
        client.send_fetch("clicks", 7)
        offsets = [record.offset for record in records_of(client.fetched())]
        assert offsets == list(range(7, 40))


def test_pipelined_produces_and_a_fetch_behind_them(served: Served) -> None:
    with served.client() as client:
        for n in range(200):
            client.send_produce("clicks", batch(b"%d" % n * 50), acks=-1 if n % 3 else 1)
        client.send_fetch("clicks", 0, wait=20_000)
        assert [client.produced() for _ in range(200)] == [(0, n) for n in range(200)]
        assert records_of(client.fetched())[0].offset == 0


def test_who_does_not_read_is_not_served_and_bothers_nobody(served: Served) -> None:
    with served.client() as deaf, served.client() as other:
        for n in range(20):
            other.send_produce("clicks", batch(b"x" * 500_000))
            assert other.produced() == (0, n)
        for _ in range(30):
            deaf.send_fetch("clicks", 0, limit=2 << 20)
        other.send_fetch("clicks", 19)
        assert records_of(other.fetched())[0].offset == 19
        assert served.plane.engine.stat().output_bytes < 10 << 20
        for _ in range(30):
            assert records_of(deaf.fetched())[0].offset == 0


def test_a_client_that_leaves_in_the_middle_leaves_nothing(served: Served) -> None:
    with served.client() as client:
        client.send_produce("clicks", batch(b"x" * 500_000))
        assert client.produced() == (0, 0)
    for _ in range(20):
        with served.client() as client:
            client.send_fetch("clicks", 1, wait=600_000)
            client.send_fetch("clicks", 0)
        with served.client() as client:
            client.send_fetch("clicks", 0)
            client.send_fetch("clicks", 0)
            client.take(100)
    with served.client() as client:
        client.send_produce("clicks", batch(b"still here"))
        assert client.produced() == (0, 1)
