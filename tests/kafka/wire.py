"""A raw_client that produces and reads: many requests may be under way, nothing is retried."""

import time

from ottermq.kafka import codec
from ottermq.kafka.api import Api
from tests.brokers import PATIENCE
from tests.engine.kafka_plane import records_of
from tests.kafka.raw_client import RawClient

PRODUCE, FETCH = 7, 11  # the versions spoken


class Link(RawClient):
    def create(self, topic: str, partitions: int = 1) -> None:
        wanted = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
        [told] = self.ask(Api.CREATE_TOPICS, {"topics": [wanted], "timeout_ms": 30_000})["topics"]
        assert told["error_code"] == 0, told

    def new_producer(self) -> tuple[int, int]:
        """Its id and epoch."""
        body = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        told = self.ask(Api.INIT_PRODUCER_ID, body)
        assert told["error_code"] == 0, told
        return told["producer_id"], told["producer_epoch"]

    def send_produce(self, topic: str, partition: int, records: bytes, acks: int = -1) -> None:
        part = {"index": partition, "records": records}
        data = [{"name": topic, "partition_data": [part]}]
        body = {"transactional_id": None, "acks": acks, "timeout_ms": 30_000, "topic_data": data}
        self.correlation += 1
        self.send(codec.encode_request(Api.PRODUCE, PRODUCE, self.correlation, "link", body))

    def produced(self) -> tuple[int, int]:
        """The error code and the offset that the next answer tells."""
        _, told = codec.decode_response(Api.PRODUCE, PRODUCE, self.receive())
        [part] = told["responses"][0]["partition_responses"]
        return part["error_code"], part["base_offset"]

    def read_all(self, topic: str, partition: int) -> list[tuple[int, bytes]]:
        """Every record there is: its offset and value."""
        found: list[tuple[int, bytes]] = []
        offset, limit = 0, time.monotonic() + PATIENCE
        while True:
            part = {
                "partition": partition, "current_leader_epoch": -1, "fetch_offset": offset,
                "partition_max_bytes": 1 << 20,
            }  # fmt: skip
            body = {
                "replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 24,
                "session_epoch": -1, "topics": [{"topic": topic, "partitions": [part]}],
            }  # fmt: skip
            [told] = self.ask(Api.FETCH, body, FETCH)["responses"][0]["partitions"]
            assert told["error_code"] == 0, told
            for record in records_of(bytes(told["records"] or b"")):
                if record.offset >= offset:
                    found.append((record.offset, record.value or b""))
                    offset = record.offset + 1
            if offset >= told["high_watermark"]:
                return found
            # What isn't in memory was asked for: it comes with one of the next fetches.
            assert time.monotonic() < limit, f"nothing at {offset} of {told}"
