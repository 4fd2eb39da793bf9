"""Many of everything: idle connections, connections that come and go, queues.

The bounds are those of the project's goals; the long runs behind them are `make soak`'s.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pamqp import frame
from pamqp.commands import Queue

from perf import load, scenarios
from tests.amqp.crowd import Crowd, churn, descriptors, memory, raise_file_limit
from tests.amqp.wire import Client, eventually
from tests.brokers import Broker

pytestmark = pytest.mark.ottermq_only("memory and descriptors of our own process")

Start = Callable[..., Broker]
MIB = 1 << 20


def crowd_size(wanted: int) -> int:
    """As many as the machine lets one process have, here and in the broker."""
    return min(wanted, raise_file_limit() - 1000)


def roomy(start: Start) -> Broker:
    """Keeps its descriptors for connections."""
    return start(OTTERMQ_WAL__PAGE_CACHE__OPEN_FILES="16")


def hold_idle_connections(broker: Broker, count: int) -> None:
    pid = broker.process.pid
    empty = memory(pid)
    with Crowd(broker.address("amqp")) as crowd:
        crowd.connect(count)
        full = memory(pid)
        assert full - empty < count * 60_000  # 600 MB for 10,000
        with Client(broker.address("amqp")) as another:
            another.channel().declare()
        files = descriptors(pid)
    assert eventually(lambda: descriptors(pid) < files - count + 10)


@pytest.mark.weighed
def test_idle_connections_cost_little(start: Start) -> None:
    with roomy(start) as broker:
        hold_idle_connections(broker, crowd_size(1000))


@pytest.mark.soak
def test_ten_thousand_idle_connections_take_less_than_600_mb(start: Start) -> None:
    with roomy(start) as broker:
        hold_idle_connections(broker, crowd_size(10_000))


def test_a_crowd_that_speaks_now_and_then_gets_all_its_confirms_and_deliveries(
    start: Start,
) -> None:
    """40 a millisecond: their ticks keep their distance. The load counts and orders what comes."""
    options = (*scenarios.durable(256, 200), "--publishers", 400, "--rate", 100)
    with start() as broker:
        found = load.run(broker.address("amqp"), *options, "--seconds", 1, "--warm-up", 1)
    assert found.delivered


def come_and_go(broker: Broker, rate: float, seconds: float) -> float:
    """Nothing stays of them. How many a second there were."""
    pid, address = broker.process.pid, broker.address("amqp")
    churn(address, rate, 1 if seconds < 5 else 5)  # whatever is made once is made
    files, before = descriptors(pid), memory(pid)
    churned = churn(address, rate, seconds)
    assert eventually(lambda: descriptors(pid) <= files)
    leaked = memory(pid) - before
    assert leaked < 2 * MIB + churned.count * 64, f"{leaked} bytes for {churned.count}"
    return churned.count / churned.seconds


@pytest.mark.weighed
def test_connections_that_come_and_go_leave_nothing_behind(start: Start) -> None:
    with roomy(start) as broker:
        assert come_and_go(broker, 500, 2) > 20


@pytest.mark.soak
def test_a_thousand_connections_a_second_for_thirty_seconds_leave_nothing_behind(
    start: Start,
) -> None:
    with roomy(start) as broker:
        assert come_and_go(broker, 1000, 30) > 900


def declare_many(broker: Broker, count: int) -> None:
    """Over some connections, so that their commits are shared."""
    channels = [Client(broker.address("amqp")).channel() for _ in range(20)]
    share = count // len(channels)
    for number, channel in enumerate(channels):
        last = share - 1
        declarations = (
            Queue.Declare(0, f"q{number}.{i}", durable=True, nowait=i != last, arguments={})
            for i in range(share)
        )
        channel.client.raw(b"".join(frame.marshal(each, channel.number) for each in declarations))
    for channel in channels:
        limit = time.monotonic() + 600
        while not channel.inbox:
            channel.client.pump(limit)
        channel.client.close()


@pytest.mark.soak
def test_a_hundred_thousand_queues_take_four_kib_each_and_seconds_to_start(start: Start) -> None:
    with roomy(start) as broker:
        empty = memory(broker.process.pid)
        declare_many(broker, 100_000)
        assert memory(broker.process.pid) - empty < 100_000 * 4096
    begin = time.monotonic()
    with roomy(start) as broker:
        assert time.monotonic() - begin < 20
        assert memory(broker.process.pid) - empty < 100_000 * 4096
        with Client(broker.address("amqp")) as client:
            assert client.channel().count("q19.4999") == 0


@pytest.mark.weighed
def test_many_queues_take_four_kib_each(start: Start, tmp_path: Path) -> None:
    count = 10_000
    queue = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    queues = [{"name": f"q{i}", **queue} for i in range(count)]
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps({"vhosts": [{"name": "/"}], "queues": queues}))
    with roomy(start) as broker:
        empty = memory(broker.process.pid)
    with start("--definitions", str(file)):
        pass
    with roomy(start) as broker:
        assert memory(broker.process.pid) - empty < count * 4096 + 4 * MIB
        with Client(broker.address("amqp")) as client:
            channel = client.channel()
            channel.publish(b"x", key=f"q{count - 1}")
            assert channel.becomes(f"q{count - 1}", 1)
