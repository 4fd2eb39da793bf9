"""The snapshot of a data directory: whole, and never torn, whatever the broker does meanwhile."""

import signal
import threading
import time
from pathlib import Path

import pika
import pytest

from ottermq.audit import snapshot
from ottermq.audit.snapshot import Log, NoSnapshot
from ottermq.audit.source.decode import Reading
from ottermq.audit.source.plan import Limits, LogPart, log_parts
from ottermq.audit.source.stream import stable_end
from ottermq.wal.file_window import MemoryRanges
from tests.audit import logs
from tests.brokers import Broker
from tests.examples import shortened


def read(part: LogPart) -> tuple[list[int], list[bytes], list[bool]]:
    """Offsets, bodies, and which of them are right."""
    offsets, bodies, right = [], [], []
    window = part.home.open(part.file) if part.file else MemoryRanges(part.held)
    assert window
    with window:
        for columns in Reading(window, part.span, part.wanted).batches(
            ("offset", "body", "crc_ok")
        ):
            offsets += columns.array("offset").to_pylist()
            bodies += columns.array("body").to_pylist()
            right += columns.array("crc_ok").to_pylist()
    return offsets, bodies, right


def records(data: Path) -> dict[int, bytes]:
    """Offset → body of queue `orders`; each once, none torn."""
    found: dict[int, bytes] = {}
    limits = Limits(queues=frozenset(("orders",)))
    for part in log_parts(snapshot.take(data), limits, marks=False):
        offsets, bodies, right = read(part)
        assert all(right) and found.keys().isdisjoint(offsets)
        found |= dict(zip(offsets, bodies, strict=True))
    return found


def log_of(data: Path, queue: str) -> Log:
    (log,) = (each for each in snapshot.take(data).logs if each.queue == queue)
    return log


class Load(threading.Thread):
    """Publishes to `orders`; `confirmed` counts what the broker has promised."""

    def __init__(self, broker: Broker, size: int) -> None:
        super().__init__()
        self.broker, self.size = broker, size
        self.confirmed = 0
        self.ended = threading.Event()

    def run(self) -> None:
        channel = logs.channel_to(self.broker)
        channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "stream"})
        try:
            while not self.ended.is_set():
                body = b"%d " % self.confirmed + b"." * self.size
                channel.basic_publish("", "orders", body, logs.PERSISTENT)
                self.confirmed += 1
        except pika.exceptions.AMQPError:
            pass  # killed


@pytest.mark.parametrize("end", shortened([signal.SIGKILL, signal.SIGTERM], 1))
def test_whatever_was_confirmed_before_is_in_the_picture(
    tmp_path: Path, end: signal.Signals
) -> None:
    data = tmp_path / "data"
    with Broker(data, env=logs.SMALL_SEGMENTS) as broker:
        load = Load(broker, size=2000)
        load.start()
        until = time.monotonic() + 6  # two checkpoints, some segments
        looked = 0
        while time.monotonic() < until or looked < 3:
            promised = load.confirmed
            found = records(data)
            assert found.keys() >= set(range(promised))
            assert all(body.startswith(b"%d " % offset) for offset, body in found.items())
            looked += 1
        if end == signal.SIGTERM:
            load.ended.set()
            load.join()
        broker.stop(end)
        load.join()
    promised = load.confirmed
    assert records(data).keys() >= set(range(promised))
    log = log_of(data, "orders")
    assert len(log.segments) > 1 and log.segments[0].sealed and not log.problems
    assert stable_end(log) >= promised


def test_a_killed_brokers_acks_and_messages_are_those_it_comes_back_with(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data, env=logs.SMALL_SEGMENTS) as broker:
        logs.write_orders(broker)
        broker.stop(signal.SIGKILL)
    assert log_of(data, "orders").cursor is not None
    before = records(data)
    with Broker(data, env=logs.SMALL_SEGMENTS) as broker:
        channel = logs.channel_to(broker)
        left = channel.queue_declare("orders", passive=True).method.message_count
        assert left == logs.ORDERS - logs.ACKED
        channel.connection.close()
    assert before.keys() >= set(range(logs.ACKED, logs.ORDERS))


def test_a_torn_tail_is_not_seen(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data, env=logs.SMALL_SEGMENTS) as broker:
        logs.write_orders(broker)
    whole = records(data)
    last = logs.segments_of(data, "orders")[-1]
    with open(last, "ab") as file:
        file.write(last.read_bytes()[:300])
    assert records(data) == whole


def test_a_segment_that_somebody_removed_is_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data, env=logs.SMALL_SEGMENTS) as broker:
        logs.write_orders(broker)
    first, *_ = logs.segments_of(data, "orders")
    first.unlink()
    log = log_of(data, "orders")
    assert [each.file for each in log.segments if each.missing] == [first.name]


def test_what_is_no_data_directory_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(NoSnapshot, match="no such directory"):
        snapshot.take(tmp_path / "nowhere")
    with pytest.raises(NoSnapshot, match="not a data directory"):
        snapshot.take(tmp_path)
    (tmp_path / "meta.db").write_bytes(b"nonsense" * 1000)
    with pytest.raises(NoSnapshot, match="not a database"):
        snapshot.take(tmp_path)


def test_nothing_of_an_empty_broker_is_an_empty_picture(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", env=logs.SMALL_SEGMENTS):
        pass
    taken = snapshot.take(tmp_path / "data")
    assert log_parts(taken, Limits(), marks=True) == [] and not taken.problems
