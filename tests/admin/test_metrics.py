"""What Prometheus is told, of a broker and of the transaction that holds a queue."""

import re
import urllib.request
from pathlib import Path

import pika
import pytest

from ottermq.kafka import metrics
from ottermq.kafka.groups.records import Place
from ottermq.kafka.transactions.coordinator import Transactions
from ottermq.kafka.transactions.transaction import Producer
from ottermq.metrics import COUNTER, GAUGE, Metric, exposition
from tests import brokers
from tests.kafka.test_transactions import TransactionHarness, open_harness, write

SAMPLE = re.compile(
    r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*\})? (-?[0-9.e+-]+)'
)
SECOND = 1000


def samples(text: str) -> dict[str, float]:
    """Each sample by its name and labels; every line must be one that Prometheus can read."""
    found: dict[str, float] = {}
    told: set[str] = set()
    for line in text.splitlines():
        if line.startswith("#"):
            _, word, name, rest = line.split(" ", 3)
            assert word in ("HELP", "TYPE") and rest
            if word == "TYPE":
                assert rest in (GAUGE, COUNTER) and name not in told
                assert (rest == COUNTER) == name.endswith("_total")
                told.add(name)
            continue
        match = SAMPLE.fullmatch(line)
        assert match and match[1] in told, line
        found[match[1] + (match[2] or "")] = float(match[3])
    assert text.endswith("\n")
    return found


def test_labels_may_hold_anything() -> None:
    text = exposition([Metric("m", GAUGE, "Some.", [({"a": 'q"\\\n', "b": 1}, 2.5)])])
    assert text == '# HELP m Some.\n# TYPE m gauge\nm{a="q\\"\\\\\\n",b="1"} 2.5\n'
    assert len(samples(text)) == 1


def test_large_counts_are_told_to_the_last_digit() -> None:
    text = exposition([Metric("m_total", COUNTER, "Some.", [({}, 123_456_789_012_345)])])
    assert samples(text) == {"m_total": 123_456_789_012_345}
    assert "123456789012345" in text


def test_a_broker_tells_what_it_has_counted(tmp_path: Path) -> None:
    with brokers.Broker(tmp_path / "data") as broker:
        host, port = broker.address("amqp")
        with pika.BlockingConnection(pika.ConnectionParameters(host, port)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("orders", durable=True)
            for _ in range(3):
                channel.basic_publish("", "orders", b"hello", pika.BasicProperties(delivery_mode=2))
            admin = "{}:{}".format(*broker.address("admin"))
            with urllib.request.urlopen(f"http://{admin}/metrics") as answer:
                now = samples(answer.read().decode())
    assert now["ottermq_connections"] == now["ottermq_channels"] == now["ottermq_queues"] == 1
    assert now["ottermq_messages_published_total"] == now["ottermq_messages_confirmed_total"] == 3
    assert now["ottermq_wal_syncs_total"] > 0 and now["ottermq_wal_sync_seconds_total"] > 0
    assert now['ottermq_kafka_groups{state="Stable"}'] == 0
    assert now["ottermq_refusing_appends"] == 0


async def begun(
    harness: TransactionHarness, transactions: Transactions, id: str, topic: str
) -> Producer:
    producer = await transactions.begin(id, 10 * 60 * SECOND)
    await transactions.join(id, producer, [Place(topic, 0)])
    return producer


def held(transactions: Transactions) -> dict[str, float]:
    text = exposition([metrics.held(transactions)])
    name = "ottermq_kafka_transaction_holds_seconds"
    return {key.removeprefix(name): age for key, age in samples(text).items() if name in key}


async def test_a_transaction_that_holds_a_queue_is_named(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        [queue] = harness.topic("orders", 1, is_stream=False)
        transactions = await harness.coordinator()
        first = await begun(harness, transactions, "slow one", "orders")
        write(queue, first)
        harness.now += SECOND
        second = await begun(harness, transactions, "behind it", "orders")
        write(queue, second)
        assert held(transactions) == {}
        harness.now += 9 * SECOND
        labels = f'partition="0",kind="queue",transactional_id="%s",producer_id="{first.id}"'
        assert held(transactions) == {'{topic="orders",' + labels % "slow one" + "}": 10.0}
        await transactions.end("slow one", first, commit=True)
        [(labels, age)] = held(transactions).items()
        assert 'transactional_id="behind it"' in labels and age == 9.0
        await transactions.end("behind it", second, commit=False)
        assert held(transactions) == {}


async def test_one_that_has_written_nothing_or_lost_its_topic_holds_nothing(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        harness.topic("idle", 1)
        [log] = harness.topic("gone", 1)
        transactions = await harness.coordinator()
        await begun(harness, transactions, "silent", "idle")
        write(log, await begun(harness, transactions, "orphan", "gone"))
        harness.now += 60 * SECOND
        assert len(held(transactions)) == 1
        harness.store.delete(log)
        assert held(transactions) == {}
        del harness.topics.topics["gone"]
        assert held(transactions) == {}


async def test_only_the_oldest_few_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MOST_HELD", 3)
    async with open_harness(tmp_path) as harness:
        transactions = await harness.coordinator()
        for number in range(5):
            [log] = harness.topic(f"t{number}", 1)
            write(log, await begun(harness, transactions, f"tx {number}", f"t{number}"))
            harness.now += SECOND
        harness.now += 60 * SECOND
        assert sorted(held(transactions).values()) == [63.0, 64.0, 65.0]
