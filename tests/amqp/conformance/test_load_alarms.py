"""Publishers are held back when memory or the disk runs low, and told so if they understand it;
what the broker does to a connection is never held against it."""

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pamqp import body, frame, header
from pamqp.commands import Basic, Connection, Queue, Tx

from tests.amqp.crowd import memory
from tests.amqp.wire import Channel, Client, Confirms, eventually
from tests.brokers import Broker
from tests.faults.rules import Op
from tests.faults.shim import Recording, recorded

pytestmark = pytest.mark.ottermq_only("a broker of the test's own")

Start = Callable[..., Broker]
MIB = 1 << 20
LOW = "low on "


@contextlib.contextmanager
def on_a_disk(tmp_path: Path, **settings: str) -> Iterator[tuple[Broker, Recording]]:
    """A broker on a disk that does as it is told."""
    with recorded(tmp_path) as recording:
        shim = recording.environment()
        own = {key: value for key, value in shim.items() if os.environ.get(key) != value}
        with Broker(recording.root, env={**own, **settings}) as broker:
            yield broker, recording


def confirming(broker: Broker, **options: object) -> Channel:
    channel = Client(broker.address("amqp"), **options).channel()  # type: ignore[arg-type]
    channel.confirm()
    return channel


def blocked_reason(client: Client) -> str:
    return str(client.expect(Connection.Blocked).reason)


def hog(broker: Broker, size: int) -> Client:
    """Sends the first half of a message, and keeps the rest."""
    client = Client(broker.address("amqp"))
    channel = client.channel()
    parts: tuple[Any, ...] = (
        Basic.Publish(0, "", "nobody"),
        header.ContentHeader(0, 2 * size, Basic.Properties()),
        *(body.ContentBody(b"x" * 100_000) for _ in range(size // 100_000)),
    )
    client.raw(b"".join(frame.marshal(part, channel.number) for part in parts))
    return client


def test_publishers_are_blocked_and_told_while_memory_is_low(start: Start) -> None:
    with start(OTTERMQ_MEMORY__HIGH_WATERMARK="16MiB") as broker:
        sender = confirming(broker)
        queue = sender.declare("q", durable=True)
        sender.publish(b"before", key=queue)
        sender.confirmed(1)
        greedy = hog(broker, 40 * MIB)
        published = 1
        # Held back from the moment the broker has counted, which it does once a second.
        while not sender.client.inbox:
            sender.publish(b"meanwhile", key=queue)
            published += 1
            sender.client.pass_time(0.1)
            assert published < 300, "it is never blocked"
        assert blocked_reason(sender.client) == LOW + "memory"
        line = broker.wait_for(
            'memory alarm set reason="low on memory" used=([0-9]+)MiB limit=16MiB'
            " key=memory.high_watermark$"
        )
        assert int(line[1]) >= 16
        greedy.drop()
        sender.client.expect(Connection.Unblocked)
        broker.wait_for(" INFO memory alarm cleared$")
        sender.publish(b"after", key=queue)
        assert sender.becomes(queue, published + 1)
        sender.client.close()


def test_publishers_are_blocked_and_told_while_the_disk_is_low(tmp_path: Path) -> None:
    with on_a_disk(tmp_path, OTTERMQ_WAL__LOW_SPACE_LIMIT="100MiB") as (broker, recording):
        sender, quiet = confirming(broker), confirming(broker)
        deaf = confirming(broker, capabilities={})
        queue = sender.declare("q", durable=True)
        sender.publish(b"before", key=queue, delivery_mode=2)
        sender.confirmed(1)
        recording.faults.report_free_space(50 * MIB)
        path = re.escape(str(recording.root))
        broker.wait_for(
            rf"50 MiB left on the disk of {path} \([0-9]+ of [0-9]+ MiB used\), less than"
            r" wal.low_space_limit \(100 MiB\)"
        )
        sender.publish(b"meanwhile", key=queue, delivery_mode=2)
        broker.wait_for(
            'disk alarm set reason="low on disk" used=[0-9]+[MG]iB free=[0-9]+[MG]iB'
            f" limit=100MiB key=wal.low_space_limit path={path}$"
        )
        deaf.publish(b"meanwhile", key=queue, delivery_mode=2)
        assert blocked_reason(sender.client) == LOW + "disk"
        # Who doesn't publish goes on, and isn't told; who can't understand it, neither.
        assert quiet.count(queue) == 1
        assert quiet.get(queue) is not None
        assert deaf.nothing_comes()
        recording.faults.report_free_space(None)
        sender.client.expect(Connection.Unblocked)
        assert quiet.becomes(queue, 2)
        deaf.confirmed(1)
        broker.wait_for(" INFO disk alarm cleared$")
        assert not quiet.client.inbox and not deaf.client.inbox
        for each in (sender, quiet, deaf):
            each.client.close()


def test_the_silence_of_a_blocked_client_is_no_missed_heartbeat(tmp_path: Path) -> None:
    with on_a_disk(tmp_path, OTTERMQ_WAL__LOW_SPACE_LIMIT="100MiB") as (broker, recording):
        sender, silent = confirming(broker, heartbeat=1), confirming(broker, heartbeat=1)
        queue = sender.declare("q", durable=True)
        recording.faults.report_free_space(50 * MIB)
        broker.wait_for("less than wal.low_space_limit")
        sender.publish(b"x", key=queue, delivery_mode=2)
        assert blocked_reason(sender.client) == LOW + "disk"
        # Blocked for longer than another one's silence is borne.
        assert silent.client.hung_up()
        recording.faults.report_free_space(None)
        sender.client.expect(Connection.Unblocked)
        sender.confirmed(1)
        sender.client.close()


def test_the_silence_of_a_client_that_waits_for_our_answer_is_no_missed_heartbeat(
    tmp_path: Path,
) -> None:
    with on_a_disk(tmp_path) as (broker, recording):
        waiting, silent = confirming(broker, heartbeat=1), confirming(broker, heartbeat=1)
        stuck = recording.faults.delay(Op.SYNC, "meta.db*", seconds=5, times=1)
        waiting.send(Queue.Declare(queue="q", durable=True, arguments={}))
        assert silent.client.hung_up()
        assert stuck.fired == 1
        waiting.expect(Queue.DeclareOk)
        waiting.round_trip()
        waiting.client.close()


@pytest.mark.weighed
def test_a_publisher_that_outruns_the_disk_is_slowed_and_holds_bounded_memory(
    tmp_path: Path,
) -> None:
    size, count = 16 << 10, 4000  # 64 MiB
    with on_a_disk(tmp_path, OTTERMQ_WAL__PAGE_CACHE__HOT_BUFFER_SIZE="1MiB") as (broker, disk):
        sender = confirming(broker)
        queue = sender.declare("q", durable=True)
        sender.publish(b"x", key=queue, delivery_mode=2)
        sender.confirmed(1)
        before = memory(broker.process.pid)
        stuck = disk.faults.delay(Op.SYNC, "wal/*", seconds=0.5)
        most = [0]
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.05):
                most[0] = max(most[0], memory(broker.process.pid) - before)

        def send() -> None:
            for _ in range(count):
                sender.publish(b"x" * size, key=queue, delivery_mode=2)

        watcher, sending = threading.Thread(target=watch), threading.Thread(target=send)
        watcher.start()
        sender.client.socket.settimeout(None)
        sending.start()
        # It stands: TCP holds it, with most of its messages still its own.
        assert eventually(lambda: stuck.fired > 3)
        assert sending.is_alive()
        stuck.clear()
        sending.join()
        confirms = Confirms(sender)
        confirms.floor = 1
        confirms.until(count + 1)
        done.set()
        watcher.join()
        assert most[0] < 40 * MIB
        assert sender.count(queue) == count + 1
        sender.client.close()


def test_a_commit_that_finds_no_room_waits_for_it(tmp_path: Path) -> None:
    with on_a_disk(tmp_path, OTTERMQ_WAL__PAGE_CACHE__HOT_BUFFER_SIZE="1MiB") as (broker, disk):
        sender, patient = confirming(broker), Client(broker.address("amqp")).channel()
        queue = sender.declare("q", durable=True)
        patient.tx_select()
        patient.publish(b"in a transaction", key=queue, delivery_mode=2)
        patient.round_trip()
        stuck = disk.faults.delay(Op.SYNC, "wal/*", seconds=1)
        for _ in range(40):
            sender.publish(b"x" * 65536, key=queue, delivery_mode=2)
        assert eventually(lambda: stuck.fired > 0)
        patient.send(Tx.Commit())
        stuck.clear()
        patient.expect(Tx.CommitOk)
        sender.confirmed(40)
        assert patient.count(queue) == 41
        for each in (sender, patient):
            each.client.close()
